// SPDX-License-Identifier: Apache-2.0
#include "scaling/scale_values.hpp"

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"

namespace fp8lab {

ScaleValues::ScaleValues(const Quantized& q) : q_(&q), has_codes_(!q.scale_codes.empty()) {
  if (!has_codes_) return;
  const auto* mx = std::get_if<MxBlock>(&q.recipe);
  for (std::size_t i = 0; i < of_code_.size(); ++i) {
    const auto code = static_cast<std::uint8_t>(i);
    constexpr float factor = 1.0F / (6.0F * 448.0F);
    of_code_[i] = mx != nullptr ? e8m0_value(*mx, code) : decode(ue4m3, code) * q.amax * factor;
  }
}

}  // namespace fp8lab
