// SPDX-License-Identifier: Apache-2.0
// The order of tiles, and how accumulators become results, which all GEMM kernels share.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp8lab/gpu/fragments.hpp"
#include "fp8lab/gpu/ptx/cvt16.hpp"
#include "fp8lab/gpu/team.hpp"

namespace fp8lab::gpu {

/// The type of the output that a GEMM kernel stores.
enum class GemmOutput : std::uint8_t { float32, bfloat16, float16 };

/// The tile of a block: eight rows of tiles together, column by column, so that blocks that run at the same time share
/// tiles of both operands in the cache.
[[nodiscard]] FP8LAB_HD constexpr Place tile_of(std::size_t block, std::size_t tiles_m, std::size_t tiles_n) {
  const std::size_t first = block / (8 * tiles_n) * 8;
  const std::size_t rows = tiles_m - first < 8 ? tiles_m - first : 8;
  const std::size_t within = block - first * tiles_n;
  return {static_cast<unsigned>(first + within % rows), static_cast<unsigned>(within / rows)};
}

/// out = scale_a * scale_b * factor * accumulator + bias, from left to right, every operation rounded to float32, as
/// gemm() of the reference has it.
struct GemmEpilogue {
  std::size_t m, n;
  const float* scale_a;  ///< one number, or null: 1
  const float* scale_b;
  const float* bias;  ///< n numbers, or null
  void* out;          ///< (m, n), row-major, aligned to two elements
  GemmOutput output;
  float factor = 1;  ///< one over the product of the scales' divisors

  [[nodiscard]] FP8LAB_HD float alpha() const {
    return (scale_a == nullptr ? 1 : *scale_a) * (scale_b == nullptr ? 1 : *scale_b) * factor;
  }

  /// Stores the accumulators of (row, column) and (row, column + 1), column being even, those inside of out alone.
  FP8LAB_HD void store(std::size_t row, std::size_t column, float first, float second, float alpha) const {
    if (row >= m || column >= n) return;
    const bool both = column + 1 < n;
    first = finished(first, column, alpha);
    if (both) second = finished(second, column + 1, alpha);
    switch (output) {
      case GemmOutput::float32: put(row, column, both, first, second); return;
      case GemmOutput::bfloat16: put(row, column, both, bfloat16_of(first), bfloat16_of(second)); return;
      case GemmOutput::float16: put(row, column, both, half_of(first), half_of(second)); return;
    }
  }

 private:
  [[nodiscard]] FP8LAB_HD float finished(float x, std::size_t column, float alpha) const {
    x *= alpha;
    if (bias != nullptr) x += bias[column];
    return x == x ? x : std::bit_cast<float>(0x7FFFFFFFU);  // a GPU's NaN; on the host it may have other bits
  }
  template <typename T>
  FP8LAB_HD void put(std::size_t row, std::size_t column, bool both, T first, T second) const {
    T* const place = static_cast<T*>(out) + row * n + column;
    if (both && n % 2 == 0) {
      gpu::store(Vector<T, 2>{{first, second}}, place);
    } else {
      place[0] = first;
      if (both) place[1] = second;
    }
  }
};

}  // namespace fp8lab::gpu
