// SPDX-License-Identifier: Apache-2.0
// What a checkpoint says of its quantization, as each family's readers want it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "checkpoints/layout.hpp"
#include "convert/layout_tensors.hpp"

namespace fp8lab::experiments {

/// A module and the layout of its weight.
struct ModuleLayout {
  std::string module;  ///< without ".weight"
  const Layout* layout = nullptr;
};

/// The modules of a checkpoint, all of one family.
struct ModuleLayouts {
  std::vector<ModuleLayout> quantized;
  std::vector<std::string> kept;  ///< modules whose weight stays as it is
  bool powers_of_two = false;     ///< scales in float32 are powers of two: scale_fmt ue8m0
};

/// The quantization_config of config.json; null where the family has none: ComfyUI.
[[nodiscard]] nlohmann::ordered_json quantization_config(const ModuleLayouts& modules);
/// The content of hf_quant_config.json; null but for ModelOpt.
[[nodiscard]] nlohmann::ordered_json hf_quant_config(const ModuleLayouts& modules);

/// The layout of each module that a plan names: the file of compressed-tensors or ModelOpt that `fp8lab check --plan`
/// writes. `kept` are the patterns that it excludes.
struct ReadPlan {
  std::vector<ModuleLayout> modules;   ///< where layouts are mixed
  const Layout* everywhere = nullptr;  ///< the one layout of all that is not kept
  std::vector<std::string> kept;
};
/// Throws std::invalid_argument where it is no such file.
[[nodiscard]] ReadPlan read_plan(const nlohmann::json& content, const std::string& called);

/// The entry of torchao's metadata for a weight; "Tensor" where `layout` is null.
[[nodiscard]] std::string torchao_metadata(const Layout* layout, const WeightFacts& facts);

}  // namespace fp8lab::experiments
