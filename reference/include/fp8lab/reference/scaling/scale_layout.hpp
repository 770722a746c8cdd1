// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/formats/host_device.hpp"

namespace fp8lab {

/// Where block scales of one byte lie.
enum class ScaleLayout : std::uint8_t {
  compact,   ///< row-major: (rows, K / block), or (K / block, rows) where the codes are transposed
  swizzled,  ///< as swizzle_scales() stores those of (rows, K / block), whether the codes are transposed or not
};

// Layouts of one-byte block scales of a matrix, (rows, columns): rows across K, a column for each block along K. (Of
// columnwise MxBlock codes, which are not transposed, the scales must be transposed first.)

/// Rows up to a multiple of 128, columns up to one of 4, as Transformer Engine allocates them; filled with zeros.
/// All throw std::invalid_argument where the array has not as many elements as its layout.
[[nodiscard]] std::vector<std::uint8_t> pad_scales(std::span<const std::uint8_t> scales, std::size_t rows,
                                                   std::size_t columns);
/// Removes the padding of pad_scales().
[[nodiscard]] std::vector<std::uint8_t> unpad_scales(std::span<const std::uint8_t> padded, std::size_t rows,
                                                     std::size_t columns);

/// Padded, and in tiles of 128 x 4 as tensor cores of Blackwell read them: the scale of (r, c) is at
/// ((r / 128) * tiles + c / 4) * 512 + (r mod 32) * 16 + (r mod 128) / 32 * 4 + c mod 4, tiles = columns / 4 rounded
/// up.
///
/// Source: cuBLAS documentation, 1D block scaling factors layout; transformer_engine/common/cast/mxfp8/swizzle.cuh.
[[nodiscard]] std::vector<std::uint8_t> swizzle_scales(std::span<const std::uint8_t> scales, std::size_t rows,
                                                       std::size_t columns);
/// How many bytes that are, and where that scale is.
[[nodiscard]] FP8LAB_HD constexpr std::size_t swizzled_size(std::size_t rows, std::size_t columns) {
  return (rows + 127) / 128 * 128 * ((columns + 3) / 4 * 4);
}
[[nodiscard]] FP8LAB_HD constexpr std::size_t swizzled_place(std::size_t row, std::size_t column, std::size_t columns) {
  const std::size_t tile = row / 128 * ((columns + 3) / 4) + column / 4;
  return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + column % 4;
}
/// Undoes swizzle_scales(), and drops the padding.
[[nodiscard]] std::vector<std::uint8_t> unswizzle_scales(std::span<const std::uint8_t> swizzled, std::size_t rows,
                                                         std::size_t columns);

}  // namespace fp8lab
