// SPDX-License-Identifier: Apache-2.0
// The part of the search for other recipes: those that quantize() alone has all of, and those to which changes and
// departures of another one are moved.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "fp8lab/reference/scaling/facts.hpp"
#include "quantize/by_quantize.hpp"
#include "quantize/named_rows.hpp"
#include "quantize/search.hpp"

namespace fp8lab::doctor {

void Search::try_other_recipes() {
  constexpr std::size_t most = 4;
  const auto may_move = [](const Suspect& one) {
    const Hypothesis& own = one.candidate.hypothesis;
    return !one.is_by_quantize && !own.is_plain() && !doctor::has_no_rule(own);
  };
  std::vector<Suspect> best;
  std::ranges::copy_if(verified_, std::back_inserter(best), may_move);
  if (best.size() > most) best.resize(most);
  const std::vector<Suspect> kept = kept_;  // what suggests further departures
  bool has_learned = true;
  for (int round = 0; round < most_rounds && has_learned; ++round) {
    kept_.clear();
    for (const Suspect& one : best) {
      const std::vector<Candidate> all = plain_candidates(one.side->facts, options_);
      const auto is_base = [&](const Candidate& other) {
        return other.hypothesis.base == one.candidate.hypothesis.base && other.hypothesis.changes.empty();
      };
      const auto base = std::ranges::find_if(all, is_base);
      if (base == all.end()) continue;
      for (const Candidate& other : all) {
        if (!other.hypothesis.changes.empty() || !other.hypothesis.deviations.empty()) continue;
        if (auto moved = moved_to(other, one.candidate, *base)) offer(*one.side, std::move(*moved), 1);
      }
    }
    verify_best();
    has_learned = learn();
  }
  kept_ = kept;
}

void Search::quantize_again(const Stage& stage) {
  // Codes are few that another rounding moves: what leaves less is another defect.
  const auto follows_a_rule = [](const Suspect& one) { return !doctor::has_no_rule(one.candidate.hypothesis); };
  const auto best = std::ranges::find_if(verified_, follows_a_rule);
  if (best == verified_.end() || best->all() * 100 < dump_.codes.size()) return;
  const std::vector<Candidate> bases = likely_bases(stage, [](const KernelModel&) { return true; });
  const std::vector<Suspect> kept = std::exchange(kept_, {});
  // All of the tensor is quantized for each recipe. A large one takes long, so that the likeliest is tried alone.
  constexpr std::size_t many_elements = std::size_t{1} << 22;
  const std::size_t tried = dump_.codes.size() > many_elements ? 1 : rows::earlier_recipes.size();
  for (std::uint64_t earlier = 0; earlier < tried; ++earlier) {
    for (const Candidate& base : bases) {
      if (base.hypothesis.base == rows::earlier_recipes[earlier]) continue;
      offer(sides_.front(), with_deviation(base, {&rows::input_quantized, earlier}, rows::input_quantized.cost), 1);
    }
  }
  verify_best();
  kept_ = kept;
}

namespace {

constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();

/// Whether lines of codes stand in a dump as a band of the tensor has them.
bool has_bands(const Hypothesis& hypothesis) {
  const Recipe& recipe = hypothesis.recipe;
  return hypothesis.direction == Direction::rowwise || recipe.transposed_columnwise || recipe.format.bits() == 4;
}

/// Lines of a band, with which most tiles end.
constexpr std::size_t few_lines = 16;

}  // namespace

void Search::quantize_others() {
  std::vector<Suspect> others;
  for (const Side& side : sides_) {
    for (Candidate& one : plain_candidates(side.facts, options_)) {
      const Hypothesis& hypothesis = one.hypothesis;
      const bool is_turned =
          hypothesis.recipe.transform != Transform::none && hypothesis.direction == Direction::columnwise;
      if (!hypothesis.deviations.empty() || (!is_turned && is_modelled(hypothesis.recipe))) continue;
      others.push_back({.candidate = std::move(one), .side = &side, .is_by_quantize = true});
    }
  }
  keep_nearest(others);
  const std::uint64_t most = most_told();
  for (Suspect& suspect : others) {
    const Hypothesis& hypothesis = suspect.candidate.hypothesis;
    ++searched_;
    const bool may_be_left_out = most != no_limit && hypothesis.base != options_.expected_name;
    if (may_be_left_out && wrong_at_least(hypothesis) > most) continue;
    const Stored stored = stored_by_quantize(x_, hypothesis.recipe, hypothesis.direction, options_.threads);
    if (stored.is_refused) continue;
    suspect.candidate.cost += cost_of(*suspect.side);
    suspect.codes = code_mismatches(stored, hypothesis.recipe.format, dump_, options_.threads);
    suspect.scales = doctor::scale_mismatches(stored, dump_);
    verified_.push_back(std::move(suspect));
  }
  sort_verified();
}

std::uint64_t Search::most_told() const {
  std::vector<const Hypothesis*> told;
  for (const Suspect& one : verified_) {
    const Hypothesis& own = one.candidate.hypothesis;
    const auto is_same = [&](const Hypothesis* other) {
      return other->recipe == own.recipe && other->direction == own.direction;
    };
    if (!own.is_plain() || std::ranges::any_of(told, is_same)) continue;
    told.push_back(&own);
    if (told.size() == options_.most_shown) return one.all();
  }
  return no_limit;
}

std::vector<std::uint8_t> Search::codes_of_band(const Hypothesis& hypothesis, std::optional<float> amax,
                                                std::size_t lines) const {
  const bool is_columnwise = hypothesis.direction == Direction::columnwise;
  const Source& source = sides_.front().source;
  const std::size_t rows = is_columnwise ? x_.rows() : std::min(x_.rows(), lines);
  const std::size_t columns = is_columnwise ? std::min(x_.columns(), lines) : x_.columns();
  std::vector<float> values(rows * columns);
  for (std::size_t row = 0; row < rows; ++row) {
    std::ranges::copy(source.values({row, 0, columns}), values.begin() + static_cast<std::ptrdiff_t>(row * columns));
  }
  const MatrixView band(std::span<const float>(values), rows, columns);
  return stored_by_quantize(band, hypothesis.recipe, hypothesis.direction, options_.threads, amax).codes;
}

std::uint64_t Search::wrong_in_band(const Hypothesis& hypothesis, float amax, std::size_t lines) const {
  const Recipe& recipe = hypothesis.recipe;
  // What a band cannot tell is looked at: the scale of a transposed tensor may follow from transformed elements.
  if (!has_tensor_scale(recipe) || !has_bands(hypothesis)) return 0;
  if (hypothesis.direction == Direction::columnwise && recipe.transform != Transform::none) return 0;
  const std::vector<std::uint8_t> codes = codes_of_band(hypothesis, amax, lines);
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) wrong += codes[i] == dump_.codes[i] ? 0 : 1;
  return wrong;
}

std::uint64_t Search::wrong_at_least(const Hypothesis& hypothesis) const {
  const Recipe& recipe = hypothesis.recipe;
  const Source& source = sides_.front().source;
  if (sides_.front().facts.direction != Direction::rowwise || recipe.tile_across > few_lines) return 0;
  if (!has_tensor_scale(recipe) || !has_bands(hypothesis) || recipe.format.has_nan()) return 0;
  const auto is_finite = [&](std::uint64_t place) { return std::isfinite(source.values()[place]); };
  if (!std::ranges::all_of(source.landmarks().specials, is_finite)) return 0;
  const std::vector<std::uint8_t> codes = codes_of_band(hypothesis, std::nullopt, few_lines);
  const auto magnitude = static_cast<std::uint8_t>(recipe.format.magnitude_mask());
  const auto differs = [&](std::uint8_t own, std::uint8_t there) {
    if (recipe.tensor_scale_for_each_row) return own != there;
    // Another scale of the tensor keeps the signs of what it does not make zero.
    return (own & magnitude) != 0 && (there & magnitude) != 0 && ((own ^ there) & ~magnitude) != 0;
  };
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) wrong += differs(codes[i], dump_.codes[i]) ? 1 : 0;
  return wrong;
}

void Search::keep_nearest(std::vector<Suspect>& others) const {
  constexpr std::size_t many_elements = std::size_t{1} << 20;
  constexpr std::size_t most = 2;
  const Source& source = sides_.front().source;
  if (sides_.front().facts.direction != Direction::rowwise || others.size() <= most) return;
  if (x_.rows() * x_.columns() < many_elements) return;
  const std::vector<std::uint64_t>& records = source.landmarks().records;
  const float amax = records.empty() ? 0 : std::abs(source.values()[records.back()]);
  constexpr std::size_t lines_of_band = 64;  // whole tiles
  // 1. What a few lines contradict the least comes first: it leaves the others less room.
  struct Wrong {
    std::uint64_t in_band;  // at least
    std::size_t place;      // among the others
  };
  std::vector<Wrong> all;
  for (std::size_t i = 0; i < others.size(); ++i) {
    const Hypothesis& own = others[i].candidate.hypothesis;
    all.push_back({own.recipe.tile_across > few_lines ? 0 : wrong_in_band(own, amax, few_lines), i});
  }
  std::ranges::stable_sort(all, {}, &Wrong::in_band);
  // 2. What contradicts more than enough others do is not looked at further.
  std::vector<std::uint64_t> least;
  for (Wrong& one : all) {
    if (least.size() >= most && one.in_band > least[most - 1]) continue;
    one.in_band = wrong_in_band(others[one.place].candidate.hypothesis, amax, lines_of_band);
    least.insert(std::ranges::upper_bound(least, one.in_band), one.in_band);
  }
  std::ranges::sort(all, {}, [](const Wrong& one) { return std::pair(one.in_band, one.place); });
  std::vector<Suspect> nearest;
  for (std::size_t i = 0; i < all.size() && (all[i].in_band == 0 || i < most); ++i)
    nearest.push_back(std::move(others[all[i].place]));
  others = std::move(nearest);
}

}  // namespace fp8lab::doctor
