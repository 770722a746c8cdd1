// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/accused.hpp"

namespace fp8lab::experiments {

std::string accused(const Weight& weight, FindingKind kind) {
  switch (kind) {
    case FindingKind::inverted_scale:
    case FindingKind::transposed_scale:
    case FindingKind::rolled_scale:
    case FindingKind::exchanged_scales:
    case FindingKind::swizzled_scale:
    case FindingKind::exponent_offset:
    case FindingKind::bfloat16_scale:
    case FindingKind::e8m0_as_number:
    case FindingKind::nan_scale:
    case FindingKind::constant_scale:
    case FindingKind::negative_scale: return weight.scale != nullptr ? weight.scale->name : weight.codes->name;
    case FindingKind::inverted_global_scale:
    case FindingKind::stale_global_scale:
    case FindingKind::fused_global_scales:
      return weight.global_scale != nullptr ? weight.global_scale->name : weight.codes->name;
    case FindingKind::file:
    case FindingKind::config:
    case FindingKind::missing_scale:
    case FindingKind::missing_global_scale:
    case FindingKind::missing_expert:
    case FindingKind::scale_rounded_after:
    case FindingKind::other_block:
    case FindingKind::other_scale:
    case FindingKind::clipped:
    case FindingKind::unused_range:
    case FindingKind::kv_scale:
    case FindingKind::input_scale:
    case FindingKind::nan_codes:
    case FindingKind::nibble_order:
    case FindingKind::rows_permuted:
    case FindingKind::elements_shifted:
    case FindingKind::fnuz_codes:
    case FindingKind::e5m2_codes:
    case FindingKind::sign_lost:
    case FindingKind::toward_zero:
    case FindingKind::double_quantized:
    case FindingKind::random_codes:
    case FindingKind::zero_codes:
    case FindingKind::repeated_rows:
    case FindingKind::exchanged_tensors:
    case FindingKind::duplicate_tensor:
    case FindingKind::not_quantized:
    case FindingKind::quantized_though_excluded:
    case FindingKind::other_recipe:
    case FindingKind::damaged: break;
  }
  return weight.codes->name;
}

}  // namespace fp8lab::experiments
