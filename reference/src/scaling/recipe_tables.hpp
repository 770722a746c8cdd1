// SPDX-License-Identifier: Apache-2.0
// The parts of the table of named recipes, and what several of them begin with.
#pragma once

#include <vector>

#include "fp8lab/formats/policy.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"

namespace fp8lab {

std::vector<NamedRecipe> training_recipes();
/// MX and NVFP4 in serving, export and quantization packages.
std::vector<NamedRecipe> block_recipes();

/// The recipe with NaN as torch's maximum and clamp treat it.
inline Recipe of_torch(Recipe recipe) {
  recipe.nan_in_amax = NanInAmax::counted;
  recipe.cast = find_profile("clamp_then_cast").policy;
  return recipe;
}

/// Clamps by fminf and fmaxf, which turn NaN into the largest value.
inline constexpr CastPolicy nan_is_largest{.nan = NanCode::largest};

}  // namespace fp8lab
