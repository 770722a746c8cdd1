// SPDX-License-Identifier: Apache-2.0
// The GELU that Transformer Engine has PyTorch compile, for layers without FP8: by tanh, of a sum with a bias.
//
// Sources: Transformer Engine 2.20, pytorch/jit.py; which operations are fused, and the order of sums, are those of
// PyTorch 2.11 and Triton 3.6 on an H200, found from its words; torch/_inductor/choices.py (reduction_split_factor) and
// torch/_inductor/runtime/triton_heuristics.py say by which shapes the orders change.
#pragma once

#include <cstddef>
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

/// Where the gradient of compiled_gelu()'s bias goes, and which of PyTorch's codes adds it.
struct CompiledBiasSums {
  /// One for each column, or empty: none is wanted.
  std::span<float> sums;
  /// Whether the code is compiled for this shape alone, as that of a function's first call is, and not for any shape.
  bool for_one_shape = false;
};

/// Whether it is known how code for that shape alone adds: of 64, 128, 256, ... or 4096 rows and 128, 256, ... or 4096
/// columns, all words that an H200 gave for float32 and bfloat16 are those of compiled_gelu_backward().
[[nodiscard]] bool has_one_shape_sums(std::size_t rows, std::size_t columns);

/// dx = ((y / 2) (s p) + (1 + t) / 2) grad with s = fma(-t, t, 1) and p = fma(0.1070322243 y, y, R), y and t as above;
/// and where `bias_sums` has a place, the sum of each column, which is the gradient of the bias.
///
/// Code for any shape adds the rounded dx: row i to place i modulo 64, and the places as two warps of a thread block
/// do. So an H200 did for 64 to 1024 rows of 512 and 1024 columns. Code for one shape alone adds what is not rounded,
/// up to 128 rows: it multiplies and adds at once, `fma(slope, grad, sum)`. More rows are added 128 at a time, of the
/// rounded dx, and a second kernel adds these sums. How many threads share the rows, the shape decides.
///
/// Throws std::invalid_argument as compiled_gelu() does, where dx overlaps grad without being it, and for one shape
/// alone where has_one_shape_sums() is false or x is float16.
void compiled_gelu_backward(const MatrixView& grad, const MatrixView& x, std::span<const float> bias,
                            const FloatOutput& dx, const CompiledBiasSums& bias_sums, int threads = 1);

}  // namespace fp8lab
