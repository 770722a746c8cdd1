// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/mma_model.hpp"

#include "fp8lab/formats/named.hpp"

namespace fp8lab {

const MmaModel& find_model(std::string_view name) { return find_named(models, "model", name); }

ZeroRule find_zero_rule(std::string_view name) {
  struct Named {
    std::string_view name;
    ZeroRule rule;
  };
  constexpr std::array rules{Named{"skip", ZeroRule::skip}, Named{"skip_empty_groups", ZeroRule::skip_empty_groups},
                             Named{"skip_zero_groups", ZeroRule::skip_zero_groups},
                             Named{"mma_sim", ZeroRule::mma_sim}};
  return find_named(rules, "zero_rule", name).rule;
}

std::string describe(const MmaModel& model) {
  std::string text(model.description);
  switch (model.arithmetic) {
    case Arithmetic::fused:
      text += "; K " + std::to_string(model.k());
      if (model.steps > 1) text += " in " + std::to_string(model.steps) + " steps";
      if (model.order == StepOrder::pairs) text += " (of every four k the first two, then the last two)";
      if (model.group > 1) text += ", summed exactly in groups of " + std::to_string(model.group);
      text += ", " + std::to_string(model.fraction_bits) + " fraction bits kept, results of " +
              std::to_string(model.output.mantissa_bits) + " bits";
      if (model.lowering == Lowering::fp16_add) text += ", c added at the end";
      break;
    case Arithmetic::exact: break;
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
