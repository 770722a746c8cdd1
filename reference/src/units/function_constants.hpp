// SPDX-License-Identifier: Apache-2.0
// The constants of e^x and tanh(x) in float64, for scalar and vector code.
#pragma once

#include <array>
#include <cstddef>
#include <numbers>

namespace fp8lab {

inline constexpr double log2_e = std::numbers::log2e;
/// ln(2) = ln2_high + ln2_low, where ln2_high has 42 bits: k ln2_high is exact for |k| < 2^11, and so is
/// x - k ln2_high for a float32 x, both being multiples of 2^-42 or x's unit where the difference is below 1.
inline constexpr double ln2_high = 0x1.62e42fefa38p-1;  // NOLINT(modernize-use-std-numbers): its first bits
inline constexpr double ln2_low = 0x1.ef35793c7673p-45;

/// 1 / n! for n from 2 to 13.
inline constexpr std::array<double, 12> exp_terms = [] {
  std::array<double, 12> terms{};
  double factorial = 1;
  for (int n = 2; n <= 13; ++n) {
    factorial *= n;
    terms[static_cast<std::size_t>(n - 2)] = 1 / factorial;
  }
  return terms;
}();

// Beyond these arguments the float32 is infinity (e^89 > 2^128), 0 (e^-104 < 2^-150, the tie below which 0 is nearest),
// and 1 (1 - tanh(10) < 2^-27).
inline constexpr float most_exp = 89;
inline constexpr float least_exp = -104;
inline constexpr float most_tanh = 10;

// Bounds of relative errors. r has one rounding, 2^-53, and less than 2^-55 of the constants; what follows r in e^r - 1
// is at most a fifth of it and has at most 4 roundings; so e^r - 1 has less than 2^-51.7 with its own rounding.
// - e^x: 2^-51.7 * 0.42 of e^r - 1, the rounding of the sum, 2^-53, and 2^-57.8 of the series, over at least 0.707:
//   below 2^-51.3.
// - tanh: in e = 2^k (e^r - 1) + 2^k - 1 the first part is at most 1.42 times the value (k = 1, r = ln(2) / -2): below
//   2^-50.9 with the rounding of the sum; e / (e + 2) passes on at most that, with two roundings: below 2^-50.3.
// The checks allow for more than twice as much.
inline constexpr double exp_error = 0x1p-50;
inline constexpr double tanh_error = 0x1p-49;

}  // namespace fp8lab
