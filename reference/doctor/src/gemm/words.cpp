// SPDX-License-Identifier: Apache-2.0
// Explanations of a GEMM in words.
#include <algorithm>
#include <span>
#include <string>

#include "fp8lab/formats/text_stream.hpp"
#include "gemm/hypotheses.hpp"

namespace fp8lab::doctor {

bool is_rounded_once(const GemmRecipe& recipe) {
  constexpr StepType exact_step = StepType::as_given;
  const bool is_nearest = !recipe.cast || recipe.cast->rounding == Rounding::nearest_even;
  return is_nearest && recipe.via_type == exact_step && recipe.unscaled_type == exact_step;
}

bool GemmExplanation::is_plain() const {
  constexpr StepType exact_step = StepType::as_given;
  const bool are_exact = recipe.partial_type == exact_step && recipe.total_type == exact_step &&
                         recipe.sum_type == exact_step && recipe.dequantized == exact_step;
  return departures.empty() && is_rounded_once(recipe) && are_exact && recipe.addition != Addition::before_scales;
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
  }
  return text.str();
}

}  // namespace fp8lab::doctor
