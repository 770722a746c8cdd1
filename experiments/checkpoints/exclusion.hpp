// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/checkpoint.hpp"
#include "checkpoints/layout.hpp"

namespace fp8lab::experiments {

/// Whether an entry of a configuration's list covers a module, a name such as "model.layers.0.mlp.up_proj".
[[nodiscard]] bool covers(Exclusion syntax, std::string_view entry, std::string_view module);

/// What a configuration says of modules that are not quantized.
struct Excluded {
  std::vector<std::string> entries = {};
  /// Where the configuration lists what is quantized, its names: all else is excluded.
  std::vector<std::string> quantized = {};

  /// The entry that excludes a module, or why it is; empty: it is quantized.
  [[nodiscard]] std::string reason(Exclusion syntax, std::string_view module) const;
};
/// What config.json says, or where that is silent hf_quant_config.json, under the keys of a layout.
[[nodiscard]] Excluded excluded_modules(const Checkpoint& checkpoint, const Layout& layout);

}  // namespace fp8lab::experiments
