// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "fp8lab/formats/host_device.hpp"

namespace fp8lab {

// Powers of two as code on PyTorch makes them: exp2(floor(log2(x))) and exp2(ceil(log2(x))) in float32. Next to a power
// of two the logarithm rounds to that power's, so that floor gives the power above x, and ceil the one below. The CPU's
// log2 is correctly rounded there: so said PyTorch 2.13.0 for all positive floats, with AVX2, AVX-512 and without, for
// any count and stride. A GPU's log2 may differ.

/// x = (1 + fraction / 2^23) * 2^exponent, for the bits of an x > 0, and finite.
struct Binary {
  int exponent;
  std::uint32_t fraction;
};
FP8LAB_HD constexpr Binary binary_of(std::uint32_t bits) {
  if (bits >= 0x00800000U) return {static_cast<int>(bits >> 23) - 127, bits & 0x7FFFFFU};
  const int shift = leading_zeros(bits) - 8;
  return {-126 - shift, (bits << shift) & 0x7FFFFFU};
}

/// How many floats next below 2^(exponent + 1) have a logarithm that rounds to exponent + 1. Logarithms there are
/// spaced 2^(j - 23), where 2^j is the power of two at or below their magnitude, and half a spacing is ln(2) * 2^j
/// floats: for j to 7 that is 11/16 * 2^j, rounded down. Next above 2^exponent, where floats are twice as far apart,
/// half as many have a logarithm that rounds to exponent.
FP8LAB_HD constexpr std::uint32_t log2_slack(int exponent) {
  const auto below = static_cast<std::uint32_t>(exponent < 0 ? ~exponent : exponent);
  return 11 * topmost_one(below) >> 4;
}

/// floor(fl(log2 x)) and ceil(fl(log2 x)), for the bits of an x > 0, and finite.
FP8LAB_HD constexpr int floor_log2(std::uint32_t bits) {
  const auto [exponent, fraction] = binary_of(bits);
  return exponent + (fraction + log2_slack(exponent) > 0x7FFFFFU ? 1 : 0);
}
FP8LAB_HD constexpr int ceil_log2(std::uint32_t bits) {
  const auto [exponent, fraction] = binary_of(bits);
  return exponent + (fraction > log2_slack(exponent) / 2 ? 1 : 0);
}

/// fl(log2 x) for the bits of an x > 0, and finite.
FP8LAB_HD inline float float32_log2(std::uint32_t bits) {
  const auto [exponent, fraction] = binary_of(bits);
  const double mantissa = 1 + static_cast<double>(fraction) * 0x1p-23;
  // float32 rounds the sum once: the logarithm of the mantissa is far more exact than a float32 is.
  return static_cast<float>(exponent + std::log2(mantissa));
}

/// fl(log2 x) rounded to the nearest integer, the even one of two, for the bits of an x > 0, and finite.
FP8LAB_HD inline int nearest_log2(std::uint32_t bits) { return static_cast<int>(std::nearbyint(float32_log2(bits))); }

/// 2^power as float32. Precondition: power is -149 or more.
FP8LAB_HD constexpr float float32_power(int power) {
  if (power > 127) return std::numeric_limits<float>::infinity();
  const auto field = static_cast<std::uint32_t>(power + 127) << 23;
  return std::bit_cast<float>(power < -126 ? std::uint32_t{1} << (power + 149) : field);
}

/// 2^floor(fl(log2 x)) and 2^ceil(fl(log2 x)) for x >= 0 or NaN; 0, infinity and NaN stay.
FP8LAB_HD constexpr float power_by_log2(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return x > 0 && bits != 0x7F800000U ? float32_power(floor_log2(bits)) : x;
}
FP8LAB_HD constexpr float upper_power_by_log2(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return x > 0 && bits != 0x7F800000U ? float32_power(ceil_log2(bits)) : x;
}

}  // namespace fp8lab
