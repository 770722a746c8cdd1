// SPDX-License-Identifier: Apache-2.0
// A second opinion on products of quantized tensors, element by element: one that unpacks, transposes and multiplies by
// hand, and the exact sum.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/tensor_core/mma.hpp"
#include "reference/rational.hpp"
#include "reference/tensor_core/slow_models.hpp"

namespace fp8lab::tests {

/// What scales there are.
enum class ScaleKind : std::uint8_t { tensor, row, tile, mx, nvfp4 };

/// One operand, taken apart by hand: rows of plain codes along K, and the scales of every element.
struct PlainOperand {
  ScaleKind kind = ScaleKind::tensor;
  Format format = e4m3;
  std::size_t rows = 0, depth = 0;
  std::vector<std::uint8_t> codes;         // (rows, depth), a byte each
  std::vector<std::uint8_t> block_scales;  // (rows, depth / block)
  std::size_t block = 1;
  std::vector<float> scales;  // of tensor, rows or tiles: (rows, depth)
  float amax = 0;
  float top = 2688;  // what the tensor's scale maps the amax to
  TensorScaleRule tensor_scale = TensorScaleRule::none;
};

inline ScaleKind scale_kind_of(const Recipe& recipe) {
  if (recipe.scale_type != ScaleType::float32)
    return recipe.scale_type == ScaleType::e8m0_code ? ScaleKind::mx : ScaleKind::nvfp4;
  if (recipe.tile_across == 0) return ScaleKind::tensor;
  return recipe.tile_along == 0 ? ScaleKind::row : ScaleKind::tile;
}

inline PlainOperand taken_apart(const Quantized& q) {
  const bool rowwise = q.direction == Direction::rowwise;
  PlainOperand p;
  p.format = q.format;
  p.rows = rowwise ? q.rows : q.columns;
  p.depth = rowwise ? q.columns : q.rows;
  p.amax = q.amax;
  p.top = 6 * q.recipe.tensor_range;
  p.tensor_scale = q.recipe.tensor_scale;
  p.kind = scale_kind_of(q.recipe);
  const bool along_rows = rowwise != q.transposed;  // whether a stored row lies along K
  const auto place = [&](std::size_t row, std::size_t k) { return along_rows ? row * p.depth + k : k * p.rows + row; };
  for (std::size_t row = 0; row < p.rows; ++row) {
    for (std::size_t k = 0; k < p.depth; ++k) {
      const std::size_t i = place(row, k);
      const int shift = i % 2 == 0 ? 0 : 4;
      p.codes.push_back(q.format.bits() == 4 ? static_cast<std::uint8_t>(q.codes[i / 2] >> shift & 15) : q.codes[i]);
    }
  }
  const std::size_t scale_rows = along_rows ? q.scale_rows : q.scale_columns;
  const std::size_t scale_depth = along_rows ? q.scale_columns : q.scale_rows;
  const auto scale = [&](const auto& all, std::size_t row, std::size_t k) {
    return all[along_rows ? row * scale_depth + k : k * scale_rows + row];
  };
  if (p.kind == ScaleKind::mx || p.kind == ScaleKind::nvfp4) {
    p.block = q.recipe.tile_along;
    for (std::size_t row = 0; row < p.rows; ++row) {
      for (std::size_t k = 0; k < p.depth / p.block; ++k) p.block_scales.push_back(scale(q.scale_codes, row, k));
    }
    return p;
  }
  for (std::size_t row = 0; row < p.rows; ++row) {
    const std::size_t i = scale_rows == 1 ? 0 : scale_rows == p.rows ? row : row / q.recipe.tile_across;
    for (std::size_t k = 0; k < p.depth; ++k) {
      p.scales.push_back(scale(q.scale_inv, i, scale_depth == 1 ? 0 : k / q.recipe.tile_along));
    }
  }
  return p;
}

/// Whether an instruction of the model can have the operand. (`exact` multiplies values.)
inline bool slow_fits(const MmaModel& model, const PlainOperand& p) {
  if (model.name == "exact") return true;
  if (p.kind == ScaleKind::nvfp4) return model.name == "blackwell_nvf4" && p.block == 16;
  if (p.kind == ScaleKind::mx) {
    if (p.block != 32) return false;
    return model.name == "blackwell_mxf8" || (model.name == "blackwell_mxf4" && p.format == e2m1);
  }
  const auto is_power = [](float x) {
    int exponent = 0;
    return std::isnan(x) || x == 0 || std::frexp(x, &exponent) == 0.5F;
  };
  if (model.name == "blackwell_mxf8" || (model.name.starts_with("blackwell_mxf4") && p.format == e2m1)) {
    return p.kind == ScaleKind::tile && std::ranges::all_of(p.scales, is_power);
  }
  const SlowModel slow = slow_model_of(model);
  return slow.scale == SlowScale::none && slow_takes(slow.operands, p.format, p.format);
}

/// An NVIDIA GPU's NaN for every NaN.
inline float quiet_nan(float x) { return std::isnan(x) ? std::bit_cast<float>(0x7FFFFFFFU) : x; }

/// The block scales of a row on that model: those of blocks, or the exponents of those of tiles.
inline std::vector<std::uint8_t> block_scales_of_row(const PlainOperand& p, std::size_t row, std::size_t block) {
  if (!p.block_scales.empty()) {
    const auto first = p.block_scales.begin() + static_cast<std::ptrdiff_t>(row * p.depth / p.block);
    return {first, first + static_cast<std::ptrdiff_t>(p.depth / p.block)};
  }
  std::vector<std::uint8_t> result;
  for (std::size_t k = 0; k < p.depth; k += block) {
    const float scale = p.scales[row * p.depth + k];
    result.push_back(std::isnan(scale) ? 255 : static_cast<std::uint8_t>(std::ilogb(scale) + 127));
  }
  return result;
}

/// One instruction, from k on; what is beyond K is zero.
inline float slow_instruction(const MmaModel& model, const PlainOperand& a, std::size_t row, const PlainOperand& b,
                              std::size_t column, std::size_t k, float c) {
  const auto width = static_cast<std::size_t>(model.k());
  const auto side = [&](const PlainOperand& p, std::size_t i, std::vector<std::uint8_t>& codes,
                        std::vector<std::uint8_t>& scales) {
    codes.assign(width, 0);
    for (std::size_t j = k; j < std::min(p.depth, k + width); ++j) codes[j - k] = p.codes[i * p.depth + j];
    if (model.scales) {
      const auto block = static_cast<std::size_t>(model.scales->block);
      const std::vector<std::uint8_t> all = block_scales_of_row(p, i, block);
      scales.assign(width / block, 0);
      for (std::size_t j = 0; j < scales.size() && k / block + j < all.size(); ++j) scales[j] = all[k / block + j];
    }
    return Operand::codes(codes, p.format, 1, width, scales);
  };
  std::vector<std::uint8_t> x, y, scale_x, scale_y;
  const Operand left = side(a, row, x, scale_x);
  const Operand right = side(b, column, y, scale_y);
  if (model.accumulator() == binary16) {
    constexpr CastPolicy ieee{.overflow = Overflow::to_special, .infinity = Overflow::to_special};
    Half word{static_cast<std::uint16_t>(encode(binary16, ieee, c))};
    mma(model, left, right, std::span<const Half>(&word, 1), std::span<Half>(&word, 1));
    return quiet_nan(decode(binary16, word.bits));
  }
  mma(model, left, right, std::span<const float>(&c, 1), std::span<float>(&c, 1));
  return c;
}

inline float finite_or_one(float x) { return std::isfinite(x) ? x : 1; }

/// One element, scale by scale where each belongs.
inline float slow_element(const MmaModel& model, const PlainOperand& a, std::size_t row, const PlainOperand& b,
                          std::size_t column) {
  const bool tiles = !model.scales && (a.kind == ScaleKind::tile || b.kind == ScaleKind::tile);
  const auto scale = [&](const PlainOperand& p, std::size_t i, std::size_t k, ScaleKind kind) {
    return p.kind == kind ? p.scales[i * p.depth + k] : 1.0F;
  };
  float accumulator = 0;
  float sum = 0;
  for (std::size_t k = 0; k < a.depth; k += static_cast<std::size_t>(model.k())) {
    accumulator = slow_instruction(model, a, row, b, column, k, accumulator);
    const std::size_t next = k + static_cast<std::size_t>(model.k());
    if (!tiles || (next % 128 != 0 && next < a.depth)) continue;
    sum = std::fma(scale(a, row, k, ScaleKind::tile) * scale(b, column, k, ScaleKind::tile), accumulator, sum);
    accumulator = 0;
  }
  if (!tiles) sum = accumulator;
  sum = sum * scale(a, row, 0, ScaleKind::row) * scale(b, column, 0, ScaleKind::row);
  switch (a.tensor_scale) {
    case TensorScaleRule::largest_over_amax: return quiet_nan(sum * (a.amax * b.amax * (1.0F / (a.top * b.top))));
    case TensorScaleRule::amax_over_largest: return quiet_nan(sum * (a.amax / 2688.0F * (b.amax / 2688.0F)));
    case TensorScaleRule::largest_times_inverse:
      return quiet_nan(sum * (1 / (finite_or_one(1 / a.amax * 2688.0F) * finite_or_one(1 / b.amax * 2688.0F))));
    case TensorScaleRule::two_products:
      return quiet_nan(sum * (1 / (448 * (6 * (1 / a.amax)) * (448 * (6 * (1 / b.amax))))));
    case TensorScaleRule::none: break;
  }
  if (a.kind == ScaleKind::nvfp4) return quiet_nan(sum);
  return quiet_nan(sum * (scale(a, row, 0, ScaleKind::tensor) * scale(b, column, 0, ScaleKind::tensor)));
}

/// The real dot product of dequantized values, rounded once.
inline float exact_element(const Quantized& a, const std::vector<float>& x, std::size_t row, const Quantized& b,
                           const std::vector<float>& y, std::size_t column) {
  const auto at = [](const Quantized& q, const std::vector<float>& values, std::size_t i, std::size_t k) {
    return values[q.direction == Direction::rowwise ? i * q.columns + k : k * q.columns + i];
  };
  const std::size_t depth = a.direction == Direction::rowwise ? a.columns : a.rows;
  double specials = 0;
  Integer sum = 0;  // in units of 2^-300
  for (std::size_t k = 0; k < depth; ++k) {
    const double product = static_cast<double>(at(a, x, row, k)) * static_cast<double>(at(b, y, column, k));
    if (!std::isfinite(product)) {
      specials += product;
      continue;
    }
    int exponent = 0;
    const auto whole = static_cast<std::int64_t>(std::ldexp(std::frexp(product, &exponent), 53));
    const int shift = exponent - 53 + 400;
    if (product != 0) sum += Integer(whole) * (Integer(1) << shift);
  }
  if (specials != 0) return quiet_nan(static_cast<float>(specials));
  return nearest_float(Rational(sum) * power_of_two(-400));
}

}  // namespace fp8lab::tests
