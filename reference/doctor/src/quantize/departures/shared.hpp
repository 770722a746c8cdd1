// SPDX-License-Identifier: Apache-2.0
// What rows of several stages have in common.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "quantize/departure.hpp"
#include "quantize/hypotheses.hpp"
#include "quantize/kernel_model.hpp"

namespace fp8lab::doctor {

/// Numbers that kernels add to an amax or a scale, or put in place of smaller ones.
inline constexpr std::array small_numbers{1e-4F, 1e-5F, 1e-6F, 1e-7F, 1e-8F, 1e-9F, 1e-10F, 1e-11F, 1e-12F};

/// The small numbers that change a scale where they are added to what is nowhere below `least`.
[[nodiscard]] std::vector<Deviation> small_numbers_above(float least);
/// Deviations with these values.
[[nodiscard]] std::vector<Deviation> with_values(std::span<const float> values);

/// Puts ": " and the value.
void tell_value(TextStream& text, const Deviation& deviation, const Hypothesis& hypothesis);
/// Puts ", at element " and the place.
void tell_element(TextStream& text, const Deviation& deviation, const Hypothesis& hypothesis);

/// The recipe with scales that are not rounded.
[[nodiscard]] Recipe unrounded(Recipe recipe);

}  // namespace fp8lab::doctor
