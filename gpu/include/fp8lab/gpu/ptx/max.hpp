// SPDX-License-Identifier: Apache-2.0
// The larger of magnitudes, of both halves of a word at once where elements have 16 bits.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "fp8lab/formats/widen.hpp"

namespace fp8lab::gpu::ptx {

namespace model {

/// The larger of each pair of fields of `bits` bits; of fields of the second above `most`, which are NaNs, the first.
template <typename Source>
[[nodiscard]] constexpr std::uint32_t larger_fields(std::uint32_t a, std::uint32_t b, std::uint32_t most) {
  constexpr std::uint32_t field = sizeof(Source) == 4 ? 0xFFFFFFFFU : 0xFFFFU;
  std::uint32_t result = 0;
  for (std::uint32_t shift = 0; shift < 32; shift += sizeof(Source) * 8) {
    const std::uint32_t first = a >> shift & field;
    const std::uint32_t second = b >> shift & field;
    result |= (second <= most && second > first ? second : first) << shift;
  }
  return result;
}
/// The bits of an infinity, and those of all but signs.
template <typename Source>
inline constexpr std::uint32_t infinity_bits = 0x7F800000U;
template <>
inline constexpr std::uint32_t infinity_bits<Half> = 0x7C00U;
template <>
inline constexpr std::uint32_t infinity_bits<BFloat16> = 0x7F80U;
template <typename Source>
inline constexpr std::uint32_t magnitude_bits = sizeof(Source) == 4 ? 0x7FFFFFFFU : 0x7FFF7FFFU;

}  // namespace model

/// The larger of an amax and the magnitude of a number, for each element of a word; a NaN is dropped: max.f32,
/// max.f16x2 and max.bf16x2. Precondition: the amaxes are no NaNs and have no sign.
template <typename Source>
[[nodiscard]] FP8LAB_HD std::uint32_t larger_magnitudes_of_numbers(std::uint32_t amaxes, std::uint32_t word) {
  const std::uint32_t magnitudes = word & model::magnitude_bits<Source>;
#ifdef __CUDA_ARCH__
  std::uint32_t larger;
  if constexpr (std::is_same_v<Source, float>) {
    larger = std::bit_cast<std::uint32_t>(fmaxf(std::bit_cast<float>(amaxes), std::bit_cast<float>(magnitudes)));
  } else if constexpr (std::is_same_v<Source, Half>) {
    asm("max.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(amaxes), "r"(magnitudes));
  } else {
    asm("max.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(amaxes), "r"(magnitudes));
  }
  return larger;
#else
  return model::larger_fields<Source>(amaxes, magnitudes, model::infinity_bits<Source>);
#endif
}

/// The same by bits, so that a NaN is larger than all else.
template <typename Source>
[[nodiscard]] FP8LAB_HD std::uint32_t larger_magnitudes(std::uint32_t amaxes, std::uint32_t word) {
  const std::uint32_t magnitudes = word & model::magnitude_bits<Source>;
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Source) == 2) return __vmaxu2(amaxes, magnitudes);
  return amaxes < magnitudes ? magnitudes : amaxes;
#else
  return model::larger_fields<Source>(amaxes, magnitudes, 0xFFFFFFFFU);
#endif
}

}  // namespace fp8lab::gpu::ptx
