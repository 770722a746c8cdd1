// SPDX-License-Identifier: Apache-2.0
// Explanations of a GEMM in words.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/text_stream.hpp"
#include "gemm/hypotheses.hpp"

namespace fp8lab::doctor {

namespace {

/// The fewest digits that give the number again.
std::string digits_of(float x) {
  std::array<char, 32> room{};
  auto* const end = std::to_chars(room.data(), room.data() + room.size(), x).ptr;
  return {room.data(), end};
}

/// ": 1/sqrt(128), 0.088388346", or some of several numbers.
void put_factors(TextStream& text, const std::vector<float>& factors) {
  constexpr std::size_t most = 4;
  std::string_view separator = ": ";
  for (const float factor : std::span(factors).first(std::min(most, factors.size()))) {
    const std::string words = words_of_factor(factor);
    const std::string digits = digits_of(factor);
    text << separator << words;
    if (words != digits) text << " (" << digits << ")";
    separator = ", ";
  }
  if (factors.size() > most) text << ", ...";
}

/// Which products a departure is about.
void put_products(TextStream& text, const FoundDeparture& one) {
  const GemmReading& reading = one.row->reading;
  const auto put_list = [&](std::size_t most) {
    std::string_view separator;
    for (const std::size_t block : std::span(one.blocks).first(std::min(most, one.blocks.size()))) {
      text << separator << block;
      separator = ", ";
    }
    if (one.blocks.size() > most) text << ", ...";
  };
  if (reading.stale_start && one.blocks.size() == 6) {
    const auto& at = one.blocks;
    text << " (rows " << at[0] << " to " << at[0] + at[2] - 1 << ", columns " << at[1] << " to " << at[1] + at[3] - 1
         << ", from those of row " << at[4] << " and column " << at[5] << " on)";
    return;
  }
  if (reading.promotion == PromotionReading::missed) text << " (before k = " << one.depth << ")";
  if (reading.promotion == PromotionReading::kept) {
    const auto again = std::ranges::adjacent_find(one.blocks) - one.blocks.begin();
    text << " (before k = " << (static_cast<std::size_t>(again) + 1) * one.depth << ")";
  }
  if (reading.promotion != PromotionReading::own) return;
  switch (reading.products) {
    case ProductReading::own: return;
    case ProductReading::head_missing:
    case ProductReading::head_twice:
    case ProductReading::tail_twice: text << " (" << one.depth << " of them)"; return;
    case ProductReading::descending: text << " (of " << one.depth << ")"; return;
    case ProductReading::blocks:
      text << " (" << one.depth << " elements in each: ";
      put_list(64);
      text << ")";
      return;
  }
}

}  // namespace

bool is_rounded_once(const GemmRecipe& recipe) {
  constexpr StepType exact_step = StepType::as_given;
  const bool is_nearest = !recipe.cast || recipe.cast->rounding == Rounding::nearest_even;
  return is_nearest && recipe.via_type == exact_step && recipe.unscaled_type == exact_step;
}

bool GemmExplanation::is_plain() const {
  constexpr StepType exact_step = StepType::as_given;
  const bool are_exact = recipe.partial_type == exact_step && recipe.total_type == exact_step &&
                         recipe.sum_type == exact_step && recipe.dequantized == exact_step;
  return departures.empty() && is_rounded_once(recipe) && are_exact && recipe.addition != Addition::before_scales &&
         recipe.activation == GemmActivation::none;
}

bool GemmDiagnosis::lacks_tensor_core() const {
  const auto tied_ones = std::span(explanations).first(tied);
  constexpr Format single = binary32;
  if (inputs.format_a == single && inputs.format_b == single) return false;
  return std::ranges::all_of(tied_ones, [](const auto& one) { return is_cuda_cores(one.recipe.model); });
}

bool GemmDiagnosis::scales_addends() const {
  const GemmRecipe& recipe = explanations.front().recipe;
  return recipe.scale_order && inputs.tile_depth == 0 && recipe.c_enters == CEntry::accumulator;
}

std::string words_of_factor(float factor) {
  constexpr int most = 1 << 16;
  const float size = std::abs(factor);
  const std::string sign = factor < 0 ? "-" : "";
  int exponent = 0;
  if (size == 0 || !std::isfinite(size)) return digits_of(factor);
  if (std::frexp(size, &exponent) == 0.5F) return sign + "2^" + std::to_string(exponent - 1);
  for (int n = 2; n < most; ++n) {
    const std::string number = std::to_string(n);
    if (size == static_cast<float>(n)) return sign + number;
    if (size == 1 / static_cast<float>(n)) return (sign + "1/").append(number);
    if (size == static_cast<float>(1 / std::sqrt(n))) return (sign + "1/sqrt(").append(number).append(")");
  }
  return digits_of(factor);
}

std::string describe(const GemmExplanation& explanation) {
  TextStream text;
  GemmRecipe recipe = explanation.recipe;
  const bool divides = recipe.divided && !explanation.departures.empty();  // scales that are inverted do
  if (divides) recipe.divided = false;
  text << describe(recipe);
  for (const FoundDeparture& one : explanation.departures) {
    text << "; but " << one.row->words;
    if (divides) text << ", by a division";
    if (one.row->drops_tail) text << " (those from k = " << one.depth << " on)";
    put_products(text, one);
    if (one.row->reading.scaled_by != ScaledBy::nothing) put_factors(text, one.factors);
  }
  return text.str();
}

}  // namespace fp8lab::doctor
