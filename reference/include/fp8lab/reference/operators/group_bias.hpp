// SPDX-License-Identifier: Apache-2.0
// Biases of groups of rows, as a mixture of experts has them, and their gradients: group g has rows
// [offsets[g], offsets[g + 1]), and rows behind the last group belong to none. Sums of gradients have the order of
// sum_order.hpp and are added to what the outputs hold. Every NaN is the positive one of all ones.
//
// The order of the gradients' kernel depends on Triton's release, the alignment of rows and the moments of its atomic
// additions: no order is that of a device.
//
// Sources: Transformer Engine 2.20, common/gemm/cublaslt_grouped_gemm.cu, grouped_bias_add_kernel, and
// common/triton/grouped_dbias_dscales.py.
#pragma once

#include <cstdint>
#include <span>

#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/reference/operators/float_output.hpp"

namespace fp8lab {

/// out = x, of whose rows each has its group's row of `bias` added, times scales[i] where there are scales: in float32,
/// each multiply-add rounded once, and then to the type of out. Rows of no group are those of x. `out` may be x.
///
/// Throws as below.
void add_group_bias(const MatrixView& x, const MatrixView& bias, std::span<const std::int64_t> offsets,
                    std::span<const float> scales, FloatOutput out, int threads = 1);

/// dbias[g * columns + j] += the sum of grad[i][j] over the rows i of group g.
///
/// Throws std::invalid_argument for float64, offsets that do not ascend from 0 or more to at most the number of rows,
/// and a wrong size.
void group_bias_gradient(const MatrixView& grad, std::span<const std::int64_t> offsets, std::span<float> dbias,
                         int threads = 1);

/// The same where row i is the output plus scales[i] times its group's row of `bias`: dbias[g * columns + j] += the sum
/// of grad[i][j] scales[i], of which each multiply-add is rounded once, and dscales[i] += the sum over j of
/// grad[i][j] bias[g][j], of which each product is rounded. The dscales of rows of no group stay.
///
/// Throws as above.
void scaled_group_bias_gradient(const MatrixView& grad, std::span<const float> scales, const MatrixView& bias,
                                std::span<const std::int64_t> offsets, std::span<float> dbias, std::span<float> dscales,
                                int threads = 1);

}  // namespace fp8lab
