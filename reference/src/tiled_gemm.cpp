// SPDX-License-Identifier: Apache-2.0
#include "tiled_gemm.hpp"

#include <algorithm>
#include <cmath>

#include "fp8lab/formats/targets.hpp"
#include "fuse_columns.hpp"
#include "instruction.hpp"

namespace fp8lab {
namespace {

constexpr int largest_exponent = 50;  // of a factor in vector code, so that a product's is at most 100

/// Whether the preconditions of fuse_columns hold for the model.
bool fits_vector_code(const MmaModel& model, ZeroRule zero_rule) {
  const double largest_sum = std::ldexp(4.0 * model.products_per_step + 2, model.fraction_bits);
  int bits = 0;
  for (const Format& format : model.operands) bits = std::max(bits, 2 * (format.mantissa_bits + 1));
  const bool plain = model.lowering == Lowering::native && model.order == StepOrder::ascending && model.group == 1 &&
                     !model.scales && model.accumulator() == binary32;
  return vector_code_allowed() && plain && zero_rule != ZeroRule::mma_sim && largest_sum < 0x1p31 && bits <= 24;
}

bool is_ordinary(const Factor& x) {
  return x.kind == Kind::zero || (x.kind == Kind::finite && std::abs(x.exponent) <= largest_exponent);
}
float power_of(const Factor& x) { return x.kind == Kind::zero ? 0.0F : std::ldexp(1.0F, x.exponent); }

}  // namespace

TiledGemm::TiledGemm(const MmaModel& model, const GemmShape& shape, const Factors& a, const Factors& b, int promote_k,
                     ZeroRule zero_rule, std::span<float> out)
    : model_(model),
      shape_(shape),
      a_(a),
      b_(b),
      promote_k_(static_cast<std::size_t>(promote_k)),
      zero_rule_(zero_rule),
      out_(out),
      vector_code_(fits_vector_code(model, zero_rule)) {
  const auto step = static_cast<std::size_t>(model.products_per_step);
  padded_depth_ = (shape.depth + step - 1) / step * step;
  if (!vector_code_) return;
  left_ = rows_of(a.elements);
  right_ = tiles_of(b.elements);
}

TiledGemm::Rows TiledGemm::rows_of(std::span<const Factor> a) const {
  const std::size_t size = shape_.rows * padded_depth_;
  Rows rows{std::vector<float>(size), std::vector<float>(size), std::vector<bool>(shape_.rows, true)};
  for (std::size_t row = 0; row < shape_.rows; ++row) {
    for (std::size_t k = 0; k < shape_.depth; ++k) {
      const Factor& x = a[row * shape_.depth + k];
      if (!is_ordinary(x)) {
        rows.ordinary[row] = false;
        continue;
      }
      rows.value[row * padded_depth_ + k] = static_cast<float>(x.value);
      rows.power[row * padded_depth_ + k] = power_of(x);
    }
  }
  return rows;
}

TiledGemm::Rows TiledGemm::tiles_of(std::span<const Factor> b) const {
  const std::size_t tiles = (shape_.columns + tile_columns - 1) / tile_columns;
  const std::size_t size = tiles * tile_columns * padded_depth_;
  Rows rows{std::vector<float>(size), std::vector<float>(size), std::vector<bool>(tiles, true)};
  for (std::size_t column = 0; column < shape_.columns; ++column) {
    const std::size_t tile = column / tile_columns;
    for (std::size_t k = 0; k < shape_.depth; ++k) {
      const Factor& x = b[column * shape_.depth + k];
      if (!is_ordinary(x)) {
        rows.ordinary[tile] = false;
        continue;
      }
      const std::size_t at = (tile * padded_depth_ + k) * tile_columns + column % tile_columns;
      rows.value[at] = static_cast<float>(x.value);
      rows.power[at] = power_of(x);
    }
  }
  return rows;
}

float TiledGemm::dot(std::size_t row, std::size_t column) const {
  const auto step = static_cast<std::size_t>(model_.k());
  std::uint32_t accumulator = 0;
  float promoted = 0;
  for (std::size_t k = 0; k < shape_.depth; k += step) {
    const std::size_t count = std::min(step, shape_.depth - k);
    accumulator = mma_instruction(model_, a_.part(row, k, count), b_.part(column, k, count), accumulator, zero_rule_);
    if (promote_k_ != 0 && (k + step) % promote_k_ == 0) {
      promoted += accumulator_value(model_, accumulator);
      accumulator = 0;
    }
  }
  const float last = accumulator_value(model_, accumulator);
  return promote_k_ == 0 ? last : promoted + last;
}

void TiledGemm::tile_of_rows(std::size_t tile, std::size_t row0, std::size_t row1) const {
  const std::size_t first = tile * tile_columns;
  const std::size_t width = std::min(tile_columns, shape_.columns - first);
  if (vector_code_ && right_.ordinary[tile] && left_.ordinary[row0] && left_.ordinary[row1]) {
    const auto step = static_cast<std::size_t>(model_.products_per_step);
    const std::uint32_t dropped = (std::uint32_t{1} << (binary32.mantissa_bits - model_.output.mantissa_bits)) - 1;
    const FuseColumns columns{padded_depth_ / step, step, promote_k_ / step, model_.fraction_bits, ~dropped};
    const auto row = [&](std::size_t i) {
      return FactorRow{&left_.value[i * padded_depth_], &left_.power[i * padded_depth_]};
    };
    const std::size_t at = tile * tile_columns * padded_depth_;
    float out[2][tile_columns];
    fuse_columns(columns, row(row0), row(row1), {&right_.value[at], &right_.power[at]}, out[0], out[1]);
    std::copy_n(out[0], width, &out_[row0 * shape_.columns + first]);
    std::copy_n(out[1], width, &out_[row1 * shape_.columns + first]);
    return;
  }
  for (const std::size_t row : {row0, row1}) {
    for (std::size_t i = 0; i < width; ++i) out_[row * shape_.columns + first + i] = dot(row, first + i);
    if (row0 == row1) break;
  }
}

void TiledGemm::operator()(std::size_t first, std::size_t last, const Report& report) const {
  const std::size_t tiles = (shape_.columns + tile_columns - 1) / tile_columns;
  if (shape_.depth == 0) {
    std::fill_n(out_.begin() + static_cast<std::ptrdiff_t>(first * shape_.columns), (last - first) * shape_.columns,
                0.0F);
    return;
  }
  // Row blocks bound the time between reports; within one, a tile of B is read once.
  constexpr std::size_t block = 64;
  for (std::size_t row0 = first; row0 < last; row0 += block) {
    const std::size_t end = std::min(last, row0 + block);
    for (std::size_t tile = 0; tile < tiles; ++tile) {
      for (std::size_t row = row0; row < end; row += 2) tile_of_rows(tile, row, std::min(row + 1, end - 1));
    }
    if (!report(static_cast<double>(end - first) / static_cast<double>(last - first))) return;
  }
}

}  // namespace fp8lab
