// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/units/rounded_functions.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "fp8lab/formats/environment.hpp"
#include "units/function_constants.hpp"
#include "units/number_pair.hpp"

namespace fp8lab {

namespace {

constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinite = std::numeric_limits<float>::infinity();

/// e^r - 1 = r + r^2 / 2 + ... for |r| <= ln(2) / 2, as the vector code has it: Taylor to r^13, which leaves less than
/// 2^-57 of it.
double expm1_of_rest(double r) {
  const auto& c = exp_terms;
  const double r2 = r * r;
  const double r4 = r2 * r2;
  const double first = std::fma(std::fma(c[3], r, c[2]), r2, std::fma(c[1], r, c[0]));
  const double second = std::fma(std::fma(c[7], r, c[6]), r2, std::fma(c[5], r, c[4]));
  const double third = std::fma(std::fma(c[11], r, c[10]), r2, std::fma(c[9], r, c[8]));
  return std::fma(r2, std::fma(std::fma(third, r4, second), r4, first), r);
}

/// x = k ln(2) + r, with |r| hardly above ln(2) / 2.
struct Reduced {
  double k;
  double r;
};
Reduced reduced(double x) {
  const double k = std::nearbyint(x * log2_e);
  return {k, std::fma(-k, ln2_low, std::fma(-k, ln2_high, x))};
}

/// The float32 that all values within a relative error of y round to; `again()` where there are several.
template <typename Again>
float unless_near_a_tie(double y, double relative_error, const Again& again) {
  const double error = y * relative_error;
  const auto low = static_cast<float>(y - error);
  return low == static_cast<float>(y + error) ? low : again();
}

constexpr NumberPair ln2_pair{std::numbers::ln2, 0x1.abc9e3b39803fp-56};
constexpr double ln2_third = 0x1.7b57a079a1934p-111;

struct ReducedPair {
  int k;
  NumberPair r;
};
ReducedPair reduced_pair(NumberPair x) {
  const double k = std::nearbyint(x.high * log2_e);
  const NumberPair times = exact_product(k, ln2_pair.low);
  const NumberPair rest = x + -exact_product(k, ln2_pair.high) + -times + NumberPair{-k * ln2_third};
  return {static_cast<int>(k), rest};
}

/// e^r - 1 by Taylor to r^24, which leaves less than 2^-116 of it for |r| <= 0.35.
NumberPair expm1_of_rest(NumberPair r) {
  NumberPair sum{1};
  for (int n = 24; n >= 2; --n) sum = NumberPair{1} + r * sum / NumberPair{static_cast<double>(n)};
  return r * sum;
}

/// e^x - 1 for |x| < 1000.
NumberPair expm1_pair(NumberPair x) {
  const auto [k, r] = reduced_pair(x);
  return scaled(expm1_of_rest(r), k) + (NumberPair{std::ldexp(1.0, k)} + NumberPair{-1});
}
NumberPair exp_pair(NumberPair x) {
  const auto [k, r] = reduced_pair(x);
  return scaled(NumberPair{1} + expm1_of_rest(r), k);
}

/// 2 atanh(s) for |s| < 0.18, of which the series is left at s^23, below 2^-57 of it.
double twice_atanh(double s) {
  const double s2 = s * s;
  double sum = 0;
  for (int n = 23; n >= 3; n -= 2) sum = std::fma(sum, s2, 1.0 / n);
  return 2 * std::fma(s * s2, sum, s);
}

/// ln(x) of a positive, finite x in float64, with a relative error below 2^-50: x = 2^k m with m from sqrt(1/2) to
/// sqrt(2), and ln(m) = 2 atanh((m - 1) / (m + 1)).
double log_double(double x) {
  int k = 0;
  double m = std::frexp(x, &k);
  if (m < 0x1.6a09e667f3bcdp-1) {
    m *= 2;
    --k;
  }
  const double of_m = twice_atanh((m - 1) / (m + 1));
  return std::fma(k, ln2_high, std::fma(k, ln2_low, of_m));
}

/// Newton's step from y: ln(x) = y + ln(1 + t) with t = x e^-y - 1, |t| < 2^-48.
NumberPair log_pair(NumberPair x, double y) {
  const NumberPair t = x * exp_pair(NumberPair{-y}) + NumberPair{-1};
  return NumberPair{y} + t + -(t * t * NumberPair{0.5});
}

/// The first 320 bits of 2 / pi.
constexpr std::array<std::uint32_t, 10> two_over_pi{0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599,
                                                    0x3C439041, 0xFE5163AB, 0xDEBBC561, 0xB7246E3A, 0x424DD2E0};
constexpr NumberPair half_pi{0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};

/// x = (quadrant + 4 n + f) pi / 2 with |f| <= 1/2; rest = f pi / 2.
struct Turned {
  unsigned quadrant;
  NumberPair rest;
};

/// The multiplication of Payne and Hanek 1983: of x 2 / pi only the bits below 4 count, of which 2^-128 is the last one
/// that is taken. x is positive and finite.
Turned turned(float x) {
  if (x < 0.78F) return {0, {x}};
  // 1. x = m 2^e; the words of 2 / pi that come before `first` make multiples of 4.
  int e = 0;
  const auto m = static_cast<std::uint64_t>(std::ldexp(std::frexp(x, &e), 24));
  e -= 24;
  const int first = e < 2 ? 0 : (e - 2) / 32;
  constexpr int words = 6;
  // 2. The product, lowest word first, with `fraction_bits` below the point.
  std::array<std::uint64_t, words + 3> product{};
  for (int i = 0; i < words; ++i) {
    const std::uint64_t sum =
        m * two_over_pi[static_cast<std::size_t>(first + words - 1 - i)] + product[static_cast<std::size_t>(i)];
    product[static_cast<std::size_t>(i)] = sum & 0xFFFFFFFFU;
    product[static_cast<std::size_t>(i) + 1] = sum >> 32;
  }
  const int fraction_bits = 32 * (first + words) - e;  // 159 to 216
  const auto word_at = [&](int bit) {
    const auto i = static_cast<std::size_t>(bit / 32);
    return static_cast<std::uint32_t>((product[i] | product[i + 1] << 32) >> (bit % 32));
  };
  // 3. The nearest quadrant: the top word of the fraction counts as signed.
  const std::uint32_t top = word_at(fraction_bits - 32);
  NumberPair f{std::ldexp(static_cast<double>(static_cast<std::int32_t>(top)), -32)};
  for (int i = 2; i <= 4; ++i) f = f + NumberPair{std::ldexp(word_at(fraction_bits - 32 * i), -32 * i)};
  return {word_at(fraction_bits) + (top >> 31), f * half_pi};
}

/// 1 - r^2 / (n + 1) (n + 2) (1 - ...) up to r^28: cos(r) of n = 0, sin(r) / r of n = 1.
NumberPair turn_pair(NumberPair r, int n) {
  const NumberPair r2 = r * r;
  NumberPair sum{1};
  for (int i = n + 26; i >= n; i -= 2) sum = NumberPair{1} + -(r2 * sum / NumberPair{(i + 1.0) * (i + 2)});
  return sum;
}

/// The same up to r^18, which leaves less than 2^-58 for |r| <= 0.79. A value has roundings below 2^-51: those of r, of
/// the sum, and of the terms that are less than a third of it.
double turn_double(double r, int n) {
  double sum = 1;
  for (int i = n + 16; i >= n; i -= 2) sum = std::fma(-(r * r) / ((i + 1.0) * (i + 2)), sum, 1.0);
  return sum;
}

/// The sine of `quarters` right angles more than x, x >= 0.
float sine_of(float x, unsigned quarters) {
  const Turned at = turned(x);
  const unsigned quadrant = (at.quadrant + quarters) % 4;
  const int n = quadrant % 2 == 0 ? 1 : 0;
  const double factor = n == 1 ? at.rest.high : 1.0;
  const float y = unless_near_a_tie(factor * turn_double(at.rest.high, n), 0x1p-49, [&] {
    const NumberPair turn = turn_pair(at.rest, n);
    return rounded(n == 1 ? at.rest * turn : turn);
  });
  return quadrant < 2 ? y : -y;
}

/// e^x for least_exp <= x <= most_exp.
float exp_in_pairs(float x) { return rounded(exp_pair({x})); }

/// tanh(x) for 0 <= x <= most_tanh.
float tanh_in_pairs(float x) {
  const NumberPair e = expm1_pair({2 * double{x}});
  return rounded(e / (e + NumberPair{2}));
}

// The functions by the default arithmetic.
float exp_here(float x) {
  if (x != x) return quiet_nan;
  if (x > most_exp) return infinite;
  if (x < least_exp) return 0;
  const auto [k, r] = reduced(x);
  const double y = std::ldexp(1 + expm1_of_rest(r), static_cast<int>(k));
  return unless_near_a_tie(y, exp_error, [&] { return exp_in_pairs(x); });
}

/// x = k + f with |f| <= 1/2, exactly; 2^f = e^(f ln 2), whose rounding of f ln 2 is 2^-53 of at most 0.35: with the
/// rest, as for e^x, below 2^-51.
float exp2_here(float x) {
  if (x != x) return quiet_nan;
  if (x >= 128) return infinite;
  if (x < -151) return 0;
  const double k = std::nearbyint(double{x});
  const double f = double{x} - k;
  const double y = std::ldexp(1 + expm1_of_rest(f * std::numbers::ln2), static_cast<int>(k));
  return unless_near_a_tie(y, exp_error, [&] {
    const NumberPair power = NumberPair{1} + expm1_of_rest(NumberPair{f} * ln2_pair);
    return rounded(scaled(power, static_cast<int>(k)));
  });
}

float tanh_here(float x) {
  if (x != x) return quiet_nan;
  const double magnitude = std::abs(static_cast<double>(x));
  if (magnitude > most_tanh) return std::copysign(1.0F, x);
  const auto [k, r] = reduced(2 * magnitude);
  const double power = std::ldexp(1.0, static_cast<int>(k));
  const double e = std::fma(power, expm1_of_rest(r), power - 1);
  const float y = unless_near_a_tie(e / (e + 2), tanh_error, [&] { return tanh_in_pairs(std::abs(x)); });
  return std::copysign(y, x);
}

float log_here(float x) {
  if (x != x || x < 0) return quiet_nan;
  if (x == 0) return -infinite;
  if (x > std::numeric_limits<float>::max()) return infinite;
  const double y = log_double(x);
  return unless_near_a_tie(y, 0x1p-49, [&] { return rounded(log_pair({x}, y)); });
}

/// The logarithm of x over that of 2: two roundings more, and exact for powers of two, which no tie is near.
float log2_here(float x) {
  if (x != x || x < 0) return quiet_nan;
  if (x == 0) return -infinite;
  if (x > std::numeric_limits<float>::max()) return infinite;
  const double y = log_double(x);
  return unless_near_a_tie(y * log2_e, 0x1p-48, [&] { return rounded(log_pair({x}, y) / ln2_pair); });
}

/// Below 2^-26 the value is less than 2^-27 of x away from x, which is the nearest float32. From -0.25 to 0.4 it is
/// 2 atanh(x / (2 + x)), a relative error below 2^-50; else the logarithm of 1 + x, whose own rounding, 2^-53, is at
/// most 2^-51 of the value. The pair's 1 + x has all of it: x is above 2^-26, and a float32.
float log1p_here(float x) {
  if (x != x || x < -1) return quiet_nan;
  if (x == -1) return -infinite;
  if (x > std::numeric_limits<float>::max()) return infinite;
  if (std::abs(x) < 0x1p-26F) return x;
  const double wide{x};
  const double y = wide > -0.25 && wide < 0.4 ? twice_atanh(wide / (2 + wide)) : log_double(1 + wide);
  return unless_near_a_tie(y, 0x1p-49, [&] { return rounded(log_pair(exact_sum(1, wide), y)); });
}

// The root and the division round once each, a relative error of at most 2^-52 in all. A test goes through all
// significands of float32 and both parities of the exponent: no exact value is so near to a tie.
float rsqrt_here(float x) { return x < 0 || x != x ? quiet_nan : static_cast<float>(1 / std::sqrt(double{x})); }

float sin_here(float x) {
  if (!(std::abs(x) < infinite)) return quiet_nan;
  return x == 0 ? x : std::copysign(1.0F, x) * sine_of(std::abs(x), 0);
}
float cos_here(float x) {
  if (!(std::abs(x) < infinite)) return quiet_nan;
  return sine_of(std::abs(x), 1);
}

}  // namespace

float rounded_exp(float x) {
  return by_default_arithmetic([x] { return exp_here(x); });
}
float rounded_exp2(float x) {
  return by_default_arithmetic([x] { return exp2_here(x); });
}
float rounded_tanh(float x) {
  return by_default_arithmetic([x] { return tanh_here(x); });
}
float rounded_log(float x) {
  return by_default_arithmetic([x] { return log_here(x); });
}
float rounded_log2(float x) {
  return by_default_arithmetic([x] { return log2_here(x); });
}
float rounded_log1p(float x) {
  return by_default_arithmetic([x] { return log1p_here(x); });
}
float rounded_rsqrt(float x) {
  return by_default_arithmetic([x] { return rsqrt_here(x); });
}
float rounded_sin(float x) {
  return by_default_arithmetic([x] { return sin_here(x); });
}
float rounded_cos(float x) {
  return by_default_arithmetic([x] { return cos_here(x); });
}

}  // namespace fp8lab
