// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "fp8lab/formats/unpack.hpp"
#include "fp8lab/reference/mma_model.hpp"

namespace fp8lab {

/// A row-major matrix of dot-product operands: each row is one dot product's factors, so a GEMM's B is given as (N, K).
struct Operands {
  std::variant<std::span<const std::uint8_t>, std::span<const float>> elements;  ///< codes, or float32 values
  Format format;  ///< of the codes; binary32 for float32 values
  std::size_t rows;
  std::size_t depth;  ///< K

  [[nodiscard]] static Operands codes(std::span<const std::uint8_t> codes, const Format& format, std::size_t rows,
                                      std::size_t depth) {
    return {codes, format, rows, depth};
  }
  [[nodiscard]] static Operands floats(std::span<const float> values, std::size_t rows, std::size_t depth) {
    return {values, binary32, rows, depth};
  }
};

/// A factor as the multiplier sees it: value = significand * 2^lsb, aligned by `exponent`.
struct Factor {
  std::int32_t significand;  ///< signed; its sign is also the sign of an infinity
  std::int16_t exponent;     ///< unbiased exponent field, the smallest normal's for subnormals
  std::int16_t lsb;
  Kind kind;
};

/// Every element of `operands` as a factor of `model`, after the rounding that the model applies to its inputs.
///
/// Throws std::invalid_argument where the element count is not rows * depth, or where the model does not take the
/// format (the message names what it takes). `name` is the operand's name in messages.
[[nodiscard]] std::vector<Factor> factors(const MmaModel& model, const Operands& operands, const char* name);

/// One step: c + sum of a[i] * b[i] as the model's tensor core computes it. For Arithmetic::fused, at most
/// products_per_step products; fewer act as if the rest were zero. Precondition: a.size() == b.size().
[[nodiscard]] float mma_step(const MmaModel& model, std::span<const Factor> a, std::span<const Factor> b, float c,
                             ZeroRule zero_rule = ZeroRule::skip);

/// A batch of independent steps of one instruction: out[i] = c[i] + dot(a row i, b row i).
///
/// @param a,b  n rows of the instruction's K (any K for `exact`)
/// @param c    n accumulators, or empty for zeros
/// Throws std::invalid_argument where shapes, formats or K do not fit; the message says what does.
void mma(const MmaModel& model, const Operands& a, const Operands& b, std::span<const float> c, std::span<float> out,
         ZeroRule zero_rule = ZeroRule::skip);

}  // namespace fp8lab
