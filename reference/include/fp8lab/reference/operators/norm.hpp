// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm as Transformer Engine's kernels compute them, with their gradients, in float32.
//
// Source: Transformer Engine 2.20, common/normalization/layernorm/ln_fwd_kernels.cuh and ln_bwd_kernels.cuh,
// rmsnorm/rmsnorm_fwd_kernels.cuh and rmsnorm_bwd_kernels.cuh: the general kernels, which sum deviations from the mean.
// The tuned kernels, for some numbers of columns, merge means of parts instead. What is fused is what nvcc 13.0 fuses
// of these formulas for sm_90; the order of sums is that of sum_order.hpp. With functions of hopper, which norms and
// their gradients have up to 16384 columns, it is the kernel's, and so is the choice of tuned kernels, for arrays
// that begin at multiples of 16 bytes. Sums over more rows than a chip's blocks take at once follow the number of its
// multiprocessors: 132, of an H100 SXM and an H200.
#pragma once

#include <span>

#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/reference/operators/float_output.hpp"

namespace fp8lab {

/// What a norm has beside its arrays.
struct NormParameters {
  float eps = 1e-5F;
  bool zero_centered_gamma = false;  ///< gamma + 1 multiplies, not gamma
};

/// With n columns and r = fl(1 / n), for each row: mean = sum(x) r; rsigma = rsqrt(fma(sum((x - mean)^2), r, eps));
/// out = fma(gamma, rsigma (x - mean), beta). gamma and beta are matrices of one row.
///
/// Throws std::invalid_argument for float64, sizes that do not fit, no columns, arrays that overlap (out may be x
/// itself), with functions of hopper more than 16384 columns, and as check_threads() does.
void layernorm(const NormParameters& parameters, const MatrixView& x, const MatrixView& gamma, const MatrixView& beta,
               FloatOutput out, std::span<float> mean, std::span<float> rsigma, const OperatorOptions& options = {});

/// The gradients for the gradient `grad` by the result. With y = rsigma (x - mean), d = gamma grad and r as above:
/// dx = rsigma (d - fma(sum(d), r, (sum(d y) r) y)); dgamma = sum of grad y, dbeta = sum of grad, both over rows.
/// With functions of hopper this is what is fused up to 128 columns in one type; elsewhere it is fma(sum(d y) r, y,
/// sum(d) r).
///
/// Throws as layernorm() does, and with functions of hopper unless gamma and grad have x's type, or both one type of
/// 16 bits beside x of float32.
void layernorm_backward(const NormParameters& parameters, const MatrixView& grad, const MatrixView& x,
                        std::span<const float> mean, std::span<const float> rsigma, const MatrixView& gamma,
                        FloatOutput dx, FloatOutput dgamma, FloatOutput dbeta, const OperatorOptions& options = {});

/// rsigma = rsqrt(fma(sum(x^2), r, eps)); out = gamma (rsigma x).
///
/// Throws as layernorm() does.
void rmsnorm(const NormParameters& parameters, const MatrixView& x, const MatrixView& gamma, FloatOutput out,
             std::span<float> rsigma, const OperatorOptions& options = {});

/// With y = rsigma x and d as above: dx = rsigma fma(-(sum(d y) r), y, d); dgamma = sum of grad y over rows. `add`,
/// where it is not null, is added to dx, in one rounding with the product: the gradient that comes past the norm.
///
/// Throws as layernorm_backward() does.
void rmsnorm_backward(const NormParameters& parameters, const MatrixView& grad, const MatrixView& x,
                      std::span<const float> rsigma, const MatrixView& gamma, const MatrixView* add, FloatOutput dx,
                      FloatOutput dgamma, const OperatorOptions& options = {});

}  // namespace fp8lab
