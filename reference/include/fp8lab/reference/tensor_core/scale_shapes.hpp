// SPDX-License-Identifier: Apache-2.0
// Tells the shapes that the scales of a GEMM's operand have, and what each of them means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fp8lab/reference/tensor_core/operand.hpp"

namespace fp8lab {

/// The shape of an array of scales, as it is stored.
struct ScaleShape {
  std::size_t down, along;

  friend constexpr bool operator==(const ScaleShape&, const ScaleShape&) = default;
};

/// The shapes in which a GEMM takes an operand's float32 scales. Of an operand that is stored as (K, rows) they are
/// (along K, along rows).
struct FloatScaleShapes {
  ScaleShape fine;    ///< one for each 1 x 128 elements, (rows, K / 128), rounded up
  ScaleShape coarse;  ///< one for each 128 x 128 elements, (rows / 128, K / 128), both rounded up
  ScaleShape rows;    ///< one for each row, (rows, 1)
};
[[nodiscard]] FloatScaleShapes float_scale_shapes(const Operand& operand);

/// The shape of an operand's compact codes of block scales, one for each `block` elements of K: (rows, K / block), or
/// of an operand that is stored as (K, rows), (K / block, rows). K is a multiple of `block`.
[[nodiscard]] ScaleShape block_scale_shape(const Operand& operand, std::size_t block);

/// Gives the operand the scales that an array of that shape has, the first of the shapes above that fits; returns false
/// where none does. Where the shape has fewer than two dimensions the number of scales alone counts.
[[nodiscard]] bool set_float_scales(Operand& operand, std::span<const float> scales,
                                    std::span<const std::uint64_t> shape);

}  // namespace fp8lab
