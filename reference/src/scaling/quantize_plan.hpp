// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "fp8lab/formats/policy.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"

namespace fp8lab {

/// A recipe as the loops over a tensor need it. A tile is what shares a scale, in rows and columns of x.
struct QuantizePlan {
  Format format;
  CastPolicy policy = {};
  TileOperation operation = TileOperation::multiply;
  NanInAmax nan = NanInAmax::dropped;
  bool uniform = false;      ///< one scale for the tensor
  bool tensor_amax = false;  ///< scales depend on the amax of the tensor
  bool replicated = false;   ///< 2-D tiles whose scale stands in each of their rows (columnwise: columns)
  bool transposed = false;
  bool scale_codes = false;  ///< scales are codes, not float32
  std::size_t tile_rows = 1;
  std::size_t tile_columns = 1;

  /// Rows and columns of x that an entry of the scales, in x's own order, is for.
  [[nodiscard]] std::size_t scale_height(Direction direction) const {
    return replicated && direction == Direction::rowwise ? 1 : tile_rows;
  }
  [[nodiscard]] std::size_t scale_width(Direction direction) const {
    return replicated && direction == Direction::columnwise ? 1 : tile_columns;
  }
};

/// Throws std::invalid_argument where the recipe has a field out of range, or the sizes break a rule of its blocks.
[[nodiscard]] QuantizePlan quantize_plan(const Recipe& recipe, Direction direction, std::size_t rows,
                                         std::size_t columns);

/// The plan by which a Quantized was made. The scale that delayed scaling gave may be infinite, 0 or NaN: nothing is
/// scaled with it any more.
[[nodiscard]] QuantizePlan plan_of(const Quantized& q);

[[nodiscard]] constexpr std::size_t blocks_of(std::size_t size, std::size_t block) {
  return size / block + (size % block == 0 ? 0 : 1);  // which no block is too large for
}

}  // namespace fp8lab
