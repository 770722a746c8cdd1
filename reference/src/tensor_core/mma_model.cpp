// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/tensor_core/mma_model.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "fp8lab/formats/named.hpp"

namespace fp8lab {
namespace {

struct NamedZeroRule {
  std::string_view name;
  ZeroRule rule;
};
constexpr std::array zero_rules{NamedZeroRule{"floor", ZeroRule::floor},
                                NamedZeroRule{"skip_terms", ZeroRule::skip_terms},
                                NamedZeroRule{"skip_empty_groups", ZeroRule::skip_empty_groups},
                                NamedZeroRule{"skip_zero_groups", ZeroRule::skip_zero_groups},
                                NamedZeroRule{"count_zero_factors", ZeroRule::count_zero_factors}};

/// "; K 32 in 2 steps of 16".
std::string of_steps(const MmaModel& model) {
  return "; K " + std::to_string(model.k()) + " in " + std::to_string(model.steps) + " steps of " +
         std::to_string(model.products_per_step);
}

}  // namespace

ZeroRule find_zero_rule(std::string_view name) { return find_named(zero_rules, "zero_rule", name).rule; }

std::string_view name_of(ZeroRule zero_rule) {
  return std::ranges::find(zero_rules, zero_rule, &NamedZeroRule::rule)->name;
}

std::string_view name_of(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::fused: return "fused";
    case Arithmetic::exact: return "exact";
    case Arithmetic::products_first: return "products_first";
    case Arithmetic::flushed_pairs: return "flushed_pairs";
    case Arithmetic::fma_chain: return "fma_chain";
  }
  throw std::invalid_argument("unknown Arithmetic");
}

std::string_view name_of(Evidence evidence) {
  switch (evidence) {
    case Evidence::measured: return "measured";
    case Evidence::published: return "published";
    case Evidence::inferred: return "inferred";
    case Evidence::by_definition: return "by_definition";
    case Evidence::assumed: return "assumed";
  }
  throw std::invalid_argument("unknown Evidence");
}

std::string_view name_of(StepOrder order) {
  switch (order) {
    case StepOrder::ascending: return "ascending";
    case StepOrder::pairs: return "pairs";
  }
  throw std::invalid_argument("unknown StepOrder");
}

std::string_view name_of(Lowering lowering) {
  switch (lowering) {
    case Lowering::native: return "native";
    case Lowering::fp16_add: return "fp16_add";
  }
  throw std::invalid_argument("unknown Lowering");
}

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
