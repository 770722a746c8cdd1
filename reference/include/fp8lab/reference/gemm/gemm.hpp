// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "fp8lab/reference/gemm/gemm_recipe.hpp"
#include "fp8lab/reference/tensor_core/mma.hpp"

namespace fp8lab {

/// The arguments of a GEMM beside its operands, and how it is run.
struct GemmCall {
  std::span<const float> c = {};     ///< M * N elements, or empty
  std::span<const float> bias = {};  ///< N elements, or empty
  /// M * N elements, the input of the GELU with whose gradient the activation dgelu multiplies; otherwise empty.
  std::span<const float> activation_input = {};
  /// Where the gradient of a bias is written, M elements, where the recipe has one; otherwise empty. It is
  /// cublaslt_row_sums() of a with K as its rows: of the values as they are given, in float32, which cuBLASLt rounds
  /// once more where the output is bfloat16. With it, operands are float32 or bfloat16 and have no scale.
  std::span<float> bias_gradient = {};
  /// Multiplies at the end of the epilogue, which is scale_out * (alpha * (scale_a * scale_b * accumulator) + c + bias)
  /// from left to right, every operation rounded to float32: scale_a and scale_b are those of the row of a and of b,
  /// alpha is made of both tensors' scales, as TensorScale says. A recipe may have it otherwise. (In which order
  /// cuBLASLt multiplies is not documented; with powers of two it makes no difference.)
  float scale_out = 1;
  int threads = 1;
  /// Is called on the calling thread with the share that is done; an exception from it cancels the GEMM.
  std::function<void(double)> progress = {};
};

/// out = a * b^T as the recipe's model computes it: out(m, n) is the dot product of a's row m and b's row n, one
/// instruction after the other, K ascending from a zero accumulator, a tail of K filled with zeros. With block scales,
/// K is a multiple of their block. A float16 accumulator's words are float32 numbers here, in the promotion and in the
/// epilogue too; a c that it starts from is rounded to float16, nearest even.
///
/// The bits do not depend on threads, on the processor, on the caller's rounding mode, or on which of the
/// implementations below ran: a fast one, or for what that does not have (slow_because() says what) one that takes
/// element by element. `exact` is the real dot product rounded once, for any float32 input; it is not composed,
/// so it is not promoted or split, and c enters in the epilogue.
///
/// @param a  (M, K), or (K, M) if transposed
/// @param b  (N, K), as a Linear layer keeps its weight, or (K, N) if transposed
/// @param out  M * N elements, row-major, of the recipe's output: float for binary32, a byte for formats of up to 8
/// bits,
///     two for the others
/// Throws std::invalid_argument as check_gemm_recipe() does, where shapes or formats do not fit, or something is given
/// that nothing reads; the message says what is allowed. It throws too for codes and arrays that mma() refuses.
void gemm(const GemmRecipe& recipe, const Operand& a, const Operand& b, std::span<float> out,
          const GemmCall& call = {});
void gemm(const GemmRecipe& recipe, const Operand& a, const Operand& b, std::span<std::uint8_t> out,
          const GemmCall& call = {});
void gemm(const GemmRecipe& recipe, const Operand& a, const Operand& b, std::span<std::uint16_t> out,
          const GemmCall& call = {});

/// The same for models with a float64 accumulator, and for these alone. There are no scales, no promotion and no
/// epilogue: K may be split (ranges are added in float64), and of the call threads and progress apply. A NaN has the
/// word that the model says (NanWord); which one an addition of ranges gives is not known: the first one's here.
void gemm(const GemmRecipe& recipe, const Operand& a, const Operand& b, std::span<double> out,
          const GemmCall& call = {});

/// The same for quantized tensors, as operand_of() has them. `exact` multiplies the values that dequantize() gives.
///
/// Forward, a is the input and b the weight, both rowwise; of the gradients, dx = dy * w has dy rowwise and w
/// columnwise, and dw = dy^T * x has both columnwise. Recipes may differ where the model takes both.
///
/// Throws std::invalid_argument as above, where the model does not take a recipe's codes and scales (the message names
/// those models that do), and where a Hadamard matrix turned one of the two and not the other.
void gemm(const GemmRecipe& recipe, const Quantized& a, const Quantized& b, std::span<float> out,
          const GemmCall& call = {});
void gemm(const GemmRecipe& recipe, const Quantized& a, const Quantized& b, std::span<std::uint8_t> out,
          const GemmCall& call = {});
void gemm(const GemmRecipe& recipe, const Quantized& a, const Quantized& b, std::span<std::uint16_t> out,
          const GemmCall& call = {});

/// Says why gemm() computes element by element, for its fast path lacks something: "order is pairwise". Empty where the
/// fast path runs.
[[nodiscard]] std::string slow_because(const GemmRecipe& recipe, const Operand& a, const Operand& b);

/// Whether the model takes such a Quantized: its format, and its scales. (Its K may not fit that of the other operand.)
/// Throws std::invalid_argument as check_quantized() does.
[[nodiscard]] bool takes(const MmaModel& model, const Quantized& q);

}  // namespace fp8lab
