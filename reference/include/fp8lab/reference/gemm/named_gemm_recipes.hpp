// SPDX-License-Identifier: Apache-2.0
// The GEMMs of real systems.
#pragma once

#include <span>
#include <string_view>

#include "fp8lab/reference/gemm/gemm_recipe.hpp"

namespace fp8lab {

/// A GEMM recipe with the name users call it by and the source that defines it: package, version and file.
struct NamedGemmRecipe {
  std::string_view name;
  GemmRecipe recipe;
  std::string_view source;
};

/// The GEMM recipes of real systems.
[[nodiscard]] std::span<const NamedGemmRecipe> gemm_recipes();

/// The GEMM recipe called `name`. Throws std::invalid_argument that lists the known names.
[[nodiscard]] const NamedGemmRecipe& find_gemm_recipe(std::string_view name);

/// The GEMM recipe called `name`, or for the name of a model, cuda_cores and cuda_cores_fma included, what it computes
/// as it is. Throws std::invalid_argument that lists the known names.
[[nodiscard]] GemmRecipe find_gemm(std::string_view name);

}  // namespace fp8lab
