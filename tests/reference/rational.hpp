// SPDX-License-Identifier: Apache-2.0
// Exact rationals (Boost.Multiprecision), and their rounding to float32.
#pragma once

#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <cstdint>
#include <limits>

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

}  // namespace fp8lab::tests
