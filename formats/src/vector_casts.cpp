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

#include "fp8lab/formats/decode.hpp"

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
template <int kMantissaBits>
HWY_INLINE hn::Vec<Integers> Encode(const VectorEncode& cast, hn::Vec<Floats> x) {
  const Floats df;
  const Integers di;
  const Words du;
  const auto word = hn::BitCast(du, x);
  const auto magnitude = hn::And(word, hn::Set(du, 0x7FFFFFFFU));
  // 1. Normal results.
  constexpr int cut = 23 - kMantissaBits;
  const auto lowest_kept = hn::And(hn::ShiftRight<cut>(magnitude), hn::Set(du, 1U));
  const auto below_half = hn::Set(du, (1U << (cut - 1)) - 1);
  const auto rounded = hn::ShiftRight<cut>(hn::Add(hn::Add(magnitude, below_half), lowest_kept));
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

#if HWY_TARGET != HWY_SCALAR  // which has no lanes to exchange
using PackedBytes = hn::Repartition<std::uint8_t, Words>;

/// Four vectors of codes in 32-bit lanes as one vector of bytes, in order: the bytes are interleaved into lanes, sorted
/// within each block of 16, and the lanes then brought together from all blocks.
class Packer {
 public:
  Packer() {
    const std::size_t blocks = hn::Lanes(Words()) / 4;
    for (std::size_t vector = 0; vector < 4; ++vector) {
      for (std::size_t block = 0; block < blocks; ++block) {
        lanes_[vector * blocks + block] = static_cast<std::int32_t>(block * 4 + vector);
      }
    }
  }
  template <class V>
  HWY_INLINE hn::Vec<PackedBytes> operator()(V code0, V code1, V code2, V code3) const {
    const Words du;
    const PackedBytes bytes;
    const auto low = hn::Or(hn::BitCast(du, code0), hn::ShiftLeft<8>(hn::BitCast(du, code1)));
    const auto high = hn::Or(hn::ShiftLeft<16>(hn::BitCast(du, code2)), hn::ShiftLeft<24>(hn::BitCast(du, code3)));
    const auto sorted = hn::TableLookupBytes(hn::BitCast(bytes, hn::Or(low, high)), hn::LoadDup128(bytes, order));
    return hn::BitCast(bytes, hn::TableLookupLanes(hn::BitCast(du, sorted), hn::SetTableIndices(du, lanes_)));
  }

 private:
  alignas(16) static constexpr std::uint8_t order[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  std::int32_t lanes_[HWY_MAX_BYTES / sizeof(float)];
};

/// Encodes as many elements as fill whole vectors of bytes; returns how many. `stream` goes past the caches, and needs
/// an aligned `out`.
template <int kMantissaBits, typename Source>
HWY_INLINE std::size_t EncodePacked(const VectorEncode& cast, const Source* in, std::uint8_t* out, std::size_t count,
                                    bool stream) {
  const PackedBytes bytes;
  const Packer pack;
  const std::size_t lanes = hn::Lanes(Floats());
  const auto four = [&](const Source* from) HWY_ATTR {
    return pack(Encode<kMantissaBits>(cast, Load(from)), Encode<kMantissaBits>(cast, Load(from + lanes)),
                Encode<kMantissaBits>(cast, Load(from + 2 * lanes)),
                Encode<kMantissaBits>(cast, Load(from + 3 * lanes)));
  };
  std::size_t i = 0;
  if (stream) {
    for (; i + 4 * lanes <= count; i += 4 * lanes) hn::Stream(four(in + i), bytes, out + i);
    hwy::FlushStream();
  }
  for (; i + 4 * lanes <= count; i += 4 * lanes) hn::StoreU(four(in + i), bytes, out + i);
  return i;
}
#endif

template <int kMantissaBits, typename Source>
HWY_INLINE void EncodeCached(const VectorEncode& cast, const Source* in, std::uint8_t* out, std::size_t count) {
  const Bytes bytes;
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::DemoteTo(bytes, Encode<kMantissaBits>(cast, Load(in + i))), bytes, out + i);
  }
  if (i == count) return;
  // The tail, by way of full vectors.
  Source last[HWY_MAX_BYTES / sizeof(float)] = {};
  std::uint8_t codes[HWY_MAX_BYTES / sizeof(float)];
  for (std::size_t k = 0; i + k < count; ++k) last[k] = in[i + k];
  hn::StoreU(hn::DemoteTo(bytes, Encode<kMantissaBits>(cast, Load(last))), bytes, codes);
  for (std::size_t k = 0; i + k < count; ++k) out[i + k] = codes[k];
}

template <int kMantissaBits, typename Source>
HWY_ATTR void EncodeAs(const VectorEncode& cast, const Source* in, std::uint8_t* out, std::size_t count) {
#if HWY_TARGET != HWY_SCALAR
  const bool stream = count >= streaming_bytes;
  const std::size_t first = stream ? ElementsToAlign(out) : 0;
  EncodeCached<kMantissaBits>(cast, in, out, first);
  const std::size_t done = first + EncodePacked<kMantissaBits>(cast, in + first, out + first, count - first, stream);
  EncodeCached<kMantissaBits>(cast, in + done, out + done, count - done);
#else
  EncodeCached<kMantissaBits>(cast, in, out, count);
#endif
}

/// Shifts by a constant are cheaper than by a number: one instance for each width there is.
template <typename Source>
HWY_ATTR void EncodeAll(const VectorEncode& cast, const Source* in, std::uint8_t* out, std::size_t count) {
  switch (cast.mantissa_bits) {
    case 1: return EncodeAs<1>(cast, in, out, count);
    case 2: return EncodeAs<2>(cast, in, out, count);
    case 3: return EncodeAs<3>(cast, in, out, count);
    case 4: return EncodeAs<4>(cast, in, out, count);
    default: HWY_ABORT("vector_encode() takes 1 to 4 mantissa bits");
  }
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
  const bool stream = count * sizeof(float) >= streaming_bytes && in != out && IsAligned(out, sizeof(float));
  std::size_t i = 0;
  if (stream) {
    for (const std::size_t first = ElementsToAlign(out); i < first; ++i) some(i, 1);
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

HWY_EXPORT(EncodeFloats);
HWY_EXPORT(EncodeHalves);
HWY_EXPORT(EncodeBFloats);
HWY_EXPORT(DecodeAll);
HWY_EXPORT(RoundAll);

std::optional<VectorEncode> vector_encode(const Format& format, const CastPolicy& policy) {
  const bool takes = format.is_signed && format.has_subnormals && format.mantissa_bits >= 1 &&
                     format.mantissa_bits <= 4 && format.bits() <= 8 &&
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

std::optional<VectorRound> vector_round(const Format& format, const CastPolicy& policy) {
  const auto to = vector_encode(format, policy);
  if (!to) return std::nullopt;
  const auto word_of = [&](std::int32_t code) {
    return std::bit_cast<std::int32_t>(decode(format, static_cast<std::uint32_t>(code)));
  };
  return VectorRound{.smallest_normal = static_cast<std::int32_t>(to->smallest_normal),
                     .magic_offset = (23 - format.mantissa_bits) << 23,
                     .largest = word_of(to->max_code),
                     .twice_largest = word_of(to->max_code) + (1 << 23),
                     .overflow_value = word_of(to->overflow_code),
                     .nan_value = word_of(to->nan_code)};
}

void round_vector(const VectorRound& cast, float scale, const float* in, float* out, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(RoundAll)(cast, scale, in, out, count);
}

}  // namespace fp8lab
#endif
