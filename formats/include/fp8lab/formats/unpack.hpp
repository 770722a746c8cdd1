// SPDX-License-Identifier: Apache-2.0
// Takes numbers and codes apart exactly into sign, exponent and significand.
#pragma once

#include <bit>
#include <cstdint>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// A half-precision number (IEEE 754 binary16), as its bits.
struct Half {
  std::uint16_t bits;
};
/// A bfloat16 number, as its bits.
struct BFloat16 {
  std::uint16_t bits;
};

enum class Kind : std::uint8_t { zero, finite, infinite, nan };

/// A number taken apart exactly: (-1)^negative * significand * 2^exponent where kind is finite (significand != 0).
/// Where kind is nan, significand is the fraction field, its most significant bit moved to bit 63.
struct Unpacked {
  bool negative;
  Kind kind;
  int exponent;
  std::uint64_t significand;
};

/// Takes a code of any format apart. Total; bits above the format's width are ignored.
[[nodiscard]] FP8LAB_HD constexpr Unpacked unpack(const Format& format, std::uint64_t code) {
  const bool negative = (code & format.sign_mask()) != 0;
  const std::uint64_t magnitude = code & format.magnitude_mask();
  const std::uint64_t fraction = magnitude & ((std::uint64_t{1} << format.mantissa_bits) - 1);
  const int field = static_cast<int>(magnitude >> format.mantissa_bits);
  const Unpacked nan{negative, Kind::nan, 0, format.mantissa_bits == 0 ? 0 : fraction << (64 - format.mantissa_bits)};

  // 1. Specials.
  switch (format.specials) {
    case Specials::ieee:
      if (magnitude > format.infinity_code()) return nan;
      if (magnitude == format.infinity_code()) return {negative, Kind::infinite, 0, 0};
      break;
    case Specials::nan_at_all_ones:
      if (magnitude == format.magnitude_mask()) return nan;
      break;
    case Specials::nan_at_negative_zero:
      if (negative && magnitude == 0) return nan;
      break;
    case Specials::none: break;
  }
  // 2. Zero and subnormals: no implicit bit.
  const int lowest = format.min_exponent() - format.mantissa_bits;
  if (format.has_subnormals && field == 0) {
    return {negative, fraction == 0 ? Kind::zero : Kind::finite, lowest, fraction};
  }
  // 3. Normals.
  const std::uint64_t implicit_bit = std::uint64_t{1} << format.mantissa_bits;
  return {negative, Kind::finite, field - format.bias - format.mantissa_bits, fraction + implicit_bit};
}

// Device code may use the value of a constant of namespace scope, not its address: hence the local copies.
[[nodiscard]] FP8LAB_HD constexpr Unpacked unpack(float x) {
  constexpr Format own = binary32;
  return unpack(own, std::bit_cast<std::uint32_t>(x));
}
[[nodiscard]] FP8LAB_HD constexpr Unpacked unpack(double x) {
  constexpr Format own = binary64;
  return unpack(own, std::bit_cast<std::uint64_t>(x));
}
[[nodiscard]] FP8LAB_HD constexpr Unpacked unpack(Half x) {
  constexpr Format own = binary16;
  return unpack(own, x.bits);
}
[[nodiscard]] FP8LAB_HD constexpr Unpacked unpack(BFloat16 x) {
  constexpr Format own = bfloat16;
  return unpack(own, x.bits);
}

}  // namespace fp8lab
