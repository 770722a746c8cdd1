// SPDX-License-Identifier: Apache-2.0
// Where codes are stored.
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "quantize/kernel_model.hpp"

namespace fp8lab::doctor {
namespace {

using enum Departure;

/// The index of the first half that comes first, then that of the second half.
std::uint64_t interleaved(std::uint64_t i, std::uint64_t length) {
  const std::uint64_t half = length / 2;
  return i < half ? 2 * i : 2 * (i - half) + 1;
}
/// Even indices come first.
std::uint64_t deinterleaved(std::uint64_t i, std::uint64_t length) { return i % 2 * (length / 2) + i / 2; }

/// A matrix of bytes in core matrices of 8 rows x 16 bytes, of which `step` lie between one and the next along a row
/// and `step_down` between one and the next down the rows.
std::uint64_t in_core_matrices(std::uint64_t row, std::uint64_t byte, std::uint64_t step, std::uint64_t step_down) {
  return (row / 8 * step_down + byte / 16 * step) * 128 + row % 8 * 16 + byte % 16;
}

/// Bits of the address from 4 on are XORed with those three above.
std::uint64_t swizzled_address(std::uint64_t address, std::uint64_t mask) { return address ^ (address >> 3 & mask); }

}  // namespace

bool KernelModel::has_room(bool is_packed) const {
  const std::size_t per_byte = is_packed ? 2 : 1;
  const std::size_t bytes = (source_->size() + per_byte - 1) / per_byte;
  const std::size_t rows = is_transposed_ ? source_->columns() : source_->rows();
  const std::size_t columns = is_transposed_ ? source_->rows() : source_->columns();
  const std::size_t width = columns / per_byte;
  const auto cuts = [&](Departure departure, std::size_t word) { return has(departure) && bytes % word != 0; };
  const auto breaks = [&](Departure departure, std::size_t tile_rows, std::size_t tile_bytes) {
    const bool is_whole = columns % per_byte == 0 && rows % tile_rows == 0 && width % tile_bytes == 0;
    return has(departure) && !is_whole;
  };
  return !cuts(bytes_swapped_2, 2) && !cuts(bytes_swapped_4, 4) && !cuts(bytes_swapped_8, 8) &&
         !cuts(codes_swizzled_128, 1024) && !cuts(codes_swizzled_64, 512) && !cuts(codes_swizzled_32, 256) &&
         !breaks(codes_tiled_128x4, 128, 4) && !breaks(codes_tiled_8x16, 8, 16) &&
         !breaks(codes_tiled_8x16_down, 8, 16) && !breaks(columns_interleaved, 1, 2) &&
         !breaks(columns_deinterleaved, 1, 2) && !breaks(rows_interleaved, 2, 1) && !breaks(rows_deinterleaved, 2, 1);
}

std::uint64_t KernelModel::place_of(std::size_t row, std::size_t column) const {
  if (is_in_place_) return row * source_->columns() + column;
  const bool is_packed = dump_ != nullptr && dump_->was_packed;
  const std::uint64_t per_byte = is_packed ? 2 : 1;
  const std::uint64_t rows = is_transposed_ ? source_->columns() : source_->rows();
  const std::uint64_t columns = is_transposed_ ? source_->rows() : source_->columns();
  // 1. Rows and columns.
  std::uint64_t r = is_transposed_ ? column : row;
  std::uint64_t c = is_transposed_ ? row : column;
  if (has(rows_interleaved)) r = interleaved(r, rows);
  if (has(rows_deinterleaved)) r = deinterleaved(r, rows);
  if (has(columns_interleaved) || has(pairs_of_halves)) c = interleaved(c, columns);
  if (has(columns_deinterleaved)) c = deinterleaved(c, columns);
  std::uint64_t place = r * columns + c;
  // 2. Bytes.
  const auto move = [&](Departure departure, auto new_byte) {
    if (has(departure)) place = new_byte(place / per_byte) * per_byte + place % per_byte;
  };
  const std::uint64_t width = columns / per_byte;
  move(codes_tiled_128x4, [&](std::uint64_t) { return swizzled_place(r, c / per_byte, width); });
  move(codes_tiled_8x16, [&](std::uint64_t) { return in_core_matrices(r, c / per_byte, 1, width / 16); });
  move(codes_tiled_8x16_down, [&](std::uint64_t) { return in_core_matrices(r, c / per_byte, rows / 8, 1); });
  move(codes_swizzled_128, [](std::uint64_t byte) { return swizzled_address(byte, 0x70); });
  move(codes_swizzled_64, [](std::uint64_t byte) { return swizzled_address(byte, 0x30); });
  move(codes_swizzled_32, [](std::uint64_t byte) { return swizzled_address(byte, 0x10); });
  move(bytes_swapped_2, [](std::uint64_t byte) { return byte ^ 1; });
  move(bytes_swapped_4, [](std::uint64_t byte) { return byte ^ 3; });
  move(bytes_swapped_8, [](std::uint64_t byte) { return byte ^ 7; });
  // 3. Codes.
  if (has(pairs_swapped)) place ^= 1;
  if (has(codes_one_late)) ++place;
  if (has(codes_one_early)) --place;  // before the first: behind the last
  return place;
}

}  // namespace fp8lab::doctor
