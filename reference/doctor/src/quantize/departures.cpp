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
