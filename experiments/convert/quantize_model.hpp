// SPDX-License-Identifier: Apache-2.0
// Writes a model as a quantized checkpoint of a public layout.
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

struct QuantizeModelArguments {
  std::filesystem::path model;
  std::filesystem::path into;
  std::optional<std::string> layout = {};          ///< the name of one that can be written
  std::optional<std::filesystem::path> plan = {};  ///< of `fp8lab check --plan`: the folder, or one of its files
  std::optional<std::string> recipe = {};          ///< one of the layout's rules; none: its writer's own
  /// Patterns of tensors that stay as they are; those of `fp8lab check` by default.
  std::vector<std::string> ignore = {"*lm_head*", "*embed*", "*norm*", "*router*", "*.gate.weight"};
  std::vector<std::string> names = {};    ///< patterns of tensors that are quantized; empty: all that can be
  std::optional<double> shard_size = {};  ///< in 10^9 bytes; none: sharded as the model
  int threads = 1;                        ///< changes nothing but the time
};

/// A weight that was written.
struct QuantizedModelWeight {
  std::string name;
  std::string_view layout;
  std::string recipe;  ///< the key of the rule
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes = 0;              ///< of codes and scales
  std::uint64_t nans = 0;               ///< codes that are NaN
  std::vector<std::string> fused = {};  ///< weights that its global scale is of, too
};
/// A tensor of two dimensions or more that stays as it is.
struct KeptModelTensor {
  std::string name;
  std::string reason;
};
struct QuantizeModelResult {
  std::vector<QuantizedModelWeight> weights;
  std::vector<KeptModelTensor> kept;
  std::uint64_t copied = 0;          ///< tensors, the kept ones among them
  std::uint64_t bytes = 0;           ///< of all tensors that were written
  bool has_no_input_scales = false;  ///< readers of the layout want a static scale of each input, which is not there
};

/// Throws std::invalid_argument where the arguments name no layout, recipe or tensor, or the model is quantized;
/// std::runtime_error where files cannot be read or written. Nothing is left then.
[[nodiscard]] QuantizeModelResult run_quantize_model(const QuantizeModelArguments& arguments,
                                                     const Progress& progress = {});

/// The experiment `quantize`.
[[nodiscard]] Experiment quantize_experiment();

}  // namespace fp8lab::experiments
