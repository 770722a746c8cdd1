// SPDX-License-Identifier: Apache-2.0
// A GEMM recipe in words, from its record.
#include <string>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/gemm/gemm_recipe_names.hpp"

namespace fp8lab {
namespace {

void put_ranges(TextStream& text, const GemmRecipe& r) {
  const auto put_order = [&] {
    if (r.split_order.empty()) {
      text << name_of(r.order);
    } else {
      text << "in the order";
      for (const std::size_t number : r.split_order) text << ' ' << number;
    }
  };
  if (r.ranges != 0) text << ", K split in " << r.ranges << " ranges that are added ";
  if (r.range_k != 0) text << ", K split in ranges of " << r.range_k << " that are added ";
  if (!r.split_k.empty()) {
    text << ", K split in ranges of";
    for (const std::size_t length : r.split_k) text << ' ' << length;
    text << " that are added ";
  }
  if (r.ranges != 0 || r.range_k != 0 || !r.split_k.empty()) {
    put_order();
  } else if (r.order == PartialOrder::descending) {
    text << ' ' << entry_of(r.order).words;
  }
}

/// Names the model that multiplies, and says how sums of products are added.
void put_sums(TextStream& text, const GemmRecipe& r) {
  text << r.model.name;
  if (is_cuda_cores(r.model)) text << " (float32 sums without a tensor core)";
  if (r.dequantized != StepType::as_given) {
    text << " of operands that are dequantized to " << name_of(r.dequantized) << " first";
  }
  if (r.promote_k != 0) text << ", promoted every " << r.promote_k;
  put_ranges(text, r);
  if (r.k_order.ways != 1) {
    text << ", each " << r.k_order.window << " of K dealt out to " << r.k_order.ways << " parts by "
         << r.k_order.granule;
  }
  if (r.partial_type != StepType::as_given) text << ", each " << entry_of(r.partial_type).words << " before";
  if (r.total_type == StepType::as_given) return;
  if (r.partial_type != StepType::as_given) {
    text << ", and their sum after each of them";
  } else {
    text << ", the running total " << entry_of(r.total_type).words << " after each of them";
  }
}

/// How scales enter.
void put_scales(TextStream& text, const GemmRecipe& r) {
  if (r.sum_type != StepType::as_given) {
    text << ", the accumulator " << entry_of(r.sum_type).words << " before the scales multiply";
  }
  if (r.zero_rule != ZeroRule::floor) text << ", zeros by the rule " << name_of(r.zero_rule);
  if (r.scale_order) {
    text << ", scaled as " << entry_of(*r.scale_order).words;
    if (r.tensor_scales == TensorScaleUse::as_alpha) text << ", then with the scales of the tensors as one number";
  }
  if (!r.fused) text << ", rounded before it is added";
  if (r.divided) text << ", divisors of scales divide";
  if (r.alpha != 1) text << ", multiplied by " << r.alpha;
}

/// How c and the bias enter, and what is applied to the sum.
void put_additions(TextStream& text, const GemmRecipe& r) {
  if (r.c_enters != CEntry::epilogue) text << ", " << entry_of(r.c_enters).words;
  if (r.addition != Addition::after_scales) text << ", " << entry_of(r.addition).words;
  if (r.beta != 1) text << ", c is multiplied by " << r.beta;
  if (r.addend_type != StepType::as_given) text << ", what is added is " << entry_of(r.addend_type).words;
  if (r.bias_first) text << ", the bias is added before c";
  if (r.activation != GemmActivation::none) text << ", " << entry_of(r.activation).words << " of the sum";
  if (r.bias_gradient != BiasGradient::none) text << ", " << entry_of(r.bias_gradient).words;
  if (r.scale_out_first) text << ", the scale of the output multiplies those of a and b";
  if (r.unscaled_type != StepType::as_given) {
    text << ", " << entry_of(r.unscaled_type).words << " before the scale of the output multiplies";
  }
}

/// How the sum becomes an element of the output.
void put_output(TextStream& text, const GemmRecipe& r) {
  if (r.via_type != StepType::as_given) text << ", the output is " << entry_of(r.via_type).words << " on its way";
  constexpr Format single = binary32;
  if (r.output != single) text << ", to " << format_name(r.output);
  if (!r.cast) return;
  CastPolicy rest = *r.cast;
  rest.rounding = Rounding::nearest_even;
  text << ", rounded " << name_of(r.cast->rounding);
  if (rest == CastPolicy{}) {
    text << " and saturated";
  } else if (rest != cuda_nosat_policy) {
    text << " by a profile of its own";
  }
}

}  // namespace

std::string describe(const GemmRecipe& recipe) {
  const DefaultEnvironment environment;
  TextStream text;
  put_sums(text, recipe);
  put_scales(text, recipe);
  put_additions(text, recipe);
  put_output(text, recipe);
  return text.str();
}

}  // namespace fp8lab
