// SPDX-License-Identifier: Apache-2.0
// Block scales in the layout that Blackwell's tensor cores read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8lab/gpu/team.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"

namespace fp8lab::gpu {

/// swizzle_scales() of a matrix of one-byte scales: a team writes one tile of 128 x 4, with zeros beyond the matrix.
///
/// Bound: a byte read and a byte written for each scale.
struct SwizzleScales {
  static constexpr unsigned threads = 128;
  struct Shared {};

  const std::uint8_t* compact;  ///< (rows, columns)
  std::uint8_t* swizzled;       ///< swizzled_size(rows, columns) bytes
  std::size_t rows, columns;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return ceil_div(rows, 128) * ceil_div(columns, 4); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& /*shared*/) const {
    const std::size_t tiles = ceil_div(columns, 4);
    team.for_each(512, [&](std::size_t i) {
      const std::size_t row = block / tiles * 128 + i / 4;
      const std::size_t column = block % tiles * 4 + i % 4;
      const bool is_there = row < rows && column < columns;
      swizzled[block * 512 + swizzled_place(i / 4, i % 4, 4)] = is_there ? compact[row * columns + column] : 0;
    });
  }
};

}  // namespace fp8lab::gpu
