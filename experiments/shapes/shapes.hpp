// SPDX-License-Identifier: Apache-2.0
// Finds the sizes of a Linear layer that a system takes, and the nearest ones where it refuses some.
#pragma once

#include <cstdint>
#include <vector>

#include "fp8lab/reference/linear/shape_rules.hpp"
#include "kit/chosen.hpp"
#include "kit/document.hpp"

namespace fp8lab::experiments {

struct ShapesArguments {
  std::uint64_t tokens = 2048;
  std::uint64_t in_features = 768;
  std::uint64_t out_features = 768;
  std::vector<ChosenLinearRecipe> recipes = {};  ///< empty: all
  TensorParallel parallel = {};
};

/// A recipe and all that it says about the sizes.
struct RecipeFits {
  ChosenLinearRecipe recipe;
  std::vector<ShapeFit> fits;

  [[nodiscard]] bool passed() const;
};

struct ShapesResult {
  ShapesArguments arguments;
  std::vector<RecipeFits> recipes;

  [[nodiscard]] bool passed() const;
};

/// Throws std::invalid_argument as shape_fits() does.
[[nodiscard]] ShapesResult run_shapes(const ShapesArguments& arguments);

[[nodiscard]] Document document_of(const ShapesResult& result);

}  // namespace fp8lab::experiments
