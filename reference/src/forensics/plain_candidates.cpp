// SPDX-License-Identifier: Apache-2.0
// Hypotheses without a change or a departure.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <string_view>

#include "forensics/hypotheses.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"

namespace fp8lab::forensics {
namespace {

template <typename... Parts>
std::string words(const Parts&... parts) {
  TextStream text;
  (text << ... << parts);
  return text.str();
}

}  // namespace

bool may_be_codes(const SearchFacts& facts, const Format& format) {
  if (format.bits() > 8 || (facts.is_packed && format.bits() != 4)) return false;
  if (facts.format) return *facts.format == format;
  return (facts.largest_code >> format.bits()) == 0;
}

bool is_valid(const Recipe& recipe) {
  try {
    check_recipe(recipe);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

namespace {

/// The recipe with the stored number as its given scale, where it has one.
Recipe with_stored_scale(Recipe recipe, const SearchFacts& facts) {
  if (!is_given(recipe) || !facts.scale) return recipe;
  const float stored = *facts.scale;
  if (recipe.quotient == Quotient::given_scale_inv) {
    recipe.given_scale = stored;
    return recipe;
  }
  recipe.given_scale = 1 / stored;
  for (const float scale : {std::nextafterf(1 / stored, 0), std::nextafterf(1 / stored, HUGE_VALF)}) {
    if (1 / recipe.given_scale != stored && 1 / scale == stored) recipe.given_scale = scale;
  }
  return recipe;
}

}  // namespace

std::vector<Candidate> plain_candidates(const SearchFacts& facts, const DiagnoseOptions& options) {
  std::vector<Candidate> all;
  const auto add = [&](std::string_view name, const Recipe& recipe, double cost) {
    if (!may_be_codes(facts, recipe.format)) return;
    const Recipe own = with_stored_scale(recipe, facts);
    if (!is_valid(own)) return;
    all.push_back({{.base = std::string(name), .recipe = own, .direction = facts.direction}, cost});
  };
  // What is expected comes before anything else; a departure from it is more plausible than another recipe.
  const double others = options.expected ? 1.9 : 0;
  if (options.expected) add(options.expected_name, *options.expected, 0);
  for (const NamedRecipe& one : recipes()) {
    // A given scale explains what any recipe for the tensor makes: it is the last resort.
    const bool is_other = with_stored_scale(one.recipe, facts).given_scale != one.recipe.given_scale;
    const double cost = is_given(one.recipe) && is_other ? 1.85 : 0;
    add(one.name, one.recipe, others + cost + 0.0005 * static_cast<double>(all.size()));
  }
  for (const NamedFormat& format : named_formats) {
    for (const Profile& profile : profiles) {
      if (profile.name.starts_with("e8m0") != (format.format == e8m0)) continue;
      const Recipe cast{.quotient = Quotient::given_scale, .format = format.format, .cast = profile.policy};
      const std::string name = words(format.name, " cast of profile ", profile.name);
      // Without a scale: 1, whatever is stored.
      if (!may_be_codes(facts, format.format) || !is_valid(cast)) continue;
      all.push_back({{.base = name, .recipe = cast, .direction = facts.direction},
                     others + 0.2 + 0.0005 * static_cast<double>(all.size())});
    }
  }
  return all;
}

void join_equals(std::vector<Candidate>& candidates) {
  std::ranges::stable_sort(candidates, {}, &Candidate::cost);
  std::vector<Candidate> kept;
  for (Candidate& one : candidates) {
    const auto is_same = [&](const Candidate& other) {
      return other.hypothesis.recipe == one.hypothesis.recipe &&
             other.hypothesis.direction == one.hypothesis.direction &&
             std::ranges::is_permutation(other.hypothesis.deviations, one.hypothesis.deviations);
    };
    const auto same = std::ranges::find_if(kept, is_same);
    if (same == kept.end()) {
      kept.push_back(std::move(one));
    } else if (one.hypothesis.is_plain() && one.hypothesis.base != same->hypothesis.base) {
      same->hypothesis.also.push_back(std::move(one.hypothesis.base));
    }
  }
  candidates = std::move(kept);
}

}  // namespace fp8lab::forensics
