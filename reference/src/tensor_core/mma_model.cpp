// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/tensor_core/mma_model.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "fp8lab/formats/named.hpp"

namespace fp8lab {
namespace {

constexpr std::array arithmetic_names{Named{"fused", Arithmetic::fused}, Named{"exact", Arithmetic::exact},
                                      Named{"products_first", Arithmetic::products_first},
                                      Named{"flushed_pairs", Arithmetic::flushed_pairs},
                                      Named{"fma_chain", Arithmetic::fma_chain}};
constexpr std::array zero_rule_names{Named{"floor", ZeroRule::floor}, Named{"skip_terms", ZeroRule::skip_terms},
                                     Named{"skip_empty_groups", ZeroRule::skip_empty_groups},
                                     Named{"skip_zero_groups", ZeroRule::skip_zero_groups},
                                     Named{"count_zero_factors", ZeroRule::count_zero_factors}};
constexpr std::array underflow_sign_names{Named{"positive", UnderflowSign::positive},
                                          Named{"kept", UnderflowSign::kept}};
constexpr std::array evidence_names{Named{"measured", Evidence::measured}, Named{"published", Evidence::published},
                                    Named{"inferred", Evidence::inferred},
                                    Named{"by_definition", Evidence::by_definition},
                                    Named{"assumed", Evidence::assumed}};
constexpr std::array step_order_names{Named{"ascending", StepOrder::ascending}, Named{"pairs", StepOrder::pairs}};
constexpr std::array lowering_names{Named{"native", Lowering::native}, Named{"fp16_add", Lowering::fp16_add}};
constexpr std::array nan_word_names{Named{"all_ones", NanWord::all_ones}, Named{"propagated", NanWord::propagated}};
static_assert(is_in_order(nan_word_names) && is_in_order(arithmetic_names) && is_in_order(zero_rule_names) &&
              is_in_order(underflow_sign_names) && is_in_order(evidence_names) && is_in_order(step_order_names) &&
              is_in_order(lowering_names));

/// "; K 32 in 2 steps of 16".
std::string of_steps(const MmaModel& model) {
  return "; K " + std::to_string(model.k()) + " in " + std::to_string(model.steps) + " steps of " +
         std::to_string(model.products_per_step);
}

}  // namespace

std::span<const Named<Arithmetic>> named_values(Arithmetic /*any*/) { return arithmetic_names; }
std::span<const Named<ZeroRule>> named_values(ZeroRule /*any*/) { return zero_rule_names; }
std::span<const Named<UnderflowSign>> named_values(UnderflowSign /*any*/) { return underflow_sign_names; }
std::span<const Named<Evidence>> named_values(Evidence /*any*/) { return evidence_names; }
std::span<const Named<StepOrder>> named_values(StepOrder /*any*/) { return step_order_names; }
std::span<const Named<Lowering>> named_values(Lowering /*any*/) { return lowering_names; }
std::span<const Named<NanWord>> named_values(NanWord /*any*/) { return nan_word_names; }

std::string evidence_of(const MmaModel& model) {
  return std::string(name_of(model.evidence)) +
         (model.evidence_note.empty() ? "" : ": " + std::string(model.evidence_note));
}

std::string describe(const MmaModel& model) {
  std::string text(model.chip == Chip{} ? "" : std::string(model.chip.name) + " ");
  text += std::string(model.instruction) + ", " + format_name(model.accumulator()) + " accumulator";
  switch (model.arithmetic) {
    case Arithmetic::fused:
      text += "; K " + std::to_string(model.k());
      if (model.steps > 1) text += " in " + std::to_string(model.steps) + " steps";
      if (model.order == StepOrder::pairs) text += " (of every four k the first two, then the last two)";
      if (model.group > 1) text += ", summed exactly in groups of " + std::to_string(model.group);
      text += ", " + std::to_string(model.fraction_bits) + " fraction bits kept" +
              (model.zero_exponent == no_zero_exponent
                   ? ""
                   : " (zero counts as 2^" + std::to_string(model.zero_exponent) + ")") +
              ", results of " + std::to_string(model.output.mantissa_bits) + " bits";
      if (model.lowering == Lowering::fp16_add) text += ", made of FP16 instructions, c added at the end";
      break;
    case Arithmetic::exact:
      if (model.k() != 0) text += of_steps(model) + ", each the exact sum with c, rounded once";
      break;
    case Arithmetic::products_first:
      text += of_steps(model) + ", products cut toward zero with " + std::to_string(model.fraction_bits) +
              " fraction bits kept" + (model.sums == 2 ? ", those of even and of odd k apart" : "") +
              ", then added to c, both cut downward, and rounded to nearest";
      break;
    case Arithmetic::flushed_pairs:
      text += of_steps(model) + ", float32 sums of pairs, subnormal numbers flushed to zero";
      break;
    case Arithmetic::fma_chain: text += "; K " + std::to_string(model.k()) + ", one fused multiply-add each"; break;
  }
  std::string formats;
  for (const Format& format : model.operands) formats += (formats.empty() ? "" : ", ") + format_name(format);
  text += "; takes " + formats;
  if (model.scales) {
    text += " with scales " + format_name(model.scales->format) + ", one for " + std::to_string(model.scales->block);
  }
  return text;
}

}  // namespace fp8lab
