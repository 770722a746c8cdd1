// SPDX-License-Identifier: Apache-2.0
#include "quantize/suspect.hpp"

#include <algorithm>
#include <mutex>

#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/reference/scaling/facts.hpp"

namespace fp8lab::doctor {

namespace {

constexpr std::size_t most_examples = 64;

/// Compares codes, up to `enough`.
void compare_codes(Suspect& suspect, const KernelModel& model, std::uint64_t enough) {
  const Source& source = suspect.side->source;
  suspect.codes = 0;
  suspect.examples.clear();
  std::mutex mutex;
  const bool is_by_chance = is_stochastic(suspect.candidate.hypothesis.recipe);
  Randomness random;
  Unexplained& found = suspect.unexplained;
  found = Unexplained::none_of(source);
  const std::size_t columns = std::max<std::size_t>(1, source.columns());
  const std::size_t rows = std::max<std::size_t>(1, scalar_piece / columns);
  parallel_for(
      source.rows(), source.threads(),
      [&](std::size_t first, std::size_t last) {
        {
          const std::scoped_lock lock(mutex);
          if (suspect.codes >= enough) return;
        }
        std::vector<std::uint64_t> which;
        Unexplained places = Unexplained::none_of(source);
        std::uint64_t count = 0;
        PartsCut parts;
        for (std::size_t row = first; row < last; ++row) {
          model.add_parts_cut({row, 0, source.columns()}, parts);
          for (std::size_t column = 0; column < source.columns(); column += scalar_piece) {
            const std::size_t length = std::min(scalar_piece, source.columns() - column);
            count += model.code_mismatches({row, column, length}, &which, most_examples, &places);
          }
        }
        const std::scoped_lock lock(mutex);
        if (is_by_chance) random.add(parts.randomness());
        suspect.codes += count;
        found.join(places);
        // The smallest indices, so that the result does not depend on threads.
        suspect.examples.insert(suspect.examples.end(), which.begin(), which.end());
        std::ranges::sort(suspect.examples);
        if (suspect.examples.size() > most_examples) suspect.examples.resize(most_examples);
      },
      rows);
  found.count = suspect.codes;
  if (!random.is_random()) suspect.codes += static_cast<std::uint64_t>(random.inexact);
}

void compare_scales(Suspect& suspect, const KernelModel& model) {
  suspect.scale_examples.clear();
  suspect.scales = model.scale_mismatches(&suspect.scale_examples, most_examples);
}

}  // namespace

bool ComparedCasts::find(const KernelModel& model, Suspect& suspect) {
  sought_ = model.cast_of_tiles();
  if (!sought_) return false;
  const auto known = std::ranges::find(entries_, *sought_, &Entry::cast);
  if (known == entries_.end()) return false;
  suspect.codes = known->codes;
  suspect.unexplained = known->unexplained;
  suspect.examples = known->examples;
  std::rotate(known, known + 1, entries_.end());
  return true;
}

void ComparedCasts::add(const Suspect& suspect) {
  constexpr std::size_t most = 64;
  constexpr std::size_t most_factors = std::size_t{1} << 23;
  if (!sought_) return;
  std::size_t factors = sought_->factors.size();
  std::size_t kept = 0;
  while (kept + 1 < most && kept < entries_.size()) {
    factors += entries_[entries_.size() - kept - 1].cast.factors.size();
    if (factors > most_factors) break;
    ++kept;
  }
  entries_.erase(entries_.begin(), entries_.end() - static_cast<std::ptrdiff_t>(kept));
  entries_.push_back({std::move(*sought_), suspect.codes, suspect.unexplained, suspect.examples});
}

bool RefutedBefore::leaves(const Suspect& suspect, std::uint64_t limit) const {
  const Hypothesis& own = suspect.candidate.hypothesis;
  return std::ranges::any_of(entries_, [&](const Entry& one) {
    return one.at_least >= limit && one.side == suspect.side && one.recipe == own.recipe &&
           one.deviations == own.deviations;
  });
}

void RefutedBefore::add(const Suspect& suspect, std::uint64_t at_least) {
  const Hypothesis& own = suspect.candidate.hypothesis;
  entries_.push_back({suspect.side, own.recipe, own.deviations, at_least});
}

void verify(Suspect& suspect, const StoredDump& dump) {
  ComparedCasts none;
  verify(suspect, dump, none);
}

void verify(Suspect& suspect, const StoredDump& dump, ComparedCasts& known, std::uint64_t enough) {
  const KernelModel model(suspect.side->source, suspect.candidate.hypothesis, &dump);
  model.complete();
  if (!known.find(model, suspect)) {
    compare_codes(suspect, model, enough);
    if (suspect.codes < enough) known.add(suspect);
  }
  if (suspect.codes < enough) compare_scales(suspect, model);
}

}  // namespace fp8lab::doctor
