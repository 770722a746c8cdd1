// SPDX-License-Identifier: Apache-2.0
// How Transformer Engine's kernels make the next scale of an amax, for hosts and devices.
#pragma once

#include <limits>

#include "fp8lab/formats/host_device.hpp"

namespace fp8lab {

/// Whether an amax makes a scale of its own: it is positive and finite.
FP8LAB_HD constexpr bool is_usable_amax(float amax) { return amax > 0 && amax <= std::numeric_limits<float>::max(); }

/// ScaleFormula::margin_first: fl(largest_over_margin / amax), largest_over_margin = fp8_max * 2^-margin; the old scale
/// where the amax makes none.
FP8LAB_HD constexpr float margin_first_scale(float largest_over_margin, float amax, float old_scale) {
  return is_usable_amax(amax) ? largest_over_margin / amax : old_scale;
}

/// A scale within the version's limit; NaN stays.
FP8LAB_HD constexpr float limited_scale(float scale, float largest_scale) {
  return largest_scale < scale ? largest_scale : scale;
}

}  // namespace fp8lab
