// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace fp8lab {

/// What NaN elements do to the largest magnitude among which they are.
enum class NanInAmax : std::uint8_t {
  dropped,  ///< nothing, as fmaxf
  counted,  ///< make it NaN, as torch.amax
};

/// What an element and its tile's factor become.
enum class TileOperation : std::uint8_t {
  multiply,           ///< fl(x * factor)
  divide,             ///< fl(x / factor)
  multiply_add_zero,  ///< fma(x, factor, +0): -0 becomes +0, all else is fl(x * factor)
};

}  // namespace fp8lab
