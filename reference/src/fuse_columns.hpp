// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace fp8lab {

inline constexpr std::size_t tile_columns = 32;

/// One pass of fused steps over two rows of A and one tile of B.
struct FuseColumns {
  std::size_t steps;
  std::size_t products_per_step;
  std::size_t steps_per_promotion;  // 0: never
  int fraction_bits;
  std::uint32_t output_mask;  // which bits of a float32 the accumulator keeps
};

/// A factor for the vector code is its value and 2^exponent, the power that its product is aligned by (0 for a zero).
struct FactorRow {
  const float* value;
  const float* power;
};

/// Dot products of rows `a0` and `a1` with the tile's 32 columns: b is [k][tile_columns]. Preconditions: every
/// product's exponent lies in [-100, 100], and (4 * products_per_step + 2) * 2^fraction_bits < 2^31.
void fuse_columns(const FuseColumns& shape, FactorRow a0, FactorRow a1, FactorRow b, float* out0, float* out1);

}  // namespace fp8lab
