// SPDX-License-Identifier: Apache-2.0
#include "kit/chosen.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/policy_names.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text.hpp"
#include "fp8lab/reference/gemm/named_gemm_recipes.hpp"

namespace fp8lab::experiments {
namespace {

/// The roundings that need no random bits.
std::vector<Named<Rounding>> deterministic() {
  std::vector<Named<Rounding>> list;
  std::ranges::copy_if(named_roundings, std::back_inserter(list),
                       [](const Named<Rounding>& named) { return named.value != Rounding::stochastic; });
  return list;
}

}  // namespace

ChosenFormat choose_format(std::string_view name) {
  const NamedFormat& named = find_format(name);
  return {std::string(named.name), named.format};
}

ChosenProfile choose_profile(std::string_view name) {
  std::string_view rest = name.substr(0, name.find(':'));
  CastPolicy policy = find_profile(rest).policy;
  for (std::size_t at = rest.size(); at < name.size(); at += rest.size() + 1) {
    rest = name.substr(at + 1, name.substr(at + 1).find(':'));
    const std::size_t equals = rest.find('=');
    if (equals == std::string_view::npos) {
      throw std::invalid_argument(in_quotes(name) + " is no PROFILE:FIELD=VALUE, such as ieee:overflow=saturate");
    }
    policy = policy_with(policy, rest.substr(0, equals), rest.substr(equals + 1));
  }
  return {std::string(name), policy};
}

Rounding choose_rounding(std::string_view name) {
  const std::vector<Named<Rounding>> list = deterministic();
  return find_named(list, "rounding without random bits", name).value;
}

void check_deterministic(Rounding rounding) { (void)choose_rounding(name_of(rounding)); }

ChosenRecipe choose_recipe(std::string_view text) {
  constexpr std::string_view mx_prefix = "mx:";
  if (text.starts_with(mx_prefix)) {
    const std::string_view rest = text.substr(mx_prefix.size());
    const std::size_t colon = rest.find(':');
    if (colon == std::string_view::npos) {
      throw std::invalid_argument(in_quotes(text) + " is no mx:FORMAT:RULE, such as mx:e2m3:even");
    }
    const MxBlock recipe{.format = find_format(rest.substr(0, colon)).format,
                         .rule = find_value<MxRule>("rule", rest.substr(colon + 1))};
    check_recipe(recipe);
    return {std::string(text), recipe};
  }
  const NamedRecipe& named = find_recipe(text);
  return {std::string(named.name), named.recipe};
}

ChosenLinearRecipe choose_linear_recipe(std::string_view name) {
  const NamedLinearRecipe& named = find_linear_recipe(name);
  return {std::string(named.name), named.recipe};
}

ChosenGemmRecipe choose_gemm_recipe(std::string_view name) { return {std::string(name), find_gemm(name)}; }

Delayed choose_delayed(std::string_view text) {
  const DefaultEnvironment environment;
  const std::size_t colon = text.find(':');
  Delayed recipe;
  recipe.amax_compute_algo = find_value<AmaxComputeAlgo>("amax_compute_algo", text.substr(0, colon));
  const std::string_view length = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), recipe.amax_history_len);
  if (error != std::errc{} || end != length.data() + length.size()) {
    refuse(in_quotes(text), " is no ALGORITHM:LENGTH, such as max:1024 or most_recent:1");
  }
  check(recipe);
  return recipe;
}

}  // namespace fp8lab::experiments
