// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/doctor/diagnose.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "quantize/by_quantize.hpp"
#include "quantize/hypotheses.hpp"
#include "quantize/named_rows.hpp"
#include "quantize/order.hpp"
#include "quantize/sample.hpp"
#include "quantize/search.hpp"
#include "quantize/verdict.hpp"

namespace fp8lab::doctor {
namespace {

/// How many hypotheses that contradict the sample are kept, how many that do not, and how many of the former are
/// compared with every element. Those that take the stored scales, whatever they are, explain as much under any recipe:
/// they are counted apart, and leave room for what follows a rule.
constexpr std::size_t most_kept = 24, most_consistent = 96, most_verified = 6;
/// Pieces of the sample that show whether a hypothesis is wrong in most elements.
constexpr std::size_t pieces_to_fail_on = 4;
/// How often elements that contradict join the sample.
constexpr int most_rounds = 4;

}  // namespace

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
  facts.largest_code = *std::ranges::max_element(dump_.codes);
  const auto magnitude = [](std::uint8_t code) { return code & 0x7F; };
  facts.may_be_e5m2 = magnitude(*std::ranges::max_element(dump_.codes, {}, magnitude)) == 0x7B;
  if (dump_.scales.size() == 1) {
    const Format type = dump_.type_of_scales(binary32);
    const auto word = dump_.scales.front();
    facts.scale = type == binary32 ? std::bit_cast<float>(word) : decode(type, word);
  }
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
    side.sample = first_sample(side.source);
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
    const std::vector<Suspect> parents = best_of_each_kind(stage.only_expected);
    for (int round = 0; round < most_rounds; ++round) {
      sieve(stage, parents);
      verify_best();
      if (!learn()) break;
    }
    if (stage.changes == 2 && !stage.only_expected) try_other_recipes();
    if (stage.changes > 0) localize();
    const auto explains = [&] { return !verified_.empty() && verified_.front().all() == 0; };
    if (stage.changes == 0 && !explains() && !is_zero) {
      quantize_others();
      if (!explains()) try_tensor_scales();
    }
    const bool is_explained = explains();
    if (is_explained && verified_.front().candidate.cost < stage.most_cost) break;
    if (finds_nothing_written()) break;
  }
  return report();
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
  if (stage.changes == 1) try_row_strides(stage);
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
      const bool is_by_value = has(own, rows::scale_nearest_power);
      if (!is_by_value && own.recipe.rounding == base.hypothesis.recipe.rounding) return;
      const auto offer_it = [&](Candidate one) { offer(side, std::move(one), 1); };
      for_each_variant(other, side.facts, offer_it, Numbers::alone);
    };
    for_each_variant(base, side.facts, add_number, Numbers::without);
  }
}

void Search::try_row_strides(const Stage& stage) {
  const Side& side = sides_.front();
  const auto stores_its_scales = [&](const KernelModel& model) {
    return std::ranges::all_of(side.sample, [&](const Piece& piece) { return model.scale_mismatches(piece) == 0; });
  };
  for (const Candidate& base : likely_bases(stage, stores_its_scales)) {
    for_each_row_stride(base, side.facts, [&](Candidate one) { offer(side, std::move(one), 1); });
  }
}

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

std::vector<Suspect> Search::best_of_each_kind(bool only_expected) const {
  constexpr std::size_t most = 16;
  constexpr std::size_t most_alike = 2;
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
      chosen.push_back(one);
      if (chosen.size() == most) return chosen;
    }
  }
  return chosen;
}

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
  for (Suspect& suspect : others) {
    const Hypothesis& hypothesis = suspect.candidate.hypothesis;
    const Stored stored = stored_by_quantize(x_, hypothesis.recipe, hypothesis.direction, options_.threads);
    ++searched_;
    if (stored.is_refused) continue;
    if (suspect.side->facts.direction == Direction::columnwise && sides_.size() > 1) suspect.candidate.cost += 0.3;
    suspect.codes = code_mismatches(stored, hypothesis.recipe.format, dump_);
    suspect.scales = doctor::scale_mismatches(stored, dump_);
    verified_.push_back(std::move(suspect));
  }
  sort_verified();
}

std::uint64_t Search::wrong_in_band(const Hypothesis& hypothesis, float amax) const {
  constexpr std::size_t lines_of_band = 64;  // whole tiles
  const Recipe& recipe = hypothesis.recipe;
  const bool is_columnwise = hypothesis.direction == Direction::columnwise;
  const bool is_transposed = is_columnwise && (recipe.transposed_columnwise || recipe.format.bits() == 4);
  // What a band cannot tell is looked at: the scale of a transposed tensor may follow from transformed elements.
  if (!has_tensor_scale(recipe) || is_columnwise != is_transposed) return 0;
  if (is_columnwise && recipe.transform != Transform::none) return 0;
  const Source& source = sides_.front().source;
  const std::size_t rows = is_columnwise ? x_.rows() : std::min(x_.rows(), lines_of_band);
  const std::size_t columns = is_columnwise ? std::min(x_.columns(), lines_of_band) : x_.columns();
  std::vector<float> values(rows * columns);
  for (std::size_t row = 0; row < rows; ++row) {
    std::ranges::copy(source.values({row, 0, columns}), values.begin() + static_cast<std::ptrdiff_t>(row * columns));
  }
  const MatrixView band(std::span<const float>(values), rows, columns);
  const Stored stored = stored_by_quantize(band, recipe, hypothesis.direction, options_.threads, amax);
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < stored.codes.size(); ++i) wrong += stored.codes[i] == dump_.codes[i] ? 0 : 1;
  return wrong;
}

void Search::keep_nearest(std::vector<Suspect>& others) const {
  constexpr std::size_t many_elements = std::size_t{1} << 20;
  constexpr std::size_t most = 2;
  const Source& source = sides_.front().source;
  if (sides_.front().facts.direction != Direction::rowwise || others.size() <= most) return;
  if (x_.rows() * x_.columns() < many_elements) return;
  float amax = 0;
  for (const float value : source.values()) amax = std::isnan(value) ? amax : std::max(amax, std::abs(value));
  std::vector<std::pair<std::uint64_t, Suspect>> all;
  for (Suspect& one : others) {
    const std::uint64_t wrong = wrong_in_band(one.candidate.hypothesis, amax);
    all.emplace_back(wrong, std::move(one));
  }
  std::ranges::stable_sort(all, {}, [](const auto& one) { return one.first; });
  others.clear();
  for (std::size_t i = 0; i < all.size() && (all[i].first == 0 || i < most); ++i)
    others.push_back(std::move(all[i].second));
}

void Search::sort_verified() {
  std::ranges::stable_sort(verified_, [](const Suspect& a, const Suspect& b) {
    return std::pair(a.all(), a.candidate.cost) < std::pair(b.all(), b.candidate.cost);
  });
}

void Search::vary(const Side& side, const Candidate& candidate) {
  for_each_variant(candidate, side.facts, [&](Candidate one) { offer(side, std::move(one), 1); });
}

namespace {

/// Whether the first elements of a few pieces contradict more often than `limit` says, or than one would expect where
/// half of all elements do.
bool is_wrong_in_most(const Side& side, const KernelModel& model, std::uint64_t limit) {
  constexpr std::size_t elements_of_piece = 32;
  std::uint64_t count = 0;
  std::uint64_t seen = 0;
  for (const Piece& piece : std::span(side.sample).first(std::min(side.sample.size(), pieces_to_fail_on))) {
    const Piece part{piece.row, piece.column, std::min(piece.count, elements_of_piece)};
    count += model.code_mismatches(part) + model.scale_mismatches(part);
    seen += part.count;
  }
  return count > limit || count * 20 > seen * 13 + 20;
}

}  // namespace

void Search::offer(const Side& side, Candidate candidate, int changes) {
  checkpoint();
  ++searched_;
  if (side.facts.direction == Direction::columnwise && sides_.size() > 1) candidate.cost += 0.3;
  const KernelModel model(side.source, candidate.hypothesis, &dump_);
  if (!model.applies()) return;
  const bool has_no_rule = doctor::has_no_rule(candidate.hypothesis);
  const std::uint64_t limit = most_in_sample(has_no_rule);
  if (changes > 0 && is_wrong_in_most(side, model, limit)) return;
  // Most are wrong in most elements, which a few pieces show.
  constexpr std::uint64_t few = pieces_to_fail_on * piece_length;
  std::uint64_t count = 0;
  std::uint64_t seen = 0;
  Randomness random;
  for (const Piece& piece : side.sample) {
    count += model.code_mismatches(piece) + model.scale_mismatches(piece);
    seen += piece.count;
    if (count > limit || (changes > 0 && seen >= few && count * 2 > seen)) return;
    random.add(model.randomness(piece));
  }
  if (!random.is_random()) count += static_cast<std::uint64_t>(random.inexact);
  if (count > limit) return;
  Suspect suspect{.candidate = std::move(candidate), .side = &side, .in_sample = count};
  kept_.insert(std::ranges::upper_bound(kept_, suspect, is_before), std::move(suspect));
  drop_last(has_no_rule);
}

std::uint64_t Search::most_in_sample(bool has_no_rule) const {
  std::size_t count = 0;
  for (const Suspect& one : kept_) {
    if (doctor::has_no_rule(one.candidate.hypothesis) == has_no_rule && ++count == most_kept) return one.in_sample;
  }
  return std::numeric_limits<std::uint64_t>::max();
}

void Search::drop_last(bool has_no_rule) {
  std::size_t count = 0;
  std::size_t consistent = 0;
  auto last = kept_.end();
  for (auto one = kept_.begin(); one != kept_.end(); ++one) {
    if (doctor::has_no_rule(one->candidate.hypothesis) != has_no_rule) continue;
    last = one;
    ++count;
    consistent += one->in_sample == 0 ? 1 : 0;
  }
  if (count > std::clamp(consistent, most_kept, most_consistent)) kept_.erase(last);
}

bool Search::is_verified(const Suspect& one) const {
  return std::ranges::any_of(verified_, [&](const Suspect& other) {
    return other.side == one.side && other.candidate.cost == one.candidate.cost &&
           other.candidate.hypothesis.base == one.candidate.hypothesis.base &&
           other.candidate.hypothesis.recipe == one.candidate.hypothesis.recipe &&
           other.candidate.hypothesis.deviations == one.candidate.hypothesis.deviations;
  });
}

void Search::verify_best() {
  std::size_t contradicting = 0;
  for (Suspect& one : kept_) {
    if (one.in_sample != 0 && ++contradicting > most_verified) break;
    if (is_verified(one) || !is_modelled(one.candidate.hypothesis.recipe)) continue;
    verify(one, dump_);
    verified_.push_back(one);
  }
  sort_verified();
}

bool Search::learn() {
  constexpr std::size_t most_learned = 8;
  if (verified_.empty()) return false;
  // Scales that follow from nothing explain everything: the best rule that agrees with the sample tells where it fails.
  const auto is_rule = [](const Suspect& one) {
    return one.in_sample == 0 && !doctor::has_no_rule(one.candidate.hypothesis);
  };
  const bool is_explained = verified_.front().all() == 0;
  const auto found = is_explained ? std::ranges::find_if(verified_, is_rule) : verified_.begin();
  if (found == verified_.end() || found->all() == 0) return false;
  const Suspect& best = *found;
  std::size_t added = 0;
  std::vector<std::uint64_t> examples = best.examples;
  // Scales that the sample contradicts already say nothing new.
  if (best.in_sample == 0) examples.insert(examples.end(), best.scale_examples.begin(), best.scale_examples.end());
  for (const std::uint64_t index : examples) {
    if (added >= most_learned) break;
    for (Side& side : sides_) {
      const Source& own = best.side->source;
      const bool is_own = &side == best.side;
      const std::uint64_t place = is_own ? index : index % own.columns() * own.rows() + index / own.columns();
      const Piece piece = piece_around(side.source, place);
      const auto is_known = [&](const Piece& other) { return other.row == piece.row && other.column == piece.column; };
      if (std::ranges::any_of(side.sample, is_known)) continue;
      // Behind those on which most hypotheses fail, which a departure in one place must not do.
      const std::size_t at = std::min(side.sample.size(), pieces_to_fail_on);
      side.sample.insert(side.sample.begin() + static_cast<std::ptrdiff_t>(at), piece);
      ++added;
    }
  }
  return added != 0;
}

namespace {

void check(const MatrixView& x, const Dump& dump, const DiagnoseOptions& options) {
  check_threads(options.threads);
  if (x.size() == 0) refuse("x has no elements");
  if (options.expected) check_recipe(*options.expected);
  if (dump.format && (dump.format->bits() > 8 || !dump.format->is_signed)) {
    const char* const instead = dump.format->is_signed ? ""
                                                       : ", which is of scales: give these as scales, beside the codes "
                                                         "of elements, or compare a cast with those of encode()";
    refuse("codes are of a format with a sign and at most 8 bits, such as e4m3, e5m2 or e2m1, not of ",
           format_name(*dump.format), instead);
  }
  const float scale = dump.scales.of_tensor.value_or(1);
  const bool is_positive = scale > 0 && std::isfinite(scale);
  if (!is_positive) refuse("tensor_scale, the scale of the tensor, must be positive and finite, not ", scale);
}

}  // namespace

Diagnosis diagnose(const MatrixView& x, const Dump& dump, const DiagnoseOptions& options) {
  const DefaultEnvironment environment;
  check(x, dump, options);
  Diagnosis found = Search(x, dump, options).run();
  if (found.explanations.front().codes * 2 <= found.elements) return found;
  // Rows or columns in another order leave nothing in its place.
  const std::optional<Reordered> reordered = put_in_order(x, dump);
  if (!reordered) return found;
  for (const bool with_scales : {true, false}) {
    Dump own = dump;
    own.codes = reordered->codes;
    if (with_scales && reordered->scales.empty()) continue;
    if (with_scales) own.scales.bytes = reordered->scales;
    Diagnosis other = Search(x, own, options).run();
    if (other.explanations.front().unexplained() >= found.explanations.front().unexplained()) continue;
    other.is_in_order = false;
    other.notes.push_back(reordered->note);
    other.verdict = verdict_of(other);
    found = std::move(other);
  }
  return found;
}

}  // namespace fp8lab::doctor
