// SPDX-License-Identifier: Apache-2.0
// Second opinions over exact rationals (Boost.Multiprecision), written from the published description of the hardware.
#pragma once

#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace fp8lab::tests {

using Rational = boost::multiprecision::cpp_rational;
using Integer = boost::multiprecision::cpp_int;

inline Rational power_of_two(int e) {
  const Integer power = Integer(1) << (e < 0 ? -e : e);
  return e < 0 ? Rational(1, power) : Rational(power);
}

/// A finite x, exactly.
inline Rational rational(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return Rational(static_cast<std::int64_t>(std::ldexp(fraction, 53))) * power_of_two(exponent - 53);
}

/// x cut toward zero to a multiple of unit.
inline Rational truncated(const Rational& x, const Rational& unit) {
  const Rational scaled = x / unit;
  return Rational(Integer(numerator(scaled) / denominator(scaled))) * unit;  // integer division cuts toward zero
}

inline int binade(const Rational& x) {  // floor(log2 |x|), x != 0
  const Rational magnitude = abs(x);
  int e = static_cast<int>(msb(numerator(magnitude))) - static_cast<int>(msb(denominator(magnitude)));
  while (magnitude < power_of_two(e)) --e;
  while (magnitude >= power_of_two(e + 1)) ++e;
  return e;
}

/// x rounded to float32, nearest even. The conversion is done here, not by Boost: 25 bits and a comparison.
inline float nearest_float(const Rational& x) {
  if (x == 0) return 0;
  const int unit = std::max(binade(x), -126) - 23;
  const Rational scaled = abs(x) / power_of_two(unit);
  Integer whole = numerator(scaled) / denominator(scaled);
  const Rational rest = scaled - Rational(whole);
  if (rest > Rational(1, 2) || (rest == Rational(1, 2) && whole % 2 == 1)) ++whole;
  const double magnitude = std::ldexp(whole.convert_to<double>(), unit);
  const float result = magnitude >= 0x1p128 ? std::numeric_limits<float>::infinity() : static_cast<float>(magnitude);
  return x < 0 ? -result : result;
}

/// A finite factor: its value, and the exponent field's value (that of the smallest normal for subnormals).
struct RationalFactor {
  Rational value;
  int exponent;
};

/// One fused step on finite terms (MMA-Sim, arXiv 2511.10909, section on fused dot-product-add; zero terms left out).
inline float fused_step(int fraction_bits, int output_bits, const std::vector<RationalFactor>& a,
                        const std::vector<RationalFactor>& b, float c) {
  int top = std::numeric_limits<int>::min();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].value * b[i].value != 0) top = std::max(top, a[i].exponent + b[i].exponent);
  }
  if (c != 0) top = std::max(top, std::max(std::ilogb(c), -126));
  if (top == std::numeric_limits<int>::min()) return 0;
  const Rational unit = power_of_two(top - fraction_bits);
  Rational sum = truncated(rational(static_cast<double>(c)), unit);
  for (std::size_t i = 0; i < a.size(); ++i) sum += truncated(a[i].value * b[i].value, unit);
  if (sum == 0) return 0;
  if (abs(sum) >= power_of_two(128)) return sum < 0 ? -INFINITY : INFINITY;
  const Rational kept = truncated(sum, power_of_two(std::max(binade(sum), -126) - output_bits));
  return nearest_float(kept);
}

}  // namespace fp8lab::tests
