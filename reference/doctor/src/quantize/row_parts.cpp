// SPDX-License-Identifier: Apache-2.0
// The part of the search for amaxes of a part of each row, of any length.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fp8lab/reference/scaling/facts.hpp"
#include "quantize/named_rows.hpp"
#include "quantize/search.hpp"

namespace fp8lab::doctor {
namespace {

/// Numbers of elements: [lowest, highest], none where lowest is the larger one.
struct Counts {
  std::size_t lowest, highest;
};

/// How many of the first elements of a row, or where it is backward of the last, have an amax that makes its scale.
template <typename MakesScale>
Counts counts_of_row(std::span<const float> row, bool is_backward, const MakesScale& makes_scale) {
  std::size_t lowest = 0;
  float amax = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const float magnitude = std::abs(row[is_backward ? row.size() - 1 - i : i]);
    if (!(magnitude > amax)) continue;
    amax = magnitude;
    const bool makes = makes_scale(amax);
    if (lowest != 0 && !makes) return {lowest, i};
    if (lowest == 0 && makes) lowest = i + 1;
  }
  return lowest == 0 ? Counts{1, 0} : Counts{lowest, row.size()};
}

/// The counts that make the scales of all rows.
Counts counts_of_rows(const KernelModel& model, const Source& source, bool is_backward) {
  Counts all{1, source.columns()};
  for (std::size_t row = 0; row < source.rows() && all.lowest <= all.highest; ++row) {
    const std::optional<std::uint32_t> word = model.word_there(row, 0);
    if (!word) return {1, 0};
    const Counts own = counts_of_row(source.values({row, 0, source.columns()}), is_backward,
                                     [&](float amax) { return model.stores(amax, *word); });
    all = {std::max(all.lowest, own.lowest), std::min(all.highest, own.highest)};
  }
  return all;
}

/// The multiple of the largest power of two.
std::size_t roundest(const Counts& counts) {
  std::size_t power = 1;
  while (counts.highest / (power * 2) * (power * 2) >= counts.lowest) power *= 2;
  return counts.highest / power * power;
}

/// The departure that makes the scales of all rows.
std::optional<Deviation> part_of_rows(const KernelModel& model, const Source& source, bool is_backward) {
  const Counts counts = counts_of_rows(model, source, is_backward);
  const std::size_t columns = source.columns();
  if (counts.lowest > counts.highest || counts.highest == columns) return std::nullopt;
  const std::size_t count =
      is_backward ? columns - roundest({columns - counts.highest, columns - counts.lowest}) : roundest(counts);
  const Departure& departure = is_backward ? rows::amax_of_last : rows::amax_of_first;
  return Deviation{&departure, counts.lowest, static_cast<float>(count), counts.highest};
}

/// How many of the first elements of the tensor have an amax that makes its one scale: whole rows, where they may be.
std::optional<Deviation> first_of_tensor(const KernelModel& model, const Source& source) {
  const std::optional<std::uint32_t> word = model.word_there(0, 0);
  if (!word) return std::nullopt;
  const Counts counts = counts_of_row(source.values(), false, [&](float amax) { return model.stores(amax, *word); });
  if (counts.lowest > counts.highest || counts.highest == source.size()) return std::nullopt;
  const std::size_t rows = (counts.lowest + source.columns() - 1) / source.columns() * source.columns();
  const std::size_t count = rows <= counts.highest ? rows : roundest(counts);
  return Deviation{&rows::amax_of_first_elements, counts.lowest, static_cast<float>(count), counts.highest};
}

}  // namespace

void Search::add_first_elements(std::vector<Suspect>& found) const {
  const Side& side = sides_.front();
  if (dump_.scales.size() != 1 || side.facts.direction != Direction::rowwise) return;
  for (const Candidate& plain : plain_candidates(side.facts, options_)) {
    const Recipe& recipe = plain.hypothesis.recipe;
    const bool is_of_tensor = recipe.tile_across == 0 && recipe.tile_along == 0;
    if (!is_of_tensor || is_given(recipe) || has_tensor_scale(recipe)) continue;
    const KernelModel model(side.source, plain.hypothesis, &dump_);
    if (!model.applies()) continue;
    const std::optional<Deviation> part = first_of_tensor(model, side.source);
    if (!part) continue;
    Suspect suspect{.candidate = plain, .side = &side};
    suspect.candidate.hypothesis.deviations.push_back(*part);
    suspect.candidate.cost += rows::amax_of_first_elements.cost;
    found.push_back(std::move(suspect));
  }
}

void Search::add_row_parts(std::vector<Suspect>& found) const {
  constexpr double cost = 1.05;
  if (dump_.scales.empty()) return;
  for (const Side& side : sides_) {
    for (const Candidate& plain : plain_candidates(side.facts, options_)) {
      const Recipe& recipe = plain.hypothesis.recipe;
      const bool is_of_rows = recipe.tile_across == 1 && recipe.tile_along == 0;
      if (!is_of_rows || is_given(recipe) || has_tensor_scale(recipe) || side.source.rows() < 2) continue;
      const KernelModel model(side.source, plain.hypothesis, &dump_);
      if (!model.applies()) continue;
      for (const bool is_backward : {false, true}) {
        const std::optional<Deviation> part = part_of_rows(model, side.source, is_backward);
        if (!part) continue;
        Suspect suspect{.candidate = plain, .side = &side};
        suspect.candidate.hypothesis.deviations.push_back(*part);
        suspect.candidate.cost += cost + (side.facts.direction == Direction::columnwise && sides_.size() > 1 ? 0.3 : 0);
        found.push_back(std::move(suspect));
      }
    }
  }
}

}  // namespace fp8lab::doctor
