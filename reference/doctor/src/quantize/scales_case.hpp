// SPDX-License-Identifier: Apache-2.0
// The stored scales beside those of a recipe: what they say of a departure.
#pragma once

#include <cstddef>
#include <optional>

#include "fp8lab/doctor/diagnose.hpp"
#include "quantize/kernel_model.hpp"

namespace fp8lab::doctor {

/// A departure that stored scales suggest, and how implausible it is where they do.
struct Suggestion : Deviation {
  double cost = 0;
};

/// A recipe whose scales are made of tiles alone, a tensor, and as many stored scales as the tensor has tiles.
struct ScalesCase {
  const KernelModel& model;
  const Source& source;
  std::size_t count;  ///< of stored scales
  Direction direction;
  std::optional<FactorInterval> factor = {};  ///< what all are times those of the recipe, if one number, and not 1
  std::optional<float> power = {};            ///< the power of two that it may be

  ScalesCase(const KernelModel& of_recipe, const Source& of_model, std::size_t stored, Direction of_side);
  /// How implausible it is that a number multiplies: few scales may have a common factor by chance.
  [[nodiscard]] double cost_of_factor() const { return count < 4 ? 1.5 : 1.1; }
};

/// Whether a larger amax, not zero, makes no smaller scale by that recipe, whatever the tensor's type. It may where a
/// scale is limited to the largest of that type, which a smaller number than infinity can exceed, or where a scale that
/// rounds to 0 becomes another one.
[[nodiscard]] bool has_rising_scales(const Recipe& recipe);

/// The number in an interval with the fewest decimal digits, and no more than three.
[[nodiscard]] std::optional<float> short_decimal(const FactorInterval& interval);

}  // namespace fp8lab::doctor
