// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>

#include "fp8lab/reference/mma.hpp"

namespace fp8lab {

/// How a GEMM is composed of steps.
struct GemmOptions {
  /// Of the whole tensor, multiplies on dequantize, on top of the operands' block scales if there are any: the epilogue
  /// is fl(fl(scale_a * scale_b) * accumulator) + bias.
  float scale_a = 1;
  float scale_b = 1;
  /// Elements of K after which the tensor core's accumulator is added to a float32 one (nearest even) and cleared;
  /// 0: never ("fast accumulation"). CUTLASS and DeepGEMM promote every 128.
  int promote_k = 0;
  std::span<const float> bias = {};  ///< N elements, or empty
  ZeroRule zero_rule = ZeroRule::skip;
  int threads = 1;
  /// Called now and then with the share that is done, on the calling thread; an exception from it cancels the GEMM.
  std::function<void(double)> progress = {};
};

/// out = a * b^T as `model` computes it: out(m, n) is the dot product of a's row m and b's row n, one instruction after
/// the other, K ascending from a zero accumulator, a tail of K filled with zeros. With block scales, K is a multiple of
/// their block. A float16 accumulator's words are float32 numbers here, in the promotion and in the epilogue too.
///
/// The bits do not depend on threads, on the processor, or on which of the implementations below ran. `exact` is the
/// real dot product rounded once, for any float32 input.
///
/// @param a  (M, K)
/// @param b  (N, K), as a Linear layer keeps its weight
/// @param out  M * N elements, row-major
/// Throws std::invalid_argument where shapes, formats or options do not fit; the message says what does.
void gemm(const MmaModel& model, const Operands& a, const Operands& b, std::span<float> out,
          const GemmOptions& options = {});

}  // namespace fp8lab
