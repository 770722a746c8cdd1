// SPDX-License-Identifier: Apache-2.0
// Draws numbers that are the same on every machine.
#pragma once

#include <cmath>
#include <cstdint>

namespace fp8lab::doctor {

/// Word `i` of a stream: SplitMix64.
[[nodiscard]] inline std::uint64_t drawn_word(std::uint64_t stream, std::uint64_t i) {
  std::uint64_t z = stream * 0xD1342543DE82EF95U + (i + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

/// Draws one word after the other, by Knuth's linear congruential generator, whose high bits are random.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : state_(seed) {}
  std::uint64_t word() { return state_ = state_ * 6364136223846793005U + 1442695040888963407U; }
  std::uint32_t bits() { return static_cast<std::uint32_t>(word() >> 32); }

 private:
  std::uint64_t state_;
};

/// 1.m * 2^exponent with the upper bits of m, and the sign, from `bits`.
[[nodiscard]] inline float drawn_number(std::uint32_t bits, int exponent, int mantissa_bits = 23) {
  const std::uint32_t mantissa = bits & (0x7FFFFFU << (23 - mantissa_bits)) & 0x7FFFFFU;
  return std::ldexp(1 + static_cast<float>(mantissa) * 0x1p-23F, exponent) * ((bits >> 31) != 0 ? -1.0F : 1.0F);
}

}  // namespace fp8lab::doctor
