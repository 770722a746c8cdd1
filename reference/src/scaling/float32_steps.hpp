// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/reference/scaling/torch_log2.hpp"

namespace fp8lab {

/// The value whose cast is what microxcaling makes of a scaled element by float32 arithmetic (its
/// mx/elemwise_ops.py:_quantize_elemwise_core). Two of its steps lose a bit:
///
/// - to nearest it takes floor(|x| + 0.5) in units of the last place, and 0.5 + 0.5 - 2^-25 rounds to 1: the float next
///   below half of the least subnormal becomes that subnormal;
/// - it takes floor(log2(|x|)) for the exponent, which next below a power of two is that power's: toward zero, a bit
///   more than the fraction's is cut off.
[[nodiscard]] inline float after_float32_steps(const Format& format, Rounding rounding, float x) {
  const float magnitude = std::fabs(x);
  if (!(magnitude > 0) || std::isinf(x)) return x;
  const float least = std::ldexp(1.0F, format.min_exponent() - format.mantissa_bits);
  if (rounding != Rounding::toward_zero) {
    return magnitude == std::nextafter(least / 2, 0.0F) ? std::copysign(least, x) : x;
  }
  const auto bits = std::bit_cast<std::uint32_t>(magnitude);
  const int exponent = floor_log2(bits);
  if (exponent <= format.min_exponent() || exponent == binary_of(bits).exponent) return x;
  const float place = std::ldexp(1.0F, exponent - format.mantissa_bits);
  return std::copysign(std::floor(magnitude / place) * place, x);
}

}  // namespace fp8lab
