// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "fp8lab/reference/scaling/recipe.hpp"
#include "fp8lab/reference/scaling/scale_rule.hpp"

namespace fp8lab {

/// The scale of a tile with that amax, as the recipe's fields say, in the default floating-point environment. Total for
/// recipes that check_recipe() takes.
[[nodiscard]] TileScale tile_scale(const Recipe& recipe, float amax, const TensorFacts& tensor = {});

/// Room for tile scales, one array a member.
struct TileScaleArrays {
  std::span<float> factors;
  std::span<float> scale_inv;
  std::span<std::uint8_t> codes;
};
/// The scales of many tiles, whose amaxes are float32 bits; what scale_inv gets is open where scales have codes.
/// Returns the largest amax * factor as float32 bits, of which NaN and negative ones are above all others.
/// Precondition: all arrays have an element a tile.
std::uint32_t tile_scales(const Recipe& recipe, std::span<const std::uint32_t> amaxes, const TensorFacts& tensor,
                          const TileScaleArrays& out);

}  // namespace fp8lab
