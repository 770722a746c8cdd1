// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "fp8lab/formats/unpack.hpp"
#include "fp8lab/reference/operators/sum_order.hpp"

namespace fp8lab {

// Rows as float32 in memory of padded(count) elements: what is behind `count` is zero where a sum reads it.

/// The next multiple of sum_lanes.
constexpr std::size_t padded(std::size_t count) { return (count + sum_lanes - 1) / sum_lanes * sum_lanes; }

/// The elements exactly; zeros behind them up to padded(count).
void widen_row(const float* in, std::size_t count, float* out);
void widen_row(const Half* in, std::size_t count, float* out);
void widen_row(const BFloat16* in, std::size_t count, float* out);
/// The elements as FloatOutput has them; reads padded(count) and writes count.
void narrow_row(const float* in, std::size_t count, float* out);
void narrow_row(const float* in, std::size_t count, Half* out);
void narrow_row(const float* in, std::size_t count, BFloat16* out);

/// The sum of lanes, in pairs (sum_order.hpp).
float sum_of_lanes(const float* lanes);

/// What the gradient of a normalized row needs: the sums of dy and of dy y (each product fused).
struct NormSums {
  float of_dy;
  float of_dy_y;
};

/// Loops over rows of `count` elements, a multiple of sum_lanes.
struct RowFunctions {
  /// out = exp(x), tanh(x). In place where out is x.
  void (*exp)(const float* x, std::size_t count, float* out);
  void (*tanh)(const float* x, std::size_t count, float* out);
  /// The sum of x; of its squares, each fused.
  float (*sum_of_row)(const float* x, std::size_t count);
  float (*sum_of_squares)(const float* x, std::size_t count);
  /// out = factor (x - mean); without the subtraction where mean is null.
  void (*normalize)(const float* x, const float* mean, float factor, std::size_t count, float* out);
  /// out = x - mean.
  void (*subtract)(const float* x, float mean, std::size_t count, float* out);
  /// out = fma(gamma, factor x, beta), or gamma (factor x) where beta is null.
  void (*scale)(const float* x, float factor, const float* gamma, const float* beta, std::size_t count, float* out);
  /// out = fma(x, cosine, other sine).
  void (*turn)(const float* x, const float* other, const float* cosine, const float* sine, std::size_t count,
               float* out);
  /// sum[j] += x[j].
  void (*add)(const float* x, std::size_t count, float* sum);
  /// dy = gamma dz and its sums; dgamma += dz y (fused), and where dbeta is not null dbeta += dz.
  NormSums (*norm_gradient_sums)(const float* dz, const float* y, const float* gamma, std::size_t count, float* dy,
                                 float* dgamma, float* dbeta);
  /// out = rsigma (dy - fma(of_dy, 1 / n, (of_dy_y / n) y)).
  void (*layernorm_gradient)(const float* dy, const float* y, NormSums sums, float inverse_count, float rsigma,
                             std::size_t count, float* out);
  /// out = rsigma (dy - fma(of_dy_y / n, y, of_dy / n)).
  void (*layernorm_gradient_of_means)(const float* dy, const float* y, NormSums sums, float inverse_count, float rsigma,
                                      std::size_t count, float* out);
  /// out = rsigma fma(-of_dy_y / n, y, dy), fused with + add where add is not null.
  void (*rmsnorm_gradient)(const float* dy, const float* y, const float* add, float of_dy_y, float inverse_count,
                           float rsigma, std::size_t count, float* out);
};
/// The loops of the target that is chosen.
[[nodiscard]] RowFunctions row_functions();

}  // namespace fp8lab
