// SPDX-License-Identifier: Apache-2.0
// The facts that follow from a recipe, and from the scales of a Quantized, so that nobody works them out again.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"

namespace fp8lab {

/// Rows and columns of the tensor that share a scale. The last tile of a row or column may have fewer.
struct TileShape {
  std::size_t rows, columns;

  friend constexpr bool operator==(const TileShape&, const TileShape&) = default;
};

/// The tiles of a tensor, (rows, columns), that is quantized in that direction. Throws std::invalid_argument as
/// quantize() does for a field of the recipe out of range and for sizes that break a rule of its blocks.
[[nodiscard]] TileShape tile_shape(const Recipe& recipe, Direction direction, std::size_t rows, std::size_t columns);
[[nodiscard]] TileShape tile_shape(const Quantized& q);

/// The type that scales are stored in: binary32, e8m0, or ue4m3.
[[nodiscard]] Format scale_format_of(const Recipe& recipe);

/// Whether the scale is a number of the caller's.
[[nodiscard]] bool is_given(const Recipe& recipe);

/// Whether codes depend on random bits.
[[nodiscard]] bool is_stochastic(const Recipe& recipe);

/// Whether there is a second scale for the whole tensor, over those of the tiles, as NVFP4 has.
[[nodiscard]] bool has_tensor_scale(const Recipe& recipe);

/// The factors with which dequantize() multiplies the codes of each tile: scale_inv, the value of the scale's code, or
/// for NVFP4 that with the tensor's scale, fl(fl(d * G) * fl(1 / 2688)). Tiles are those of the tensor, (tiles down,
/// tiles across), row-major, whatever the layout of the scales.
[[nodiscard]] std::vector<float> tile_scales_inv(const Quantized& q);

/// The same for the element in that row and column of the tensor. Throws std::invalid_argument where it has none.
[[nodiscard]] float scale_inv_at(const Quantized& q, std::size_t row, std::size_t column);

/// The factor that the elements were multiplied with (or divided by, where the recipe divides), where the whole tensor
/// has one scale; otherwise none.
[[nodiscard]] std::optional<float> tensor_factor(const Quantized& q);

}  // namespace fp8lab
