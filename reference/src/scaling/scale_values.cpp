// SPDX-License-Identifier: Apache-2.0
#include "scaling/scale_values.hpp"

#include "fp8lab/reference/scaling/scale_rule.hpp"

namespace fp8lab {

ScaleValues::ScaleValues(const Quantized& q) : q_(&q), has_codes_(!q.scale_codes.empty()) {
  if (!has_codes_) return;
  const ScaleConstants constants = scale_constants(q.recipe, {.amax = q.amax});
  for (std::size_t i = 0; i < of_code_.size(); ++i) {
    const bool exists = q.recipe.scale_type == ScaleType::e8m0_code || i < 128;
    if (exists) of_code_[i] = value_of_scale_code(q.recipe, constants, q.amax, static_cast<std::uint8_t>(i));
  }
}

}  // namespace fp8lab
