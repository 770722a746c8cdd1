// SPDX-License-Identifier: Apache-2.0
// Hypotheses without a change or a departure.
#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8lab/formats/policy.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "quantize/hypotheses.hpp"
#include "quantize/named_rows.hpp"
#include "search/words.hpp"

namespace fp8lab::doctor {
bool may_be_codes(const SearchFacts& facts, const Format& format) {
  if (format.bits() > 8 || (facts.is_packed && format.bits() != 4)) return false;
  if (facts.format) return *facts.format == format;
  return (facts.largest_code >> format.bits()) == 0;
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

/// Collects them, each with a cost that grows with its place in the table.
class PlainCandidates {
 public:
  explicit PlainCandidates(const SearchFacts& facts) : facts_(facts) {}

  /// The recipe; where codes are of another format of as many bits, the recipe with that format.
  void add(std::string_view name, const Recipe& recipe, double cost) {
    if (may_be_codes(facts_, recipe.format)) push(std::string(name), with_stored_scale(recipe, facts_), cost, "");
    std::optional<Format> format = facts_.format;
    if (!format && facts_.may_be_e5m2) format = e5m2;
    if (!format || *format == recipe.format || format->bits() != recipe.format.bits()) return;
    constexpr double cost_of_format = 1.06;
    push(std::string(name), with_stored_scale(in(recipe, *format), facts_), cost + cost_of_format,
         joined("format is ", format_name(*format), " instead of ", format_name(recipe.format)));
  }
  /// A given scale is as plain in any format.
  void add_given(std::string_view name, const Recipe& recipe, double cost) {
    for (const Format& format : {e4m3, e5m2, e4m3fnuz, e5m2fnuz}) {
      const bool is_own = format == recipe.format;
      if (!may_be_codes(facts_, format) || (!is_own && format != e5m2 && facts_.format != format)) continue;
      push(is_own ? std::string(name) : joined(name, " in ", format_name(format)),
           with_stored_scale(in(recipe, format), facts_), is_own ? cost : cost + 0.05, "");
    }
  }
  void push(std::string name, const Recipe& recipe, double cost, std::string change) {
    const auto is_this = [&](const Candidate& one) { return one.hypothesis.recipe == recipe; };
    if (!is_valid(recipe) || (!change.empty() && std::ranges::any_of(all_, is_this))) return;
    Hypothesis hypothesis{.base = std::move(name), .recipe = recipe, .direction = facts_.direction};
    if (!change.empty()) hypothesis.changes.push_back(std::move(change));
    all_.push_back({hypothesis, cost + place()});
    if (!facts_.tensor_scale || !has_tensor_scale(recipe)) return;
    for (const std::uint64_t is_inverse : {0, 1}) {
      Hypothesis given = hypothesis;
      given.deviations.push_back({&rows::tensor_scale_given, is_inverse, *facts_.tensor_scale});
      all_.push_back({std::move(given), cost + rows::tensor_scale_given.cost + place()});
    }
  }
  /// Rows or tiles may have scales of their own, which are known from what is stored alone.
  void add_given_tiles(std::string_view name, const Recipe& recipe) {
    if (recipe.quotient != Quotient::given_scale_inv || recipe.tile_across == 0 || facts_.scales == 0) return;
    Hypothesis hypothesis{.base = std::string(name), .recipe = recipe, .direction = facts_.direction};
    hypothesis.deviations.push_back({&rows::tile_scales_given});
    if (may_be_codes(facts_, recipe.format)) all_.push_back({std::move(hypothesis), place()});
  }
  [[nodiscard]] double place() const { return 0.0005 * static_cast<double>(all_.size()); }
  [[nodiscard]] std::vector<Candidate> all() && { return std::move(all_); }

 private:
  static Recipe in(Recipe recipe, const Format& format) {
    recipe.format = format;
    return recipe;
  }

  const SearchFacts& facts_;
  std::vector<Candidate> all_;
};

}  // namespace

std::vector<Candidate> plain_candidates(const SearchFacts& facts, const DiagnoseOptions& options) {
  PlainCandidates all(facts);
  // The expected recipe comes before anything else; a departure from it is more plausible than another recipe.
  const double others = options.expected ? 1.9 : 0;
  constexpr double cost_of_given = 2.15;  // after one departure, also from a recipe in another format
  if (options.expected) {
    all.add(options.expected_name, *options.expected, 0);
    all.add_given_tiles(options.expected_name, *options.expected);
  }
  for (const NamedRecipe& one : recipes()) {
    // A given scale explains what any recipe for the tensor makes: it is the last resort.
    // Where two make the same numbers, the one that stores them in that type is meant.
    const bool stores_bytes = scale_format_of(one.recipe) != binary32;
    const double type_cost = facts.scales != 0 && stores_bytes != facts.scales_are_bytes ? 0.07 : 0;
    const bool is_other = with_stored_scale(one.recipe, facts).given_scale != one.recipe.given_scale;
    if (is_given(one.recipe) && is_other) {
      all.add_given(one.name, one.recipe, others + type_cost + cost_of_given);
    } else {
      all.add(one.name, one.recipe, others + type_cost);
    }
  }
  for (const NamedFormat& format : named_formats) {
    for (const Profile& profile : profiles) {
      if (profile.name.starts_with("e8m0") != (format.format == e8m0)) continue;
      const Recipe cast{.quotient = Quotient::given_scale, .format = format.format, .cast = profile.policy};
      // Without a scale: 1, whatever is stored.
      if (!may_be_codes(facts, format.format)) continue;
      all.push(joined(format.name, " cast of profile ", profile.name), cast, others + 0.2, "");
    }
  }
  return std::move(all).all();
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

}  // namespace fp8lab::doctor
