// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/gpu/kernels/run.hpp"
#include "fp8lab/reference/scaling/hadamard.hpp"

namespace fp8lab::gpu {

/// fl(x) in bfloat16, nearest even; a NaN stays one.
[[nodiscard]] FP8LAB_HD inline float rounded_to_bfloat16(float x) {
#ifdef __CUDA_ARCH__
  std::uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return ptx::float_of(BFloat16{bits});
#else
  return decode(bfloat16, encode(bfloat16, ieee_policy, x));
#endif
}

/// Turns a run as hadamard_columns() does, each sum rounded once: sums are of doubles, in the order of the run, as the
/// reference has them.
FP8LAB_HD inline void turn_run(Run<float>& run, bool to_bfloat16) {
  Run<float> turned;
  unrolled<run_length>([&](unsigned j) {
    double sum = 0;
    unrolled<run_length>([&](unsigned i) {
      const auto x = static_cast<double>(run[i]);
      sum += hadamard_sign(j, i) < 0 ? -x : x;
    });
    const auto value = static_cast<float>(sum / 4);
    turned.words[j] = std::bit_cast<std::uint32_t>(to_bfloat16 ? rounded_to_bfloat16(value) : value);
  });
  run = turned;
}

}  // namespace fp8lab::gpu
