// SPDX-License-Identifier: Apache-2.0
#include "scaling/scale_values.hpp"

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"

namespace fp8lab {

ScaleValues::ScaleValues(const Quantized& q) : q_(&q), has_codes_(!q.scale_codes.empty()) {
  if (!has_codes_) return;
  const ScaleConstants constants = scale_constants(q.recipe, {.amax = q.amax});
  const float factor = 1 / (448.0F * constants.largest);
  const auto value = [&](std::uint8_t code) {
    if (q.recipe.scale_type == ScaleType::e8m0_code) return e8m0_value(q.recipe.edges, code);
    const float d = decode(ue4m3, code);
    switch (q.recipe.tensor_scale) {
      case TensorScaleRule::none: break;
      case TensorScaleRule::largest_over_amax: return d * q.amax * factor;
      case TensorScaleRule::largest_times_inverse: return d / constants.tensor_scale;
      case TensorScaleRule::amax_over_largest: return d * constants.tensor_scale_inv;
    }
    return d;
  };
  for (std::size_t i = 0; i < of_code_.size(); ++i) {
    const bool exists = q.recipe.scale_type == ScaleType::e8m0_code || i < 128;
    if (exists) of_code_[i] = value(static_cast<std::uint8_t>(i));
  }
}

}  // namespace fp8lab
