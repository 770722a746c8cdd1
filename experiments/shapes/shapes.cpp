// SPDX-License-Identifier: Apache-2.0
#include "shapes/shapes.hpp"

#include <algorithm>
#include <utility>

#include "fp8lab/formats/refuse.hpp"

namespace fp8lab::experiments {

bool RecipeFits::passed() const { return std::ranges::all_of(fits, &ShapeFit::fits); }
bool ShapesResult::passed() const { return std::ranges::all_of(recipes, &RecipeFits::passed); }

ShapesResult run_shapes(const ShapesArguments& arguments) {
  for (const auto& [name, size] :
       {std::pair{"tokens", arguments.tokens}, std::pair{"in_features", arguments.in_features},
        std::pair{"out_features", arguments.out_features}}) {
    if (size < 1 || size > most_size) refuse(name, " must be from 1 to ", most_size, ", not ", size);
  }
  ShapesResult result{.arguments = arguments, .recipes = {}};
  std::vector<NamedLinearRecipe>& recipes = result.arguments.recipes;
  if (recipes.empty()) recipes.assign(linear_recipes().begin(), linear_recipes().end());
  const LinearShape shape{arguments.tokens, arguments.in_features, arguments.out_features};
  for (const NamedLinearRecipe& named : recipes) {
    result.recipes.push_back({named, shape_fits(named.recipe, shape, arguments.parallel)});
  }
  return result;
}

}  // namespace fp8lab::experiments
