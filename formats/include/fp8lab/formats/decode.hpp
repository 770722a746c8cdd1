// SPDX-License-Identifier: Apache-2.0
// Turns codes of a format into floats, one by one and by the array.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "fp8lab/formats/encode.hpp"

namespace fp8lab {

/// The value of a code as a float: exact for every format of at most 8 exponent and 23 fraction bits.
///
/// Infinities keep their sign; every NaN gives the quiet NaN with empty payload and the code's sign. Total; bits above
/// the format's width are ignored.
[[nodiscard]] FP8LAB_HD constexpr float decode(const Format& format, std::uint32_t code) {
  const Unpacked x = unpack(format, code);
  const std::uint32_t sign = x.negative ? 0x80000000U : 0U;
  if (x.kind == Kind::nan) return std::bit_cast<float>(sign | 0x7FC00000U);
  constexpr Format own = binary32;
  constexpr CastPolicy ieee = ieee_policy;
  return std::bit_cast<float>(static_cast<std::uint32_t>(encode(own, ieee, x, NanCode::sign_and_payload)));
}

/// The largest finite value of a format, for which decode() is exact.
[[nodiscard]] FP8LAB_HD constexpr float max_value(const Format& format) {
  return decode(format, static_cast<std::uint32_t>(format.max_code()));
}

/// Decodes every byte of `codes` to a float of `out`, on `threads` threads.
///
/// Throws std::invalid_argument where the sizes differ, the arrays overlap, a code has bits beyond the format's width
/// (`out` is as it was then), the format is not one that check_format() takes or wider than 8 bits, or threads < 1.
void decode(const Format& format, std::span<const std::uint8_t> codes, std::span<float> out, int threads = 1);
/// The same for formats of 9 to 16 bits, two bytes a code.
void decode(const Format& format, std::span<const std::uint16_t> codes, std::span<float> out, int threads = 1);

}  // namespace fp8lab
