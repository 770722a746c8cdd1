// SPDX-License-Identifier: Apache-2.0
// Where an operator writes: float32, float16 or bfloat16 numbers that somebody else owns.
#pragma once

#include <span>
#include <variant>

#include "fp8lab/formats/unpack.hpp"
#include "fp8lab/reference/operators/functions.hpp"

namespace fp8lab {

/// What an operator computes in float32 is rounded to the element type, to nearest even; overflow becomes infinity, and
/// every NaN is the positive one of all ones (7FFFFFFF, 7FFF), as of NVIDIA's instructions. float32 is the unrounded
/// result, which Transformer Engine's kernels quantize under delayed scaling.
using FloatOutput = std::variant<std::span<float>, std::span<Half>, std::span<BFloat16>>;

/// How an operator is computed.
struct OperatorOptions {
  Functions functions = Functions::correctly_rounded;
  int threads = 1;  ///< which change no bit
  /// For bounds: by how many float32 numbers every elementary function is off from the rounded result, upwards, of a
  /// negative result in magnitude. Results that are special, 0 and those for infinities and 0, are not off. For
  /// activation(), activation_backward(), layernorm() and rmsnorm() with correctly_rounded; others refuse it.
  int function_words = 0;
};

}  // namespace fp8lab
