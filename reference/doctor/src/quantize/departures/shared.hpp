// SPDX-License-Identifier: Apache-2.0
// What rows of several stages have in common.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

/// Which other row of tiles' scale one has, of the number `last` of these, `value` rows away.
enum class OtherRow : std::uint8_t {
  above,        ///< from row `place` on, or from row `value` where that is 0
  above_round,  ///< the first rows have those of the last
  upper_half,   ///< in the lower half of every 2 * `value` rows
  below,        ///< the last rows have their own
  below_round,  ///< the last rows have those of the first
  lower_half    ///< in the upper half of every 2 * `value` rows
};
[[nodiscard]] std::size_t other_row(std::size_t row, std::size_t rows, const Deviation& own);
/// The distances that tiles of threads and instructions have, in every way, for so many rows.
[[nodiscard]] std::vector<Deviation> other_rows(std::size_t rows);
void tell_other_row(TextStream& text, const Deviation& own, const Hypothesis& hypothesis);

/// The recipe with scales that are not rounded.
[[nodiscard]] Recipe unrounded(Recipe recipe);

}  // namespace fp8lab::doctor
