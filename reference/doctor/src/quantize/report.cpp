// SPDX-License-Identifier: Apache-2.0
// What a search has found, as a Diagnosis.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "quantize/by_quantize.hpp"
#include "quantize/exercised.hpp"
#include "quantize/named_rows.hpp"
#include "quantize/rest.hpp"
#include "quantize/search.hpp"
#include "quantize/verdict.hpp"
#include "search/words.hpp"

namespace fp8lab::doctor {
namespace {

/// The index in x of an element of a side's source.
std::uint64_t index_in_x(const Side& side, std::uint64_t index) {
  return side.facts.direction == Direction::rowwise ? index : side.source.turned(index);
}

std::uint8_t code_at(const Suspect& suspect, const StoredDump& dump, std::uint64_t index_of_x) {
  const Source& source = suspect.side->source;
  std::uint64_t index = index_of_x;
  if (suspect.side->facts.direction == Direction::columnwise) {
    index = index_of_x % source.rows() * source.columns() + index_of_x / source.rows();
  }
  const KernelModel model(source, suspect.candidate.hypothesis, &dump);
  std::array<std::uint8_t, 1> code;
  std::array<std::uint8_t, 1> other;
  model.predict({index / source.columns(), index % source.columns(), 1}, code, other);
  return code.front();
}

/// Whether one has no change and departure that the other has not, and leaves no more.
bool explains_as_much_with_less(const Suspect& one, const Suspect& other) {
  const Hypothesis& own = one.candidate.hypothesis;
  const Hypothesis& more = other.candidate.hypothesis;
  const auto has_change = [&](const std::string& change) { return std::ranges::count(more.changes, change) != 0; };
  const auto has_departure = [&](const Deviation& x) { return std::ranges::count(more.deviations, x) != 0; };
  return own.base == more.base && own.direction == more.direction && one.codes <= other.codes &&
         one.scales <= other.scales && std::ranges::all_of(own.changes, has_change) &&
         std::ranges::all_of(own.deviations, has_departure);
}

bool has(const Suspect& suspect, const Departure& departure) { return has(suspect.candidate.hypothesis, departure); }

}  // namespace

void Search::join_verified() {
  std::vector<Candidate> candidates;
  candidates.reserve(verified_.size());
  for (const Suspect& one : verified_) candidates.push_back(one.candidate);
  join_equals(candidates);
  std::vector<Suspect> distinct;
  for (Suspect& one : verified_) {
    const auto is_this = [&](const Candidate& other) {
      return other.cost == one.candidate.cost && other.hypothesis.direction == one.candidate.hypothesis.direction &&
             other.hypothesis.base == one.candidate.hypothesis.base &&
             other.hypothesis.changes == one.candidate.hypothesis.changes &&
             other.hypothesis.deviations == one.candidate.hypothesis.deviations;
    };
    const auto kept = std::ranges::find_if(candidates, is_this);
    if (kept == candidates.end()) continue;
    one.candidate = *kept;
    distinct.push_back(std::move(one));
  }
  verified_ = std::move(distinct);
}

void Search::discriminate(Diagnosis& diagnosis) const {
  const Suspect& first = verified_.front();
  const auto makes_other = [&](const Suspect& one) {
    return !one.is_by_quantize && one.codes != 0 &&
           one.candidate.hypothesis.recipe.format == first.candidate.hypothesis.recipe.format;
  };
  const auto second = std::find_if(verified_.begin() + 1, verified_.end(), makes_other);
  if (first.is_by_quantize || second == verified_.end()) return;
  for (const Suspect* one : {&*second, &first}) {
    for (const std::uint64_t place : one->examples) {
      if (diagnosis.discriminators.size() == options_.most_shown) return;
      const std::uint64_t index = index_in_x(*one->side, place);
      const Source& source = one->side->source;
      const KernelModel model(source, one->candidate.hypothesis, &dump_);
      const std::uint64_t stored = model.place_of(place / source.columns(), place % source.columns());
      const Discriminator found{index, static_cast<double>(source.values()[place]),
                                stored < dump_.codes.size() ? dump_.codes[stored] : std::uint8_t{0},
                                code_at(first, dump_, index), code_at(*second, dump_, index)};
      const bool is_known = std::ranges::count(diagnosis.discriminators, index, &Discriminator::index) != 0;
      if (found.first != found.second && !is_known) diagnosis.discriminators.push_back(found);
    }
  }
}

void Search::note_tiles_as_stored(Diagnosis& diagnosis) const {
  Suspect rule = verified_.front();
  Hypothesis& hypothesis = rule.candidate.hypothesis;
  const auto last = std::ranges::find(hypothesis.deviations, &rows::tiles_as_stored, &Deviation::departure);
  rule.scales = last->place;
  hypothesis.deviations.erase(last);
  TextStream text;
  text << dump_.scales.size() - rule.scales << " of " << dump_.scales.size() << " scales follow the rule of "
       << describe(hypothesis) << '.';
  for (const std::string& sentence : rest_of_scales(rule, dump_)) text << ' ' << sentence;
  diagnosis.notes.push_back(text.str());
}

void Search::note_signs_of_nan(Diagnosis& diagnosis) const {
  const Suspect& first = verified_.front();
  const Format& format = first.candidate.hypothesis.recipe.format;
  std::array<bool, 256> is_nan_code{};
  for (std::uint32_t code = 0; code >> std::min(format.bits(), 8) == 0; ++code) {
    is_nan_code[code] = std::isnan(decode(format, code));
  }
  const auto is_nan = [&](std::uint8_t code) { return is_nan_code[code]; };
  if (first.is_by_quantize || std::ranges::none_of(dump_.codes, is_nan)) return;
  const std::uint64_t count = KernelModel(first.side->source, first.candidate.hypothesis, &dump_).nans_of_other_sign();
  if (count == 0) return;
  TextStream text;
  text << count << (count == 1 ? " code is a NaN" : " codes are NaNs")
       << " of the other sign than predicted, which is not compared: it is the processor's.";
  diagnosis.notes.push_back(text.str());
}

void Search::prefer_plain() {
  if (verified_.front().all() == 0) return;
  // 1. What is expected is told, whatever it leaves, and so is the recipe of which the nearest departs.
  const Suspect nearest = verified_.front();
  for (const auto& [name, side] : {std::pair(options_.expected_name, &std::as_const(sides_.front())),
                                   {nearest.candidate.hypothesis.base, nearest.side}}) {
    for (Candidate& one : plain_candidates(side->facts, options_)) {
      const Hypothesis& own = one.hypothesis;
      if (own.base != name || !own.is_plain() || !is_modelled(own.recipe)) continue;
      if (!KernelModel(side->source, own, &dump_).applies()) continue;
      Suspect suspect{.candidate = std::move(one), .side = side};
      if (is_verified(suspect)) continue;
      verify(suspect, dump_, compared_);
      verified_.push_back(std::move(suspect));
    }
  }
  sort_verified();
  // 2. Departures that explain little beside what is left are chance.
  constexpr std::uint64_t little = 10;
  const Suspect& first = verified_.front();
  const auto is_its_recipe = [&](const Suspect& one) {
    return one.side == first.side && one.candidate.hypothesis.base == first.candidate.hypothesis.base &&
           one.candidate.hypothesis.is_plain();
  };
  const auto plain = std::ranges::find_if(verified_, is_its_recipe);
  if (plain == verified_.end() || (plain->all() - first.all()) * little > first.all()) return;
  std::rotate(verified_.begin(), plain, plain + 1);
}

void Search::drop_needless_scales(Diagnosis& diagnosis) {
  const auto takes_all = [](const Suspect& one) { return has(one, rows::scale_as_stored); };
  // 1. Stored scales that codes do not need are no part of an explanation.
  const auto needs_none = [&](const Suspect& one) {
    return one.codes == 0 && one.scales != 0 && one.scales * 2 < dump_.scales.size() && !takes_all(one);
  };
  if (takes_all(verified_.front()) && std::ranges::any_of(verified_, needs_none)) std::erase_if(verified_, takes_all);
  // 2. All scales taken as they are stored explain what some do.
  if (!has(verified_.front(), rows::tiles_as_stored)) return;
  std::erase_if(verified_, takes_all);
  note_tiles_as_stored(diagnosis);
}

void Search::note_scales(Diagnosis& diagnosis) const {
  const Suspect& first = verified_.front();
  if (scale_factor_ && (has(first, rows::scale_as_stored) || has_given_scale(first.candidate.hypothesis))) {
    TextStream text;
    const auto& [rule, factor] = *scale_factor_;
    text << (dump_.scales.size() == 1 ? "The scale is that of " : "All scales are those of ") << rule << " times "
         << static_cast<float>((factor.lowest + factor.highest) / 2) << '.';
    diagnosis.notes.push_back(text.str());
  }
  if (dump_.of_tensor && has(first, rows::tensor_scale_stale)) {
    TextStream text;
    text << "The scale of the tensor that was given, " << *dump_.of_tensor << ", is not the one that was used.";
    diagnosis.notes.push_back(text.str());
  }
}

void Search::list_explanations(Diagnosis& diagnosis) const {
  std::vector<Rank> ranks;
  ranks.reserve(verified_.size());
  for (const Suspect& one : verified_) ranks.push_back(one.rank());
  diagnosis.tied = count_tied(ranks);
  diagnosis.is_telling = verified_.front().side->source.has_number();
  std::size_t shown = std::max(diagnosis.is_telling ? diagnosis.tied : 1, options_.most_shown);
  for (std::size_t i = shown; i < verified_.size() && options_.expected && diagnosis.is_telling; ++i) {
    if (verified_[i].all() == 0 && verified_[i].candidate.hypothesis.is_plain()) shown = i + 1;
  }
  for (std::size_t i = 0; i < std::min(shown, verified_.size()); ++i) {
    const auto is_within = [&](const Suspect& other) { return explains_as_much_with_less(other, verified_[i]); };
    if (i >= diagnosis.tied &&
        std::any_of(verified_.begin(), verified_.begin() + static_cast<std::ptrdiff_t>(i), is_within)) {
      shown += 1;
      continue;
    }
    diagnosis.explanations.push_back({verified_[i].candidate.hypothesis, verified_[i].codes, verified_[i].scales});
  }
}

void Search::note_expected(Diagnosis& diagnosis) const {
  if (!options_.expected) return;
  diagnosis.expected = options_.expected_name;
  const Side& side = sides_.front();
  const Candidate expected = plain_candidates(side.facts, options_).front();
  if (expected.hypothesis.base == options_.expected_name &&
      !KernelModel(side.source, expected.hypothesis, &dump_).applies()) {
    diagnosis.notes.push_back(options_.expected_name + " does not take a tensor of this shape.");
  }
}

void Search::tell_rest(Diagnosis& diagnosis) const {
  const Suspect& first = verified_.front();
  diagnosis.rest = rest_of(first, x_, dump_);
  if (diagnosis.rest.empty() || first.codes * 2 <= diagnosis.elements) return;
  TextStream text;  // what the verdict does not name
  text << "The first explanation, " << describe(first.candidate.hypothesis) << ", is the nearest, and leaves "
       << first.codes << " of " << counted(diagnosis.elements, "code") << " unexplained.";
  diagnosis.rest.insert(diagnosis.rest.begin(), text.str());
}

void Search::tell_exercised(Diagnosis& diagnosis) const {
  if (!diagnosis.correct()) return;
  const Suspect& first = verified_.front();
  Hypothesis plain = first.candidate.hypothesis;
  plain.deviations.clear();
  const bool has_given_tiles = !first.candidate.hypothesis.deviations.empty();
  diagnosis.exercised = exercised_by(first.side->source, plain, !first.is_by_quantize && !has_given_tiles);
}

Diagnosis Search::report() {
  Diagnosis diagnosis;
  diagnosis.elements = dump_.codes.size();
  diagnosis.scales = dump_.scales.size();
  diagnosis.searched = searched_;
  if (verified_.empty()) refuse("no hypothesis applies to codes of this format and a tensor of this shape");
  // 1. The explanations.
  prefer_plain();
  join_verified();
  drop_needless_scales(diagnosis);
  list_explanations(diagnosis);
  diagnosis.format = verified_.front().candidate.hypothesis.recipe.format;
  diagnosis.factor = factor_;
  // 2. What is said of them.
  note_scales(diagnosis);
  note_expected(diagnosis);
  note_signs_of_nan(diagnosis);
  discriminate(diagnosis);
  tell_rest(diagnosis);
  tell_exercised(diagnosis);
  diagnosis.verdict = verdict_of(diagnosis);
  return diagnosis;
}

}  // namespace fp8lab::doctor
