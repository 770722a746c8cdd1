// SPDX-License-Identifier: Apache-2.0
// Turns numbers into codes of a format, one by one and by the array.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <variant>

#include "fp8lab/formats/round_pack.hpp"
#include "fp8lab/formats/unpack.hpp"

namespace fp8lab {

/// Code of zero in a format that has none.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t missing_zero_code(const Format& format, ZeroCode rule) {
  switch (rule) {
    case ZeroCode::smallest: return 0;
    case ZeroCode::second: return 1;
    case ZeroCode::nan: return format.has_nan() ? format.magnitude_mask() : 0;
  }
  return 0;
}

/// Code of zero.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t zero_code(const Format& format, const CastPolicy& policy,
                                                          bool negative) {
  if (!format.has_subnormals) return missing_zero_code(format, policy.zero);
  const bool keeps = format.specials != Specials::nan_at_negative_zero && policy.zero_sign == ZeroSign::kept;
  return negative && keeps ? format.sign_mask() : 0;
}

/// Code of a NaN whose sign and fraction are those of `x`, by `rule`; where the format has none, by the policy.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t nan_code(const Format& format, const CastPolicy& policy, NanCode rule,
                                                         const Unpacked& x) {
  if (!format.has_nan()) {
    switch (policy.missing_nan) {
      case MissingNan::largest: break;
      case MissingNan::opposite_zero: return zero_code(format, policy, !x.negative);
      case MissingNan::positive_zero: return zero_code(format, policy, false);
      case MissingNan::negative_zero: return zero_code(format, policy, true);
    }
  }
  if (rule == NanCode::largest) return format.max_code();
  if (rule == NanCode::negative_largest) return format.sign_mask() | format.max_code();
  switch (format.specials) {
    case Specials::nan_at_negative_zero: return format.sign_mask();
    case Specials::none: return format.max_code();
    case Specials::nan_at_all_ones:
    case Specials::ieee: break;
  }
  if (rule == NanCode::positive_all_ones) return format.magnitude_mask();
  const std::uint64_t sign = x.negative ? format.sign_mask() : 0;
  if (format.specials == Specials::nan_at_all_ones) return sign | format.magnitude_mask();
  const std::uint64_t quiet = std::uint64_t{1} << (format.mantissa_bits - 1);
  switch (rule) {
    case NanCode::sign_and_payload:
      return sign | format.infinity_code() | quiet | (x.significand >> (64 - format.mantissa_bits));
    case NanCode::sign_quiet: return sign | format.infinity_code() | quiet;
    case NanCode::sign_all_ones:
    case NanCode::positive_all_ones:
    case NanCode::largest:
    case NanCode::negative_largest: break;
  }
  return sign | format.magnitude_mask();
}

/// Code of an unpacked number. `nan` says which NaN code a NaN gives, `random` decides stochastic rounding.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t encode(const Format& format, const CastPolicy& policy,
                                                       const Unpacked& x, NanCode nan, RandomBits random = {}) {
  if (x.kind == Kind::nan) return nan_code(format, policy, nan, x);
  if (x.kind == Kind::zero) return zero_code(format, policy, x.negative);
  if (x.negative && !format.is_signed) {
    if (policy.negative == NegativeInput::nan) return format.has_nan() ? format.magnitude_mask() : 0;
    if (policy.negative == NegativeInput::smallest && x.kind != Kind::infinite) return 0;
  }
  if (x.kind == Kind::infinite) return overflow_code(format, policy.infinity, x.negative && format.is_signed);
  Format shape = format;
  shape.has_subnormals = format.has_subnormals || policy.smallest == SmallestCode::zero;
  return round_pack(shape, policy, x.negative, x.exponent, x.significand, random);
}

/// `x` rounded to float32: to nearest even, overflow to infinity; NaN keeps its sign and its topmost fraction bits.
[[nodiscard]] FP8LAB_HD constexpr Unpacked round_to_float32(const Unpacked& x) {
  constexpr Format own = binary32;
  constexpr CastPolicy ieee = ieee_policy;
  return unpack(own, encode(own, ieee, x, NanCode::sign_and_payload));
}

/// Code of `x` in `format`, rounded once from x's own precision; doubles by way of float32 where the policy says so.
/// Total: every input has a code.
///
/// @tparam Source float, double, Half or BFloat16
/// @param random counts where the policy's rounding is stochastic
/// @return the code in the low format.bits() bits
template <typename Source>
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t encode(const Format& format, const CastPolicy& policy, Source x,
                                                       RandomBits random = {}) {
  if constexpr (std::is_same_v<Source, double>) {
    const Unpacked own = policy.float64_via_float32 ? round_to_float32(unpack(x)) : unpack(x);
    return static_cast<std::uint32_t>(encode(format, policy, own, policy.nan_of_double, random));
  } else {
    return static_cast<std::uint32_t>(encode(format, policy, unpack(x), policy.nan, random));
  }
}

/// Floats of a type that is cast, and codes: one byte each of formats of up to 8 bits, two of those of 9 to 16.
using FloatSpan =
    std::variant<std::span<const float>, std::span<const double>, std::span<const Half>, std::span<const BFloat16>>;
using CodeSpan = std::variant<std::span<std::uint8_t>, std::span<std::uint16_t>>;

/// Encodes every element of `in`, on `threads` threads; the result depends neither on them nor on the caller's rounding
/// mode and flush flags. Any alignment will do; `out` lies apart from `in`, except that codes of 16 bits may take the
/// very place of halves and bfloat16s (overlap.hpp).
///
/// Throws std::invalid_argument where the sizes differ, the arrays overlap otherwise, the format is not one that
/// check_format() takes or its codes have another size than those of `out`, threads < 1, or the rounding is stochastic
/// (stochastic.hpp has that, with the random bits it needs).
void encode(const Format& format, const CastPolicy& policy, FloatSpan in, CodeSpan out, int threads = 1);

}  // namespace fp8lab
