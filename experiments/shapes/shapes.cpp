// SPDX-License-Identifier: Apache-2.0
#include "shapes/shapes.hpp"

#include <algorithm>
#include <string>
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
  std::vector<ChosenLinearRecipe>& recipes = result.arguments.recipes;
  if (recipes.empty()) {
    for (const NamedLinearRecipe& named : linear_recipes()) recipes.push_back({std::string(named.name), named.recipe});
  }
  const LinearShape shape{arguments.tokens, arguments.in_features, arguments.out_features};
  for (const ChosenLinearRecipe& chosen : recipes) {
    result.recipes.push_back({chosen, shape_fits(chosen.recipe, shape, arguments.parallel)});
  }
  return result;
}

}  // namespace fp8lab::experiments
