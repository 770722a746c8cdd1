// SPDX-License-Identifier: Apache-2.0
// Writes the bfloat16 model that a quantized checkpoint stands for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/layout.hpp"
#include "kit/progress.hpp"

namespace fp8lab::experiments {

struct DequantizeArguments {
  std::filesystem::path model;
  std::filesystem::path into;
  Loader as = Loader::format;
  std::vector<std::string> names;  ///< patterns of the tensors that are written; empty: all
};

/// A weight that was written.
struct DequantizedWeight {
  std::string name;
  std::string_view layout;
  Product product = Product::scale;
  std::vector<std::uint64_t> shape;
  std::uint64_t block_rows = 0, block_columns = 0;
  std::uint64_t nans = 0;
  std::uint64_t differing = 0;  ///< values that the layout's own library makes otherwise
  std::string note = {};
};
/// A weight or tensor that was not.
struct LeftOut {
  std::string name;
  std::string reason;
};
struct DequantizeResult {
  std::vector<DequantizedWeight> weights;
  std::vector<LeftOut> left_out;     ///< what the model lacks therefore
  std::uint64_t copied = 0;          ///< tensors that were plain
  std::uint64_t dropped_scales = 0;  ///< of inputs and caches, which a bfloat16 model has no use for
};

/// A config.json without what says that weights are quantized.
[[nodiscard]] nlohmann::json plain_config(nlohmann::json config);

/// Throws std::invalid_argument where nothing is to be written or the loader can read no weight, std::runtime_error
/// where files cannot be read or written. Nothing is left then.
[[nodiscard]] DequantizeResult run_dequantize(const DequantizeArguments& arguments, const Progress& progress = {});

/// "name: reason"; the reason alone where it begins with the name.
[[nodiscard]] std::string named_reason(const std::string& name, const std::string& reason);

}  // namespace fp8lab::experiments
