// SPDX-License-Identifier: Apache-2.0
// The softmaxes of scaled attention scores, as Transformer Engine's fused kernels compute them, with their gradient.
//
// Source: Transformer Engine 2.20, common/fused_softmax/scaled_masked_softmax.cu, scaled_upper_triang_masked_softmax.cu
// and scaled_aligned_causal_masked_softmax.cu, which are compiled with fast-math: subnormal numbers count as zeros of
// their sign. Unlike the kernels' exponential and reciprocal, fp8lab's are rounded correctly, and the order of sums is
// that of sum_order.hpp; with Functions::hopper all of them are the kernels', as nvcc 13.0 compiles them for sm_90. No
// device has been asked for their words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/operators/float_output.hpp"

namespace fp8lab {

/// Which scores do not count.
enum class SoftmaxMask : std::uint8_t {
  none,
  given,             ///< a byte of 1 makes the score -10000; a row whose largest score is -10000 becomes 0
  upper_triangular,  ///< what lies right of the diagonal has no weight
  aligned_causal,    ///< what lies right of the diagonal that ends in the bottom right corner: -10000, then no weight
};
inline constexpr std::array softmax_masks{
    Named{"none", SoftmaxMask::none, "every score counts"},
    Named{"given", SoftmaxMask::given, "a byte of 1 makes the score -10000"},
    Named{"upper_triangular", SoftmaxMask::upper_triangular, "query i sees keys 0 to i"},
    Named{"aligned_causal", SoftmaxMask::aligned_causal, "query i sees keys 0 to i + keys - queries"},
};
static_assert(is_in_order(softmax_masks));
[[nodiscard]] constexpr std::span<const Named<SoftmaxMask>> named_values(SoftmaxMask /*of_type*/) {
  return softmax_masks;
}

/// Scores of each head of each batch: a row for each query, a column for each key.
struct SoftmaxShape {
  std::size_t batches = 1;
  std::size_t heads = 1;
  std::size_t queries;
  std::size_t keys;
};

/// out = e / sum(e) along each row, with e = exp(fl(x scale) - max(fl(x scale))) and a product with the reciprocal of
/// the sum. The kernels round the scale to x's type first. `mask` is for SoftmaxMask::given: bytes of (batches or 1,
/// queries, keys).
///
/// Throws std::invalid_argument for float64, sizes that do not fit, upper_triangular of queries that are not as many as
/// keys, arrays that overlap (out may be x itself), and as check_threads() does; with Functions::hopper for float32 and
/// more than 16384 keys, which the kernels do not take.
void softmax(SoftmaxMask kind, const SoftmaxShape& shape, float scale, const MatrixView& x,
             std::span<const std::uint8_t> mask, FloatOutput out, const OperatorOptions& options = {});

/// dx = scale fma(-sum(grad y), y, grad y), for y the result, where upper_triangular and aligned_causal give no weight
/// with zeros for grad and y. This scale is not rounded.
///
/// Throws as softmax() does.
void softmax_backward(SoftmaxMask kind, const SoftmaxShape& shape, float scale, const MatrixView& grad,
                      const MatrixView& y, FloatOutput dx, const OperatorOptions& options = {});

}  // namespace fp8lab
