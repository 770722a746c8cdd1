// SPDX-License-Identifier: Apache-2.0
// The cross entropy of Transformer Engine's Triton kernels, with its gradient, in float32.
//
// Source: Transformer Engine 2.20, common/triton/cross_entropy.py, of one rank. Its exponential, logarithm and division
// are those that Triton chooses, here rounded correctly; whether Triton fuses products and sums is unknown, here none
// are. The exponentials below 2^-126 count as 0. The order of sums is that of sum_order.hpp.
#pragma once

#include <cstdint>
#include <span>

#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/reference/operators/float_output.hpp"

namespace fp8lab {

struct CrossEntropyParameters {
  float label_smoothing = 0;         ///< from 0 to below 1
  std::int64_t ignore_index = -100;  ///< rows of this target have no loss
};

/// Computes for each row: largest = max(x), sum = sum(exp(x - largest)), and loss = -((x[target] - largest) -
/// log(sum)). With smoothing s and eps = s / columns: loss (1 - s) + (-eps sum(x) + s (largest + log(sum))). A target
/// without a column has an infinite loss.
///
/// Throws std::invalid_argument for float64, sizes that do not fit, no columns and a smoothing out of its range.
void cross_entropy(const CrossEntropyParameters& parameters, const MatrixView& x, std::span<const std::int64_t> targets,
                   std::span<float> loss, std::span<float> largest, std::span<float> sum,
                   const OperatorOptions& options = {});

/// dx = (exp(x - largest) / sum - eps) grad, less (1 - s) before the product for the target; 0 in rows that are
/// ignored. `grad` has the gradient by the loss of each row.
///
/// Throws as cross_entropy() does.
void cross_entropy_backward(const CrossEntropyParameters& parameters, std::span<const float> grad, const MatrixView& x,
                            std::span<const std::int64_t> targets, std::span<const float> largest,
                            std::span<const float> sum, FloatOutput dx, const OperatorOptions& options = {});

}  // namespace fp8lab
