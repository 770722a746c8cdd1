// SPDX-License-Identifier: Apache-2.0
// The part of the search that offers hypotheses to a sample, compares those that are left with everything, and learns
// from what contradicts them.
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "quantize/by_quantize.hpp"
#include "quantize/sample.hpp"
#include "quantize/search.hpp"

namespace fp8lab::doctor {

namespace {

/// How many hypotheses that contradict the sample are kept, how many that do not, and how many of the former are
/// compared with every element. Those that take the stored scales, whatever they are, explain as much under any recipe:
/// they are counted apart, and leave room for what follows a rule.
constexpr std::size_t most_kept = 24, most_consistent = 96, most_verified = 6;
/// Pieces of the sample that show whether a hypothesis is wrong in most elements.
constexpr std::size_t pieces_to_fail_on = 4;

}  // namespace

double Search::cost_of(const Side& side) const {
  return side.facts.direction == Direction::columnwise && sides_.size() > 1 ? 0.3 : 0;
}

void Search::vary(const Side& side, const Candidate& candidate) {
  for_each_variant(candidate, side.facts, [&](Candidate one) { offer(side, std::move(one), 1); });
}

namespace {

std::uint64_t mismatches_of(const KernelModel& model, const Piece& piece) {
  return model.code_mismatches(piece) + model.scale_mismatches(piece);
}

/// The first elements of a few pieces, which show whether a hypothesis is wrong in most.
std::vector<Piece> begins_of(const Side& side) {
  constexpr std::size_t elements_of_piece = 32;
  std::vector<Piece> begins;
  for (const Piece& piece : std::span(side.sample).first(std::min(side.sample.size(), pieces_to_fail_on))) {
    begins.push_back({piece.row, piece.column, std::min(piece.count, elements_of_piece)});
  }
  return begins;
}

/// Whether these elements contradict more often than `limit` says, or than one would expect where half of all do.
bool is_wrong_in_most(const Side& side, const std::function<const KernelModel&()>& model, Contradictions& known,
                      std::uint64_t limit) {
  const std::vector<Piece> begins = begins_of(side);
  std::uint64_t seen = 0;
  for (const Piece& one : begins) seen += one.count;
  if (!known.of_begins) {
    std::uint64_t count = 0;
    for (const Piece& one : begins) count += mismatches_of(model(), one);
    known.of_begins = count;
  }
  return *known.of_begins > limit || *known.of_begins * 20 > seen * 13 + 20;
}

}  // namespace

void Search::offer(const Side& side, Candidate candidate, int changes) {
  constexpr std::size_t most_waiting = 128;
  checkpoint();
  ++searched_;
  candidate.cost += cost_of(side);
  Contradictions* const known = offered_.of(side, candidate.hypothesis);
  if (known != nullptr && known->is_awaited) weigh();  // two threads may not add to it
  if (known != nullptr && !known->applies.value_or(true)) return;
  if (known != nullptr) known->is_awaited = true;
  waiting_.push_back({.side = &side, .candidate = std::move(candidate), .changes = changes, .known = known});
  if (waiting_.size() == most_waiting) weigh();
}

void Search::count_contradictions(Waiting& one, std::uint64_t limit) const {
  const Side& side = *one.side;
  const Hypothesis& hypothesis = one.candidate.hypothesis;
  Contradictions forgotten;
  Contradictions& known = one.known == nullptr ? forgotten : *one.known;
  std::optional<KernelModel> made;
  const auto model = [&]() -> const KernelModel& {
    return made ? *made : made.emplace(side.source, hypothesis, &dump_);
  };
  if (!known.applies) known.applies = model().applies();
  if (!*known.applies) return;
  if (one.changes > 0 && is_wrong_in_most(side, model, known, limit)) return;
  // Most are wrong in most elements, which a few pieces show.
  constexpr std::uint64_t few = pieces_to_fail_on * piece_length;
  const bool is_by_chance = is_stochastic(hypothesis.recipe);
  std::uint64_t count = 0;
  std::uint64_t seen = 0;
  PartsCut parts;
  for (const SamplePiece& piece : side.sample) {
    count += known.of_piece(piece.number, [&] { return mismatches_of(model(), piece); });
    seen += piece.count;
    if (count > limit || (one.changes > 0 && seen >= few && count * 2 > seen)) return;
    if (is_by_chance) model().add_parts_cut(piece, parts);
  }
  const Randomness random = is_by_chance ? parts.randomness() : Randomness();
  if (!random.is_random()) count += static_cast<std::uint64_t>(random.inexact);
  if (count <= limit) one.count = count;
}

void Search::weigh() {
  // 1. Threads count, up to what is too much before any of these is kept: it is no less afterwards.
  std::array<std::uint64_t, 2> limits{};
  for (const bool has_no_rule : {false, true}) limits[has_no_rule ? 1 : 0] = most_in_sample(has_no_rule);
  std::atomic<std::size_t> next = 0;
  const auto count_some = [&](std::size_t, std::size_t) {
    for (std::size_t i = next++; i < waiting_.size(); i = next++) {
      checkpoint();
      Waiting& one = waiting_[i];
      count_contradictions(one, limits[takes_any_scale(one.candidate.hypothesis) ? 1 : 0]);
    }
  };
  const int threads = std::max(1, std::min(options_.threads, static_cast<int>(waiting_.size())));
  parallel_for(static_cast<std::size_t>(threads), threads, count_some);
  // 2. What is kept follows from the order alone.
  for (Waiting& one : waiting_) {
    if (one.known != nullptr) one.known->is_awaited = false;
    const bool has_no_rule = takes_any_scale(one.candidate.hypothesis);
    if (!one.count || *one.count > most_in_sample(has_no_rule)) continue;
    Suspect suspect{.candidate = std::move(one.candidate), .side = one.side, .in_sample = *one.count};
    kept_.insert(std::ranges::upper_bound(kept_, suspect, is_before), std::move(suspect));
    drop_last(has_no_rule);
  }
  waiting_.clear();
}

std::uint64_t Search::most_in_sample(bool has_no_rule) const {
  std::size_t count = 0;
  for (const Suspect& one : kept_) {
    if (doctor::takes_any_scale(one.candidate.hypothesis) == has_no_rule && ++count == most_kept) return one.in_sample;
  }
  return std::numeric_limits<std::uint64_t>::max();
}

void Search::drop_last(bool has_no_rule) {
  std::size_t count = 0;
  std::size_t consistent = 0;
  auto last = kept_.end();
  for (auto one = kept_.begin(); one != kept_.end(); ++one) {
    if (doctor::takes_any_scale(one->candidate.hypothesis) != has_no_rule) continue;
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

void Search::verify_or_copy(Suspect& one) {
  const auto makes_the_same = [&](const Suspect& other) {
    return !other.is_by_quantize && other.side == one.side &&
           other.candidate.hypothesis.recipe == one.candidate.hypothesis.recipe &&
           other.candidate.hypothesis.deviations == one.candidate.hypothesis.deviations;
  };
  const auto same = std::ranges::find_if(verified_, makes_the_same);
  if (same == verified_.end()) return verify(one, dump_, compared_);
  one.codes = same->codes;
  one.scales = same->scales;
  one.unexplained = same->unexplained;
  one.examples = same->examples;
  one.scale_examples = same->scale_examples;
}

void Search::verify_best() {
  weigh();
  std::size_t contradicting = 0;
  for (Suspect& one : kept_) {
    if (one.in_sample != 0 && ++contradicting > most_verified) break;
    if (is_verified(one) || !is_modelled(one.candidate.hypothesis.recipe)) continue;
    verify_or_copy(one);
    verified_.push_back(one);
  }
  sort_verified();
}

void Search::sort_verified() { sort_by_rank(verified_, std::mem_fn(&Suspect::rank)); }

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
      const bool is_own = &side == best.side;
      const Piece piece = piece_around(side.source, is_own ? index : best.side->source.turned(index));
      const auto is_known = [&](const Piece& other) { return other.row == piece.row && other.column == piece.column; };
      if (std::ranges::any_of(side.sample, is_known)) continue;
      // Behind those on which most hypotheses fail, which a departure in one place must not do.
      const std::size_t at = std::min(side.sample.size(), pieces_to_fail_on);
      const SamplePiece learned{piece, side.sample.size()};
      side.sample.insert(side.sample.begin() + static_cast<std::ptrdiff_t>(at), learned);
      ++added;
    }
  }
  return added != 0;
}

}  // namespace fp8lab::doctor
