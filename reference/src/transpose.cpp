// SPDX-License-Identifier: Apache-2.0
#include "transpose.hpp"

#include <array>
#include <cstring>

namespace fp8lab {
namespace {

constexpr std::size_t edge = 8;

/// Exchanges parts of two rows: `mask` has those that the first keeps, `shift` bits further are those that it gives.
void exchange(std::uint64_t& first, std::uint64_t& second, int shift, std::uint64_t mask) {
  const std::uint64_t differ = (first >> shift ^ second) & mask;
  second ^= differ;
  first ^= differ << shift;
}

/// A square of 8 x 8, a row a word: halves are exchanged, then quarters, then bytes.
void transpose_square(const std::uint8_t* in, std::size_t in_stride, std::uint8_t* out, std::size_t out_stride) {
  std::array<std::uint64_t, edge> row;
  for (std::size_t i = 0; i < edge; ++i) std::memcpy(&row[i], in + i * in_stride, edge);
  for (std::size_t i = 0; i < 4; ++i) exchange(row[i], row[i + 4], 32, 0x00000000FFFFFFFFU);
  for (const std::size_t i : {0U, 1U, 4U, 5U}) exchange(row[i], row[i + 2], 16, 0x0000FFFF0000FFFFU);
  for (std::size_t i = 0; i < edge; i += 2) exchange(row[i], row[i + 1], 8, 0x00FF00FF00FF00FFU);
  for (std::size_t i = 0; i < edge; ++i) std::memcpy(out + i * out_stride, &row[i], edge);
}

}  // namespace

void transpose_bytes(const std::uint8_t* in, std::size_t rows, std::size_t columns, std::size_t in_stride,
                     std::uint8_t* out, std::size_t out_stride) {
  const std::size_t even_rows = rows / edge * edge;
  const std::size_t even_columns = columns / edge * edge;
  for (std::size_t c = 0; c < even_columns; c += edge) {
    for (std::size_t r = 0; r < even_rows; r += edge) {
      transpose_square(in + r * in_stride + c, in_stride, out + c * out_stride + r, out_stride);
    }
  }
  for (std::size_t c = 0; c < columns; ++c) {
    const std::size_t first = c < even_columns ? even_rows : 0;
    for (std::size_t r = first; r < rows; ++r) out[c * out_stride + r] = in[r * in_stride + c];
  }
}

}  // namespace fp8lab
