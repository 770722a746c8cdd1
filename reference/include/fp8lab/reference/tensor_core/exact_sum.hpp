// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace fp8lab {

/// An exact sum of float32 numbers and of products of two: a fixed-point number wide enough for all of them.
///
/// Source: Kulisch, "Computer Arithmetic and Validity", 2008 (the complete accumulator). The lowest bit is worth
/// 2^-298, the square of the smallest float; 640 bits leave room for 2^80 products of the largest.
class ExactSum {
 public:
  /// Adds (-1)^negative * significand * 2^exponent. Precondition: exponent >= -298, and the value is below 2^257.
  void add(bool negative, std::uint64_t significand, int exponent);
  /// Adds a * b, or a. Precondition: finite.
  void add_product(float a, float b);
  void add(float a);
  /// The sum rounded once to float32, nearest even; +0 where it is zero, infinity where it overflows.
  [[nodiscard]] float to_float() const;

 private:
  std::array<std::uint64_t, 10> words_{};  // two's complement, least significant first
};

}  // namespace fp8lab
