// SPDX-License-Identifier: Apache-2.0
// Casts for the common policies, as many elements at a time as a vector has. The scalar encode and decode define the
// result; here is why these steps give the same:
// - a normal result is the float's own bits, rounded in the integer domain: adding half a unit less one, plus the
// lowest
//   kept bit, carries exactly where nearest-even rounds up, and the carry moves the exponent;
// - a subnormal result is |x| in units of the smallest subnormal: adding the float whose ulp is that unit rounds to it,
//   to nearest even (the caller sees to the rounding mode), and leaves the code in the low bits. float32 subnormals are
//   far below half a unit, so that flushing them changes nothing.
#include "vector_casts.hpp"

#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "vector_casts.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Integers = hn::RebindToSigned<Floats>;
using Words = hn::RebindToUnsigned<Floats>;
using Bytes = hn::Rebind<std::uint8_t, Floats>;
using Shorts = hn::Rebind<std::uint16_t, Floats>;

/// Output of this size and more goes past the caches, as memcpy's does: no line is read before it is overwritten.
constexpr std::size_t streaming_bytes = std::size_t{1} << 22;

HWY_INLINE bool IsAligned(const void* p, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; }

/// How many elements lie before the first that a vector store may stream to.
template <typename T>
HWY_INLINE std::size_t ElementsToAlign(const T* out) {
  const auto past = reinterpret_cast<std::uintptr_t>(out) % HWY_MAX_BYTES;
  return past == 0 ? 0 : (HWY_MAX_BYTES - past) / sizeof(T);
}

/// Codes of a vector of floats, in 32-bit lanes.
HWY_INLINE hn::Vec<Integers> Encode(const VectorEncode& cast, hn::Vec<Floats> x) {
  const Floats df;
  const Integers di;
  const Words du;
  const auto word = hn::BitCast(du, x);
  const auto magnitude = hn::And(word, hn::Set(du, 0x7FFFFFFFU));
  // 1. Normal results.
  const int cut = 23 - cast.mantissa_bits;
  const auto lowest_kept = hn::And(hn::ShiftRightSame(magnitude, cut), hn::Set(du, 1U));
  const auto below_half = hn::Set(du, (1U << (cut - 1)) - 1);
  const auto rounded = hn::ShiftRightSame(hn::Add(hn::Add(magnitude, below_half), lowest_kept), cut);
  const auto normal = hn::Sub(hn::BitCast(di, rounded), hn::Set(di, cast.exponent_shift));
  // 2. Subnormal results.
  const auto magic = hn::Set(du, cast.subnormal_magic);
  const auto shifted = hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, magic));
  const auto subnormal = hn::BitCast(di, hn::Sub(hn::BitCast(du, shifted), magic));
  const auto signed_magnitude = hn::BitCast(di, magnitude);
  const auto is_subnormal = hn::Lt(signed_magnitude, hn::BitCast(di, hn::Set(du, cast.smallest_normal)));
  auto code = hn::IfThenElse(is_subnormal, subnormal, normal);
  // 3. Overflow (infinity included), the sign, NaN (which has none).
  code = hn::IfThenElse(hn::Gt(code, hn::Set(di, cast.max_code)), hn::Set(di, cast.overflow_code), code);
  const auto sign = hn::ShiftRightSame(hn::AndNot(hn::Set(du, 0x7FFFFFFFU), word), cast.sign_shift);
  code = hn::Or(code, hn::BitCast(di, sign));
  const auto is_nan = hn::Gt(signed_magnitude, hn::Set(di, 0x7F800000));
  return hn::IfThenElse(is_nan, hn::Set(di, cast.nan_code), code);
}

HWY_INLINE hn::Vec<Floats> Load(const float* in) { return hn::LoadU(Floats(), in); }
HWY_INLINE hn::Vec<Floats> Load(const Half* in) {
  // Highway's own promotion leaves infinities and NaNs open on targets without the instruction.
  const Floats df;
  const Words du;
  const auto word = hn::PromoteTo(du, hn::LoadU(Shorts(), reinterpret_cast<const std::uint16_t*>(in)));
  const auto magnitude = hn::And(word, hn::Set(du, 0x7FFFU));
  const auto rebias = hn::Set(du, (127U - 15U) << 23);
  const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), rebias);
  const auto subnormal = hn::Mul(hn::ConvertTo(df, hn::BitCast(Integers(), magnitude)), hn::Set(df, 0x1p-24F));
  const auto is_subnormal = hn::Lt(hn::BitCast(Integers(), magnitude), hn::Set(Integers(), 0x0400));
  const auto is_special = hn::Gt(hn::BitCast(Integers(), magnitude), hn::Set(Integers(), 0x7BFF));
  const auto finite = hn::IfThenElse(hn::RebindMask(df, is_subnormal), subnormal, hn::BitCast(df, normal));
  const auto value = hn::IfThenElse(hn::RebindMask(df, is_special), hn::BitCast(df, hn::Add(normal, rebias)), finite);
  return hn::BitCast(df, hn::Or(hn::BitCast(du, value), hn::ShiftLeft<16>(hn::AndNot(hn::Set(du, 0x7FFFU), word))));
}
HWY_INLINE hn::Vec<Floats> Load(const BFloat16* in) {
  const auto words = hn::PromoteTo(Words(), hn::LoadU(Shorts(), reinterpret_cast<const std::uint16_t*>(in)));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(words));
}

#if HWY_TARGET != HWY_SCALAR  // which has no vectors to combine
/// Codes of four vectors of x, in one vector of bytes.
template <typename Source, class Byte>
HWY_INLINE auto EncodeFour(Byte byte, const VectorEncode& cast, const Source* in) {
  const std::size_t lanes = hn::Lanes(Floats());
  const hn::Twice<Byte> two;
  const hn::Twice<hn::Twice<Byte>> four;
  const auto code = [&](std::size_t i) HWY_ATTR { return hn::DemoteTo(byte, Encode(cast, Load(in + i * lanes))); };
  return hn::Combine(four, hn::Combine(two, code(3), code(2)), hn::Combine(two, code(1), code(0)));
}

/// Encodes as many elements as fill whole vectors of bytes, past the caches; returns how many.
template <typename Source, class Byte>
HWY_INLINE std::size_t EncodeStreaming(Byte byte, const VectorEncode& cast, const Source* in, std::uint8_t* out,
                                       std::size_t count) {
  const hn::Twice<hn::Twice<Byte>> four;
  const std::size_t size = hn::Lanes(four);
  std::size_t i = 0;
  for (; i + size <= count; i += size) hn::Stream(EncodeFour(byte, cast, in + i), four, out + i);
  hwy::FlushStream();
  return i;
}
#endif

template <typename Source>
HWY_INLINE void EncodeCached(const VectorEncode& cast, const Source* in, std::uint8_t* out, std::size_t count) {
  const Bytes bytes;
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::DemoteTo(bytes, Encode(cast, Load(in + i))), bytes, out + i);
  }
  if (i == count) return;
  // The tail, by way of full vectors.
  Source last[HWY_MAX_BYTES / sizeof(float)] = {};
  std::uint8_t codes[HWY_MAX_BYTES / sizeof(float)];
  for (std::size_t k = 0; i + k < count; ++k) last[k] = in[i + k];
  hn::StoreU(hn::DemoteTo(bytes, Encode(cast, Load(last))), bytes, codes);
  for (std::size_t k = 0; i + k < count; ++k) out[i + k] = codes[k];
}

template <typename Source>
HWY_ATTR void EncodeAll(const VectorEncode& cast, const Source* in, std::uint8_t* out, std::size_t count) {
#if HWY_TARGET != HWY_SCALAR
  if (count >= streaming_bytes) {
    const std::size_t first = ElementsToAlign(out);
    EncodeCached(cast, in, out, first);
    const std::size_t done = first + EncodeStreaming(Bytes(), cast, in + first, out + first, count - first);
    return EncodeCached(cast, in + done, out + done, count - done);
  }
#endif
  EncodeCached(cast, in, out, count);
}

HWY_ATTR void EncodeFloats(const VectorEncode& cast, const float* in, std::uint8_t* out, std::size_t count) {
  EncodeAll(cast, in, out, count);
}
HWY_ATTR void EncodeHalves(const VectorEncode& cast, const Half* in, std::uint8_t* out, std::size_t count) {
  EncodeAll(cast, in, out, count);
}
HWY_ATTR void EncodeBFloats(const VectorEncode& cast, const BFloat16* in, std::uint8_t* out, std::size_t count) {
  EncodeAll(cast, in, out, count);
}

/// Values of a vector of codes in 32-bit lanes.
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
  const auto is_infinite = hn::RebindMask(df, hn::Eq(magnitude, hn::Set(di, cast.infinity_code)));
  value = hn::IfThenElse(is_infinite, hn::BitCast(df, hn::Set(du, 0x7F800000U)), value);
  const auto sign = hn::ShiftLeftSame(hn::AndNot(mask, code), cast.sign_shift);
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
  if (count * sizeof(float) < streaming_bytes || !IsAligned(out, sizeof(float)))
    return DecodeCached(cast, in, out, count);
  std::size_t i = ElementsToAlign(out);
  DecodeCached(cast, in, out, i);
  for (; i + lanes <= count; i += lanes) {
    hn::Stream(Decode(cast, hn::PromoteTo(Words(), hn::LoadU(Bytes(), in + i))), df, out + i);
  }
  hwy::FlushStream();
  DecodeCached(cast, in + i, out + i, count - i);
}

/// decode(encode(x * scale)) * inverse without leaving the registers.
HWY_INLINE hn::Vec<Floats> Recode(const VectorEncode& to, const VectorDecode& from, float scale, float inverse,
                                  hn::Vec<Floats> x) {
  const Floats df;
  const auto code = Encode(to, hn::Mul(x, hn::Set(df, scale)));
  return hn::Mul(Decode(from, hn::BitCast(Words(), code)), hn::Set(df, inverse));
}

HWY_ATTR void RecodeAll(const VectorEncode& to, const VectorDecode& from, float scale, const float* in, float* out,
                        std::size_t count) {
  const Floats df;
  const std::size_t lanes = hn::Lanes(df);
  const float inverse = 1 / scale;
  const auto some = [&](std::size_t first, std::size_t size) HWY_ATTR {
    float last[HWY_MAX_BYTES / sizeof(float)] = {};
    for (std::size_t k = 0; k < size; ++k) last[k] = in[first + k];
    hn::StoreU(Recode(to, from, scale, inverse, hn::LoadU(df, last)), df, last);
    for (std::size_t k = 0; k < size; ++k) out[first + k] = last[k];
  };
  // In place, the lines are in the cache already.
  const bool stream = count * sizeof(float) >= streaming_bytes && in != out && IsAligned(out, sizeof(float));
  std::size_t i = 0;
  if (stream) {
    for (const std::size_t first = ElementsToAlign(out); i < first; ++i) some(i, 1);
  }
  for (; i + lanes <= count; i += lanes) {
    const auto result = Recode(to, from, scale, inverse, hn::LoadU(df, in + i));
    if (stream) {
      hn::Stream(result, df, out + i);
    } else {
      hn::StoreU(result, df, out + i);
    }
  }
  if (stream) hwy::FlushStream();
  some(i, count - i);
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(EncodeFloats);
HWY_EXPORT(EncodeHalves);
HWY_EXPORT(EncodeBFloats);
HWY_EXPORT(DecodeAll);
HWY_EXPORT(RecodeAll);

std::optional<VectorEncode> vector_encode(const Format& format, const CastPolicy& policy) {
  const bool takes = format.is_signed && format.has_subnormals && format.mantissa_bits >= 1 && format.bits() <= 8 &&
                     format.specials != Specials::nan_at_negative_zero && policy.rounding == Rounding::nearest_even &&
                     policy.overflow == policy.infinity &&
                     (policy.nan == NanCode::positive_all_ones || !format.has_nan());
  if (!takes) return std::nullopt;
  const auto power = [](int exponent) { return static_cast<std::uint32_t>(exponent + 127) << 23; };
  const bool special = policy.overflow == Overflow::to_special && format.has_nan();
  const auto largest = static_cast<std::int32_t>(format.max_code());
  return VectorEncode{.mantissa_bits = format.mantissa_bits,
                      .exponent_shift = (127 - format.bias) << format.mantissa_bits,
                      .smallest_normal = power(format.min_exponent()),
                      .subnormal_magic = power(format.min_exponent() - format.mantissa_bits + 23),
                      .max_code = largest,
                      .overflow_code = special ? largest + 1 : largest,
                      .nan_code = format.has_nan() ? static_cast<std::int32_t>(format.magnitude_mask()) : largest,
                      .sign_shift = 32 - format.bits()};
}

void encode_vector(const VectorEncode& cast, const float* in, std::uint8_t* out, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(EncodeFloats)(cast, in, out, count);
}
void encode_vector(const VectorEncode& cast, const Half* in, std::uint8_t* out, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(EncodeHalves)(cast, in, out, count);
}
void encode_vector(const VectorEncode& cast, const BFloat16* in, std::uint8_t* out, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(EncodeBFloats)(cast, in, out, count);
}

std::optional<VectorDecode> vector_decode(const Format& format) {
  if (!format.is_signed || !format.has_subnormals || format.bits() > 8 ||
      format.specials == Specials::nan_at_negative_zero) {
    return std::nullopt;
  }
  const int unit = format.min_exponent() - format.mantissa_bits;
  return VectorDecode{.mantissa_bits = format.mantissa_bits,
                      .magnitude_mask = static_cast<std::uint32_t>(format.magnitude_mask()),
                      .max_code = static_cast<std::int32_t>(format.max_code()),
                      .infinity_code = format.has_infinity() ? static_cast<std::int32_t>(format.infinity_code()) : -1,
                      .exponent_offset = static_cast<std::uint32_t>(127 - format.bias) << 23,
                      .smallest_subnormal = std::bit_cast<float>(static_cast<std::uint32_t>(unit + 127) << 23),
                      .sign_shift = 32 - format.bits()};
}

void decode_vector(const VectorDecode& cast, const std::uint8_t* in, float* out, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(DecodeAll)(cast, in, out, count);
}

void recode_vector(const VectorEncode& to, const VectorDecode& from, float scale, const float* in, float* out,
                   std::size_t count) {
  HWY_DYNAMIC_DISPATCH(RecodeAll)(to, from, scale, in, out, count);
}

}  // namespace fp8lab
#endif
