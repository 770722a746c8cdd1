// SPDX-License-Identifier: Apache-2.0
// The kernel that sweeps functions: one for each variant, which on a device is compiled by itself, under its options.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp8lab/gpu/recorder/functions.hpp"
#include "fp8lab/gpu/team.hpp"

namespace fp8lab::gpu {

/// What is swept, and where the digests or words go, as SweepCasts has it.
struct FunctionSweep {
  std::size_t number;  ///< of the variant's function
  std::uint64_t seed;  ///< of pairs
  std::uint64_t first, count;
  std::uint64_t inputs_per_chunk;  ///< a multiple of SweepFunctions::inputs_per_block, or all
  std::uint64_t* digests;
  std::uint32_t* words;  ///< null: digests are wanted
  SpecialUnits units;    ///< on the host: what stands for the unit
};

#ifdef __CUDACC__

/// The result of an instruction; `unit` is the same for all threads.
__device__ inline std::uint32_t unit_word(UnitInstruction unit, std::uint32_t x) {
#ifdef __CUDA_ARCH__
  std::uint32_t out = 0;
  [[maybe_unused]] std::uint32_t low = 0;
  const std::uint32_t pair = x | (x ^ 0x5A5AU) << 16;
  [[maybe_unused]] std::uint16_t half = 0;
#define FP8LAB_F32(unit, text) \
  case UnitInstruction::unit: asm(text " %0, %1;" : "=r"(out) : "r"(x)); return out
#define FP8LAB_F16(unit, text) \
  case UnitInstruction::unit: asm(text " %0, %1;" : "=h"(half) : "h"(static_cast<std::uint16_t>(x))); return half
#define FP8LAB_PAIR(unit, text) \
  case UnitInstruction::unit: asm(text " %0, %1;" : "=r"(out) : "r"(pair)); return out
#define FP8LAB_F64(unit, text)                                                      \
  case UnitInstruction::unit:                                                       \
    asm("{ .reg .f64 a; mov.b64 a, {%2, %3}; " text " a, a; mov.b64 {%0, %1}, a; }" \
        : "=r"(low), "=r"(out)                                                      \
        : "r"(0), "r"(x));                                                          \
    return out
  switch (unit) {
    FP8LAB_F32(ex2_ftz, "ex2.approx.ftz.f32");
    FP8LAB_F32(ex2, "ex2.approx.f32");
    FP8LAB_F32(lg2_ftz, "lg2.approx.ftz.f32");
    FP8LAB_F32(lg2, "lg2.approx.f32");
    FP8LAB_F32(rcp_ftz, "rcp.approx.ftz.f32");
    FP8LAB_F32(rcp, "rcp.approx.f32");
    FP8LAB_F32(rsqrt_ftz, "rsqrt.approx.ftz.f32");
    FP8LAB_F32(rsqrt, "rsqrt.approx.f32");
    FP8LAB_F32(sqrt_ftz, "sqrt.approx.ftz.f32");
    FP8LAB_F32(sqrt, "sqrt.approx.f32");
    FP8LAB_F32(tanh, "tanh.approx.f32");
    FP8LAB_F32(sin_ftz, "sin.approx.ftz.f32");
    FP8LAB_F32(sin, "sin.approx.f32");
    FP8LAB_F32(cos_ftz, "cos.approx.ftz.f32");
    FP8LAB_F32(cos, "cos.approx.f32");
    FP8LAB_F16(ex2_f16, "ex2.approx.f16");
    FP8LAB_F16(tanh_f16, "tanh.approx.f16");
    FP8LAB_PAIR(ex2_f16x2, "ex2.approx.f16x2");
    FP8LAB_PAIR(tanh_f16x2, "tanh.approx.f16x2");
    FP8LAB_F64(rcp64h, "rcp.approx.ftz.f64");
    FP8LAB_F64(rsqrt64h, "rsqrt.approx.ftz.f64");
#if __CUDA_ARCH__ >= 900
    FP8LAB_F16(ex2_bf16, "ex2.approx.ftz.bf16");
    FP8LAB_F16(tanh_bf16, "tanh.approx.bf16");
    FP8LAB_PAIR(ex2_bf16x2, "ex2.approx.ftz.bf16x2");
    FP8LAB_PAIR(tanh_bf16x2, "tanh.approx.bf16x2");
#endif
    default: break;
  }
#undef FP8LAB_F32
#undef FP8LAB_F16
#undef FP8LAB_PAIR
#undef FP8LAB_F64
  __trap();
  return out;
#else
  return static_cast<std::uint32_t>(unit) + x;
#endif
}

/// The result of a function as nvcc compiles it under the options of the file that this is in, which is why it is a
/// template of the variant.
template <FunctionVariant kVariant>
__device__ std::uint32_t compiled_word(DeviceFunction function, float x, float y) {
#ifdef __CUDA_ARCH__
  const auto word = [](float value) { return __float_as_uint(value); };
  switch (function) {
    case DeviceFunction::expf: return word(expf(x));
    case DeviceFunction::fast_expf: return word(__expf(x));
    case DeviceFunction::tanhf: return word(tanhf(x));
    case DeviceFunction::erff: return word(erff(x));
    case DeviceFunction::rsqrtf: return word(rsqrtf(x));
    case DeviceFunction::divide: return word(x / y);
    case DeviceFunction::fast_divide: return word(__fdividef(x, y));
    case DeviceFunction::rounded_divide: return word(__fdiv_rn(x, y));
    case DeviceFunction::reciprocal: return word(1.0F / x);
    case DeviceFunction::rounded_reciprocal: return word(__frcp_rn(x));
    case DeviceFunction::logf: return word(logf(x));
    case DeviceFunction::fast_logf: return word(__logf(x));
    case DeviceFunction::exp2f: return word(exp2f(x));
    case DeviceFunction::exp10f: return word(exp10f(x));
    case DeviceFunction::log2f: return word(log2f(x));
    case DeviceFunction::fast_log2f: return word(__log2f(x));
    case DeviceFunction::log10f: return word(log10f(x));
    case DeviceFunction::log1pf: return word(log1pf(x));
    case DeviceFunction::expm1f: return word(expm1f(x));
    case DeviceFunction::sqrtf: return word(sqrtf(x));
    case DeviceFunction::rounded_sqrt: return word(__fsqrt_rn(x));
    case DeviceFunction::erfcf: return word(erfcf(x));
    case DeviceFunction::normcdff: return word(normcdff(x));
    case DeviceFunction::sinf: return word(sinf(x));
    case DeviceFunction::cosf: return word(cosf(x));
  }
  __trap();
  return 0;
#else
  return static_cast<std::uint32_t>(function) + static_cast<std::uint32_t>(x + y);
#endif
}

#endif

/// The word of an input.
template <FunctionVariant kVariant>
[[nodiscard]] FP8LAB_HD std::uint32_t swept_word(const FunctionSweep& sweep, std::uint64_t input) {
#ifdef __CUDA_ARCH__
  if constexpr (kVariant == FunctionVariant::units) {
    return unit_word(static_cast<UnitInstruction>(sweep.number), static_cast<std::uint32_t>(input));
  } else {
    const auto function = static_cast<DeviceFunction>(sweep.number);
    const std::uint64_t word = has_two_arguments(function) ? random_word(sweep.seed, input) : input;
    return compiled_word<kVariant>(function, __uint_as_float(static_cast<std::uint32_t>(word)),
                                   __uint_as_float(static_cast<std::uint32_t>(word >> 32)));
  }
#else
  std::uint32_t word = 0;
  model_function_words({kVariant, sweep.number}, sweep.units, sweep.seed, input, {&word, 1});
  return word;
#endif
}

template <FunctionVariant kVariant>
struct SweepFunctions {
  static constexpr unsigned threads = 256;
  static constexpr std::uint64_t inputs_per_block = std::uint64_t{1} << 14;
  struct Shared {};

  FunctionSweep sweep;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return ceil_div(sweep.count, inputs_per_block); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& /*shared*/) const {
    const std::uint64_t begin = block * inputs_per_block;
    const std::uint64_t left = sweep.count - begin;
    const std::uint64_t size = left < inputs_per_block ? left : inputs_per_block;
    auto own = team.template each<std::uint64_t>();
    team.for_each_thread([&](std::size_t thread) {
      for (std::uint64_t i = begin + thread; i < begin + size; i += threads) {
        const std::uint32_t word = swept_word<kVariant>(sweep, sweep.first + i);
        own[thread] += digest_term(sweep.first + i, word);
        if (sweep.words != nullptr) sweep.words[i] = word;
      }
    });
    const std::uint64_t sum = team.sum(own);
    team.for_each(1, [&](std::size_t) {
      const std::uint64_t before = sweep.first / sweep.inputs_per_chunk * sweep.inputs_per_chunk;
      if (sweep.words == nullptr) {
        atomic_add(sweep.digests + (sweep.first + begin - before) / sweep.inputs_per_chunk, sum);
      }
    });
  }
};

/// Runs a sweep on the current device; each variant is in a file of its own.
template <FunctionVariant kVariant>
void sweep_on_device(const FunctionSweep& sweep);

/// visit(a FunctionVariant as a type, an integral_constant).
template <typename Visit>
void visit_variant(FunctionVariant variant, const Visit& visit) {
  switch (variant) {
    case FunctionVariant::units: return visit(std::integral_constant<FunctionVariant, FunctionVariant::units>());
    case FunctionVariant::plain: return visit(std::integral_constant<FunctionVariant, FunctionVariant::plain>());
    case FunctionVariant::ftz: return visit(std::integral_constant<FunctionVariant, FunctionVariant::ftz>());
    case FunctionVariant::fast: return visit(std::integral_constant<FunctionVariant, FunctionVariant::fast>());
    case FunctionVariant::precdiv: return visit(std::integral_constant<FunctionVariant, FunctionVariant::precdiv>());
    case FunctionVariant::precsqrt: return visit(std::integral_constant<FunctionVariant, FunctionVariant::precsqrt>());
  }
}

}  // namespace fp8lab::gpu
