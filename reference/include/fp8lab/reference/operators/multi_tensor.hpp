// SPDX-License-Identifier: Apache-2.0
// What Transformer Engine's other multi-tensor kernels compute of each tensor: products with a scale, norms, and scales
// of FP8.
//
// Source: Transformer Engine 2.20, common/multi_tensor/scale.cu, l2norm.cu and compute_scale.cu, compiled with
// fast-math: see optimizer.hpp.
#pragma once

#include <span>
#include <vector>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/operators/float_output.hpp"

namespace fp8lab {

/// out = x scale, with subnormal numbers flushed, rounded to out's type. Returns whether every element of x is finite.
/// Every bit is the kernel's (optimizer.hpp names what is unknown of subnormal results).
///
/// Throws std::invalid_argument for float64 and sizes that differ.
bool scale_tensor(FloatSpan x, float scale, FloatOutput out, int threads = 1);

/// sqrt(sum(x^2)): the squares of chunks of 65536 elements are added as rows are (sum_order.hpp), each fused, and their
/// sums as a row, with FTZ; the root is rounded correctly. The kernel's order of sums and root are others. `sum` gets
/// the sum where it is not null.
///
/// Throws std::invalid_argument for float64.
[[nodiscard]] float l2norm(FloatSpan x, float* sum = nullptr, int threads = 1);
/// The root of a sum of such sums, added as a row.
[[nodiscard]] float l2norm_of_sums(std::span<const float> sums);

/// The norm of several tensors together, and that of each.
struct TensorNorms {
  float total;
  std::vector<float> each;
};
/// As l2norm() and l2norm_of_sums() have them. With Functions::hopper every bit is that of the kernel on an H100 or
/// H200 for chunks of 65536 elements, of tensors that begin at a multiple of 4 elements, as those that PyTorch
/// allocates do: the 512 threads of a block have four sums each, a launch has 320 blocks or 110 tensors at most, and
/// block b of each launch adds to the same sum.
///
/// Throws as l2norm() does.
[[nodiscard]] TensorNorms l2norms(std::span<const FloatSpan> tensors, const OperatorOptions& options = {});

/// A scale and its inverse.
struct AmaxScale {
  float scale;
  float scale_inv;
};
/// largest / amax, rounded correctly, or 1 for an amax of zero (what is subnormal counts as that), infinity or NaN; an
/// amax below eps counts as that; an infinite quotient becomes the largest float32; with power_of_two rounded down to
/// one. scale_inv is 1 / scale, rounded correctly and flushed: 0 for scales above 2^126. Every bit is the kernel's.
[[nodiscard]] AmaxScale scale_of_amax(float amax, float largest, bool power_of_two = false, float eps = 0);

}  // namespace fp8lab
