// SPDX-License-Identifier: Apache-2.0
// Names the ways in which a tile of elements meets its factor, and in which NaN elements count in its amax.
#pragma once

#include <cstdint>

#include "fp8lab/formats/host_device.hpp"

namespace fp8lab {

/// How NaN elements count in the amax of their tile.
enum class NanInAmax : std::uint8_t {
  dropped,  ///< nothing, as fmaxf
  counted,  ///< make it NaN, as torch.amax
};

/// How an element meets the factor of its tile.
enum class TileOperation : std::uint8_t {
  multiply,                ///< fl(x * factor)
  divide,                  ///< fl(x / factor)
  multiply_add_zero,       ///< fma(x, factor, +0): -0 becomes +0, all else is fl(x * factor)
  multiply_then_add_zero,  ///< fl(x * factor) + 0: -0 becomes +0, also of a product that underflows
  divide_then_add_zero,    ///< fl(x / factor) + 0
  multiply_negative_zero,  ///< fl(x * factor), and -0 where that is zero
};

/// Whether elements are divided by the factor.
[[nodiscard]] FP8LAB_HD constexpr bool divides(TileOperation operation) {
  return operation == TileOperation::divide || operation == TileOperation::divide_then_add_zero;
}

/// Whether +0 is added to the rounded product or quotient.
[[nodiscard]] FP8LAB_HD constexpr bool adds_zero_after(TileOperation operation) {
  return operation == TileOperation::multiply_then_add_zero || operation == TileOperation::divide_then_add_zero;
}

}  // namespace fp8lab
