// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/reference/tensor_core/mma.hpp"

namespace fp8lab {

/// A factor, a scale or an accumulator as the adder sees it.
///
/// Every one is a float32 number, so that a double holds it, and the product of two, exactly and far from its limits.
/// The exponent is the unbiased exponent field, the smallest normal's for subnormals. So that one maximum over sums of
/// exponents finds the alignment and every special case, zeros that do not count have absent_exponent, NaN and
/// infinities special_exponent: far apart from all others in any sum of up to four of which two are absent.
struct Factor {
  double value;  // 1 or -1 for an infinity, of which only the sign counts
  std::int16_t exponent;
  Kind kind;
};
inline constexpr std::int16_t absent_exponent = -5000;
inline constexpr std::int16_t special_exponent = 30000;
inline constexpr std::int16_t zero_exponent_of_mma_sim = -126;
inline constexpr int least_special_exponent = 10000;  // of a sum that a special is part of

/// 2^exponent; the exponent is clamped to what leaves room in a double.
[[nodiscard]] inline double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(std::clamp(exponent, -1000, 1000) + 1023) << 52);
}

/// A code of `format`. Total.
[[nodiscard]] inline Factor factor(const Format& format, std::uint32_t code) {
  const Unpacked x = unpack(format, code);
  const bool special = x.kind == Kind::infinite || x.kind == Kind::nan;
  const double magnitude = special ? 1 : static_cast<double>(x.significand) * power_of_two(x.exponent);
  const auto exponent = static_cast<std::int16_t>(x.exponent + format.mantissa_bits);
  return {x.negative ? -magnitude : magnitude, special ? special_exponent : exponent, x.kind};
}

/// The same with the exponent that `zero_rule` gives to a zero.
[[nodiscard]] inline Factor factor(const Format& format, std::uint32_t code, ZeroRule zero_rule) {
  Factor result = factor(format, code);
  if (result.kind != Kind::zero) return result;
  switch (zero_rule) {
    case ZeroRule::skip:
    case ZeroRule::skip_empty_groups:
    case ZeroRule::skip_zero_groups: result.exponent = absent_exponent; break;
    case ZeroRule::mma_sim: result.exponent = zero_exponent_of_mma_sim; break;
  }
  return result;
}

/// Consecutive k of one row.
struct FactorSpan {
  std::span<const Factor> factors;
  std::span<const Factor> scales = {};  // one a block
};

/// Throws std::invalid_argument where an array of `operands`, called `name`, overlaps `out`.
template <typename Out>
void check_apart_operands(std::string_view name, const Operands& operands, std::span<Out> out) {
  std::visit([&](auto elements) { check_apart(name, elements, "out", out); }, operands.elements);
  check_apart("scale_" + std::string(name), operands.scales, "out", out);
  check_apart("scale_" + std::string(name), operands.tile_scales.values, "out", out);
}

/// All rows of an operand.
struct Factors {
  std::vector<Factor> elements, scales;
  std::size_t depth;
  std::size_t block;  // 0: no scales

  [[nodiscard]] FactorSpan part(std::size_t row, std::size_t k, std::size_t count) const {
    const std::span<const Factor> part = std::span(elements).subspan(row * depth + k, count);
    if (block == 0) return {part};
    return {part, std::span(scales).subspan((row * depth + k) / block, (count + block - 1) / block)};
  }
  [[nodiscard]] FactorSpan row(std::size_t i) const { return part(i, 0, depth); }
};

/// Makes factors of an operand's elements, after the conversion that the model makes of its inputs.
class FactorReader {
 public:
  /// Throws std::invalid_argument where the numbers of elements or scales do not fit, or where the model does not take
  /// the format (the message names what it takes). `name` is the operand's name in messages.
  FactorReader(const MmaModel& model, const Operands& operands, ZeroRule zero_rule, const std::string& name);
  /// Rows [first, first + count).
  [[nodiscard]] Factors rows(std::size_t first, std::size_t count) const;
  /// Calls f(k, factor) for the elements [k0, k1) of a row.
  template <typename Function>
  void for_row(std::size_t row, std::size_t k0, std::size_t k1, const Function& f) const {
    const std::size_t stride = operands_.transposed ? operands_.rows : 1;
    const std::size_t start = operands_.transposed ? row : row * operands_.depth;
    for (std::size_t k = k0; k < k1; ++k) f(k, at(start + k * stride));
  }
  /// Calls f(k, code) for them; whether they are bytes, of which each has one factor:
  template <typename Function>
  void for_codes(std::size_t row, std::size_t k0, std::size_t k1, const Function& f) const {
    const auto codes = std::get<std::span<const std::uint8_t>>(operands_.elements);
    const std::size_t stride = operands_.transposed ? operands_.rows : 1;
    const std::size_t start = operands_.transposed ? row : row * operands_.depth;
    for (std::size_t k = k0; k < k1; ++k) f(k, codes[start + k * stride]);
  }
  [[nodiscard]] bool has_byte_table() const { return operands_.elements.index() == 0; }
  [[nodiscard]] const Factor& of_byte(std::size_t code) const { return of_byte_[code]; }
  /// Elements of K that share a scale; 0: there are no scales.
  [[nodiscard]] std::size_t block() const { return model_.scales ? static_cast<std::size_t>(model_.scales->block) : 0; }
  /// The scale of a row's block. Precondition: block() != 0.
  [[nodiscard]] Factor scale(std::size_t row, std::size_t block) const;

  [[nodiscard]] const Operands& operands() const { return operands_; }
  [[nodiscard]] const MmaModel& model() const { return model_; }

 private:
  [[nodiscard]] Factor converted(std::uint32_t code) const;
  [[nodiscard]] Factor at(std::size_t i) const {
    if (const auto* bytes = std::get_if<std::span<const std::uint8_t>>(&operands_.elements))
      return of_byte_[(*bytes)[i]];
    return of_wide(i);
  }
  [[nodiscard]] Factor of_wide(std::size_t i) const;

  MmaModel model_;
  Operands operands_;
  Format format_;  // what the elements are to the model: binary32 or tf32 for floats
  ZeroRule zero_rule_;
  std::array<Factor, 256> of_byte_{};  // where the codes are bytes
};

}  // namespace fp8lab
