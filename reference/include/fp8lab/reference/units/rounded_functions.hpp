// SPDX-License-Identifier: Apache-2.0
// Elementary functions rounded correctly: the same bits on every processor and with every C library.
#pragma once

namespace fp8lab {

// Each is computed in float64 with a proven bound of its relative error. Where float64 values within that bound round
// to different float32 numbers, it is computed again in pairs of float64, with some 100 bits. A NaN gives NaN.

/// e^x.
[[nodiscard]] float rounded_exp(float x);
/// 2^x.
[[nodiscard]] float rounded_exp2(float x);
/// The hyperbolic tangent; -0 gives -0.
[[nodiscard]] float rounded_tanh(float x);
/// The natural logarithm: -infinity for 0, NaN for what is negative.
[[nodiscard]] float rounded_log(float x);
/// The binary logarithm, as rounded_log().
[[nodiscard]] float rounded_log2(float x);
/// ln(1 + x): -infinity for -1, NaN for what is below; -0 gives -0.
[[nodiscard]] float rounded_log1p(float x);
/// 1 / sqrt(x): infinity with the sign of a zero, NaN for what is negative.
[[nodiscard]] float rounded_rsqrt(float x);
/// The sine and cosine of x radians, of any size; NaN for infinities.
[[nodiscard]] float rounded_sin(float x);
[[nodiscard]] float rounded_cos(float x);

}  // namespace fp8lab
