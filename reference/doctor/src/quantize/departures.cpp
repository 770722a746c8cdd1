// SPDX-License-Identifier: Apache-2.0
// What all rows of the table of departures have in common, and hypotheses in words.
#include <algorithm>
#include <string>
#include <string_view>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "quantize/departures/shared.hpp"

namespace fp8lab::doctor {

std::string_view Deviation::name() const { return departure->name; }

bool has(const Hypothesis& hypothesis, const Departure& departure) {
  return std::ranges::count(hypothesis.deviations, &departure, &Deviation::departure) != 0;
}

bool has_no_rule(const Hypothesis& hypothesis) {
  return std::ranges::any_of(hypothesis.deviations, [](const Deviation& one) { return one.departure->has_no_rule; });
}

bool Hypothesis::is_plain() const {
  const auto is_given = [](const Deviation& one) { return one.departure->is_given; };
  return changes.empty() && std::ranges::all_of(deviations, is_given);
}

std::vector<Deviation> with_values(std::span<const float> values) {
  std::vector<Deviation> all;
  for (const float value : values) all.push_back({.value = value});
  return all;
}

std::vector<Deviation> small_numbers_above(float least) {
  std::vector<Deviation> all = with_values(small_numbers);
  std::erase_if(all, [&](const Deviation& one) { return !(one.value >= least * 0x1p-26F); });
  return all;
}

void tell_value(TextStream& text, const Deviation& deviation, const Hypothesis& /*hypothesis*/) {
  text << ": " << deviation.value;
}

void tell_element(TextStream& text, const Deviation& deviation, const Hypothesis& /*hypothesis*/) {
  text << ", at element " << deviation.place;
}

std::size_t other_row(std::size_t row, std::size_t rows, const Deviation& own) {
  const auto away = static_cast<std::size_t>(own.value);
  if (away == 0 || away >= rows) return row;
  switch (static_cast<OtherRow>(own.last)) {
    case OtherRow::above: return row >= std::max<std::size_t>(own.place, away) ? row - away : row;
    case OtherRow::above_round: return (row + rows - away) % rows;
    case OtherRow::upper_half: return row / away % 2 == 1 ? row - away : row;
    case OtherRow::below: return row + away < rows ? row + away : row;
    case OtherRow::below_round: return (row + away) % rows;
    case OtherRow::lower_half: return row / away % 2 == 0 && row + away < rows ? row + away : row;
  }
  return row;
}

std::vector<Deviation> other_rows(std::size_t rows) {
  std::vector<Deviation> all;
  for (std::size_t away = 2; away < rows && away <= 128; away *= 2) {
    for (std::uint64_t kind = 0; kind <= static_cast<std::uint64_t>(OtherRow::lower_half); ++kind) {
      all.push_back({.value = static_cast<float>(away), .last = kind});
    }
  }
  return all;
}

void tell_other_row(TextStream& text, const Deviation& own, const Hypothesis& /*hypothesis*/) {
  text << ", " << own.value << " rows of tiles ";
  switch (static_cast<OtherRow>(own.last)) {
    case OtherRow::above:
      text << "above";
      if (own.place != 0) text << ", from row " << own.place << " on";
      return;
    case OtherRow::above_round: text << "above, for the first rows that of the last ones"; return;
    case OtherRow::upper_half: text << "above, in the lower half of every " << 2 * own.value << " rows"; return;
    case OtherRow::below: text << "below"; return;
    case OtherRow::below_round: text << "below, for the last rows that of the first ones"; return;
    case OtherRow::lower_half: text << "below, in the upper half of every " << 2 * own.value << " rows"; return;
  }
}

Recipe unrounded(Recipe recipe) {
  recipe.rounding = ScaleRounding::none;
  recipe.scale_type = ScaleType::float32;
  if (has_tensor_scale(recipe)) {
    recipe.tensor_scale = TensorScaleRule::none;
    recipe.quotient = Quotient::amax_over_largest;
  }
  if (recipe.quotient == Quotient::amax_over_power) recipe.quotient = Quotient::amax_over_largest;
  return recipe;
}

std::string describe(const Hypothesis& hypothesis) {
  const DefaultEnvironment environment;
  TextStream text;
  text << hypothesis.base;
  if (hypothesis.direction == Direction::columnwise) text << ", columnwise";
  std::string_view separator = ", but ";
  for (const std::string& change : hypothesis.changes) {
    text << separator << change;
    separator = "; ";
  }
  // What such recipes make of columns is that of the transpose, without a departure.
  const bool is_of_transpose = hypothesis.direction == Direction::columnwise &&
                               (hypothesis.recipe.transposed_columnwise || hypothesis.recipe.format.bits() == 4);
  for (const Deviation& deviation : hypothesis.deviations) {
    const Departure& own = *deviation.departure;
    text << (own.is_given && separator == ", but " ? ", and " : separator)
         << (is_of_transpose && !own.words_of_transpose.empty() ? own.words_of_transpose : own.words);
    if (own.details != nullptr) own.details(text, deviation, hypothesis);
    if (!own.is_given) separator = "; ";
  }
  return text.str();
}

}  // namespace fp8lab::doctor
