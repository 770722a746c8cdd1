// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/ledger.hpp"
#include "kit/progress.hpp"

namespace fp8lab::experiments {

struct ReplayOptions {
  bool all = false;  ///< every chunk; otherwise `records` records of each kind, a chunk of each, which the seed chooses
  int records = 4;
  /// After so many seconds no further chunk is begun; those of a replay of all come in an order that the seed chooses.
  double seconds = std::numeric_limits<double>::infinity();
  std::uint64_t seed = 1;
  int threads = 1;
  /// The model of that name: tests put a wrong one in its place. Left out: find_model().
  std::function<MmaModel(std::string_view)> model = {};
  Progress progress = {};
};

/// A chunk whose digest is not the model's.
struct ReplayMismatch {
  std::string record;  ///< the sweep, the instruction and its draw, the tensor, the product or the function
  std::string model;   ///< what was compared with: a model of models.hpp, "encode" or units
  std::uint64_t chunk = 0, got = 0, expected = 0;

  /// In one line.
  [[nodiscard]] std::string told() const;
};

struct Replay {
  std::uint64_t chunks = 0, words = 0;  ///< compared
  std::vector<ReplayMismatch> mismatches;
};

/// Computes chunks of a ledger with the models, and compares their digests.
[[nodiscard]] Replay replay(const Ledger& ledger, const ReplayOptions& options = {});

/// Reads a ledger of tests/vectors/device. Throws std::runtime_error as read_ledger() does, and where the ledger is of
/// the host team, which shows nothing of a device.
[[nodiscard]] Ledger read_device_ledger(const std::filesystem::path& path);

}  // namespace fp8lab::experiments
