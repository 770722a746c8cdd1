// SPDX-License-Identifier: Apache-2.0
// Says whether a quantized checkpoint can be another layout without a change of values, and writes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kit/experiment.hpp"
#include "kit/progress.hpp"

namespace fp8lab::experiments {

struct ReencodeArguments {
  std::filesystem::path model;
  std::string to;                                  ///< a layout that can be written, or e4m3_128x128
  std::optional<std::filesystem::path> into = {};  ///< none: nothing is written
  std::optional<std::string> recipe = {};          ///< none: powers of two, or the same codes and scales
  std::vector<std::string> names = {};             ///< patterns of the weights; empty: all
  int threads = 1;                                 ///< changes nothing but the time
};

/// A block whose values change.
struct InexactBlock {
  std::string weight;
  std::uint64_t expert = 0, row = 0, column = 0;  ///< of the grid of the new layout
  std::uint64_t changed = 0;                      ///< values
  std::uint64_t zeroed = 0;                       ///< of these, those that become zero
  double largest_change = 0;                      ///< relative to the value before
};

struct ReencodedWeight {
  std::string name;
  std::string_view from, to;
  std::string recipe;  ///< "same codes and scales", or the key of a rule
  std::vector<std::uint64_t> shape;
  std::uint64_t blocks = 0, inexact_blocks = 0;
  std::uint64_t changed = 0;           ///< values in float32
  std::uint64_t changed_bfloat16 = 0;  ///< values once they are rounded to bfloat16
  std::uint64_t zeroed = 0;            ///< values that become zero
  double largest_change = 0;           ///< relative to the value before
  double sqnr_db = 0;                  ///< of the new values against those before; infinite where none changes
};

struct ReencodeResult {
  std::vector<ReencodedWeight> weights;
  std::vector<InexactBlock> blocks;  ///< the first of them
  struct LeftOutWeight {
    std::string name, reason;
  };
  std::vector<LeftOutWeight> left_out;
};

/// Throws std::invalid_argument where there is no weight to re-encode, and std::runtime_error where files cannot be
/// read or written. Nothing is left then.
[[nodiscard]] ReencodeResult run_reencode(const ReencodeArguments& arguments, const Progress& progress = {});

/// The experiment `reencode`.
[[nodiscard]] Experiment reencode_experiment();

}  // namespace fp8lab::experiments
