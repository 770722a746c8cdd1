// SPDX-License-Identifier: Apache-2.0
// Converts between float32, float16, bfloat16 and formats of 8, 6 and 4 bits: the PTX instruction where the chip has
// it, elsewhere the model of it, which is encode() and decode().
#pragma once

#include <bit>
#include <cstdint>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/stochastic.hpp"
#include "fp8lab/formats/widen.hpp"

// The constants below say which converts the target chip has (PTX ISA 8.7, cvt, "Target ISA Notes").
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define FP8LAB_CVT_FP8
#endif
#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM120_ALL)  // the one way to ask CUDA 12.8
#define FP8LAB_CVT_FP4
#elif defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
#if __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1000
#define FP8LAB_CVT_FP4
#endif
#endif
#ifdef __CUDA_ARCH_FEAT_SM100_ALL
#define FP8LAB_CVT_STOCHASTIC
#elif defined(__CUDA_ARCH_SPECIFIC__)
#if __CUDA_ARCH_SPECIFIC__ == 1000 || __CUDA_ARCH_SPECIFIC__ == 1030
#define FP8LAB_CVT_STOCHASTIC
#endif
#endif

namespace fp8lab::gpu::ptx {

// Whether the instructions below are what this code runs: not their software forms. True on the host, whose models they
// have.
#if !defined(__CUDA_ARCH__) || defined(FP8LAB_CVT_FP8)
inline constexpr bool has_cvt_fp8 = true;
#else
inline constexpr bool has_cvt_fp8 = false;
#endif
#if !defined(__CUDA_ARCH__) || defined(FP8LAB_CVT_FP4)
inline constexpr bool has_cvt_fp4 = true;
#else
inline constexpr bool has_cvt_fp4 = false;
#endif
#if !defined(__CUDA_ARCH__) || defined(FP8LAB_CVT_STOCHASTIC)
inline constexpr bool has_cvt_stochastic = true;
#else
inline constexpr bool has_cvt_stochastic = false;
#endif

// All of them round to nearest even and saturate, infinity too; NaN becomes 7F, or the largest value of a format that
// has no NaN. The first of two values goes to the low bits, as PTX has its second operand.

/// The four elements that one instruction converts.
struct Four {
  float values[4];  // NOLINT(modernize-avoid-c-arrays): std::array's functions are not for devices
};

namespace model {

/// Codes of two values, `width` bits apart.
template <typename Source>
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t pair(const Format& format, int width, Source first, Source second) {
  constexpr CastPolicy satfinite{};
  return encode(format, satfinite, first) | encode(format, satfinite, second) << width;
}
/// Two halves of two codes of 8 bits. A NaN becomes 7FFF.
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t halves(const Format& format, std::uint32_t first,
                                                       std::uint32_t second) {
  constexpr Format half = binary16;
  constexpr CastPolicy policy = cuda_nosat_policy;
  return encode(half, policy, decode(format, first)) | encode(half, policy, decode(format, second)) << 16;
}
/// The code of an element of cvt.rs.
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t stochastic(const Format& format, float x, std::uint32_t random,
                                                           std::size_t element) {
  constexpr CastPolicy policy{.rounding = Rounding::stochastic};
  return encode(format, policy, x, ptx_random_bits(format, random, element));
}
/// Four of them, format.bits() apart.
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t stochastic_four(const Format& format, const Four& x,
                                                                std::uint32_t random) {
  const int width = format.bits() == 4 ? 4 : 8;
  std::uint32_t codes = 0;
  for (unsigned i = 0; i < 4; ++i) codes |= stochastic(format, x.values[i], random, i) << (width * static_cast<int>(i));
  return codes;
}

}  // namespace model

/// cvt.rn.satfinite.e4m3x2.f32
[[nodiscard]] FP8LAB_HD inline std::uint32_t e4m3x2(float first, float second) {
#ifdef FP8LAB_CVT_FP8
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
  return codes;
#else
  constexpr Format format = e4m3;
  return model::pair(format, 8, first, second);
#endif
}
/// cvt.rn.satfinite.e5m2x2.f32
[[nodiscard]] FP8LAB_HD inline std::uint32_t e5m2x2(float first, float second) {
#ifdef FP8LAB_CVT_FP8
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
  return codes;
#else
  constexpr Format format = e5m2;
  return model::pair(format, 8, first, second);
#endif
}
/// cvt.rn.satfinite.e4m3x2.f16x2
[[nodiscard]] FP8LAB_HD inline std::uint32_t e4m3x2(Half first, Half second) {
#ifdef FP8LAB_CVT_FP8
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(codes) : "r"(std::uint32_t{first.bits} | second.bits << 16));
  return codes;
#else
  constexpr Format format = e4m3;
  return model::pair(format, 8, first, second);
#endif
}
/// cvt.rn.satfinite.e5m2x2.f16x2
[[nodiscard]] FP8LAB_HD inline std::uint32_t e5m2x2(Half first, Half second) {
#ifdef FP8LAB_CVT_FP8
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e5m2x2.f16x2 %0, %1;" : "=h"(codes) : "r"(std::uint32_t{first.bits} | second.bits << 16));
  return codes;
#else
  constexpr Format format = e5m2;
  return model::pair(format, 8, first, second);
#endif
}
/// By way of float32, which has every bfloat16.
[[nodiscard]] FP8LAB_HD inline std::uint32_t e4m3x2(BFloat16 first, BFloat16 second) {
  return e4m3x2(widened(first), widened(second));
}
[[nodiscard]] FP8LAB_HD inline std::uint32_t e5m2x2(BFloat16 first, BFloat16 second) {
  return e5m2x2(widened(first), widened(second));
}

/// The magnitude of an E2M1 code by float32 and integer additions, for chips without the convert, 0 <= x <= 6.
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t e2m1_magnitude(float x) {
  // 1. The spacing of E2M1 is 1/2 below 2, 1 below 4, and then 2, as that of float32 is from 2^22, 2^23 and 2^24 on:
  //    the addition rounds, and the last bits count spacings.
  const auto halves = std::bit_cast<std::uint32_t>(x + 0x1p22F);
  const auto ones = std::bit_cast<std::uint32_t>(x + 0x1p23F);
  const auto twos = std::bit_cast<std::uint32_t>(x + 0x1p24F);
  // 2. Codes are x / spacing + {0, 2, 4}. The line of the range that x is in lies below the others. In the bits of
  //    these binades, which are 2 * 2^22 apart:
  constexpr std::uint32_t binade = 1U << 23;
  const std::uint32_t of_ones = ones - (binade - 2);
  const std::uint32_t of_twos = twos - (2 * binade - 4);
  const std::uint32_t lower = halves < of_ones ? halves : of_ones;
  return (lower < of_twos ? lower : of_twos) & 7U;
}
/// An E2M1 code by e2m1_magnitude(); NaN becomes the largest value.
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t e2m1_by_additions(float x) {
  const float below = x < 6.0F ? x : 6.0F;  // of NaN, too
  const float limited = below > -6.0F ? below : -6.0F;
  return (std::bit_cast<std::uint32_t>(limited) >> 28 & 8U) | e2m1_magnitude(__builtin_fabsf(limited));
}

/// The same, rounded stochastically by 8 random bits, which are added to the topmost 8 of the bits that are cut off.
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t e2m1_stochastic_by_additions(float x, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return 7;
  const auto magnitude = std::bit_cast<float>(bits & 0x7FFFFFFFU);
  const std::uint32_t sign = bits >> 28 & 8U;
  if (magnitude < 1.0F) return sign | (static_cast<std::uint32_t>(magnitude * 512.0F) + random) >> 8;
  const auto limited = std::bit_cast<std::uint32_t>(magnitude < 6.0F ? magnitude : 6.0F);
  return sign | (((limited + (random << 14)) >> 22) - 252U);
}

/// cvt.rn.satfinite.e2m1x2.f32: two codes of 4 bits.
[[nodiscard]] FP8LAB_HD inline std::uint32_t e2m1x2(float first, float second) {
#ifdef FP8LAB_CVT_FP4
  std::uint32_t codes;
  asm("{ .reg .b8 pair; cvt.rn.satfinite.e2m1x2.f32 pair, %1, %2; cvt.u32.u8 %0, pair; }"
      : "=r"(codes)
      : "f"(second), "f"(first));
  return codes;
#elif defined(__CUDA_ARCH__)
  return e2m1_by_additions(first) | e2m1_by_additions(second) << 4;
#else
  return model::pair(e2m1, 4, first, second);
#endif
}
/// cvt.rn.satfinite.e2m3x2.f32: two codes of 6 bits, a byte each.
[[nodiscard]] FP8LAB_HD inline std::uint32_t e2m3x2(float first, float second) {
#ifdef FP8LAB_CVT_FP4
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e2m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
  return codes;
#else
  constexpr Format format = e2m3;
  return model::pair(format, 8, first, second);
#endif
}
/// cvt.rn.satfinite.e3m2x2.f32: two codes of 6 bits, a byte each.
[[nodiscard]] FP8LAB_HD inline std::uint32_t e3m2x2(float first, float second) {
#ifdef FP8LAB_CVT_FP4
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e3m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
  return codes;
#else
  constexpr Format format = e3m2;
  return model::pair(format, 8, first, second);
#endif
}
/// cvt.rp.satfinite.ue8m0x2.f32: the powers of two that are not below. Negative values count as their magnitudes in the
/// model; no kernel converts them.
[[nodiscard]] FP8LAB_HD inline std::uint32_t ue8m0x2(float first, float second) {
#ifdef FP8LAB_CVT_FP4
  std::uint16_t codes;
  asm("cvt.rp.satfinite.ue8m0x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
  return codes;
#else
  constexpr Format format = e8m0;
  constexpr CastPolicy upward{.rounding = Rounding::upward};
  return encode(format, upward, first) | encode(format, upward, second) << 8;
#endif
}

/// cvt.rs.satfinite.e4m3x4.f32: four values rounded stochastically by one random word, shared out as by ptx_random().
[[nodiscard]] FP8LAB_HD inline std::uint32_t e4m3x4_stochastic(const Four& x, std::uint32_t random) {
#ifdef FP8LAB_CVT_STOCHASTIC
  std::uint32_t codes;
  asm("cvt.rs.satfinite.e4m3x4.f32 %0, {%1, %2, %3, %4}, %5;"
      : "=r"(codes)
      : "f"(x.values[3]), "f"(x.values[2]), "f"(x.values[1]), "f"(x.values[0]), "r"(random));
  return codes;
#else
  constexpr Format format = e4m3;
  return model::stochastic_four(format, x, random);
#endif
}
/// cvt.rs.satfinite.e5m2x4.f32
[[nodiscard]] FP8LAB_HD inline std::uint32_t e5m2x4_stochastic(const Four& x, std::uint32_t random) {
#ifdef FP8LAB_CVT_STOCHASTIC
  std::uint32_t codes;
  asm("cvt.rs.satfinite.e5m2x4.f32 %0, {%1, %2, %3, %4}, %5;"
      : "=r"(codes)
      : "f"(x.values[3]), "f"(x.values[2]), "f"(x.values[1]), "f"(x.values[0]), "r"(random));
  return codes;
#else
  constexpr Format format = e5m2;
  return model::stochastic_four(format, x, random);
#endif
}
/// cvt.rs.satfinite.e2m1x4.f32: four codes of 4 bits.
[[nodiscard]] FP8LAB_HD inline std::uint32_t e2m1x4_stochastic(const Four& x, std::uint32_t random) {
#ifdef FP8LAB_CVT_STOCHASTIC
  std::uint16_t codes;
  asm("cvt.rs.satfinite.e2m1x4.f32 %0, {%1, %2, %3, %4}, %5;"
      : "=h"(codes)
      : "f"(x.values[3]), "f"(x.values[2]), "f"(x.values[1]), "f"(x.values[0]), "r"(random));
  return codes;
#elif defined(__CUDA_ARCH__)
  return e2m1_stochastic_by_additions(x.values[0], random & 0xFFU) |
         e2m1_stochastic_by_additions(x.values[1], random >> 16 & 0xFFU) << 4 |
         e2m1_stochastic_by_additions(x.values[2], random >> 8 & 0xFFU) << 8 |
         e2m1_stochastic_by_additions(x.values[3], random >> 24) << 12;
#else
  return model::stochastic_four(e2m1, x, random);
#endif
}

/// cvt.f32.f16; every NaN becomes 7FFFFFFF.
[[nodiscard]] FP8LAB_HD inline float float_of(Half x) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
  return value;
#else
  const float value = widened(x);
  return value == value ? value : std::bit_cast<float>(0x7FFFFFFFU);
#endif
}
[[nodiscard]] FP8LAB_HD inline float float_of(BFloat16 x) { return widened(x); }
[[nodiscard]] FP8LAB_HD inline float float_of(float x) { return x; }

/// cvt.rn.f16x2.e4m3x2: two halves in a word, each exact; NaN becomes 7FFF.
[[nodiscard]] FP8LAB_HD inline std::uint32_t halves_of_e4m3x2(std::uint32_t codes) {
#ifdef FP8LAB_CVT_FP8
  std::uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(codes)));
  return halves;
#else
  constexpr Format format = e4m3;
  return model::halves(format, codes & 0xFFU, codes >> 8 & 0xFFU);
#endif
}
/// cvt.rn.f16x2.e5m2x2
[[nodiscard]] FP8LAB_HD inline std::uint32_t halves_of_e5m2x2(std::uint32_t codes) {
#ifdef FP8LAB_CVT_FP8
  std::uint32_t halves;
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(codes)));
  return halves;
#else
  constexpr Format format = e5m2;
  return model::halves(format, codes & 0xFFU, codes >> 8 & 0xFFU);
#endif
}
/// cvt.rn.f16x2.e2m1x2
[[nodiscard]] FP8LAB_HD inline std::uint32_t halves_of_e2m1x2(std::uint32_t codes) {
#ifdef FP8LAB_CVT_FP4
  std::uint32_t halves;
  asm("{ .reg .b8 pair; cvt.u8.u32 pair, %1; cvt.rn.f16x2.e2m1x2 %0, pair; }" : "=r"(halves) : "r"(codes));
  return halves;
#else
  constexpr Format format = e2m1;
  return model::halves(format, codes & 0xFU, codes >> 4 & 0xFU);
#endif
}

}  // namespace fp8lab::gpu::ptx
