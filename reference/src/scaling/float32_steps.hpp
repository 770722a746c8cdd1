// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/reference/scaling/torch_log2.hpp"

namespace fp8lab {

/// Makes the value whose cast is what microxcaling makes of a scaled element by float32 arithmetic (its
/// mx/elemwise_ops.py:_quantize_elemwise_core). Two of its steps lose a bit:
///
/// - to nearest it takes floor(|x| + 0.5) in units of the last place, and 0.5 + 0.5 - 2^-25 rounds to 1: the float next
///   below half of the least subnormal becomes that subnormal;
/// - it takes floor(log2(|x|)) for the exponent, which next below a power of two is that power's: toward zero, a bit
///   more than the fraction's is cut off.
class Float32Steps {
 public:
  Float32Steps(const Format& format, Rounding rounding)
      : format_(format),
        is_toward_zero_(rounding == Rounding::toward_zero),
        least_(std::ldexp(1.0F, format.min_exponent() - format.mantissa_bits)),
        below_half_(std::nextafter(least_ / 2, 0.0F)) {}

  [[nodiscard]] float operator()(float x) const {
    if (is_toward_zero_) return cut(x);
    return std::fabs(x) == below_half_ ? std::copysign(least_, x) : x;
  }

 private:
  [[nodiscard]] float cut(float x) const {
    const float magnitude = std::fabs(x);
    if (!(magnitude > 0) || std::isinf(x)) return x;
    const auto bits = std::bit_cast<std::uint32_t>(magnitude);
    const int exponent = floor_log2(bits);
    if (exponent <= format_.min_exponent() || exponent == binary_of(bits).exponent) return x;
    const float place = std::ldexp(1.0F, exponent - format_.mantissa_bits);
    return std::copysign(std::floor(magnitude / place) * place, x);
  }

  Format format_;
  bool is_toward_zero_;
  float least_, below_half_;
};

}  // namespace fp8lab
