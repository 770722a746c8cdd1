// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
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

/// Sweeps a function over its inputs, or the first of them; of two arguments: over as many pairs as limits.dots.
[[nodiscard]] Recording record_function(gpu::Recorder& recorder, std::size_t function, const RecordingLimits& limits);

/// Words of consecutive inputs in few bytes: differences of neighbours modulo 2^32, in four planes of bytes, the lowest
/// first, which zlib compresses.
[[nodiscard]] std::string packed_words(std::span<const std::uint32_t> words);
/// Writes the words of the instruction's gpu::word_ranges(), of limits.inputs inputs at most, to files of a folder:
/// FUNCTION.FIRST.COUNT.z, with FIRST in hexadecimal.
[[nodiscard]] Ledger record_words(gpu::Recorder& recorder, std::size_t function, const RecordingLimits& limits,
                                  const std::filesystem::path& folder);

}  // namespace fp8lab::experiments
