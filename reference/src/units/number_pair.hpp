// SPDX-License-Identifier: Apache-2.0
// Numbers as unevaluated sums of two float64, some 100 bits: Dekker 1971, "A floating-point technique for extending the
// available precision". Each operation has a relative error of a few 2^-104.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace fp8lab {

/// high + low, where low is at most half a unit in the last place of high.
struct NumberPair {
  double high = 0;
  double low = 0;
};

/// a + b, exactly.
inline NumberPair exact_sum(double a, double b) {
  const double sum = a + b;
  const double from_b = sum - a;
  return {sum, (a - (sum - from_b)) + (b - from_b)};
}
/// The same where |a| >= |b| or a is 0.
inline NumberPair ordered_sum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}
/// a * b, exactly.
inline NumberPair exact_product(double a, double b) {
  const double product = a * b;
  return {product, std::fma(a, b, -product)};
}

inline NumberPair operator-(NumberPair a) { return {-a.high, -a.low}; }
inline NumberPair operator+(NumberPair a, NumberPair b) {
  const NumberPair high = exact_sum(a.high, b.high);
  const NumberPair low = exact_sum(a.low, b.low);
  const NumberPair first = ordered_sum(high.high, high.low + low.high);
  return ordered_sum(first.high, first.low + low.low);
}
inline NumberPair operator*(NumberPair a, NumberPair b) {
  const NumberPair product = exact_product(a.high, b.high);
  return ordered_sum(product.high, product.low + (a.high * b.low + a.low * b.high));
}
inline NumberPair operator/(NumberPair a, NumberPair b) {
  const double first = a.high / b.high;
  const NumberPair rest = a + -(b * NumberPair{first});
  const double second = rest.high / b.high;
  const NumberPair last = rest + -(b * NumberPair{second});
  return ordered_sum(first, second) + NumberPair{last.high / b.high};
}
/// a * 2^k.
inline NumberPair scaled(NumberPair a, int k) { return {std::ldexp(a.high, k), std::ldexp(a.low, k)}; }

/// The pair's value rounded to odd in float64, which a later rounding to at least two bits fewer does not notice (Boldo
/// and Melquiond 2008). An infinity or a NaN as it is.
inline double rounded_to_odd(NumberPair a) {
  auto word = std::bit_cast<std::uint64_t>(a.high);
  if (std::isfinite(a.high) && a.low != 0 && word % 2 == 0) {
    word += (a.low > 0) == (a.high > 0) ? 1 : -std::uint64_t{1};
  }
  return std::bit_cast<double>(word);
}
/// The float32 nearest to the pair's value, ties to even.
inline float rounded(NumberPair a) { return static_cast<float>(rounded_to_odd(a)); }

}  // namespace fp8lab
