// SPDX-License-Identifier: Apache-2.0
// Decoding, and decode(encode(x)), as many elements at a time as a vector has. The scalar functions define the result.
#include "simd/decode.hpp"

#include <bit>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "simd/encode.hpp"
#include "simd/memory.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/decode.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "simd/load-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Values of a vector of codes in 32-bit lanes. Without kInfinity, the format has none.
template <bool kInfinity = true>
HWY_INLINE hn::Vec<Floats> Decode(const VectorDecode& cast, hn::Vec<Words> code) {
  const Floats df;
  const Integers di;
  const Words du;
  const auto mask = hn::Set(du, cast.magnitude_mask);
  const auto magnitude = hn::BitCast(di, hn::And(code, mask));
  const auto wide = hn::ShiftLeftSame(hn::BitCast(du, magnitude), 23 - cast.mantissa_bits);
  const auto normal = hn::BitCast(df, hn::Add(wide, hn::Set(du, cast.exponent_offset)));
  const auto subnormal = hn::Mul(hn::ConvertTo(df, magnitude), hn::Set(df, cast.smallest_subnormal));
  const auto is_normal = hn::Gt(magnitude, hn::Set(di, (1 << cast.mantissa_bits) - 1));
  auto value = hn::IfThenElse(hn::RebindMask(df, is_normal), normal, subnormal);
  const auto is_special = hn::RebindMask(df, hn::Gt(magnitude, hn::Set(di, cast.max_code)));
  value = hn::IfThenElse(is_special, hn::BitCast(df, hn::Set(du, 0x7FC00000U)), value);
  if constexpr (kInfinity) {
    const auto is_infinite = hn::RebindMask(df, hn::Eq(magnitude, hn::Set(di, cast.infinity_code)));
    value = hn::IfThenElse(is_infinite, hn::BitCast(df, hn::Set(du, 0x7F800000U)), value);
  }
  const auto sign = hn::ShiftLeftSame(hn::And(hn::Set(du, cast.sign_mask), code), cast.sign_shift);
  return hn::BitCast(df, hn::Or(hn::BitCast(du, value), sign));
}

HWY_INLINE void DecodeCached(const VectorDecode& cast, const std::uint8_t* in, float* out, std::size_t count) {
  const Floats df;
  const Words du;
  const Bytes bytes;
  const std::size_t lanes = hn::Lanes(df);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(Decode(cast, hn::PromoteTo(du, hn::LoadU(bytes, in + i))), df, out + i);
  }
  if (i == count) return;
  std::uint8_t last[HWY_MAX_BYTES / sizeof(float)] = {};
  float values[HWY_MAX_BYTES / sizeof(float)];
  for (std::size_t k = 0; i + k < count; ++k) last[k] = in[i + k];
  hn::StoreU(Decode(cast, hn::PromoteTo(du, hn::LoadU(bytes, last))), df, values);
  for (std::size_t k = 0; i + k < count; ++k) out[i + k] = values[k];
}

HWY_ATTR void DecodeAll(const VectorDecode& cast, const std::uint8_t* in, float* out, std::size_t count) {
  const Floats df;
  const std::size_t lanes = hn::Lanes(df);
  if (count * sizeof(float) < streaming_bytes || !is_aligned(out, sizeof(float)))
    return DecodeCached(cast, in, out, count);
  std::size_t i = elements_to_align(out);
  DecodeCached(cast, in, out, i);
  for (; i + lanes <= count; i += lanes) {
    hn::Stream(Decode(cast, hn::PromoteTo(Words(), hn::LoadU(Bytes(), in + i))), df, out + i);
  }
  hwy::FlushStream();
  DecodeCached(cast, in + i, out + i, count - i);
}

/// Values times a factor that makes no NaN of a number: NaN stays as it is.
template <bool kInfinity>
HWY_INLINE void DecodeScaled(const VectorDecode& cast, const std::uint8_t* in, std::size_t count, float factor,
                             float* out) {
  const Floats df;
  const std::size_t lanes = hn::Lanes(df);
  const auto f = hn::Set(df, factor);
  for (std::size_t i = 0; i < count; i += lanes) {
    const auto code = hn::PromoteTo(Words(), hn::LoadU(Bytes(), in + i));
    hn::StoreU(hn::Mul(Decode<kInfinity>(cast, code), f), df, out + i);
  }
}

/// Tiles of whole vectors; returns how many elements it did, up to the first tile whose factor may make NaN.
HWY_ATTR std::size_t DecodeTiles(const VectorDecode& cast, const std::uint8_t* in, std::size_t count, std::size_t tile,
                                 const float* factors, float* out) {
  const std::size_t lanes = hn::Lanes(Floats());
  const bool has_infinity = cast.infinity_code >= 0;
  std::size_t i = 0;
  for (; i < count; i += tile, ++factors) {
    const std::size_t size = tile < count - i ? tile : count - i;
    const float magnitude = *factors < 0 ? -*factors : *factors;
    const bool finite = magnitude <= 3.402823466e38F;  // the largest float; NaN is not
    if (size % lanes != 0 || !finite || (has_infinity && magnitude == 0)) break;
    if (has_infinity) {
      DecodeScaled<true>(cast, in + i, size, *factors, out + i);
    } else {
      DecodeScaled<false>(cast, in + i, size, *factors, out + i);
    }
  }
  return i < count ? i : count;
}

/// decode(encode(x)): |x| rounded to a multiple of its binade's spacing, by adding and taking off again the float whose
/// ulp is that spacing. Anything beyond twice the largest value overflows as that does.
HWY_INLINE hn::Vec<Floats> Round(const VectorRound& cast, hn::Vec<Floats> x) {
  const Floats df;
  const Words du;
  const Integers di;
  const auto word = hn::BitCast(di, x);
  const auto magnitude = hn::And(word, hn::Set(di, 0x7FFFFFFF));
  const auto limited = hn::Min(magnitude, hn::Set(di, cast.twice_largest));
  const auto binade = hn::Max(hn::And(limited, hn::Set(di, 0x7F800000)), hn::Set(di, cast.smallest_normal));
  const auto magic = hn::BitCast(df, hn::Add(binade, hn::Set(di, cast.magic_offset)));
  const auto rounded = hn::BitCast(di, hn::Sub(hn::Add(hn::BitCast(df, limited), magic), magic));
  const auto overflows = hn::Gt(rounded, hn::Set(di, cast.largest));
  const auto value = hn::IfThenElse(overflows, hn::Set(di, cast.overflow_value), rounded);
  const auto with_sign = hn::Or(hn::BitCast(du, value), hn::AndNot(hn::Set(du, 0x7FFFFFFFU), hn::BitCast(du, word)));
  const auto is_nan = hn::Gt(magnitude, hn::Set(di, 0x7F800000));
  return hn::BitCast(df, hn::IfThenElse(is_nan, hn::Set(di, cast.nan_value), hn::BitCast(di, with_sign)));
}

HWY_ATTR void RoundAll(const VectorRound& cast, float scale, const float* in, float* out, std::size_t count) {
  const Floats df;
  const std::size_t lanes = hn::Lanes(df);
  const auto factor = hn::Set(df, scale);
  const auto inverse = hn::Set(df, 1 / scale);
  const auto one = [&](const float* from)
                       HWY_ATTR { return hn::Mul(Round(cast, hn::Mul(hn::LoadU(df, from), factor)), inverse); };
  const auto some = [&](std::size_t first, std::size_t size) HWY_ATTR {
    float last[HWY_MAX_BYTES / sizeof(float)] = {};
    for (std::size_t k = 0; k < size; ++k) last[k] = in[first + k];
    hn::StoreU(one(last), df, last);
    for (std::size_t k = 0; k < size; ++k) out[first + k] = last[k];
  };
  // In place, the lines are in the cache already.
  const bool stream = count * sizeof(float) >= streaming_bytes && in != out && is_aligned(out, sizeof(float));
  std::size_t i = 0;
  if (stream) {
    for (const std::size_t first = elements_to_align(out); i < first; ++i) some(i, 1);
    for (; i + lanes <= count; i += lanes) hn::Stream(one(in + i), df, out + i);
    hwy::FlushStream();
  }
  for (; i + lanes <= count; i += lanes) hn::StoreU(one(in + i), df, out + i);
  some(i, count - i);
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(DecodeAll);
HWY_EXPORT(DecodeTiles);
HWY_EXPORT(RoundAll);

std::optional<VectorDecode> vector_decode(const Format& format) {
  const int unit = format.min_exponent() - format.mantissa_bits;
  const bool takes = format.has_subnormals && format.bits() <= 8 && format.specials != Specials::nan_at_negative_zero &&
                     unit >= -126 && format.bias >= -100;
  if (!takes) return std::nullopt;
  return VectorDecode{.mantissa_bits = format.mantissa_bits,
                      .magnitude_mask = static_cast<std::uint32_t>(format.magnitude_mask()),
                      .sign_mask = static_cast<std::uint32_t>(format.sign_mask()),
                      .max_code = static_cast<std::int32_t>(format.max_code()),
                      .infinity_code = format.has_infinity() ? static_cast<std::int32_t>(format.infinity_code()) : -1,
                      .exponent_offset = static_cast<std::uint32_t>(127 - format.bias) << 23,
                      .smallest_subnormal = std::bit_cast<float>(static_cast<std::uint32_t>(unit + 127) << 23),
                      .sign_shift = 32 - format.bits()};
}

void decode_vector(const VectorDecode& cast, const std::uint8_t* in, float* out, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(DecodeAll)(cast, in, out, count);
}

std::size_t decode_tiles_vector(const VectorDecode& cast, const std::uint8_t* in, std::size_t count, std::size_t tile,
                                const float* factors, float* out) {
  return HWY_DYNAMIC_DISPATCH(DecodeTiles)(cast, in, count, tile, factors, out);
}

std::optional<VectorRound> vector_round(const Format& format, const CastPolicy& policy) {
  const int unit = format.min_exponent() - format.mantissa_bits;
  const auto word_of = [&](std::uint64_t code) {
    return std::bit_cast<std::int32_t>(decode(format, static_cast<std::uint32_t>(code)));
  };
  const auto largest = word_of(format.max_code());
  const bool takes = format.is_signed && format.has_subnormals && format.mantissa_bits >= 1 && format.bits() <= 8 &&
                     format.specials != Specials::nan_at_negative_zero && policy.rounding == Rounding::nearest_even &&
                     policy.overflow == policy.infinity && has_one_nan_code(format, policy) && unit >= -126 &&
                     largest < std::bit_cast<std::int32_t>(0x1p100F);
  if (!takes) return std::nullopt;
  return VectorRound{.smallest_normal = (format.min_exponent() + 127) << 23,
                     .magic_offset = (23 - format.mantissa_bits) << 23,
                     .largest = largest,
                     .twice_largest = largest + (1 << 23),
                     .overflow_value = word_of(overflow_code(format, policy.overflow, false)),
                     .nan_value = word_of(nan_code(format, policy, policy.nan, {}))};
}

void round_vector(const VectorRound& cast, float scale, const float* in, float* out, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(RoundAll)(cast, scale, in, out, count);
}

}  // namespace fp8lab
#endif
