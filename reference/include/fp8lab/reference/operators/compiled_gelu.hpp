// SPDX-License-Identifier: Apache-2.0
// The GELU that Transformer Engine has PyTorch compile, for layers without FP8: by tanh, of a sum with a bias.
//
// Sources: Transformer Engine 2.20, pytorch/jit.py; which operations are fused, and the order of sums, are those of
// PyTorch 2.11 and Triton 3.6 on an H200, found from its words.
#pragma once

#include <span>

#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/reference/operators/float_output.hpp"

namespace fp8lab {

/// out = (y / 2) (1 + t) with y = x + bias, t = tanhf((R y) fma(C y, y, 1)), R = 0.79788456 and C = 0.044715, every
/// operation in float32, rounded once to the output; tanhf is CUDA 13.0's. The bias has an element for each column, or
/// none.
///
/// Throws std::invalid_argument for float64, sizes that do not fit, and an output that overlaps x without being it.
void compiled_gelu(const MatrixView& x, std::span<const float> bias, const FloatOutput& out, int threads = 1);

/// dx = ((y / 2) (s p) + (1 + t) / 2) grad with s = fma(-t, t, 1) and p = fma(0.1070322243 y, y, R), y and t as above;
/// and where `sums` is not empty, the sum of each column of the rounded dx, which is the gradient of the bias: row i is
/// added to place i modulo 64, and the places as two warps of a thread block do.
///
/// The words of an H200 for 64 to 1024 rows of 512 and 1024 columns are these, of code that is compiled for any shape.
/// Code for one shape alone can add in another order: of 256 x 1024 in float32 it does.
///
/// Throws std::invalid_argument as compiled_gelu() does, and where dx overlaps grad without being it.
void compiled_gelu_backward(const MatrixView& grad, const MatrixView& x, std::span<const float> bias,
                            const FloatOutput& dx, std::span<float> sums, int threads = 1);

}  // namespace fp8lab
