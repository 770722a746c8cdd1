// SPDX-License-Identifier: Apache-2.0
// exp and log of double by additions and multiplications alone: the math library's depend on the processor.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <numbers>

namespace fp8lab::experiments {

/// e^x for x <= 0, to about an ulp; 0 below -700; NaN for NaN.
[[nodiscard]] inline double exp_of(double x) {
  if (x < -700) return 0;
  if (!(x <= 0)) return std::numeric_limits<double>::quiet_NaN();
  // 1. x = k ln 2 + r with |r| <= ln(2) / 2. The first part of ln 2 has 32 bits, so that its product with k is exact.
  constexpr double ln2_high = 0x1.62E42FEEp-1;  // NOLINT(modernize-use-std-numbers): its first part
  constexpr double ln2_low = 0x1.A39EF35793C76p-33;
  const auto k = static_cast<std::int64_t>(x * std::numbers::log2e - 0.5);
  const double r = (x - static_cast<double>(k) * ln2_high) - static_cast<double>(k) * ln2_low;
  // 2. Taylor's series: the next term is below 2^-57 of the result.
  double sum = 1;
  for (int n = 13; n > 0; --n) sum = 1 + sum * r / n;
  // 3. times 2^k, k >= -1010
  return sum * std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
}

/// ln x for a normal number x, to about an ulp; NaN for NaN.
[[nodiscard]] inline double log_of(double x) {
  if (!(x >= std::numeric_limits<double>::min())) return std::numeric_limits<double>::quiet_NaN();
  if (x > std::numeric_limits<double>::max()) return x;
  // 1. x = m 2^e with m from 0.70 to 1.41
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto e = static_cast<int>(bits >> 52) - 1023;
  auto m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFU) | 0x3FF0000000000000U);
  if (m > std::numbers::sqrt2) {
    m /= 2;
    ++e;
  }
  // 2. ln m = 2 atanh s with |s| <= 0.1716; the next term of the series is below 2^-60 of the result.
  const double s = (m - 1) / (m + 1);
  double sum = 0;
  for (int n = 23; n > 0; n -= 2) sum = sum * s * s + 1.0 / n;
  return e * std::numbers::ln2 + 2 * s * sum;
}

}  // namespace fp8lab::experiments
