// SPDX-License-Identifier: Apache-2.0
#include "quantize/search.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>

#include "fp8lab/reference/scaling/facts.hpp"
#include "quantize/sample.hpp"

namespace fp8lab::doctor {

Search::Search(const MatrixView& x, const Dump& dump, const DiagnoseOptions& options)
    : x_(x), dump_(x, dump), options_(options) {
  SearchFacts facts;
  facts.rows = x.rows();
  facts.columns = x.columns();
  facts.is_packed = dump_.was_packed;
  facts.format = dump_.format;
  facts.scales = dump_.scales.size();
  facts.scales_are_bytes = !dump_.scale_format || dump_.scale_format->bits() <= 8;
  facts.tensor_scale = dump_.of_tensor;
  std::uint8_t largest_code = 0;
  std::uint8_t largest_magnitude = 0;
  for (const std::uint8_t code : dump_.codes) {
    const auto magnitude = static_cast<std::uint8_t>(code & 0x7F);
    largest_code = std::max(largest_code, code);
    largest_magnitude = std::max(largest_magnitude, magnitude);
  }
  facts.largest_code = largest_code;
  facts.may_be_e5m2 = largest_magnitude == 0x7B;
  if (dump_.scales.size() == 1) facts.scale = dump_.value_of_scale(dump_.scales.front(), binary32);
  Source rowwise(x, options.threads);
  facts.input_type = rowwise.type();
  const bool wants_columnwise = options.direction ? *options.direction == Direction::columnwise : x.rows() > 1;
  if (wants_columnwise) {
    SearchFacts other = facts;
    other.direction = Direction::columnwise;
    std::swap(other.rows, other.columns);
    sides_.push_back(Side{rowwise.transposed(), other, {}});
  }
  if (options.direction != Direction::columnwise) sides_.insert(sides_.begin(), Side{std::move(rowwise), facts, {}});
  for (Side& side : sides_) {
    for (const Piece& piece : first_sample(side.source)) side.sample.push_back({piece, side.sample.size()});
  }
  if (sides_.size() == 2) {
    sides_[0].source.has_transpose(sides_[1].source);
    sides_[1].source.has_transpose(sides_[0].source);
  }
}

void Search::find_least_runs() {
  for (Side& side : sides_) {
    Amaxes& runs = side.source.tiles({.across = 1, .along = 16});
    side.source.complete(runs);
    side.facts.least_run = *std::ranges::min_element(runs.values);
  }
}

Diagnosis Search::run() {
  // Zeros may be codes of any format: that many recipes need not be asked for all elements.
  const bool is_zero = std::ranges::all_of(dump_.codes, [](std::uint8_t code) { return code == 0; });
  // The columnwise side, and what is not expected, come only where the others do not explain everything. Scales that
  // follow from nothing explain much: all is tried first that is more plausible than that.
  constexpr double any = std::numeric_limits<double>::infinity();
  constexpr double two_departures = 2.3;
  std::vector<Stage> stages{{0, sides_.size(), false, cost_of_departure}};
  if (options_.expected) {
    stages.push_back({1, 1, true, two_departures});
    constexpr double another_recipe = 2.8;  // with a departure costs more
    stages.push_back({2, 1, true, another_recipe});
  }
  for (std::size_t sides = 1; sides <= sides_.size(); ++sides) stages.push_back({1, sides, false, two_departures});
  stages.push_back({2, sides_.size(), false, any});
  for (const Stage& stage : stages) {
    if (&stage == &stages[1]) find_least_runs();  // which say nothing of plain hypotheses
    try_stage(stage, is_zero);
    if (is_explained() && verified_.front().candidate.cost < stage.most_cost) break;
    if (finds_nothing_written()) break;
  }
  return report();
}

void Search::try_stage(const Stage& stage, bool is_zero) {
  const std::vector<Suspect> parents = best_of_each_kind(stage.only_expected);
  for (int round = 0; round < most_rounds; ++round) {
    sieve(stage, parents);
    verify_best();
    if (!learn()) break;
  }
  if (stage.changes == 2 && !stage.only_expected) try_other_recipes();
  if (stage.changes == 1 && !stage.only_expected && stage.sides == sides_.size() && !is_zero) quantize_again(stage);
  if (stage.changes > 0) localize();
  if (stage.changes == 0 && !is_explained() && !is_zero) {
    quantize_others();
    if (!is_explained()) try_tensor_scales();
  }
}

bool Search::is_wanted(const Stage& stage, const Candidate& candidate) const {
  return !stage.only_expected || candidate.hypothesis.base == options_.expected_name;
}

void Search::sieve(const Stage& stage, const std::vector<Suspect>& parents) {
  kept_.clear();
  for (const Suspect& one : parents) {
    if (stage.changes > 0) offer(*one.side, one.candidate, 0);
  }
  if (stage.changes == 2) {
    for (const Suspect& one : parents) vary(*one.side, one.candidate);
    // Scales that follow from nothing explain all codes: a rule may, too.
    const auto follows_a_rule = [](const Suspect& one) { return !doctor::has_no_rule(one.candidate.hypothesis); };
    const auto best = std::ranges::find_if(verified_, follows_a_rule);
    const bool is_little = best != verified_.end() && best->codes * 2 > dump_.codes.size();
    if (is_little) cross(stage);
    cross_numbers(stage);
    return;
  }
  for (std::size_t i = 0; i < stage.sides; ++i) {
    for (Candidate& one : plain_candidates(sides_[i].facts, options_)) {
      if (!is_wanted(stage, one)) continue;
      if (stage.changes == 0) {
        offer(sides_[i], std::move(one), 0);
      } else {
        vary(sides_[i], one);
      }
    }
  }
  if (stage.changes == 1) try_more_numbers(stage);
}

namespace {

bool any_model(const KernelModel& /*model*/) { return true; }

}  // namespace

std::vector<Candidate> Search::likely_bases(const Stage& stage,
                                            const std::function<bool(const KernelModel&)>& accepts) const {
  const Side& side = sides_.front();
  constexpr std::size_t most_bases = 6;
  std::vector<Candidate> bases;
  for (Candidate& one : plain_candidates(side.facts, options_)) {
    const Recipe& own = one.hypothesis.recipe;
    const auto is_like = [&](const Candidate& base) {
      const Recipe& other = base.hypothesis.recipe;
      const bool has_same_rule = has_tensor_scale(own) || own.scale_type != ScaleType::float32 ||
                                 std::tie(own.quotient, own.rounding) == std::tie(other.quotient, other.rounding);
      return std::tie(own.tile_across, own.tile_along, own.scale_type, own.tensor_scale) ==
                 std::tie(other.tile_across, other.tile_along, other.scale_type, other.tensor_scale) &&
             own.format == other.format && has_same_rule;
    };
    const KernelModel model(side.source, one.hypothesis, &dump_);
    if (bases.size() == most_bases || !model.applies() || !model.has_room_for_scales()) continue;
    if (!is_wanted(stage, one) || is_given(own) || std::ranges::any_of(bases, is_like) || !accepts(model)) continue;
    bases.push_back(std::move(one));
  }
  return bases;
}

void Search::cross(const Stage& stage) {
  const Side& side = sides_.front();
  const auto vary_again = [&](const Candidate& other) {
    // How scales are stored explains no code.
    const auto is_of_stored = [](const Deviation& x) { return x.departure->stage == KernelStage::stored; };
    if (std::ranges::none_of(other.hypothesis.deviations, is_of_stored)) vary(side, other);
  };
  for (const Candidate& one : likely_bases(stage, any_model))
    for_each_variant(one, side.facts, vary_again, Numbers::without);
}

void Search::cross_numbers(const Stage& stage) {
  const Side& side = sides_.front();
  for (const Candidate& base : likely_bases(stage, any_model)) {
    const auto add_number = [&](const Candidate& other) {
      const Hypothesis& own = other.hypothesis;
      const auto rounds = [](const Deviation& one) { return one.departure->rounds_scales; };
      const bool is_same = own.recipe.rounding == base.hypothesis.recipe.rounding;
      if (is_same && std::ranges::none_of(own.deviations, rounds)) return;
      const auto offer_it = [&](Candidate one) { offer(side, std::move(one), 1); };
      for_each_variant(other, side.facts, offer_it, Numbers::alone);
    };
    for_each_variant(base, side.facts, add_number, Numbers::without);
  }
}

void Search::try_more_numbers(const Stage& stage) {
  const Side& side = sides_.front();
  const auto stores_its_scales = [&](const KernelModel& model) {
    return std::ranges::all_of(side.sample, [&](const Piece& piece) { return model.scale_mismatches(piece) == 0; });
  };
  for (const Candidate& base : likely_bases(stage, stores_its_scales)) {
    for_each_further_number(base, side.facts, [&](Candidate one) { offer(side, std::move(one), 1); });
  }
}

std::vector<Suspect> Search::best_of_each_kind(bool only_expected) const {
  constexpr std::size_t most = 16;
  constexpr std::size_t most_alike = 2;
  std::size_t without_rule = 0;
  std::vector<Suspect> chosen;
  for (const std::vector<Suspect>& list : {std::cref(verified_), std::cref(kept_)}) {
    for (const Suspect& one : list) {
      const auto is_alike = [&](const Suspect& other) {
        const Hypothesis& a = one.candidate.hypothesis;
        const Hypothesis& b = other.candidate.hypothesis;
        return one.side == other.side && a.changes == b.changes && a.deviations == b.deviations;
      };
      if (only_expected && one.candidate.hypothesis.base != options_.expected_name) continue;
      if (one.is_by_quantize || std::cmp_greater_equal(std::ranges::count_if(chosen, is_alike), most_alike)) continue;
      // Stored scales explain much, whatever they are. They leave room for what follows a rule.
      if (takes_any_scale(one.candidate.hypothesis) && ++without_rule > most / 2) continue;
      chosen.push_back(one);
      if (chosen.size() == most) return chosen;
    }
  }
  return chosen;
}

}  // namespace fp8lab::doctor
