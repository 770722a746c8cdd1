// SPDX-License-Identifier: Apache-2.0
// The NaNs of FP64 instructions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "fp8lab/reference/tensor_core/mma_model.hpp"

namespace fp8lab {

/// The first of `operands` that is NaN, made quiet; where none is, the NaN of an invalid operation.
[[nodiscard]] inline double first_nan(NanWord rule, std::initializer_list<double> operands) {
  if (rule == NanWord::all_ones) return std::bit_cast<double>(binary64.magnitude_mask());
  constexpr std::uint64_t quiet = std::uint64_t{1} << (binary64.mantissa_bits - 1);
  for (const double x : operands) {
    if (std::isnan(x)) return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) | quiet);
  }
  return std::bit_cast<double>(binary64.sign_mask() | binary64.infinity_code() | quiet);
}

/// a * b + c, rounded once, by a fused multiply-add of an FP64 tensor core.
[[nodiscard]] inline double fp64_fma(NanWord rule, double a, double b, double c) {
  const double sum = std::fma(a, b, c);
  return std::isnan(sum) ? first_nan(rule, {b, c, a}) : sum;
}

}  // namespace fp8lab
