// SPDX-License-Identifier: Apache-2.0
#include "scaling/scale_values.hpp"

#include "fp8lab/reference/scaling/scale_rule.hpp"

namespace fp8lab {

TensorFacts tensor_facts(const Quantized& q) {
  return {.amax = q.amax, .tensor_scale = q.tensor_scale, .tensor_scale_inv = q.tensor_scale_inv};
}

ScaleValues::ScaleValues(const Quantized& q) : q_(&q), has_codes_(!q.scale_codes.empty()) {
  if (!has_codes_) return;
  const ScaleConstants constants = scale_constants(q.recipe, tensor_facts(q));
  const bool given = q.tensor_scale != 0 || q.tensor_scale_inv != 0;
  for (std::size_t i = 0; i < of_code_.size(); ++i) {
    const bool exists = q.recipe.scale_type == ScaleType::e8m0_code || i < 128;
    if (exists) of_code_[i] = value_of_scale_code(q.recipe, constants, q.amax, static_cast<std::uint8_t>(i), given);
  }
}

float ScaleValues::under_row(std::size_t i) const {
  const float amax = q_->row_amaxes[i / q_->scale_columns];
  return value_of_scale_code(q_->recipe, scale_constants(q_->recipe, {.amax = amax}), amax, q_->scale_codes[i]);
}

}  // namespace fp8lab
