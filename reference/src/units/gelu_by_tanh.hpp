// SPDX-License-Identifier: Apache-2.0
// GELU by a hyperbolic tangent, and its slope, as Hopper's kernels order the operations: with the tangent of CUDA or
// with that of the special function unit.
#pragma once

#include <cmath>

namespace fp8lab {

inline constexpr float gelu_root = 0.79788456F;     ///< of 2 / pi
inline constexpr float gelu_cubic = 0.044715F;      ///< of x^3
inline constexpr float gelu_slope = 0.1070322243F;  ///< their product, times 3

/// The tangent of GELU's argument.
template <typename Tanh>
[[nodiscard]] float gelu_tanh(float x, const Tanh& tanh) {
  return tanh((gelu_root * x) * std::fma(gelu_cubic * x, x, 1.0F));
}

template <typename Tanh>
[[nodiscard]] float gelu_by_tanh(float x, const Tanh& tanh) {
  return (0.5F * x) * (1.0F + gelu_tanh(x, tanh));
}

template <typename Tanh>
[[nodiscard]] float gelu_slope_by_tanh(float x, const Tanh& tanh) {
  const float t = gelu_tanh(x, tanh);
  const float slope = std::fma(-t, t, 1.0F) * std::fma(gelu_slope * x, x, gelu_root);
  return (0.5F * x) * slope + 0.5F * (1.0F + t);
}

}  // namespace fp8lab
