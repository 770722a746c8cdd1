// SPDX-License-Identifier: Apache-2.0
// What a GEMM's epilogue applies to the sum, of a sum that is there already.
#pragma once

#include <span>

#include "fp8lab/reference/gemm/gemm_recipe.hpp"

namespace fp8lab {

/// out = the activation of each element of x, unrounded, on `threads` threads.
///
/// gelu: in float32, z = x fma(x c, x, r) with c = 3D12227E and r = 3F4C422A, t = tanh.approx.f32(z) of Hopper's
/// special function unit, and fma(x / 2, t, x / 2). Found from the words of an H200 (cuBLASLt 13.1, 22 products of FP8
/// and bfloat16 rounded to bfloat16): all 851,968 are these.
///
/// Throws std::invalid_argument for dgelu, which is not computed yet, and where out has another size than x, or
/// overlaps it without being it.
void apply_gemm_activation(GemmActivation activation, std::span<const float> x, std::span<float> out, int threads);

}  // namespace fp8lab
