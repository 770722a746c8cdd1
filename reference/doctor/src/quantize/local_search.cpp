// SPDX-License-Identifier: Apache-2.0
// The part of the search that what is left unexplained suggests: departures in one place, and scales that do not follow
// from the tensor.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "fp8lab/reference/scaling/facts.hpp"
#include "quantize/named_rows.hpp"
#include "quantize/sample.hpp"
#include "quantize/scales_case.hpp"
#include "quantize/search.hpp"

namespace fp8lab::doctor {

namespace {

/// How many codes a suspect leaves unexplained around those elements.
std::uint64_t codes_around(const std::vector<std::uint64_t>& elements, const Suspect& suspect, const StoredDump& dump) {
  const Source& source = suspect.side->source;
  const KernelModel model(source, suspect.candidate.hypothesis, &dump);
  if (!model.applies()) return 0;
  std::set<std::pair<std::size_t, std::size_t>> known;
  std::uint64_t count = 0;
  for (const std::uint64_t element : elements) {
    const Piece piece = piece_around(source, element);
    if (known.emplace(piece.row, piece.column).second) count += model.code_mismatches(piece);
  }
  return count;
}

}  // namespace

void Search::localize() {
  if (verified_.empty()) return;
  if (verified_.front().all() == 0) {
    doubt_stored_scales();
    return;
  }
  std::vector<Suspect> found;
  std::vector<Suspect> local = local_suspects();
  add_tiles_as_stored(local);
  if (!std::exchange(has_stale_, true)) add_stale(found);
  if (!std::exchange(has_tensor_scales_, true)) add_tensor_scales(found, false);
  add_rules_of_scales(found);
  std::ranges::move(local, std::back_inserter(verified_));
  verify_each(found);
}

void Search::doubt_stored_scales() {
  const Hypothesis& own = verified_.front().candidate.hypothesis;
  if (!has(own, rows::scale_as_stored) && !has_given_scale(own)) return;
  // Most of them may follow from nothing, or all do but for a number.
  std::vector<Suspect> found;
  add_tiles_as_stored(found);
  std::ranges::move(found, std::back_inserter(verified_));
  found.clear();
  add_rules_of_scales(found);
  verify_each(found);
}

void Search::add_rules_of_scales(std::vector<Suspect>& found) {
  if (dump_.scales.empty()) return;
  // What scales suggest of recipes does not change, and was compared with everything.
  if (!std::exchange(has_rules_of_scales_, true)) add_by_scales(found);
  add_by_wrong_scales(found);
}

void Search::add_by_scales(std::vector<Suspect>& found) {
  for (const Side& side : sides_) {
    for (const Candidate& plain : plain_candidates(side.facts, options_)) {
      const Hypothesis& own = plain.hypothesis;
      if (is_given(own.recipe) || has_tensor_scale(own.recipe) || !own.deviations.empty()) continue;
      const KernelModel model(side.source, own, &dump_);
      if (!model.applies() || !model.has_room_for_scales()) continue;
      const ScalesCase scales(model, side.source, dump_.scales.size(), side.facts.direction);
      if (scales.factor && !scale_factor_) scale_factor_ = {describe(own), *scales.factor};
      const auto add = [&](const Suggestion& one) {
        found.push_back({.candidate = with_deviation(plain, one, one.cost + cost_of(side)), .side = &side});
      };
      for_each_suggested(&Departure::by_scales, add, scales);
    }
  }
}

void Search::add_by_wrong_scales(std::vector<Suspect>& found) const {
  constexpr std::size_t most_looked_at = 6;
  std::size_t looked_at = 0;
  // A departure that explains some scales by chance stands before the recipe, of which all scales may depart alike.
  std::vector<Suspect> all = best_of_each_kind(false);
  std::ranges::stable_partition(all, [](const Suspect& one) { return one.candidate.hypothesis.is_plain(); });
  for (const Suspect& one : all) {
    if (one.scales == 0 || looked_at++ >= most_looked_at) continue;
    const KernelModel model(one.side->source, one.candidate.hypothesis, &dump_);
    if (!model.applies() || !model.has_room_for_scales()) continue;
    const auto add = [&](const Deviation& suggested) {
      const double cost = suggested.departure->cost;
      found.push_back({.candidate = with_deviation(one.candidate, suggested, cost), .side = one.side});
    };
    for_each_suggested(&Departure::by_wrong_scales, add, model, dump_);
  }
}

std::vector<Suspect> Search::local_suspects() {
  constexpr std::size_t most_looked_at = 6;
  std::vector<Suspect> local;
  std::size_t looked_at = 0;
  for (const Suspect& one : best_of_each_kind(false)) {
    if (one.codes == 0 || looked_at++ >= most_looked_at) continue;
    const KernelModel model(one.side->source, one.candidate.hypothesis, &dump_);
    const std::uint64_t before = codes_around(one.examples, one, dump_);
    for (Candidate& other : local_candidates(one.candidate, model, one.side->source, dump_, one.unexplained)) {
      Suspect suspect{.candidate = std::move(other), .side = one.side};
      ++searched_;
      // What one place explains is not a handful of a tensor's errors, as the first of them may show.
      const std::uint64_t limit = one.all() - one.all() / 8;
      const std::uint64_t around = codes_around(one.examples, suspect, dump_);
      if (around >= limit) continue;
      // Most of many numbers explain nothing, and comparing each with a large tensor takes too long.
      const bool is_one_of_many = suspect.candidate.hypothesis.deviations.back().departure->local_numbers != nullptr;
      if (is_one_of_many && around * 8 > before * 7) continue;
      if (leaves_less(suspect, limit)) local.push_back(std::move(suspect));
    }
  }
  return local;
}

bool Search::leaves_less(Suspect& suspect, std::uint64_t limit) {
  if (refuted_.leaves(suspect, limit)) return false;
  verify(suspect, dump_, compared_, limit);
  if (suspect.all() < limit) return true;
  refuted_.add(suspect, limit);
  return false;
}

void Search::verify_each(std::vector<Suspect>& suspects) {
  for (Suspect& one : suspects) {
    if (is_verified(one)) continue;
    verify_or_copy(one);
    ++searched_;
    verified_.push_back(std::move(one));
  }
  sort_verified();
}

bool Search::finds_nothing_written() {
  const bool is_zero = std::ranges::all_of(dump_.codes, [](std::uint8_t code) { return code == 0; });
  if (!is_zero || !sides_.front().source.has_number()) return false;
  verified_.clear();
  for (const Side& side : sides_) {
    for (Candidate& one : plain_candidates(side.facts, options_)) {
      one = with_deviation(std::move(one), {&rows::codes_unwritten}, rows::codes_unwritten.cost + cost_of(side));
      const KernelModel model(side.source, one.hypothesis, &dump_);
      if (!model.applies()) continue;
      Suspect suspect{.candidate = std::move(one), .side = &side};
      suspect.scales = dump_.scales.empty() || !model.has_room_for_scales() ? dump_.scales.size() : 0;
      if (suspect.scales == 0) suspect.scales = model.scale_mismatches();
      verified_.push_back(std::move(suspect));
    }
  }
  sort_verified();
  return !verified_.empty();
}

void Search::add_tiles_as_stored(std::vector<Suspect>& found) {
  constexpr std::size_t most_looked_at = 6;
  std::vector<Suspect> all;
  std::uint64_t fewest = dump_.scales.size() / 2;
  for (const Suspect& one : best_of_each_kind(false)) {
    if (one.codes == 0 || one.scales == 0 || one.scales > fewest || all.size() == most_looked_at) continue;
    const Deviation stored{&rows::tiles_as_stored, one.scales};
    Suspect suspect{.candidate = with_deviation(one.candidate, stored, stored.departure->cost), .side = one.side};
    if (!KernelModel(one.side->source, suspect.candidate.hypothesis, &dump_).applies()) continue;
    if (!leaves_less(suspect, one.all() / 8 + 1)) continue;
    fewest = one.scales;
    all.push_back(std::move(suspect));
  }
  // A rule that fewer scales follow explains no more.
  const auto follows_less = [&](const Suspect& one) {
    return one.candidate.hypothesis.deviations.back().place > fewest;
  };
  std::erase_if(all, follows_less);
  std::ranges::move(all, std::back_inserter(found));
}

void Search::add_stale(std::vector<Suspect>& found) {
  for (const Side& side : sides_) {
    for (const Candidate& plain : plain_candidates(side.facts, options_)) {
      const bool is_expected = options_.expected && plain.hypothesis.base == options_.expected_name;
      const bool is_cast = plain.hypothesis.base.ends_with("cuda_satfinite");
      if ((!is_expected && !is_cast) || plain.hypothesis.recipe.tile_along != 0 || &side != &sides_.front()) continue;
      const KernelModel model(side.source, plain.hypothesis, &dump_);
      if (!model.applies()) continue;
      const auto interval = factor_interval(model, side.source, dump_);
      if (!interval) continue;
      if (!factor_) factor_ = interval;
      std::optional<double> stored;
      if (const auto& scale = side.facts.scale; scale.has_value()) stored = 1 / *scale;
      const Deviation stale{&rows::scale_stale, 0, simplest(*interval, stored)};
      found.push_back({.candidate = with_deviation(plain, stale, stale.departure->cost), .side = &side});
    }
  }
}

void Search::try_tensor_scales() {
  std::vector<Suspect> found;
  add_tensor_scales(found, true);
  verify_each(found);
}

namespace {

/// The floats of an interval that are next to its middle, the nearest first.
std::vector<float> floats_amid(const FactorInterval& interval) {
  constexpr std::size_t most = 64;
  std::vector<float> all;
  const auto middle = static_cast<float>(interval.lowest + (interval.highest - interval.lowest) / 2);
  const auto add = [&](float value) {
    const bool is_within = value >= interval.lowest && value <= interval.highest;
    if (is_within && all.size() < most) all.push_back(value);
    return is_within;
  };
  bool goes_on = add(middle);
  for (float above = middle, below = middle; goes_on && all.size() < most;) {
    above = std::nextafterf(above, HUGE_VALF);
    below = std::nextafterf(below, 0);
    const bool has_above = add(above);
    goes_on = add(below) || has_above;
  }
  return all;
}

/// How many codes and scales of some pieces are not the suspect's: at least, where they are more than `most`.
std::uint64_t mismatches_in(const Suspect& suspect, const StoredDump& dump, const std::vector<Piece>& pieces,
                            std::uint64_t most) {
  const KernelModel model(suspect.side->source, suspect.candidate.hypothesis, &dump);
  std::uint64_t count = 0;
  for (const Piece& piece : pieces) {
    count += model.scale_mismatches(piece);
    if (count > most) return count;
    count += model.code_mismatches(piece);
    if (count > most) return count;
  }
  return count;
}

/// A recipe with another scale of the tensor, and how many codes and scales of some pieces contradict it.
using Scored = std::pair<std::uint64_t, Suspect>;

Scored scored(const Candidate& plain, const Side& side, const Deviation& deviation, const StoredDump& dump,
              const std::vector<Piece>& pieces, std::uint64_t most) {
  Suspect suspect{.candidate = with_deviation(plain, deviation, deviation.departure->cost), .side = &side};
  const std::uint64_t wrong = mismatches_in(suspect, dump, pieces, most);
  return {wrong, std::move(suspect)};
}

/// The scale of the tensor, or its inverse, among the floats amid an interval, that the pieces do not contradict.
std::optional<Suspect> with_exact_scale(const Candidate& plain, const Side& side, const FactorInterval& interval,
                                        const StoredDump& dump, const std::vector<Piece>& pieces) {
  const FactorInterval inverse{1 / interval.highest, 1 / interval.lowest};
  for (const std::uint64_t is_inverse : {0, 1}) {
    for (const float value : floats_amid(is_inverse == 1 ? inverse : interval)) {
      auto [wrong, suspect] = scored(plain, side, {&rows::tensor_scale_stale, is_inverse, value}, dump, pieces, 0);
      if (wrong == 0) return std::move(suspect);
    }
  }
  return std::nullopt;
}

}  // namespace

void Search::add_tensor_scales(std::vector<Suspect>& found, bool only_likely) {
  const Side& side = sides_.front();
  if (dump_.scales.empty()) return;
  constexpr std::size_t most_verified_here = 8;
  // Pieces may have an element twice. What these contradict more often than all contradicts the best is not looked at.
  const std::uint64_t limit = only_likely ? 0 : 2 * verified_.front().all();
  std::vector<Scored> all;
  std::vector<Piece> pieces;
  for (const Candidate& plain : plain_candidates(side.facts, options_)) {
    const KernelModel model(side.source, plain.hypothesis, &dump_);
    const bool is_plain = plain.hypothesis.deviations.empty();  // with no given scale of the tensor
    if (!has_tensor_scale(plain.hypothesis.recipe) || !is_plain || !model.applies()) continue;
    // Recipes differ in the last bits of it, which few tiles tell.
    if (!tensor_scale_bounds_) {
      tensor_scale_bounds_ = {tensor_scale_interval(model, side.source, dump_), {}};
      auto& [own, tiles] = *tensor_scale_bounds_;
      if (own) tiles = tiles_that_tell(model, side.source, dump_, *own);
    }
    const std::optional<FactorInterval>& interval = tensor_scale_bounds_->first;
    if (!interval) return;
    if (pieces.empty()) {
      pieces = tensor_scale_bounds_->second;
      pieces.insert(pieces.end(), side.sample.begin(), side.sample.end());
    }
    const FactorInterval inverse{1 / interval->highest, 1 / interval->lowest};
    const double top =
        static_cast<double>(plain.hypothesis.recipe.tensor_range) * largest_of(plain.hypothesis.recipe.format);
    const float amax = simplest({top / interval->highest, top / interval->lowest}, std::nullopt);
    bool is_explained = false;
    for (const Deviation& one : {Deviation{&rows::tensor_scale_stale, 0, static_cast<float>(top / amax)},
                                 Deviation{&rows::tensor_scale_stale, 0, simplest(*interval, std::nullopt)},
                                 Deviation{&rows::tensor_scale_stale, 1, simplest(inverse, std::nullopt)}}) {
      all.push_back(scored(plain, side, one, dump_, pieces, limit));
      is_explained = is_explained || all.back().first == 0;
    }
    if (is_explained) continue;
    auto exact = with_exact_scale(plain, side, *interval, dump_, pieces);
    if (exact) all.emplace_back(0, std::move(*exact));
  }
  std::ranges::stable_sort(all, {}, [](const auto& one) { return one.first; });
  for (std::size_t i = 0; i < std::min(all.size(), most_verified_here); ++i) {
    if (all[i].first <= limit) found.push_back(std::move(all[i].second));
  }
}

}  // namespace fp8lab::doctor
