// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "fp8lab/reference/scaling/recipe.hpp"

namespace fp8lab {

/// What the amax of elements that share a scale makes.
struct TileScale {
  float factor;           ///< x is multiplied with it, or divided by it where the recipe divides
  float scale_inv;        ///< multiplies on dequantize; of NvFp4, the value of the block's scale alone
  std::uint8_t code = 0;  ///< of the scale: E8M0 of MxBlock, E4M3 of NvFp4
};

/// What the scales of a tensor's tiles depend on beside their own amax.
struct TensorFacts {
  float amax = 0;                ///< of the tensor: for NvFp4
  Format input_type = binary32;  ///< whose largest value limits the scales of Block with rule te
};

/// The scale of a tile with that amax, as the recipe's fields say. Total for recipes that check_recipe() takes.
[[nodiscard]] TileScale tile_scale(const Recipe& recipe, float amax, const TensorFacts& tensor = {});

/// What a scale's code multiplies with on dequantize: its value, but for the edges.
[[nodiscard]] float e8m0_value(const MxBlock& recipe, std::uint8_t code);
/// What it multiplies with on quantize: the inverse, but for the edges.
[[nodiscard]] float e8m0_inverse(const MxBlock& recipe, std::uint8_t code);

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
