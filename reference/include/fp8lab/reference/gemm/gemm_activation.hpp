// SPDX-License-Identifier: Apache-2.0
// What a GEMM's epilogue applies to the sum, of a sum that is there already.
#pragma once

#include <span>

#include "fp8lab/reference/gemm/gemm_recipe.hpp"

namespace fp8lab {

/// out = the activation of each element of x, unrounded, on `threads` threads. Every NaN is the word 7FFFFFFF.
///
/// With R = 3F4C422A, C = 3D372713 and T(z) = tanh.approx.f32(z) of Hopper's special function unit, in float32:
/// gelu: t = T(x fma(x c, x, R)) with c = 3D12227E, and fma(x, t, x) / 2;
/// gelu_float32: t = T((R x) fma(C x, x, 1)), and (x / 2) (t + 1);
/// dgelu: of `input`, named x here: t as gelu_float32 has it, s = fma(-t, t, 1), p = fma(3DDB33B6 x, x, R), and
/// ((x / 2) (s p) + (t + 1) / 2) times the element of x.
///
/// Found from the words of an H200 (cuBLASLt 13.1): gelu from 22 products rounded to bfloat16; 131,072 float32 words of
/// each, for all of bfloat16's and drawn ones, by kernels of FP8, float16, bfloat16, TF32 and float32 operands, are
/// these.
///
/// Throws std::invalid_argument where out has another size than x, or overlaps it without being it, where input has
/// another size, or is given without dgelu.
void apply_gemm_activation(GemmActivation activation, std::span<const float> x, std::span<const float> input,
                           std::span<float> out, int threads);

}  // namespace fp8lab
