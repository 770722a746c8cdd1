// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/forensics/diagnose.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <utility>

#include "forensics/by_quantize.hpp"
#include "forensics/hypotheses.hpp"
#include "forensics/kernel_model.hpp"
#include "forensics/localize.hpp"
#include "forensics/verdict.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"

namespace fp8lab::forensics {
namespace {

/// Elements of a piece of the sample.
constexpr std::size_t piece_length = 128;
/// Pieces of the sample that are drawn.
constexpr std::size_t drawn_pieces = 40;
/// How many hypotheses that contradict the sample are kept, how many that do not, and how many of the former are
/// compared with every element.
constexpr std::size_t most_kept = 24, most_consistent = 96, most_verified = 6;
/// How often elements that contradict join the sample.
constexpr int most_rounds = 4;
/// Changes and departures in a hypothesis.
constexpr int most_levels = 3;

Piece piece_around(const Source& source, std::uint64_t index) {
  const std::size_t column = index % source.columns() / piece_length * piece_length;
  return {index / source.columns(), column, std::min(piece_length, source.columns() - column)};
}

/// NaN, infinity, subnormals, -0 and 0.
std::size_t special_kind(float x) {
  if (std::isnan(x)) return 0;
  if (std::isinf(x)) return 1;
  if (x != 0) return 2;
  return std::signbit(x) ? 3 : 4;
}

/// The indices of the element of largest magnitude, and of the first of each special kind.
std::vector<std::uint64_t> special_places(const Source& source) {
  std::vector<std::uint64_t> places(1);
  std::array<bool, 5> is_found{};
  float most = 0;
  for (std::uint64_t i = 0; i < source.size(); ++i) {
    const float magnitude = std::abs(source.values()[i]);
    if (magnitude > most) {
      most = magnitude;
      places.front() = i;
    }
    if (magnitude >= std::numeric_limits<float>::min() && magnitude < std::numeric_limits<float>::infinity()) continue;
    if (!std::exchange(is_found[special_kind(source.values()[i])], true)) places.push_back(i);
  }
  return places;
}

/// Pieces at the ends, of special elements, and some that are drawn.
std::vector<Piece> first_sample(const Source& source) {
  std::vector<Piece> pieces;
  const std::uint64_t size = source.size();
  if (size <= drawn_pieces * piece_length) {
    for (std::uint64_t i = 0; i < source.rows(); ++i) {
      for (std::uint64_t c = 0; c < source.columns(); c += piece_length) {
        pieces.push_back(piece_around(source, i * source.columns() + c));
      }
    }
    return pieces;
  }
  std::uint64_t state = 1;
  for (std::size_t i = 0; i < drawn_pieces; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    pieces.push_back(piece_around(source, (state >> 16) % size));
  }
  for (const std::uint64_t place : {std::uint64_t{0}, source.columns() - 1, size - source.columns(), size - 1}) {
    pieces.push_back(piece_around(source, place));
  }
  for (const std::uint64_t place : special_places(source)) pieces.push_back(piece_around(source, place));
  return pieces;
}

/// The tensor as one direction of quantization sees it.
struct Side {
  Source source;
  SearchFacts facts;
  std::vector<Piece> sample;
};

/// A hypothesis under examination.
struct Suspect {
  Candidate candidate;
  const Side* side;
  bool is_by_quantize = false;  // and not by a KernelModel
  std::uint64_t in_sample = 0;  // unexplained codes and scales of the sample
  std::uint64_t codes = 0, scales = 0;
  Unexplained unexplained = {};
  std::vector<std::uint64_t> examples = {};  // indices of the side's source

  [[nodiscard]] std::uint64_t all() const { return codes + scales; }
};

bool is_before(const Suspect& a, const Suspect& b) {
  return std::pair(a.in_sample, a.candidate.cost) < std::pair(b.in_sample, b.candidate.cost);
}

/// Compares with every element and scale.
void verify(Suspect& suspect, const StoredDump& dump) {
  const Source& source = suspect.side->source;
  const KernelModel model(source, suspect.candidate.hypothesis, &dump);
  model.complete();
  suspect.codes = 0;
  suspect.examples.clear();
  constexpr std::size_t most_examples = 64;
  std::mutex mutex;
  Randomness random;
  Unexplained& found = suspect.unexplained;
  found = {.first = source.size(), .first_row = source.rows(), .first_column = source.columns()};
  const std::size_t rows = std::max<std::size_t>(1, scalar_piece / std::max<std::size_t>(1, source.columns()));
  parallel_for(
      source.rows(), source.threads(),
      [&](std::size_t first, std::size_t last) {
        std::vector<std::uint64_t> which;
        std::uint64_t count = 0;
        Randomness own;
        for (std::size_t row = first; row < last; ++row) {
          own.add(model.randomness({row, 0, source.columns()}));
          for (std::size_t column = 0; column < source.columns(); column += scalar_piece) {
            const std::size_t length = std::min(scalar_piece, source.columns() - column);
            count += model.code_mismatches({row, column, length}, &which, which.size() + length);
          }
        }
        const std::scoped_lock lock(mutex);
        random.add(own);
        suspect.codes += count;
        for (const std::uint64_t index : which) {
          const std::size_t row = index / source.columns();
          const std::size_t column = index % source.columns();
          found.first = std::min(found.first, index);
          found.last = std::max(found.last, index);
          found.first_row = std::min(found.first_row, row);
          found.last_row = std::max(found.last_row, row);
          found.first_column = std::min(found.first_column, column);
          found.last_column = std::max(found.last_column, column);
        }
        // The smallest indices, so that the result does not depend on threads.
        suspect.examples.insert(suspect.examples.end(), which.begin(),
                                which.begin() + static_cast<std::ptrdiff_t>(std::min(which.size(), most_examples)));
        std::ranges::sort(suspect.examples);
        if (suspect.examples.size() > most_examples) suspect.examples.resize(most_examples);
      },
      rows);
  found.count = suspect.codes;
  suspect.scales = model.scale_mismatches();
  if (!random.is_random()) suspect.codes += static_cast<std::uint64_t>(random.inexact);
}

class Search {
 public:
  Search(const MatrixView& x, const Dump& dump, const DiagnoseOptions& options)
      : x_(x), dump_(x, dump), options_(options) {
    SearchFacts facts;
    facts.is_packed = dump_.was_packed;
    facts.format = dump_.format;
    facts.scales = dump_.scales.size();
    facts.largest_code = *std::ranges::max_element(dump_.codes);
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
      sides_.push_back(Side{rowwise.transposed(), other, {}});
    }
    if (options.direction != Direction::columnwise) sides_.insert(sides_.begin(), Side{std::move(rowwise), facts, {}});
    for (Side& side : sides_) side.sample = first_sample(side.source);
  }

  Diagnosis run() {
    for (int level = 0; level < most_levels; ++level) {
      const std::vector<Suspect> parents = kept_;
      if (level == 0) quantize_others();
      // The columnwise side only where the rowwise one does not explain everything.
      for (std::size_t sides = level == 0 ? sides_.size() : 1; sides <= sides_.size(); ++sides) {
        for (int round = 0; round < most_rounds; ++round) {
          sieve(level, parents, sides);
          verify_best();
          if (!learn()) break;
        }
        if (level > 0) localize();
        if (is_explained(level)) break;
      }
      if (is_explained(level)) break;
    }
    return report();
  }

 private:
  /// The first `sides` of the sides.
  void sieve(int level, const std::vector<Suspect>& parents, std::size_t sides) {
    kept_.clear();
    for (const Side& side : sides_) {
      if (level > 0) continue;
      for (Candidate& one : plain_candidates(side.facts, options_)) offer(side, std::move(one), 0);
    }
    if (level == 0) return;
    for (const Suspect& one : parents) offer(*one.side, one.candidate, 0);
    if (level == 1) {
      for (std::size_t i = 0; i < sides; ++i) {
        for (const Candidate& one : plain_candidates(sides_[i].facts, options_)) vary(sides_[i], one);
      }
      return;
    }
    constexpr std::size_t most_parents = 16;
    for (std::size_t i = 0; i < std::min(parents.size(), most_parents); ++i)
      vary(*parents[i].side, parents[i].candidate);
  }

  /// Recipes that a KernelModel does not have all of: by quantize(), without departures.
  void quantize_others() {
    for (const Side& side : sides_) {
      for (Candidate& one : plain_candidates(side.facts, options_)) {
        const Hypothesis& hypothesis = one.hypothesis;
        const bool is_turned =
            hypothesis.recipe.transform != Transform::none && hypothesis.direction == Direction::columnwise;
        if (!is_turned && is_modelled_here(hypothesis.recipe)) continue;
        const Stored stored = stored_by_quantize(x_, hypothesis.recipe, hypothesis.direction, options_.threads);
        ++searched_;
        if (stored.is_refused) continue;
        Suspect suspect{.candidate = std::move(one), .side = &side, .is_by_quantize = true};
        if (side.facts.direction == Direction::columnwise && sides_.size() > 1) suspect.candidate.cost += 0.3;
        suspect.codes = code_mismatches(stored, dump_);
        suspect.scales = forensics::scale_mismatches(stored, dump_);
        verified_.push_back(std::move(suspect));
      }
    }
    sort_verified();
  }

  bool is_modelled_here(const Recipe& recipe) {
    for (const auto& [known, is] : modelled_) {
      if (known == recipe) return is;
    }
    return modelled_.emplace_back(recipe, is_modelled(recipe)).second;
  }

  void sort_verified() {
    std::ranges::stable_sort(verified_, [](const Suspect& a, const Suspect& b) {
      return std::pair(a.all(), a.candidate.cost) < std::pair(b.all(), b.candidate.cost);
    });
  }

  void vary(const Side& side, const Candidate& candidate) {
    for_each_variant(candidate, side.facts, [&](Candidate one) { offer(side, std::move(one), 1); });
  }

  /// Keeps the candidate where it contradicts the sample less than others.
  void offer(const Side& side, Candidate candidate, int level) {
    checkpoint();
    ++searched_;
    if (side.facts.direction == Direction::columnwise && sides_.size() > 1) candidate.cost += 0.3;
    const KernelModel model(side.source, candidate.hypothesis, &dump_);
    if (!model.applies()) return;
    const std::uint64_t limit =
        kept_.size() < most_kept ? std::numeric_limits<std::uint64_t>::max() : kept_[most_kept - 1].in_sample;
    // Most are wrong in most elements, which a few pieces show.
    constexpr std::uint64_t few = 4 * piece_length;
    std::uint64_t count = 0;
    std::uint64_t seen = 0;
    Randomness random;
    for (const Piece& piece : side.sample) {
      count += model.code_mismatches(piece) + model.scale_mismatches(piece);
      seen += piece.count;
      if (count > limit || (level > 0 && seen >= few && count * 2 > seen)) return;
      random.add(model.randomness(piece));
    }
    if (!random.is_random()) count += static_cast<std::uint64_t>(random.inexact);
    if (count > limit) return;
    Suspect suspect{.candidate = std::move(candidate), .side = &side, .in_sample = count};
    kept_.insert(std::ranges::upper_bound(kept_, suspect, is_before), std::move(suspect));
    const auto consistent = static_cast<std::size_t>(std::ranges::count(kept_, std::uint64_t{0}, &Suspect::in_sample));
    if (kept_.size() > std::clamp(consistent, most_kept, most_consistent)) kept_.pop_back();
  }

  /// Compares what agrees with the sample, or else the best, with everything.
  void verify_best() {
    std::size_t contradicting = 0;
    for (Suspect& one : kept_) {
      if (one.in_sample != 0 && ++contradicting > most_verified) break;
      const auto is_same = [&](const Suspect& other) {
        return other.side == one.side && other.candidate.cost == one.candidate.cost &&
               other.candidate.hypothesis.base == one.candidate.hypothesis.base &&
               other.candidate.hypothesis.recipe == one.candidate.hypothesis.recipe &&
               other.candidate.hypothesis.deviations == one.candidate.hypothesis.deviations;
      };
      const auto known = std::ranges::find_if(verified_, is_same);
      if (known != verified_.end()) continue;
      if (!is_modelled_here(one.candidate.hypothesis.recipe)) continue;
      verify(one, dump_);
      verified_.push_back(one);
    }
    sort_verified();
  }

  /// Adds elements that contradict what agreed with the sample. Whether there were some.
  bool learn() {
    constexpr std::size_t most_learned = 8;
    if (verified_.empty() || verified_.front().all() == 0) return false;
    const Suspect& best = verified_.front();
    std::size_t added = 0;
    for (const std::uint64_t index : best.examples) {
      if (added == most_learned) break;
      for (Side& side : sides_) {
        const Source& own = best.side->source;
        const bool is_own = &side == best.side;
        const std::uint64_t place = is_own ? index : index % own.columns() * own.rows() + index / own.columns();
        const Piece piece = piece_around(side.source, place);
        const auto is_known = [&](const Piece& other) {
          return other.row == piece.row && other.column == piece.column;
        };
        if (std::ranges::any_of(side.sample, is_known)) continue;
        side.sample.insert(side.sample.begin(), piece);
        ++added;
      }
    }
    return added != 0;
  }

  /// Looks for departures in one place, which elements left unexplained suggest.
  void localize() {
    constexpr std::size_t most_looked_at = 4;
    if (verified_.empty() || verified_.front().all() == 0) return;
    std::vector<Suspect> found;
    for (std::size_t i = 0; i < std::min(verified_.size(), most_looked_at); ++i) {
      const Suspect& one = verified_[i];
      if (one.codes == 0 || one.is_by_quantize) continue;
      const KernelModel model(one.side->source, one.candidate.hypothesis, &dump_);
      for (Candidate& other : local_candidates(one.candidate, model, one.side->source, dump_, one.unexplained)) {
        found.push_back({.candidate = std::move(other), .side = one.side});
      }
    }
    add_stale(found);
    for (Suspect& one : found) {
      verify(one, dump_);
      ++searched_;
      verified_.push_back(std::move(one));
    }
    sort_verified();
  }

  /// One factor for all elements, whatever the tensor.
  void add_stale(std::vector<Suspect>& found) {
    for (const Side& side : sides_) {
      for (const Candidate& plain : plain_candidates(side.facts, options_)) {
        const bool is_expected = options_.expected && plain.hypothesis.base == options_.expected_name;
        const bool is_cast = plain.hypothesis.base.ends_with("cuda_satfinite");
        if ((!is_expected && !is_cast) || plain.hypothesis.recipe.tile_along != 0 || &side != &sides_.front()) continue;
        Candidate one = plain;
        const KernelModel model(side.source, one.hypothesis, &dump_);
        if (!model.applies()) continue;
        const auto interval = factor_interval(model, side.source, dump_);
        if (!interval) continue;
        if (!factor_) factor_ = interval;
        std::optional<double> stored;
        if (const auto& scale = side.facts.scale; scale.has_value()) stored = 1 / *scale;
        one.hypothesis.deviations.push_back({Departure::scale_stale, 0, simplest(*interval, stored)});
        one.cost += 1.5;
        found.push_back({.candidate = std::move(one), .side = &side});
      }
    }
  }

  [[nodiscard]] bool is_explained(int level) const {
    if (verified_.empty() || verified_.front().all() != 0) return false;
    // Scales that follow from nothing explain much: first all is tried that is more than that.
    constexpr std::array most_plausible{cost_of_departure, 2.3, std::numeric_limits<double>::infinity()};
    return verified_.front().candidate.cost < most_plausible[static_cast<std::size_t>(level)];
  }

  Diagnosis report();
  void discriminate(Diagnosis& diagnosis) const;

  const MatrixView& x_;
  StoredDump dump_;
  const DiagnoseOptions& options_;
  std::vector<Side> sides_;
  std::vector<std::pair<Recipe, bool>> modelled_;
  std::vector<Suspect> kept_;      // by the sample
  std::vector<Suspect> verified_;  // by everything, the best first
  std::optional<FactorInterval> factor_;
  std::size_t searched_ = 0;
};

/// The index in x of an element of a side's source.
std::uint64_t index_in_x(const Side& side, std::uint64_t index) {
  if (side.facts.direction == Direction::rowwise) return index;
  const Source& source = side.source;
  return index % source.columns() * source.rows() + index / source.columns();
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

/// Sentences about a tensor that says little.
std::vector<std::string> notes_of(const Source& source) {
  const auto numbers = std::ranges::count_if(source.values(), [](float x) { return std::isfinite(x) && x != 0; });
  if (numbers != 0) return {};
  return {"x has no number but zero: such a tensor says nothing of scales and rounding."};
}

Diagnosis Search::report() {
  Diagnosis diagnosis;
  diagnosis.elements = dump_.codes.size();
  diagnosis.scales = dump_.scales.size();
  diagnosis.searched = searched_;
  if (verified_.empty()) refuse("no hypothesis applies to codes of this format and a tensor of this shape");
  // 1. One of those that are the same.
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
  // 2. What explains equally much and is equally plausible.
  const Suspect& first = verified_.front();
  constexpr double less_plausible = 0.75;
  diagnosis.tied = static_cast<std::size_t>(std::ranges::count_if(verified_, [&](const Suspect& one) {
    return one.all() == 0 && one.candidate.cost < first.candidate.cost + less_plausible;
  }));
  diagnosis.tied = std::max<std::size_t>(diagnosis.tied, 1);
  const std::size_t shown = std::max(diagnosis.tied, options_.most_shown);
  for (std::size_t i = 0; i < std::min(shown, verified_.size()); ++i) {
    diagnosis.explanations.push_back({verified_[i].candidate.hypothesis, verified_[i].codes, verified_[i].scales});
  }
  diagnosis.format = first.candidate.hypothesis.recipe.format;
  diagnosis.factor = factor_;
  diagnosis.notes = notes_of(first.side->source);
  discriminate(diagnosis);
  diagnosis.verdict = verdict_of(diagnosis);
  return diagnosis;
}

}  // namespace

Diagnosis diagnose(const MatrixView& x, const Dump& dump, const DiagnoseOptions& options) {
  const DefaultEnvironment environment;
  check_threads(options.threads);
  if (x.size() == 0) refuse("x has no elements");
  if (options.expected) check_recipe(*options.expected);
  return Search(x, dump, options).run();
}

}  // namespace fp8lab::forensics
