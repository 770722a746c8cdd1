// SPDX-License-Identifier: Apache-2.0
// cvt of float32 to 16-bit types, to nearest even; every NaN becomes 7FFF (sm_80).
#pragma once

#include <cstdint>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/formats/unpack.hpp"

namespace fp8lab::gpu {

[[nodiscard]] FP8LAB_HD inline Half half_of(float x) {
#ifdef __CUDA_ARCH__
  Half result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
#else
  return {static_cast<std::uint16_t>(encode(binary16, cuda_nosat_policy, x))};
#endif
}
[[nodiscard]] FP8LAB_HD inline BFloat16 bfloat16_of(float x) {
#ifdef __CUDA_ARCH__
  BFloat16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
#else
  return {static_cast<std::uint16_t>(encode(bfloat16, cuda_nosat_policy, x))};
#endif
}

}  // namespace fp8lab::gpu
