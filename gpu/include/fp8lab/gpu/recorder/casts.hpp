// SPDX-License-Identifier: Apache-2.0
// Sweeps of the conversion instructions over all of their inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/gpu/recorder/digest.hpp"
#include "fp8lab/gpu/team.hpp"

namespace fp8lab::gpu {

/// A conversion instruction as data, with its model: the word of format `to` for every word of format `from`.
struct CastSweep {
  std::string_view name;  ///< of the instruction in PTX, with the number of its sources
  Format from, to;
  CastPolicy policy;     ///< of the model
  int least_capability;  ///< 89 is Ada
  bool is_of_family =
      false;  ///< whether the machine code must be made for the chip's own instructions, such as sm_100a

  /// All words of `from`.
  [[nodiscard]] FP8LAB_HD constexpr std::uint64_t inputs() const { return std::uint64_t{1} << from.bits(); }
};

/// The output words of two inputs.
struct CastPair {
  std::uint32_t first, second;
};

// Every entry below converts two inputs. On the device that is the instruction; on the host, the scalar encode().
namespace casts {

/// Both words by the model.
[[nodiscard]] constexpr CastPair by_model(const CastSweep& sweep, std::uint32_t first, std::uint32_t second) {
  const auto one = [&sweep](std::uint32_t word) {
    return static_cast<std::uint32_t>(encode(sweep.to, sweep.policy, unpack(sweep.from, word), sweep.policy.nan));
  };
  return {one(first), one(second)};
}
inline constexpr CastPolicy satfinite{};  // to nearest even; NaN is the positive one of all ones

struct E4m3FromF32 {
  static constexpr CastSweep sweep{"cvt.rn.satfinite.e4m3x2.f32", binary32, e4m3, satfinite, 89};
  [[nodiscard]] static FP8LAB_HD CastPair convert(std::uint32_t first, std::uint32_t second) {
#ifdef __CUDA_ARCH__
    std::uint16_t both = 0;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
        : "=h"(both)
        : "f"(__uint_as_float(second)), "f"(__uint_as_float(first)));
    return {both & 0xFFU, static_cast<std::uint32_t>(both) >> 8};
#else
    return by_model(sweep, first, second);
#endif
  }
};
struct E5m2FromF32 {
  static constexpr CastSweep sweep{"cvt.rn.satfinite.e5m2x2.f32", binary32, e5m2, satfinite, 89};
  [[nodiscard]] static FP8LAB_HD CastPair convert(std::uint32_t first, std::uint32_t second) {
#ifdef __CUDA_ARCH__
    std::uint16_t both = 0;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;"
        : "=h"(both)
        : "f"(__uint_as_float(second)), "f"(__uint_as_float(first)));
    return {both & 0xFFU, static_cast<std::uint32_t>(both) >> 8};
#else
    return by_model(sweep, first, second);
#endif
  }
};
struct E4m3FromF16 {
  static constexpr CastSweep sweep{"cvt.rn.satfinite.e4m3x2.f16x2", binary16, e4m3, satfinite, 89};
  [[nodiscard]] static FP8LAB_HD CastPair convert(std::uint32_t first, std::uint32_t second) {
#ifdef __CUDA_ARCH__
    std::uint16_t both = 0;
    asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(both) : "r"(second << 16 | first));
    return {both & 0xFFU, static_cast<std::uint32_t>(both) >> 8};
#else
    return by_model(sweep, first, second);
#endif
  }
};
struct E5m2FromF16 {
  static constexpr CastSweep sweep{"cvt.rn.satfinite.e5m2x2.f16x2", binary16, e5m2, satfinite, 89};
  [[nodiscard]] static FP8LAB_HD CastPair convert(std::uint32_t first, std::uint32_t second) {
#ifdef __CUDA_ARCH__
    std::uint16_t both = 0;
    asm("cvt.rn.satfinite.e5m2x2.f16x2 %0, %1;" : "=h"(both) : "r"(second << 16 | first));
    return {both & 0xFFU, static_cast<std::uint32_t>(both) >> 8};
#else
    return by_model(sweep, first, second);
#endif
  }
};
/// bfloat16 has no conversion of its own before Blackwell: kernels widen it, which is exact.
struct E4m3FromBf16 {
  static constexpr CastSweep sweep{"cvt.rn.satfinite.e4m3x2.f32 of bfloat16", bfloat16, e4m3, satfinite, 89};
  [[nodiscard]] static FP8LAB_HD CastPair convert(std::uint32_t first, std::uint32_t second) {
    return E4m3FromF32::convert(first << 16, second << 16);
  }
};
struct E5m2FromBf16 {
  static constexpr CastSweep sweep{"cvt.rn.satfinite.e5m2x2.f32 of bfloat16", bfloat16, e5m2, satfinite, 89};
  [[nodiscard]] static FP8LAB_HD CastPair convert(std::uint32_t first, std::uint32_t second) {
    return E5m2FromF32::convert(first << 16, second << 16);
  }
};
struct F16FromE4m3 {
  static constexpr CastSweep sweep{"cvt.rn.f16x2.e4m3x2", e4m3, binary16, cuda_nosat_policy, 89};
  [[nodiscard]] static FP8LAB_HD CastPair convert(std::uint32_t first, std::uint32_t second) {
#ifdef __CUDA_ARCH__
    std::uint32_t both = 0;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"(static_cast<std::uint16_t>(second << 8 | first)));
    return {both & 0xFFFFU, both >> 16};
#else
    return by_model(sweep, first, second);
#endif
  }
};
struct F16FromE5m2 {
  static constexpr CastSweep sweep{"cvt.rn.f16x2.e5m2x2", e5m2, binary16, cuda_nosat_policy, 89};
  [[nodiscard]] static FP8LAB_HD CastPair convert(std::uint32_t first, std::uint32_t second) {
#ifdef __CUDA_ARCH__
    std::uint32_t both = 0;
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(both) : "h"(static_cast<std::uint16_t>(second << 8 | first)));
    return {both & 0xFFFFU, both >> 16};
#else
    return by_model(sweep, first, second);
#endif
  }
};
struct F16FromF32 {
  static constexpr CastSweep sweep{"cvt.rn.f16x2.f32", binary32, binary16, cuda_nosat_policy, 80};
  [[nodiscard]] static FP8LAB_HD CastPair convert(std::uint32_t first, std::uint32_t second) {
#ifdef __CUDA_ARCH__
    std::uint32_t both = 0;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(__uint_as_float(second)), "f"(__uint_as_float(first)));
    return {both & 0xFFFFU, both >> 16};
#else
    return by_model(sweep, first, second);
#endif
  }
};
struct Bf16FromF32 {
  static constexpr CastSweep sweep{"cvt.rn.bf16x2.f32", binary32, bfloat16, cuda_nosat_policy, 80};
  [[nodiscard]] static FP8LAB_HD CastPair convert(std::uint32_t first, std::uint32_t second) {
#ifdef __CUDA_ARCH__
    std::uint32_t both = 0;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(__uint_as_float(second)), "f"(__uint_as_float(first)));
    return {both & 0xFFFFU, both >> 16};
#else
    return by_model(sweep, first, second);
#endif
  }
};
/// The low 13 bits of the register are not defined, and are left out.
struct Tf32FromF32 {
  static constexpr CastSweep sweep{
      "cvt.rna.tf32.f32",
      binary32,
      tf32,
      {.rounding = Rounding::nearest_away, .overflow = Overflow::to_special, .infinity = Overflow::to_special},
      80};
  [[nodiscard]] static FP8LAB_HD CastPair convert(std::uint32_t first, std::uint32_t second) {
#ifdef __CUDA_ARCH__
    CastPair words{};
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(words.first) : "f"(__uint_as_float(first)));
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(words.second) : "f"(__uint_as_float(second)));
    return {words.first >> 13, words.second >> 13};
#else
    return by_model(sweep, first, second);
#endif
  }
};

using All = std::tuple<E4m3FromF32, E5m2FromF32, E4m3FromF16, E5m2FromF16, E4m3FromBf16, E5m2FromBf16, F16FromE4m3,
                       F16FromE5m2, F16FromF32, Bf16FromF32, Tf32FromF32>;

}  // namespace casts

/// Sweeps `count` inputs from `first`, both even: adds the digest terms of the outputs to the digests of their chunks,
/// the chunk of `first` at digests[0]; or writes the outputs to `words`, where that is not null.
template <typename Cast>
struct SweepCasts {
  static constexpr unsigned threads = 256;
  static constexpr std::uint64_t inputs_per_block = std::uint64_t{1} << 14;
  struct Shared {};

  std::uint64_t first, count;
  std::uint64_t inputs_per_chunk;  ///< a multiple of inputs_per_block, or all
  std::uint64_t* digests;
  std::uint32_t* words;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return ceil_div(count, inputs_per_block); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& /*shared*/) const {
    const std::uint64_t begin = block * inputs_per_block;
    const std::uint64_t size = count - begin < inputs_per_block ? count - begin : inputs_per_block;
    auto own = team.template each<std::uint64_t>();
    team.for_each_thread([&](std::size_t thread) {
      for (std::uint64_t pair = thread; pair < size / 2; pair += threads) {
        const std::uint64_t input = first + begin + 2 * pair;
        const CastPair out = Cast::convert(static_cast<std::uint32_t>(input), static_cast<std::uint32_t>(input + 1));
        own[thread] += digest_term(input, out.first) + digest_term(input + 1, out.second);
        if (words == nullptr) continue;
        words[begin + 2 * pair] = out.first;
        words[begin + 2 * pair + 1] = out.second;
      }
    });
    const std::uint64_t sum = team.sum(own);
    team.for_each(1, [&](std::size_t) {
      const std::uint64_t before = first / inputs_per_chunk * inputs_per_chunk;
      if (words == nullptr) atomic_add(digests + (first + begin - before) / inputs_per_chunk, sum);
    });
  }
};

}  // namespace fp8lab::gpu
