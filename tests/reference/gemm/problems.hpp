// SPDX-License-Identifier: Apache-2.0
// Matrices of codes to multiply, and what the slow oracle makes of those that are hard on a model.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "reference/tensor_core/dots.hpp"
#include "support.hpp"

namespace fp8lab::tests {

struct Problem {
  std::size_t rows, columns, depth;
  std::vector<std::uint8_t> a, b;
};

/// Random codes: 0 any code, 1 no specials, 2 one binade and many zeros, 3 exponents spread as far as they go.
inline Problem problem(std::size_t rows, std::size_t columns, std::size_t depth, int kind, std::uint64_t seed) {
  Problem p{rows, columns, depth, std::vector<std::uint8_t>(rows * depth), std::vector<std::uint8_t>(columns * depth)};
  std::uint64_t i = 0;
  for (auto* side : {&p.a, &p.b}) {
    for (auto& code : *side) {
      const std::uint64_t random = random_bits(seed, i++);
      code = static_cast<std::uint8_t>(random);
      if (kind == 2) code = (random >> 8) % 2 == 0 ? 0 : static_cast<std::uint8_t>((code & 0x87) | 0x38);
      if (kind == 3) code = static_cast<std::uint8_t>((code & 0x83) | ((random >> 8) % 2 == 0 ? 0x70 : 0x04));
      if (kind != 0 && (code & 0x7F) >= 0x7B) code &= 0x87;
    }
  }
  return p;
}

inline std::vector<float> multiply(const GemmRecipe& recipe, const Problem& p, const Format& a, const Format& b,
                                   const GemmCall& call = {}, const TensorScale& scale_a = {},
                                   const TensorScale& scale_b = {}) {
  std::vector<float> out(p.rows * p.columns);
  Operand left = Operand::codes(p.a, a, p.rows, p.depth);
  Operand right = Operand::codes(p.b, b, p.columns, p.depth);
  left.tensor_scale = scale_a;
  right.tensor_scale = scale_b;
  gemm(recipe, left, right, out, call);
  return out;
}

inline Mismatches float_differences(const std::vector<float>& actual, const std::vector<float>& expected) {
  Mismatches wrong;
  for (std::size_t i = 0; i < actual.size(); ++i) wrong.compare(i, i, bits(actual[i]), bits(expected[i]));
  return wrong;
}

/// Operands that are hard on a model, K ending in the middle of its third instruction where no block of scales does.
struct GemmProblem {
  MmaModel model;
  std::size_t rows, columns, depth;
  Codes left, right;
  Scales scale_left, scale_right;
  Elements left_elements, right_elements;
  Format format;

  [[nodiscard]] Operand a() const { return left_elements.operand(rows, depth, scale_left); }
  [[nodiscard]] Operand b() const { return right_elements.operand(columns, depth, scale_right); }

  /// The oracle's accumulator after instructions [first, last) of one element, the tail filled with codes and scales of
  /// 0.
  [[nodiscard]] float instructions(std::size_t row, std::size_t column, std::size_t first, std::size_t last,
                                   float start = 0, ZeroRule rule = ZeroRule::floor) const {
    const auto step = static_cast<std::size_t>(model.k());
    const std::size_t block = model.scales ? static_cast<std::size_t>(model.scales->block) : depth;
    const auto part = [](const auto& all, std::size_t width, std::size_t i, std::size_t from, std::size_t count) {
      std::remove_cvref_t<decltype(all)> result(count, 0);
      for (std::size_t k = 0; k < count && from + k < width; ++k) result[k] = all[i * width + from + k];
      return result;
    };
    Dots dots{.format_a = format, .format_b = format, .k = step, .c = {word(start)}};
    for (std::size_t k = first * step; k < last * step; k += step) {
      dots.a = part(left, depth, row, k, step);
      dots.b = part(right, depth, column, k, step);
      if (model.scales) {
        dots.scale_a = part(scale_left, depth / block, row, k / block, step / block);
        dots.scale_b = part(scale_right, depth / block, column, k / block, step / block);
      }
      dots.c = slow_words(slow_model_of(model), dots, rule);
    }
    return value(dots.c.front());
  }
  /// One element, promoted every so many instructions (0: never).
  [[nodiscard]] float slow(std::size_t row, std::size_t column, std::size_t every,
                           ZeroRule rule = ZeroRule::floor) const {
    const std::size_t all = (depth + static_cast<std::size_t>(model.k()) - 1) / static_cast<std::size_t>(model.k());
    if (every == 0) return instructions(row, column, 0, all, 0, rule);
    float sum = 0;
    for (std::size_t first = 0; first < all; first += every) {
      sum += instructions(row, column, first, std::min(all, first + every), 0, rule);
    }
    return quiet(sum);
  }
  [[nodiscard]] std::uint32_t word(float x) const {
    return model.accumulator() == binary16 ? encode(binary16, {.overflow = Overflow::to_special}, x) : bits(x);
  }
  /// An NVIDIA GPU's NaN for every NaN.
  static float quiet(float x) { return std::isnan(x) ? std::bit_cast<float>(0x7FFFFFFFU) : x; }
  [[nodiscard]] float value(std::uint64_t word) const {
    return quiet(decode(model.accumulator(), static_cast<std::uint32_t>(word)));
  }
};

inline GemmProblem hard_problem(const MmaModel& model, std::size_t rows, std::size_t columns) {
  const auto k = static_cast<std::size_t>(model.k());
  const std::size_t depth = 2 * k + (model.scales ? static_cast<std::size_t>(model.scales->block) : k / 2 + 1);
  MmaModel whole = model;  // one instruction of all K
  whole.products_per_step = static_cast<int>(depth);
  whole.steps = 1;
  const Format format = model.operands.back();
  const Dots sides = hard_dots(whole, format, format, std::max(rows, columns), 9);
  const auto first = [&](const auto& all, std::size_t count) {
    const std::size_t width = all.size() / sides.count();
    return std::remove_cvref_t<decltype(all)>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count * width));
  };
  const Codes left = first(sides.a, rows);
  const Codes right = first(sides.b, columns);
  return {model,
          rows,
          columns,
          depth,
          left,
          right,
          first(sides.scale_a, rows),
          first(sides.scale_b, columns),
          Elements(left, format),
          Elements(right, format),
          format};
}

/// Random codes without specials, of any K.
inline GemmProblem plain_problem(const MmaModel& model, std::size_t rows, std::size_t columns, std::size_t depth) {
  Random random(11);
  const Format format = model.operands.front();
  GemmProblem p{model, rows, columns, depth, {}, {}, {}, {}, {{}, format}, {{}, format}, format};
  for (std::size_t i = 0; i < rows * depth; ++i) p.left.push_back(code_between(random, format, 3, 11, false));
  for (std::size_t i = 0; i < columns * depth; ++i) p.right.push_back(code_between(random, format, 3, 11, false));
  p.left_elements = Elements(p.left, format);
  p.right_elements = Elements(p.right, format);
  return p;
}

}  // namespace fp8lab::tests
