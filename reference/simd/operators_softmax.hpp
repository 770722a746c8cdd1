// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace fp8lab {

/// Loops over rows of `count` elements, a multiple of sum_lanes, where subnormal numbers count as zeros.
struct SoftmaxFunctions {
  /// out = x factor.
  void (*scale)(const float* x, float factor, std::size_t count, float* out);
  /// out = x - y.
  void (*subtract)(const float* x, float y, std::size_t count, float* out);
  /// out = exp(x - largest); returns the sum.
  float (*exponentials)(const float* x, float largest, std::size_t count, float* out);
  /// out = a b; returns the sum.
  float (*products)(const float* a, const float* b, std::size_t count, float* out);
  /// out = scale fma(-sum, y, products).
  void (*gradient)(const float* products, const float* y, float sum, float scale, std::size_t count, float* out);
  /// out = (x / sum - eps) factor, each rounded as it is, subnormal numbers too.
  void (*entropy_gradient)(const float* x, float sum, float eps, float factor, std::size_t count, float* out);
};
/// The loops of the target that is chosen.
[[nodiscard]] SoftmaxFunctions softmax_functions();

}  // namespace fp8lab
