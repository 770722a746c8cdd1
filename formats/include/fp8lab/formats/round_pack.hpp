// SPDX-License-Identifier: Apache-2.0
// Rounds an exact number once to a format and packs its code: the one place where fp8lab rounds to a format.
#pragma once

#include <cstdint>

#include "fp8lab/formats/bits.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"

namespace fp8lab {

/// Whether `rounding` increments a magnitude whose kept part is odd or even and whose cut-off part compares with half a
/// unit of the kept part as `against_half` (-1, 0, 1) says; `inexact` tells whether anything was cut off. Stochastic
/// rounding without random bits rounds toward zero.
[[nodiscard]] FP8LAB_HD constexpr bool rounds_up(Rounding rounding, bool negative, bool odd, int against_half,
                                                 bool inexact) {
  switch (rounding) {
    case Rounding::nearest_even: return against_half > 0 || (against_half == 0 && odd);
    case Rounding::nearest_away: return against_half >= 0;
    case Rounding::nearest_toward_zero: return against_half > 0;
    case Rounding::toward_zero: return false;
    case Rounding::upward: return inexact && !negative;
    case Rounding::downward: return inexact && negative;
    case Rounding::to_odd: return inexact && !odd;
    case Rounding::stochastic: return false;
  }
  return false;
}

/// significand * 2^-shift in two parts: the whole number, and how the rest compares with a half.
struct Cut {
  std::uint64_t kept;
  int against_half;  ///< -1, 0, 1
  bool inexact;
};

/// Total. A negative shift moves left; precondition: nothing is lost there.
[[nodiscard]] FP8LAB_HD constexpr Cut cut_at(std::uint64_t significand, int shift) {
  if (shift <= 0) return {significand << -shift, -1, false};
  if (shift > 64) return {0, -1, true};
  const std::uint64_t kept = shift == 64 ? 0 : significand >> shift;
  const std::uint64_t rest = shift == 64 ? significand : significand & ((std::uint64_t{1} << shift) - 1);
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  if (rest == half) return {kept, 0, true};
  return {kept, rest < half ? -1 : 1, rest != 0};
}

/// Whether stochastic rounding takes significand * 2^-shift away from zero: the topmost random.count bits of the part
/// cut off, plus the random bits, carry. Total.
[[nodiscard]] FP8LAB_HD constexpr bool carries(std::uint64_t significand, int shift, RandomBits random) {
  if (shift <= 0) return false;
  const std::uint64_t rest = shift >= 64 ? significand : significand & ((std::uint64_t{1} << shift) - 1);
  const int beyond = shift - random.count;  // bits of the rest that lie below the random bits
  if (beyond >= 64) return false;
  const std::uint64_t top = beyond >= 0 ? rest >> beyond : rest << -beyond;
  return top + random.value >= std::uint64_t{1} << random.count;
}

/// Code of a value beyond every finite one, signed where the format is.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t overflow_code(const Format& format, Overflow overflow, bool negative) {
  const std::uint64_t sign = negative ? format.sign_mask() : 0;
  const bool special = overflow == Overflow::to_special || (overflow != Overflow::saturate && format.has_infinity()) ||
                       (overflow == Overflow::to_infinity_or_sole_nan && format.has_sole_nan());
  if (special) {
    switch (format.specials) {
      case Specials::ieee: return sign | format.infinity_code();
      case Specials::nan_at_all_ones: return sign | format.magnitude_mask();
      case Specials::nan_at_negative_zero: return format.sign_mask();
      case Specials::none: break;
    }
  }
  return sign | format.max_code();
}

/// Rounds (-1)^negative * significand * 2^exponent once to `format` and packs the code. Total.
///
/// This is the only place where fp8lab rounds to a format: every source is unpacked exactly and comes here.
/// Precondition for a numeric result: significand != 0. A sum wider than 64 bits may come with its lowest bit as
/// sticky bit, as long as the significand keeps two more bits than the format has. `random` counts where the rounding
/// is stochastic.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t round_pack(const Format& format, const CastPolicy& policy,
                                                           bool negative, int exponent, std::uint64_t significand,
                                                           RandomBits random = {}) {
  negative = negative && format.is_signed;
  // 1. Exponent of the leading bit, and the lowest binade that has a spacing of its own.
  const int leading = exponent + 63 - leading_zeros(significand);
  const int lowest = format.min_exponent();
  // Without subnormals everything below the smallest value becomes the smallest value, in every mode.
  if (!format.has_subnormals && leading < lowest) return negative ? format.sign_mask() : 0;
  // 2. Cut the significand at the spacing of its binade, remembering how the rest compares with half a unit.
  const int binade = leading < lowest ? lowest : leading;
  const int shift = binade - format.mantissa_bits - exponent;
  const Cut cut = cut_at(significand, shift);
  // 3. Add, not OR, the exponent: the kept part still holds the implicit bit, so a carry out of the fraction moves the
  //    value to the next binade by itself, and a subnormal that rounds up to the smallest normal becomes one. Whether
  //    it is odd is told by the kept part, which for one bit, always odd, makes ties go up.
  const auto field = static_cast<std::uint64_t>(binade - lowest);
  const std::uint64_t implicit_bit = format.has_subnormals ? 0 : std::uint64_t{1} << format.mantissa_bits;
  std::uint64_t magnitude = (field << format.mantissa_bits) + cut.kept - implicit_bit;
  const bool up = policy.rounding == Rounding::stochastic
                      ? carries(significand, shift, random)
                      : rounds_up(policy.rounding, negative, (cut.kept & 1) != 0, cut.against_half, cut.inexact);
  if (up) ++magnitude;
  // 4. Overflow: modes that round towards zero on this side stop at the largest finite value.
  const std::uint64_t sign = negative ? format.sign_mask() : 0;
  if (magnitude <= format.max_code()) {
    const bool is_nan = format.specials == Specials::nan_at_negative_zero && magnitude == 0;
    const bool drops = magnitude == 0 && format.has_subnormals && policy.zero_sign == ZeroSign::dropped;
    return is_nan || drops ? magnitude : sign | magnitude;
  }
  const bool stops = policy.rounding == Rounding::toward_zero || policy.rounding == Rounding::to_odd ||
                     (policy.rounding == Rounding::upward && negative) ||
                     (policy.rounding == Rounding::downward && !negative);
  return overflow_code(format, stops ? Overflow::saturate : policy.overflow, negative);
}

}  // namespace fp8lab
