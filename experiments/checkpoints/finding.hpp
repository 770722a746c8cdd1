// SPDX-License-Identifier: Apache-2.0
// What is wrong with a quantized checkpoint, in words.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/formats/named.hpp"

namespace fp8lab::experiments {

enum class FindingKind : std::uint8_t {
  file,
  config,
  missing_scale,
  missing_global_scale,
  missing_expert,
  nan_scale,
  constant_scale,
  negative_scale,
  inverted_scale,
  inverted_global_scale,
  stale_global_scale,
  fused_global_scales,
  transposed_scale,
  rolled_scale,
  exchanged_scales,
  swizzled_scale,
  exponent_offset,
  scale_rounded_after,
  bfloat16_scale,
  e8m0_as_number,
  other_block,
  other_scale,
  clipped,
  unused_range,
  kv_scale,
  input_scale,
  nan_codes,
  nibble_order,
  rows_permuted,
  elements_shifted,
  fnuz_codes,
  e5m2_codes,
  sign_lost,
  toward_zero,
  double_quantized,
  random_codes,
  zero_codes,
  repeated_rows,
  exchanged_tensors,
  duplicate_tensor,
  not_quantized,
  quantized_though_excluded,
  other_recipe,
  damaged,
};
inline constexpr std::array finding_kinds{
    Named{"file", FindingKind::file, "a file is missing, cut, or states what is not so"},
    Named{"config", FindingKind::config, "the configuration states what the tensors are not"},
    Named{"missing_scale", FindingKind::missing_scale, "codes without their scale"},
    Named{"missing_global_scale", FindingKind::missing_global_scale, "block scales without that of their tensor"},
    Named{"missing_expert", FindingKind::missing_expert, "an expert has no tensors"},
    Named{"nan_scale", FindingKind::nan_scale, "scales that are NaN or infinite"},
    Named{"constant_scale", FindingKind::constant_scale, "all scales are one number that no tensor makes"},
    Named{"negative_scale", FindingKind::negative_scale, "scales that are negative, or zero over codes that are not"},
    Named{"inverted_scale", FindingKind::inverted_scale, "the scale's inverse is stored"},
    Named{"inverted_global_scale", FindingKind::inverted_global_scale, "the inverse of the tensor's scale is stored"},
    Named{"stale_global_scale", FindingKind::stale_global_scale, "the tensor's scale is that of another tensor"},
    Named{"fused_global_scales", FindingKind::fused_global_scales,
          "parts of one fused layer have different scales of the tensor"},
    Named{"transposed_scale", FindingKind::transposed_scale, "the grid of scales is transposed"},
    Named{"rolled_scale", FindingKind::rolled_scale, "scales are those of the block before or behind"},
    Named{"exchanged_scales", FindingKind::exchanged_scales, "scales are those of another tensor"},
    Named{"swizzled_scale", FindingKind::swizzled_scale, "scales lie in tiles of 128 x 4, which nothing says"},
    Named{"exponent_offset", FindingKind::exponent_offset, "all scales are a power of two too large or too small"},
    Named{"scale_rounded_after", FindingKind::scale_rounded_after,
          "scales were rounded to powers of two after the codes were made"},
    Named{"bfloat16_scale", FindingKind::bfloat16_scale, "scales were rounded to bfloat16 after the codes were made"},
    Named{"e8m0_as_number", FindingKind::e8m0_as_number, "exponent bytes are stored as numbers"},
    Named{"other_block", FindingKind::other_block, "blocks have another size than the layout says"},
    Named{"other_scale", FindingKind::other_scale, "scales are none that the recipe makes, and codes fit them"},
    Named{"clipped", FindingKind::clipped, "scales are too small, and the largest elements are cut off"},
    Named{"unused_range", FindingKind::unused_range, "scales are too large, and the largest codes are not used"},
    Named{"kv_scale", FindingKind::kv_scale, "scales of keys and values that no cache can use"},
    Named{"input_scale", FindingKind::input_scale, "a static scale of activations is missing or no number"},
    Named{"nan_codes", FindingKind::nan_codes, "codes that are NaN"},
    Named{"nibble_order", FindingKind::nibble_order, "codes of 4 bits lie in another order"},
    Named{"rows_permuted", FindingKind::rows_permuted, "rows lie in another order"},
    Named{"elements_shifted", FindingKind::elements_shifted, "elements lie one place further"},
    Named{"fnuz_codes", FindingKind::fnuz_codes, "codes are those of E4M3 FNUZ"},
    Named{"e5m2_codes", FindingKind::e5m2_codes, "codes are those of E5M2"},
    Named{"sign_lost", FindingKind::sign_lost, "no code is negative"},
    Named{"toward_zero", FindingKind::toward_zero, "codes are rounded toward zero"},
    Named{"double_quantized", FindingKind::double_quantized, "codes are made of a quantized tensor"},
    Named{"random_codes", FindingKind::random_codes, "all codes are equally frequent, as in memory that nobody wrote"},
    Named{"zero_codes", FindingKind::zero_codes, "all codes are zero"},
    Named{"repeated_rows", FindingKind::repeated_rows, "rows repeat"},
    Named{"exchanged_tensors", FindingKind::exchanged_tensors, "the tensor is that of another name"},
    Named{"duplicate_tensor", FindingKind::duplicate_tensor, "two tensors have the same bytes"},
    Named{"not_quantized", FindingKind::not_quantized,
          "stored in high precision, though the configuration quantizes it"},
    Named{"quantized_though_excluded", FindingKind::quantized_though_excluded,
          "quantized, though the configuration excludes it"},
    Named{"other_recipe", FindingKind::other_recipe, "made by another recipe than those of its layout"},
    Named{"damaged", FindingKind::damaged, "codes or scales that nothing explains"},
};
static_assert(is_in_order(finding_kinds));
[[nodiscard]] constexpr std::span<const Named<FindingKind>> named_values(FindingKind /*of_type*/) {
  return finding_kinds;
}

struct CheckpointFinding {
  std::string tensor;  ///< or the file
  FindingKind kind;
  std::string words;                                          ///< a sentence, without a full stop
  std::string where = {};                                     ///< "[9, 3], [200, 11]", or empty
  double loss_db = std::numeric_limits<double>::quiet_NaN();  ///< the SQNR that is lost, where the original is known
};

}  // namespace fp8lab::experiments
