// SPDX-License-Identifier: Apache-2.0
#include "kit/command_facts.hpp"

#include <string_view>

#include "fp8lab/formats/policy_names.hpp"
#include "fp8lab/reference/gemm/named_gemm_recipes.hpp"
#include "fp8lab/reference/linear/linear_recipe.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "fp8lab/reference/scaling/delayed_scaling.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace fp8lab::experiments {
namespace {

template <typename List>
std::vector<std::string> names_of_entries(const List& list) {
  std::vector<std::string> names;
  names.reserve(std::size(list));
  for (const auto& one : list) names.emplace_back(one.name);
  return names;
}

}  // namespace

std::vector<std::string> choices_of(Kind kind) {
  switch (kind) {
    case Kind::format: return names_of_entries(named_formats);
    case Kind::profile: return names_of_entries(profiles);
    case Kind::model: return names_of_entries(models);
    case Kind::distribution: return names_of_entries(distributions);
    case Kind::version: return names_of_entries(delayed_versions);
    case Kind::recipe: return names_of_entries(recipes());
    case Kind::linear_recipe: return names_of_entries(linear_recipes());
    case Kind::gemm_recipe: return names_of_entries(gemm_recipes());
    case Kind::flag:
    case Kind::integer:
    case Kind::number:
    case Kind::name:
    case Kind::path:
    case Kind::delayed:
    case Kind::tensor:
    case Kind::outliers:
    case Kind::trace:
    case Kind::amax: break;
  }
  return {};
}

}  // namespace fp8lab::experiments
