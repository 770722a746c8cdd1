// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/coded_matrix.hpp"
#include "checkpoints/explanation.hpp"
#include "checkpoints/recognize.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"

namespace fp8lab::experiments {

/// A rule by which codes and scales may have been made.
struct Writer {
  std::string name;                                      ///< of a recipe of fp8lab, or a rule in words
  std::vector<std::string_view> keys;                    ///< one word each: what a user calls it
  Recipe recipe;                                         ///< its last blocks may be shorter
  CodedMatrix (*make)(const ExpectedMatrix&) = nullptr;  ///< in place of the recipe
};

/// The rules that give codes and scales of a weight's format and blocks: the recipes of its layout first, then others
/// that are published, then amax / 448 and the like in float32 and bfloat16.
[[nodiscard]] std::vector<Writer> writers_of(const Weight& weight);

/// The layouts that can be written: those whose writer's rule is known.
[[nodiscard]] std::vector<std::string_view> layouts_to_write();
/// The rule that has this key; with an empty key the layout's own. Throws std::invalid_argument that lists the keys.
[[nodiscard]] Writer find_writer(const Weight& weight, std::string_view key);

}  // namespace fp8lab::experiments
