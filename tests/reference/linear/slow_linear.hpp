// SPDX-License-Identifier: Apache-2.0
// A second opinion on the passes of a Linear layer, from scalar models alone: a tensor is cast element by element from
// the formulas, and dot products are made of one instruction after the other.
#pragma once

#include <bit>
#include <cmath>
#include <map>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/linear/linear.hpp"
#include "reference/gemm/slow_product.hpp"
#include "reference/scaling/plain_quantize.hpp"
#include "support.hpp"

namespace fp8lab::tests {

/// A tensor of a layer: values, rows, columns.
struct LayerTensor {
  std::vector<float> values;
  std::size_t rows, columns;

  [[nodiscard]] MatrixView view() const { return {values, rows, columns}; }
};

/// Draws of eight binades and both signs, times 2^most.
inline LayerTensor drawn_tensor(std::size_t rows, std::size_t columns, std::uint64_t seed, int most) {
  LayerTensor x{std::vector<float>(rows * columns), rows, columns};
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const auto word = static_cast<std::uint32_t>(random_bits(seed, i));
    x.values[i] = std::ldexp(std::bit_cast<float>((word & 0x83FFFFFFU) + 0x3C000000U), most);
  }
  return x;
}

/// The tensor in high precision, with its rows along K.
inline std::vector<std::vector<float>> plain_values(const LayerTensor& x, const Format& format, Direction direction) {
  const bool rowwise = direction == Direction::rowwise;
  std::vector<std::vector<float>> result(rowwise ? x.rows : x.columns);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    float value = x.values[i];
    if (format != binary32) value = decode(format, encode(format, cuda_nosat_policy, value));
    result[rowwise ? i / x.columns : i % x.columns].push_back(value);
  }
  return result;
}

/// The tensor quantized, element by element. A byte of `random` is for each code, in the order of the codes.
inline PlainOperand plain_quantized(LayerTensor x, Recipe recipe, Direction direction,
                                    std::span<const std::uint8_t> random = {}) {
  const bool rowwise = direction == Direction::rowwise;
  if (recipe.transform != Transform::none && !rowwise) {
    x.values = quantization::turned_columns(x.values, x.rows, x.columns);
    for (float& value : x.values) value = decode(bfloat16, encode(bfloat16, cuda_nosat_policy, value));
  }
  recipe.transform = Transform::none;
  const quantization::Plain<float> plain(x.values, x.rows, x.columns, recipe, direction);
  PlainOperand p;
  p.kind = scale_kind_of(recipe);
  p.format = recipe.format;
  p.rows = rowwise ? x.rows : x.columns;
  p.depth = rowwise ? x.columns : x.rows;
  p.block = std::max<std::size_t>(recipe.tile_along, 1);
  p.tensor_scale = recipe.tensor_scale;
  for (const float value : x.values) p.amax = std::fmax(p.amax, std::fabs(value));
  std::map<std::pair<std::size_t, std::size_t>, TileScale> scales;  // by tile
  for (std::size_t row = 0; row < p.rows; ++row) {
    for (std::size_t k = 0; k < p.depth; ++k) {
      const std::pair tile{recipe.tile_across == 0 ? 0 : row / recipe.tile_across,
                           recipe.tile_along == 0 ? 0 : k / recipe.tile_along};
      if (!scales.contains(tile)) scales[tile] = rowwise ? plain.scale(row, k) : plain.scale(k, row);
      const TileScale& scale = scales[tile];
      const float value = x.values[rowwise ? row * x.columns + k : k * x.columns + row];
      const float scaled = recipe.operation == TileOperation::divide ? value / scale.factor : value * scale.factor;
      const RandomBits bits{random.empty() ? 0U : random[row * p.depth + k], 8};
      p.codes.push_back(static_cast<std::uint8_t>(encode(recipe.format, recipe.cast, scaled, bits)));
      p.scales.push_back(scale.scale_inv);
      if (k % p.block == 0) p.block_scales.push_back(scale.code);
    }
  }
  if (p.kind != ScaleKind::mx && p.kind != ScaleKind::nvfp4) p.block_scales.clear();
  return p;
}

/// One element of the product of values that are not quantized.
inline float slow_unquantized(const LinearGemm& gemm, const std::vector<float>& a, const std::vector<float>& b) {
  if (gemm.recipe.model.k() == 0) {
    Integer sum = 0;  // in units of 2^-400
    for (std::size_t k = 0; k < a.size(); ++k) {
      int exponent = 0;
      const double product = std::frexp(static_cast<double>(a[k]) * static_cast<double>(b[k]), &exponent);
      if (product != 0)
        sum += Integer(static_cast<std::int64_t>(std::ldexp(product, 53))) * (Integer(1) << (exponent - 53 + 400));
    }
    return nearest_float(Rational(sum) * power_of_two(-400));
  }
  const auto width = static_cast<std::size_t>(gemm.recipe.model.k());
  const Format format = std::get<Format>(gemm.a);
  const bool is_tf32 = gemm.recipe.model.operands.front() == tf32;
  float c = 0;
  for (std::size_t k = 0; k < a.size(); k += width) {
    const auto part = [&](const std::vector<float>& all) {
      std::vector<float> result(width, 0);
      for (std::size_t i = k; i < std::min(all.size(), k + width); ++i) {
        // cuBLAS rounds to TF32, nearest with ties away from zero; the instruction then cuts nothing.
        result[i - k] = is_tf32 ? decode(tf32, encode(tf32, {.rounding = Rounding::nearest_away}, all[i])) : all[i];
      }
      return result;
    };
    const std::vector<float> left = part(a);
    const std::vector<float> right = part(b);
    std::vector<std::uint16_t> x, y;
    for (const float value : left) x.push_back(static_cast<std::uint16_t>(encode(bfloat16, cuda_nosat_policy, value)));
    for (const float value : right) y.push_back(static_cast<std::uint16_t>(encode(bfloat16, cuda_nosat_policy, value)));
    const bool floats = format == binary32;
    const Operand one = floats ? Operand::floats(left, 1, width) : Operand::codes(x, format, 1, width);
    const Operand other = floats ? Operand::floats(right, 1, width) : Operand::codes(y, format, 1, width);
    mma(gemm.recipe.model, one, other, std::span<const float>(&c, 1), std::span<float>(&c, 1));
  }
  return c;
}

/// One element of the product of quantized operands, promoted every so many of K; before c, bias and output.
inline float slow_promoted(const LinearGemm& gemm, const PlainOperand& a, std::size_t row, const PlainOperand& b,
                           std::size_t column) {
  if (gemm.recipe.scale_order == ScaleOrder::accumulator_first) {
    float sum = 0;
    for (std::size_t k = 0; k < a.depth; k += 128) {
      float accumulator = 0;
      for (std::size_t i = k; i < std::min(a.depth, k + 128); i += 32) {
        accumulator = slow_instruction(gemm.recipe.model, a, row, b, column, i, accumulator);
      }
      sum = std::fma(accumulator * a.scales[row * a.depth + k], b.scales[column * b.depth + k], sum);
    }
    return sum;
  }
  if (gemm.recipe.promote_k == 0) return slow_element(gemm.recipe.model, a, row, b, column);
  float accumulator = 0;
  float sum = 0;
  for (std::size_t k = 0; k < a.depth;) {
    accumulator = slow_instruction(gemm.recipe.model, a, row, b, column, k, accumulator);
    k += static_cast<std::size_t>(gemm.recipe.model.k());
    if (k % static_cast<std::size_t>(gemm.recipe.promote_k) != 0 && k < a.depth) continue;
    sum += accumulator;
    accumulator = 0;
  }
  return sum * (a.scales[row * a.depth] * b.scales[column * b.depth]);
}

/// A pass: any element of its result, from what the tensors are.
class SlowPass {
 public:
  SlowPass(const LinearGemm& gemm, const LayerTensor& a, Direction direction_a, const LayerTensor& b,
           Direction direction_b, std::span<const std::uint8_t> random = {})
      : gemm_(gemm) {
    if (const auto* format = std::get_if<Format>(&gemm.a)) {
      values_a_ = plain_values(a, *format, direction_a);
      values_b_ = plain_values(b, std::get<Format>(gemm.b), direction_b);
    } else {
      a_ = plain_quantized(a, std::get<Recipe>(gemm.a), direction_a, random);
      b_ = plain_quantized(b, std::get<Recipe>(gemm.b), direction_b);
    }
  }
  /// The product, and the product with c and a bias that is added in float32, in the type of the output.
  [[nodiscard]] float product(std::size_t row, std::size_t column) const {
    return a_.codes.empty() ? slow_unquantized(gemm_, values_a_[row], values_b_[column])
                            : slow_promoted(gemm_, a_, row, b_, column);
  }
  [[nodiscard]] std::uint32_t word(std::size_t row, std::size_t column, float c = 0, float bias = 0) const {
    const float sum = product(row, column) + c + bias;
    return gemm_.recipe.output == binary32 ? bits(sum) : encode(gemm_.recipe.output, cuda_nosat_policy, sum);
  }

 private:
  LinearGemm gemm_;
  std::vector<std::vector<float>> values_a_, values_b_;
  PlainOperand a_, b_;
};

}  // namespace fp8lab::tests
