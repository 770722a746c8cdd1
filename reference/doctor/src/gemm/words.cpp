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
  const auto end = std::to_chars(room.data(), room.data() + room.size(), x).ptr;
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
    if (size == 1 / static_cast<float>(n)) return sign + "1/" + number;
    if (size == static_cast<float>(1 / std::sqrt(n))) return sign + "1/sqrt(" + number + ")";
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
    if (one.row->reading.products != ProductReading::own) text << " (" << one.depth << " of them)";
    if (one.row->reading.scaled_by != ScaledBy::nothing) put_factors(text, one.factors);
  }
  return text.str();
}

}  // namespace fp8lab::doctor
