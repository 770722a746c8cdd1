// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "fp8lab/gpu/recorder/recorder.hpp"
#include "gpu/ledger.hpp"
#include "gpu/replay.hpp"

namespace fp8lab::experiments {

/// How much is recorded of each instruction, and compared with its model right away.
struct RecordingLimits {
  std::uint64_t inputs = std::uint64_t{1} << 32;  ///< of a sweep, at most
  std::uint64_t dots = 100'000'000;               ///< dot products of a matrix instruction, at least
  std::uint64_t seed = 1;
  double compare_seconds = 10;  ///< then no further chunk is computed by the model
  int threads = 1;
};

/// A record, and how it compared with the models during the run.
struct Recording {
  Ledger ledger;
  Replay compared;
};

/// Sweeps a conversion over its inputs, or the first of them.
[[nodiscard]] Recording record_casts(gpu::Recorder& recorder, std::size_t sweep, const RecordingLimits& limits);
/// Multiplies generated tiles of every draw, as many of each.
[[nodiscard]] Recording record_dots(gpu::Recorder& recorder, std::size_t instruction, const RecordingLimits& limits);

}  // namespace fp8lab::experiments
