// SPDX-License-Identifier: Apache-2.0
// Single operations of a build with fast-math: subnormal numbers count as zeros of their sign.
#pragma once

#include <cmath>

namespace fp8lab {

inline float flushed_float(float x) { return std::abs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }
inline float flushed_reciprocal(float x) { return flushed_float(1 / flushed_float(x)); }

}  // namespace fp8lab
