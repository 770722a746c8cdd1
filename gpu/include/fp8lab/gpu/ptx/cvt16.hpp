// SPDX-License-Identifier: Apache-2.0
// cvt of float32 to 16-bit types, to nearest even, every NaN becoming 7FFF; and to TF32 (sm_80).
#pragma once

#include <bit>
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

/// cvt.rna.tf32.f32, to nearest, ties away: the 19 bits of the result. Those below them in its register are not
/// defined. A NaN keeps its own 19 bits, also where these, without what lies below them, are an infinity: an H200 said
/// so of every NaN.
[[nodiscard]] FP8LAB_HD inline std::uint32_t tf32_of(float x) {
#ifdef __CUDA_ARCH__
  std::uint32_t word;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(x));
  return word >> 13;
#else
  constexpr CastPolicy policy{
      .rounding = Rounding::nearest_away, .overflow = Overflow::to_special, .infinity = Overflow::to_special};
  return x == x ? encode(tf32, policy, x) : std::bit_cast<std::uint32_t>(x) >> 13;
#endif
}

}  // namespace fp8lab::gpu
