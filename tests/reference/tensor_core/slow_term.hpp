// SPDX-License-Identifier: Apache-2.0
// The slow oracle's numbers: fields of a word as a whole number of any size and an exponent, their exact product, and
// the word that a sum is rounded to.
#pragma once

#include <algorithm>
#include <array>
#include <boost/multiprecision/cpp_int.hpp>
#include <cstdint>
#include <optional>
#include <span>

#include "fp8lab/formats/format.hpp"

namespace fp8lab::tests {

using boost::multiprecision::cpp_int;

/// A number as the tensor core holds it, not normalised: (-1)^negative * significand * 2^(exponent - width).
struct SlowTerm {
  enum class Kind : std::uint8_t { finite, infinite, not_a_number };
  Kind kind = Kind::finite;
  bool negative = false;
  cpp_int significand = 0;
  int exponent = 0;
  int width = 0;
  bool counts_as_zero = true;      ///< left out of the maximum where it is zero, or has the chip's exponent of zero
  bool is_scaled_by_zero = false;  ///< left out of it always, for its scale has no exponent

  [[nodiscard]] bool is_nan() const { return kind == Kind::not_a_number; }
  [[nodiscard]] bool is_infinite() const { return kind == Kind::infinite; }
  [[nodiscard]] bool is_zero() const { return kind == Kind::finite && significand == 0; }
};

/// A code's fields as a number. A subnormal keeps the exponent of the smallest normal.
inline SlowTerm slow_decode(std::uint64_t code, const Format& format) {
  const auto width = static_cast<unsigned>(format.mantissa_bits);
  const auto exponent_bits = static_cast<unsigned>(format.exponent_bits);
  const std::uint64_t all_fraction = (std::uint64_t{1} << width) - 1;
  const std::uint64_t top = (std::uint64_t{1} << exponent_bits) - 1;
  const std::uint64_t fraction = code & all_fraction;
  const std::uint64_t field = (code >> width) & top;

  SlowTerm term;
  term.negative = format.is_signed && ((code >> (width + exponent_bits)) & 1U) != 0;
  term.width = format.mantissa_bits;
  if (format.specials == Specials::ieee && field == top) {
    term.kind = fraction == 0 ? SlowTerm::Kind::infinite : SlowTerm::Kind::not_a_number;
  } else if (format.specials == Specials::nan_at_all_ones && field == top && fraction == all_fraction) {
    term.kind = SlowTerm::Kind::not_a_number;
  } else if (format.specials == Specials::nan_at_negative_zero && term.negative && field == 0 && fraction == 0) {
    term.kind = SlowTerm::Kind::not_a_number;
  } else if (field == 0 && format.has_subnormals) {
    term.significand = fraction;
    term.exponent = 1 - format.bias;
  } else {
    term.significand = fraction + (std::uint64_t{1} << width);
    term.exponent = static_cast<int>(field) - format.bias;
  }
  return term;
}

/// The exact product: significands multiply, exponents add, and nothing is normalised.
inline SlowTerm slow_product(const SlowTerm& a, const SlowTerm& b) {
  SlowTerm product;
  product.negative = a.negative != b.negative;
  if (a.is_nan() || b.is_nan() || (a.is_infinite() && b.is_zero()) || (a.is_zero() && b.is_infinite())) {
    product.kind = SlowTerm::Kind::not_a_number;
  } else if (a.is_infinite() || b.is_infinite()) {
    product.kind = SlowTerm::Kind::infinite;
  } else {
    product.significand = a.significand * b.significand;
    product.exponent = a.exponent + b.exponent;
    product.width = a.width + b.width;
  }
  return product;
}

inline cpp_int slow_signed(const SlowTerm& term) {
  return term.negative ? cpp_int(-term.significand) : term.significand;
}

/// value * 2^exponent as a word of `format` of whose fraction `kept` bits are used, the others zero. Rounds to nearest
/// even or toward zero, gradually below the smallest normal; what reaches the power of two above the largest finite
/// value is infinite in both modes. Zero has no sign, whatever underflowed to it (MMA-Sim).
inline std::uint64_t slow_pack(const cpp_int& value, int exponent, const Format& format, int kept, bool nearest_even) {
  if (value == 0) return 0;
  const std::uint64_t sign = value < 0 ? format.sign_mask() : 0;
  const cpp_int magnitude = abs(value);

  // 1. The unit of the last kept place.
  const int leading = static_cast<int>(msb(magnitude)) + exponent;
  int unit = std::max(leading, format.min_exponent()) - kept;

  // 2. Round to a multiple of it.
  cpp_int quotient = magnitude;
  if (unit > exponent) {
    const auto shift = static_cast<unsigned>(unit - exponent);
    const cpp_int half = cpp_int(1) << (shift - 1);
    quotient = magnitude >> shift;
    const cpp_int rest = magnitude - (quotient << shift);
    if (nearest_even && (rest > half || (rest == half && (quotient & 1) != 0))) ++quotient;
  } else {
    quotient <<= static_cast<unsigned>(exponent - unit);
  }
  if (quotient == 0) return 0;

  // 3. Fields. A subnormal has field 0; rounding may have carried into the next binade.
  const cpp_int implicit = cpp_int(1) << static_cast<unsigned>(kept);
  if (quotient == 2 * implicit) {
    quotient = implicit;
    ++unit;
  }
  const int field = quotient < implicit ? 0 : unit + kept + format.bias;
  if (field >= (1 << format.exponent_bits) - 1) return sign | format.infinity_code();
  const auto fraction = static_cast<std::uint64_t>(quotient < implicit ? quotient : cpp_int(quotient - implicit));
  return sign | (static_cast<std::uint64_t>(field) << format.mantissa_bits) |
         (fraction << (format.mantissa_bits - kept));
}

/// The sum where NaN or infinity among the terms decides it. NaN is all ones but the sign.
inline std::optional<std::uint64_t> slow_special(std::span<const SlowTerm> terms, const Format& format) {
  bool is_nan = false, above = false, below = false;
  for (const SlowTerm& term : terms) {
    is_nan = is_nan || term.is_nan();
    above = above || (term.is_infinite() && !term.negative);
    below = below || (term.is_infinite() && term.negative);
  }
  const std::uint64_t infinity = format.infinity_code();
  if (is_nan || (above && below)) return format.magnitude_mask();
  if (above) return infinity;
  if (below) return infinity | format.sign_mask();
  return std::nullopt;
}

/// The IEEE 754 sum of two words, to nearest even: FADD of binary32, HADD2 of binary16, subnormals kept, NaN all ones.
inline std::uint64_t slow_add(std::uint64_t x, std::uint64_t y, const Format& format) {
  const std::array terms{slow_decode(x, format), slow_decode(y, format)};
  if (const auto special = slow_special(terms, format)) return *special;
  const int lowest = std::min(terms[0].exponent, terms[1].exponent);
  cpp_int sum = 0;
  for (const SlowTerm& term : terms) sum += slow_signed(term) << static_cast<unsigned>(term.exponent - lowest);
  const bool negative_zero = terms[0].is_zero() && terms[1].is_zero() && terms[0].negative && terms[1].negative;
  if (negative_zero) return format.sign_mask();
  return slow_pack(sum, lowest - format.mantissa_bits, format, format.mantissa_bits, true);
}

}  // namespace fp8lab::tests
