// SPDX-License-Identifier: Apache-2.0
#include "kit/band.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "fp8lab/reference/scaling/facts.hpp"

namespace fp8lab::experiments {
namespace {

/// Entries of the scales along the rows of the tensor.
std::size_t scales_along_rows(const Quantized& q) { return q.transposed ? q.scale_columns : q.scale_rows; }

/// Rows that an entry of the scales is for; all of them where there is one scale for all.
std::size_t rows_a_scale(const Quantized& q) { return scales_along_rows(q) == q.rows ? 1 : tile_shape(q).rows; }

/// Copies columns [first, first + count) of every row of `from`, which has `width`.
template <typename Values>
void copy_columns(const Values& from, std::size_t width, std::size_t first, std::size_t count, Values& to) {
  const std::size_t rows = from.size() / width;
  to.resize(rows * count);
  for (std::size_t row = 0; row < rows; ++row) std::copy_n(&from[row * width + first], count, &to[row * count]);
}

}  // namespace

std::size_t rows_of_bands(std::initializer_list<const Quantized*> all, std::size_t elements) {
  const Quantized& any = **all.begin();
  std::size_t unit = 32;  // the blocks of MX, in 2-D too, and those of NVFP4
  for (const Quantized* q : all) {
    if (scales_along_rows(*q) > 1) unit = std::lcm(unit, rows_a_scale(*q));
    if (unit >= any.rows) return any.rows;
  }
  return std::min(any.rows, std::max<std::size_t>(1, elements / any.columns / unit) * unit);
}

void take_band(const Quantized& q, std::size_t first, std::size_t rows, Quantized& band) {
  // 1. Facts.
  band.recipe = q.recipe;
  band.direction = q.direction;
  band.rows = rows;
  band.columns = q.columns;
  band.format = q.format;
  band.transposed = q.transposed;
  band.amax = q.amax;
  band.tensor_scale = q.tensor_scale;
  band.tensor_scale_inv = q.tensor_scale_inv;
  band.row_amaxes = q.row_amaxes;
  if (!q.row_amaxes.empty() && q.direction == Direction::rowwise) {
    band.row_amaxes.assign(&q.row_amaxes[first], &q.row_amaxes[first] + rows);
  }
  // 2. Codes; those of four bits are pairs.
  const std::size_t per_byte = q.format.bits() == 4 ? 2 : 1;
  if (q.transposed) {
    copy_columns(q.codes, q.rows / per_byte, first / per_byte, rows / per_byte, band.codes);
  } else {
    copy_columns(q.codes, q.codes.size(), first * q.columns / per_byte, rows * q.columns / per_byte, band.codes);
  }
  // 3. Scales.
  const std::size_t height = rows_a_scale(q);
  const std::size_t begin = scales_along_rows(q) == 1 ? 0 : first / height;
  const std::size_t count = scales_along_rows(q) == 1 ? 1 : (rows + height - 1) / height;
  band.scale_rows = q.transposed ? q.scale_rows : count;
  band.scale_columns = q.transposed ? count : q.scale_columns;
  const auto take = [&](const auto& from, auto& to) {
    if (from.empty()) return to.clear();
    if (q.transposed) return copy_columns(from, q.scale_columns, begin, count, to);
    copy_columns(from, from.size(), begin * q.scale_columns, count * q.scale_columns, to);
  };
  take(q.scale_inv, band.scale_inv);
  take(q.scale_codes, band.scale_codes);
}

}  // namespace fp8lab::experiments
