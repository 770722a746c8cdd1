// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/reference/tensor_core/mma.hpp"

namespace fp8lab {

/// A factor, a scale or an accumulator as the adder sees it.
///
/// Every one is a float32 number, so that a double holds it, and the product of two, exactly and far from its limits;
/// those of FP64 are float64 numbers, whose products a fused multiply-add takes.
/// The exponent is the unbiased exponent field, the smallest normal's for subnormals. So that one maximum over sums of
/// exponents finds the alignment and every special case, zeros that do not count have absent_exponent, NaN and
/// infinities special_exponent: far apart from all others in any sum of up to four of which two are absent.
struct Factor {
  double value;  // 1 or -1 for an infinity: only its sign counts; of a float64 NaN itself
  std::int16_t exponent;
  Kind kind;
};
inline constexpr std::int16_t absent_exponent = -5000;
inline constexpr std::int16_t special_exponent = 30000;
inline constexpr std::int16_t zero_exponent_of_mma_sim = -126;
inline constexpr int least_special_exponent = 10000;  // the exponent of a sum with a special

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

/// A float64 number.
[[nodiscard]] inline Factor factor(double x) {
  const Unpacked parts = unpack(x);
  const bool special = parts.kind == Kind::infinite || parts.kind == Kind::nan;
  const auto exponent = static_cast<std::int16_t>(parts.exponent + binary64.mantissa_bits);
  const double value = parts.kind == Kind::infinite ? std::copysign(1.0, x) : x;
  return {value, special ? special_exponent : exponent, parts.kind};
}

/// The same with the exponent that `zero_rule` gives to a zero.
[[nodiscard]] inline Factor factor(const Format& format, std::uint32_t code, ZeroRule zero_rule) {
  Factor result = factor(format, code);
  if (result.kind != Kind::zero) return result;
  switch (zero_rule) {
    case ZeroRule::floor:
    case ZeroRule::skip_terms:
    case ZeroRule::skip_empty_groups:
    case ZeroRule::skip_zero_groups: result.exponent = absent_exponent; break;
    case ZeroRule::count_zero_factors: result.exponent = zero_exponent_of_mma_sim; break;
  }
  return result;
}

/// The number that a factor is: finite, infinite or NaN.
[[nodiscard]] inline double real_value(const Factor& x) {
  switch (x.kind) {
    case Kind::nan: return std::isnan(x.value) ? x.value : std::numeric_limits<double>::quiet_NaN();
    case Kind::infinite: return std::copysign(std::numeric_limits<double>::infinity(), x.value);
    case Kind::zero:
    case Kind::finite: break;
  }
  return x.value;
}

/// Whether a group of products contributes its scales' exponents: `any_product` tells whether one is not zero, `value`
/// is their scaled sum.
[[nodiscard]] inline bool group_counts(ZeroRule zero_rule, bool any_product, double value) {
  switch (zero_rule) {
    case ZeroRule::skip_terms:
    case ZeroRule::count_zero_factors: break;
    case ZeroRule::floor:
    case ZeroRule::skip_empty_groups: return any_product;
    case ZeroRule::skip_zero_groups: return value != 0;
  }
  return true;
}

/// The i-th of codes that are packed two a byte.
[[nodiscard]] inline std::uint8_t nibble(std::span<const std::uint8_t> codes, std::size_t i) {
  return static_cast<std::uint8_t>(codes[i / 2] >> (i % 2 * 4) & 0xF);
}

/// Consecutive k of one row.
struct FactorSpan {
  std::span<const Factor> factors;
  std::span<const Factor> scales = {};  // one per block
};

/// Throws std::invalid_argument where an array of the operand, called `name`, overlaps `out`.
template <typename Out>
void check_apart_operand(std::string_view name, const Operand& operand, std::span<Out> out) {
  std::visit([&](auto elements) { check_apart(name, elements, "out", out); }, operand.elements);
  const std::string scale = "scale_" + std::string(name);
  check_apart(scale, operand.scales.codes, "out", out);
  check_apart(scale, operand.tile_scales.values, "out", out);
  check_apart(scale, operand.row_scales, "out", out);
}

/// The scale of element (row, k)'s tile. Precondition: the operand has tile scales.
[[nodiscard]] inline float tile_scale(const Operand& operand, std::size_t row, std::size_t k) {
  const TileScales& scales = operand.tile_scales;
  const std::size_t i = row / scales.rows;
  const std::size_t j = k / scales.depth;
  if (operand.transposed) return scales.values[j * ((operand.rows + scales.rows - 1) / scales.rows) + i];
  return scales.values[i * ((operand.depth + scales.depth - 1) / scales.depth) + j];
}

/// The E8M0 code that Transformer Engine makes of a float32 scale for Blackwell: its exponent field
/// (transformer_engine/common/swizzle/swizzle_block_scaling.cu).
[[nodiscard]] inline std::uint8_t e8m0_of(float scale) {
  return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(scale) >> 23 & 0xFF);
}

/// Rows whose factors stay in the cache, of that many elements each.
[[nodiscard]] inline std::size_t rows_in_cache(std::size_t depth) { return 1 + 2048 / std::max<std::size_t>(depth, 1); }

/// All rows of an operand.
struct Factors {
  std::vector<Factor> elements, scales;
  std::size_t depth;
  std::size_t block;  // 0 without scales

  [[nodiscard]] FactorSpan part(std::size_t row, std::size_t k, std::size_t count) const {
    const std::span<const Factor> part = std::span(elements).subspan(row * depth + k, count);
    if (block == 0) return {part};
    return {part, std::span(scales).subspan((row * depth + k) / block, (count + block - 1) / block)};
  }
  [[nodiscard]] FactorSpan row(std::size_t i) const { return part(i, 0, depth); }
};

/// The value of a binary16; NaN of any payload.
[[nodiscard]] inline float half_value(std::uint16_t code) {
  const float magnitude = std::bit_cast<float>((code & 0x7FFFU) << 13) * 0x1p112F;  // rebiased, also subnormals
  const bool special = (code & 0x7C00U) == 0x7C00U;
  const std::uint32_t bits = special ? 0x7F800000U | (code & 0x3FFU) << 13 : std::bit_cast<std::uint32_t>(magnitude);
  return std::bit_cast<float>((code & 0x8000U) << 16 | bits);
}

/// x rounded to tf32, to nearest with ties to even or away from zero, or cut; NaN of any payload.
[[nodiscard]] inline float tf32_value(float x, Rounding rounding) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const bool special = (bits & 0x7F800000U) == 0x7F800000U;
  if (rounding == Rounding::toward_zero) return std::bit_cast<float>(bits & ~0x1FFFU);
  const std::uint32_t half = rounding == Rounding::nearest_even ? 0xFFFU + (bits >> 13 & 1U) : 0x1000U;
  return special ? x : std::bit_cast<float>((bits + half) & ~0x1FFFU);
}

/// The factors of all codes of a format of at most 8 bits.
using FactorsOfBytes = std::array<Factor, 256>;

/// Makes factors of an operand's elements, after the conversion by which the model reads them.
class FactorReader {
 public:
  /// Throws std::invalid_argument where the numbers of elements or scales do not fit, or where the model does not take
  /// the format (the message names what it takes). `name` is the operand's name in messages.
  /// `tf32_rounding` is for operands that leave theirs out.
  FactorReader(const MmaModel& model, const Operand& operand, ZeroRule zero_rule, const std::string& name,
               Rounding tf32_rounding = Rounding::nearest_away);
  /// Rows [first, first + count).
  [[nodiscard]] Factors rows(std::size_t first, std::size_t count) const;
  /// Calls f(k, factor) for the elements [k0, k1) of a row.
  template <typename Function>
  void for_row(std::size_t row, std::size_t k0, std::size_t k1, const Function& f) const {
    if (has_byte_table()) {
      for_codes(row, k0, k1, [&](std::size_t k, std::uint8_t code) { f(k, (*of_bytes_)[code]); });
    } else {
      for (std::size_t k = k0; k < k1; ++k) f(k, of_wide(place(row, k)));
    }
  }
  /// Calls f(k, code) for them; whether they are bytes, of which each has one factor:
  template <typename Function>
  void for_codes(std::size_t row, std::size_t k0, std::size_t k1, const Function& f) const {
    const auto codes = std::get<std::span<const std::uint8_t>>(operand_.elements);
    const std::size_t stride = operand_.transposed ? operand_.rows : 1;
    const std::size_t start = place(row, 0);
    if (operand_.packed) {
      for (std::size_t k = k0; k < k1; ++k) f(k, nibble(codes, start + k * stride));
    } else {
      for (std::size_t k = k0; k < k1; ++k) f(k, codes[start + k * stride]);
    }
  }
  /// The values of elements of 16 or 32 bits of a row, from the k-th on: infinities and NaN as such, of any payload.
  void read_values(std::size_t row, std::size_t k, std::span<float> values) const;
  /// The same of the k-th elements of consecutive rows.
  void read_rows(std::size_t row, std::size_t k, std::span<float> values) const;
  [[nodiscard]] bool has_byte_table() const { return operand_.elements.index() == 0; }
  [[nodiscard]] const std::shared_ptr<const FactorsOfBytes>& of_bytes() const { return of_bytes_; }
  /// Elements of K that share a scale; 0: there are no scales.
  [[nodiscard]] std::size_t block() const { return model_.scales ? static_cast<std::size_t>(model_.scales->block) : 0; }
  /// How the model reads the elements: the format of codes, binary32 or tf32 for floats.
  [[nodiscard]] const Format& format() const { return format_; }
  /// The scale of a row's block, and its code. Precondition: block() != 0.
  [[nodiscard]] Factor scale(std::size_t row, std::size_t block) const;
  [[nodiscard]] std::uint8_t scale_code(std::size_t row, std::size_t block) const;

  [[nodiscard]] const Operand& operand() const { return operand_; }
  [[nodiscard]] const MmaModel& model() const { return model_; }

 private:
  /// The values of elements that lie `stride` apart.
  void read(std::size_t start, std::size_t stride, std::span<float> values) const;
  /// Where an element is stored.
  [[nodiscard]] std::size_t place(std::size_t row, std::size_t k) const {
    return operand_.transposed ? k * operand_.rows + row : row * operand_.depth + k;
  }
  [[nodiscard]] Factor of_wide(std::size_t i) const;

  MmaModel model_;
  Operand operand_;
  Format format_;  // how the model reads the elements: binary32 or tf32 for floats
  Rounding tf32_rounding_;
  ZeroRule zero_rule_;
  std::shared_ptr<const FactorsOfBytes> of_bytes_;  // where the codes are bytes
};

}  // namespace fp8lab
