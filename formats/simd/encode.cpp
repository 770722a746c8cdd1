// SPDX-License-Identifier: Apache-2.0
// Encoding, as many elements at a time as a vector has. The scalar encode defines the result. All casts but the plain
// ones are done with integers alone.
#include "simd/encode.hpp"

#include <type_traits>

#include "fp8lab/formats/encode.hpp"
#include "simd/memory.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/encode.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "simd/plain-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Every rounding mode and policy, with integers alone.
template <Rounding kRounding>
struct GeneralEncoder {
  static constexpr bool takes_random_bits = kRounding == Rounding::stochastic;
  static constexpr int first_bit = 0;  // of codes
  const VectorEncode& cast;

  HWY_INLINE hn::Vec<Integers> operator()(hn::Vec<Floats> x, const std::uint32_t* random) const {
    const Integers di;
    const Words du;
    const auto word = hn::BitCast(du, x);
    const auto magnitude = hn::And(word, hn::Set(du, 0x7FFFFFFFU));
    const auto is_negative = hn::Ne(hn::BitCast(di, hn::And(word, hn::Set(du, cast.sign))), hn::Zero(di));
    // 1. value * 2^-shift is the code before rounding: for normal results the float's own bits with the other bias, for
    //    subnormal ones its significand, moved on by the binades that it lies below the smallest normal.
    const auto field = hn::Max(hn::ShiftRight<23>(magnitude), hn::Set(du, 1U));
    const auto implicit_bit =
        hn::Sub(field, hn::Set(du, 1U));  // times 2^23: what subtracting leaves is the significand
    const auto significand = hn::Sub(magnitude, hn::ShiftLeft<23>(implicit_bit));
    const auto cut = hn::Set(du, static_cast<std::uint32_t>(23 - cast.mantissa_bits));
    const auto below = hn::Sub(hn::Set(du, cast.smallest_normal >> 23), field);
    const auto is_subnormal = hn::Lt(hn::BitCast(di, magnitude), hn::BitCast(di, hn::Set(du, cast.smallest_normal)));
    const auto no_normal = hn::RebindMask(du, is_subnormal);
    const auto value = hn::IfThenElse(no_normal, significand, hn::Sub(magnitude, hn::Set(du, cast.rebias)));
    const auto shift = hn::Add(cut, hn::IfThenElseZero(no_normal, below));
    // 2. Round and limit.
    const auto code = hn::BitCast(di, Rounded(value, shift, is_negative, random));
    const auto is_zero = hn::Eq(code, hn::Zero(di));
    const auto minus = hn::IfThenElse(is_zero, hn::Set(di, cast.negative_zero),
                                      hn::Set(di, static_cast<std::int32_t>(cast.sign >> cast.sign_shift)));
    auto result = hn::Or(code, hn::IfThenElseZero(is_negative, minus));
    const auto by_sign = [&](std::int32_t positive, std::int32_t negative) HWY_ATTR {
      return hn::IfThenElse(is_negative, hn::Set(di, negative), hn::Set(di, positive));
    };
    const auto overflows = hn::Gt(code, hn::Set(di, cast.max_code));
    result = hn::IfThenElse(overflows, by_sign(cast.overflow_positive, cast.overflow_negative), result);
    // 3. Infinity and NaN.
    const auto infinity = hn::Set(di, 0x7F800000);
    const auto is_infinite = hn::Eq(hn::BitCast(di, magnitude), infinity);
    result = hn::IfThenElse(is_infinite, by_sign(cast.infinity_positive, cast.infinity_negative), result);
    const auto fraction = hn::ShiftRightSame(hn::BitCast(di, magnitude), 23 - cast.mantissa_bits);
    const auto nan =
        hn::Or(by_sign(cast.nan_positive, cast.nan_negative), hn::And(fraction, hn::Set(di, cast.nan_payload)));
    return hn::IfThenElse(hn::Gt(hn::BitCast(di, magnitude), infinity), nan, result);
  }

 private:
  template <class Mask>
  HWY_INLINE hn::Vec<Words> Rounded(hn::Vec<Words> value, hn::Vec<Words> shift, Mask is_negative,
                                    const std::uint32_t* random) const {
    const Words du;
    if constexpr (kRounding == Rounding::stochastic) return Stochastic(value, shift, hn::LoadU(du, random));
    // A significand has 24 bits: cut off from 26 on, it is less than half a unit, and not zero unless it is.
    const auto bits = hn::Min(shift, hn::Set(du, 26U));
    const auto one = hn::Set(du, 1U);
    const auto rest = hn::Sub(one << bits, one);  // all ones, as wide as what is cut off
    const auto kept = value >> bits;
    if constexpr (kRounding == Rounding::toward_zero) return kept;
    if constexpr (kRounding == Rounding::to_odd) {
      const auto exact = hn::Eq(hn::And(value, rest), hn::Zero(du));
      return hn::IfThenElse(exact, kept, hn::Or(kept, one));
    }
    if constexpr (kRounding == Rounding::nearest_even) {
      return hn::Add(value, hn::Add(hn::ShiftRight<1>(rest), hn::And(kept, one))) >> bits;
    }
    if constexpr (kRounding == Rounding::nearest_toward_zero) return hn::Add(value, hn::ShiftRight<1>(rest)) >> bits;
    if constexpr (kRounding == Rounding::nearest_away) {
      return hn::Add(value, hn::Add(hn::ShiftRight<1>(rest), one)) >> bits;
    }
    const auto away = hn::RebindMask(du, is_negative);
    const auto added =
        kRounding == Rounding::downward ? hn::IfThenElseZero(away, rest) : hn::IfThenZeroElse(away, rest);
    return hn::Add(value, added) >> bits;
  }

  /// The topmost random bits' worth of what is cut off, and the random bits, are added where they meet: at the lower
  /// end of whichever of the two is shorter.
  HWY_INLINE hn::Vec<Words> Stochastic(hn::Vec<Words> value, hn::Vec<Words> shift, hn::Vec<Words> words) const {
    const Words du;
    const auto count = hn::Set(du, static_cast<std::uint32_t>(cast.random_bits));
    const auto random =
        hn::And(words, hn::Set(du, static_cast<std::uint32_t>((std::uint64_t{1} << cast.random_bits) - 1)));
    const auto most = hn::Set(du, 31U);
    const auto wider = hn::Max(shift, count);
    const auto added = random >> hn::Min(hn::Sub(wider, shift), most);
    const auto sum = hn::Add(value >> hn::Min(hn::Sub(wider, count), most), added);
    const auto code = sum >> hn::Min(hn::Min(shift, count), most);
    if (cast.random_bits < 32) return code;
    // 32 random bits against as many that are cut off: all that can be left is the carry out of the word.
    const auto carry = hn::IfThenElseZero(hn::Lt(sum, added), hn::Set(du, 1U));
    return hn::IfThenElse(hn::Gt(shift, most), carry, code);
  }
};

/// To bfloat16, to nearest even: its codes are the upper halves of floats.
struct UpperHalfEncoder {
  static constexpr bool takes_random_bits = false;
  static constexpr int first_bit = 16;
  std::int32_t limit, nan_positive, nan_negative, nan_payload;  // copies, which no store of a code can change

  HWY_INLINE hn::Vec<Integers> operator()(hn::Vec<Floats> x, const std::uint32_t* /*random*/) const {
    const Integers di;
    const auto word = hn::BitCast(di, x);
    const auto sign = hn::And(word, hn::BitCast(di, hn::SignBit(Floats())));
    const auto magnitude = hn::BitCast(di, hn::Abs(x));
    const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(di, 1));
    const auto rounded = hn::Min(hn::Add(magnitude, hn::Add(odd, hn::Set(di, 0x7FFF))), hn::Set(di, limit));
    const auto code =
        hn::IfVecThenElse(hn::BroadcastSignBit(word), hn::Set(di, nan_negative), hn::Set(di, nan_positive));
    const auto payload = hn::And(hn::ShiftRight<16>(word), hn::Set(di, nan_payload));
    const auto nan = hn::ShiftLeft<16>(hn::Or(code, payload));
    return hn::IfThenElse(hn::RebindMask(di, hn::IsNaN(x)), nan, hn::Or(rounded, sign));
  }
};

#if HWY_TARGET != HWY_SCALAR  // which has no lanes to bring together
/// Codes of the elements that fill a vector of bytes.
template <class Encoder, typename Source>
HWY_INLINE hn::Vec<PackedBytes> EncodeFour(const Encoder& encode, const Source* in, const std::uint32_t* random) {
  const std::size_t lanes = hn::Lanes(Floats());
  const std::size_t step = Encoder::takes_random_bits ? lanes : 0;
  const auto code0 = encode(Load(in), random);
  const auto code1 = encode(Load(in + lanes), random + step);
  const auto code2 = encode(Load(in + 2 * lanes), random + 2 * step);
  const auto code3 = encode(Load(in + 3 * lanes), random + 3 * step);
  return BytesOf<Encoder::first_bit>(code0, code1, code2, code3);
}

/// Encodes as many elements as fill whole vectors of bytes; returns how many. `stream` goes past the caches, and needs
/// an aligned `out`.
template <class Encoder, typename Source>
HWY_INLINE std::size_t EncodePacked(const Encoder& encode, const Source* in, const std::uint32_t* random,
                                    std::uint8_t* out, std::size_t count, bool stream) {
  const PackedBytes bytes;
  const std::size_t width = hn::Lanes(bytes);
  const std::size_t step = Encoder::takes_random_bits ? 1 : 0;
  std::size_t i = 0;
  if (stream) {
    for (; i + width <= count; i += width) hn::Stream(EncodeFour(encode, in + i, random + i * step), bytes, out + i);
    hwy::FlushStream();
  }
  for (; i + width <= count; i += width) hn::StoreU(EncodeFour(encode, in + i, random + i * step), bytes, out + i);
  return i;
}
#endif

template <class Encoder, typename Source, typename Code>
HWY_INLINE void EncodeCached(const Encoder& encode, const Source* in, const std::uint32_t* random, Code* out,
                             std::size_t count) {
  const hn::Rebind<Code, Floats> codes;
  const std::size_t lanes = hn::Lanes(Floats());
  const auto store = [&](const Source* from, const std::uint32_t* own_random, Code* to) HWY_ATTR {
    const auto code = hn::ShiftRight<Encoder::first_bit>(hn::BitCast(Words(), encode(Load(from), own_random)));
    hn::StoreU(hn::TruncateTo(codes, code), codes, to);
  };
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) store(in + i, Encoder::takes_random_bits ? random + i : random, out + i);
  if (i == count) return;
  // The tail, by way of full vectors.
  Source last[widest_vector / sizeof(float)] = {};
  std::uint32_t last_random[widest_vector / sizeof(float)] = {};
  Code last_codes[widest_vector / sizeof(float)];
  for (std::size_t k = 0; i + k < count; ++k) last[k] = in[i + k];
  if constexpr (Encoder::takes_random_bits) {
    for (std::size_t k = 0; i + k < count; ++k) last_random[k] = random[i + k];
  }
  store(last, last_random, last_codes);
  for (std::size_t k = 0; i + k < count; ++k) out[i + k] = last_codes[k];
}

template <class Encoder, typename Source, typename Code>
HWY_ATTR void EncodeWith(const Encoder& encode, const Source* in, const std::uint32_t* random, Code* out,
                         std::size_t count) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(Code) == 1) {
    const bool stream = count >= streaming_bytes;
    const std::size_t first = stream ? elements_to_align(out) : 0;
    const auto from = [&](std::size_t i) { return Encoder::takes_random_bits ? random + i : random; };
    EncodeCached(encode, in, random, out, first);
    const std::size_t done = first + EncodePacked(encode, in + first, from(first), out + first, count - first, stream);
    return EncodeCached(encode, in + done, from(done), out + done, count - done);
  }
#endif
  EncodeCached(encode, in, random, out, count);
}

/// Shifts by a constant are cheaper than by a number: one instance for each width of the plain casts.
template <typename Source>
HWY_ATTR void EncodePlain(const VectorEncode& cast, const Source* in, std::uint8_t* out, std::size_t count) {
  switch (cast.mantissa_bits) {
    case 1: return EncodeWith(PlainEncoder<1>(cast), in, nullptr, out, count);
    case 2: return EncodeWith(PlainEncoder<2>(cast), in, nullptr, out, count);
    case 3: return EncodeWith(PlainEncoder<3>(cast), in, nullptr, out, count);
    case 4: return EncodeWith(PlainEncoder<4>(cast), in, nullptr, out, count);
    default: HWY_ABORT("plain casts have 1 to 4 mantissa bits");
  }
}

template <typename Code>
HWY_ATTR void EncodeGeneral(const VectorEncode& cast, const float* in, const std::uint32_t* random, Code* out,
                            std::size_t count) {
  const auto with = [&]<Rounding kRounding>(std::integral_constant<Rounding, kRounding> /*rounding*/)
                        HWY_ATTR { EncodeWith(GeneralEncoder<kRounding>{cast}, in, random, out, count); };
  switch (cast.rounding) {
    case Rounding::nearest_even: return with(std::integral_constant<Rounding, Rounding::nearest_even>());
    case Rounding::nearest_away: return with(std::integral_constant<Rounding, Rounding::nearest_away>());
    case Rounding::nearest_toward_zero: return with(std::integral_constant<Rounding, Rounding::nearest_toward_zero>());
    case Rounding::toward_zero: return with(std::integral_constant<Rounding, Rounding::toward_zero>());
    case Rounding::upward: return with(std::integral_constant<Rounding, Rounding::upward>());
    case Rounding::downward: return with(std::integral_constant<Rounding, Rounding::downward>());
    case Rounding::to_odd: return with(std::integral_constant<Rounding, Rounding::to_odd>());
    case Rounding::stochastic:
      if (random == nullptr) HWY_ABORT("a stochastic cast needs random words");
      return with(std::integral_constant<Rounding, Rounding::stochastic>());
  }
}

/// Halves and bfloat16s as floats, by whole vectors: `out` has room for one more.
template <typename Source>
HWY_INLINE void Widen(const Source* in, float* out, std::size_t count) {
  const Floats df;
  const std::size_t lanes = hn::Lanes(df);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(Load(in + i), df, out + i);
  Source last[widest_vector / sizeof(float)] = {};
  for (std::size_t k = 0; i + k < count; ++k) last[k] = in[i + k];
  hn::StoreU(Load(last), df, out + i);
}

/// The general casts take floats alone, which keeps the number of their instances down.
template <typename Source, typename Code>
HWY_ATTR void EncodeAll(const VectorEncode& cast, const Source* in, const std::uint32_t* random, Code* out,
                        std::size_t count) {
  if constexpr (sizeof(Code) == 1) {
    if (cast.plain) return EncodePlain(cast, in, out, count);
  } else if constexpr (std::is_same_v<Source, float>) {
    const UpperHalfEncoder encode{cast.upper_half_limit, cast.nan_positive, cast.nan_negative, cast.nan_payload};
    if (encode.limit != 0) return EncodeWith(encode, in, nullptr, out, count);
  }
  if constexpr (std::is_same_v<Source, float>) {
    EncodeGeneral(cast, in, random, out, count);
  } else {
    constexpr std::size_t block = 512;
    float wide[block + widest_vector / sizeof(float)];
    for (std::size_t first = 0; first < count; first += block) {
      const std::size_t size = count - first < block ? count - first : block;
      Widen(in + first, wide, size);
      EncodeGeneral(cast, wide, random == nullptr ? nullptr : random + first, out + first, size);
    }
  }
}

HWY_ATTR void EncodeFloatsToBytes(const VectorEncode& cast, const float* in, const std::uint32_t* random,
                                  std::uint8_t* out, std::size_t count) {
  EncodeAll(cast, in, random, out, count);
}
HWY_ATTR void EncodeFloatsToWords(const VectorEncode& cast, const float* in, const std::uint32_t* random,
                                  std::uint16_t* out, std::size_t count) {
  EncodeAll(cast, in, random, out, count);
}
HWY_ATTR void EncodeHalvesToBytes(const VectorEncode& cast, const Half* in, const std::uint32_t* random,
                                  std::uint8_t* out, std::size_t count) {
  EncodeAll(cast, in, random, out, count);
}
HWY_ATTR void EncodeHalvesToWords(const VectorEncode& cast, const Half* in, const std::uint32_t* random,
                                  std::uint16_t* out, std::size_t count) {
  EncodeAll(cast, in, random, out, count);
}
HWY_ATTR void EncodeBFloatsToBytes(const VectorEncode& cast, const BFloat16* in, const std::uint32_t* random,
                                   std::uint8_t* out, std::size_t count) {
  EncodeAll(cast, in, random, out, count);
}
HWY_ATTR void EncodeBFloatsToWords(const VectorEncode& cast, const BFloat16* in, const std::uint32_t* random,
                                   std::uint16_t* out, std::size_t count) {
  EncodeAll(cast, in, random, out, count);
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(EncodeFloatsToBytes);
HWY_EXPORT(EncodeFloatsToWords);
HWY_EXPORT(EncodeHalvesToBytes);
HWY_EXPORT(EncodeHalvesToWords);
HWY_EXPORT(EncodeBFloatsToBytes);
HWY_EXPORT(EncodeBFloatsToWords);

namespace {

/// The float32 bits of the value that a code of a normal number has, or would have were it not special.
std::int32_t word_of(const Format& format, std::uint64_t code) {
  return (static_cast<std::int32_t>(code) << (23 - format.mantissa_bits)) + ((127 - format.bias) << 23);
}
/// From a binade's power of two to the float32 whose ulp is its spacing.
int magic_binades(const Format& format) { return 23 - format.mantissa_bits; }

/// Whether the fast steps do: they treat infinity as overflow, whose code is the largest or the next one, and NaN as
/// one code without a sign; and their floats must be in range.
bool is_plain(const Format& format, const CastPolicy& policy) {
  const std::uint64_t overflow = overflow_code(format, policy.overflow, false);
  return policy.rounding == Rounding::nearest_even && format.bits() <= 8 && format.mantissa_bits >= 1 &&
         format.mantissa_bits <= 4 && format.specials != Specials::nan_at_negative_zero &&
         policy.zero_sign == ZeroSign::kept && has_one_nan_code(format, policy) &&
         overflow == overflow_code(format, policy.infinity, false) &&
         (overflow == format.max_code() || overflow == format.max_code() + 1) && format.min_exponent() >= -100 &&
         overflow >> format.mantissa_bits != 0 && (word_of(format, overflow) >> 23) + magic_binades(format) <= 254;
}

/// The largest bits of a float whose upper half is a code: 0 where codes are no such halves.
std::int32_t upper_half_limit(const Format& format, const CastPolicy& policy) {
  const std::uint64_t overflow = overflow_code(format, policy.overflow, false);
  const bool takes = format == bfloat16 && policy.rounding == Rounding::nearest_even &&
                     policy.zero_sign == ZeroSign::kept && overflow == overflow_code(format, policy.infinity, false);
  return takes ? static_cast<std::int32_t>(overflow << 16) : 0;
}

}  // namespace

bool has_one_nan_code(const Format& format, const CastPolicy& policy) {
  return format.has_nan() ? policy.nan == NanCode::positive_all_ones
                          : (policy.missing_nan == MissingNan::largest && policy.nan != NanCode::negative_largest);
}

std::optional<VectorEncode> vector_encode(const Format& format, const CastPolicy& policy, int random_bits) {
  const bool takes = format.has_subnormals && format.mantissa_bits >= 1 && format.bits() <= 16 &&
                     format.min_exponent() >= -126 && format.min_exponent() <= 120 && random_bits <= 32 &&
                     (format.is_signed || policy.negative == NegativeInput::magnitude);
  if (!takes) return std::nullopt;
  const auto finite_overflow = [&](bool negative) {
    const std::uint64_t beyond =
        round_pack(format, policy, negative, 500, 1, {.value = 0, .count = 0});  // beyond every format
    return static_cast<std::int32_t>(beyond);
  };
  const auto infinity = [&](bool negative) {
    return static_cast<std::int32_t>(overflow_code(format, policy.infinity, negative && format.is_signed));
  };
  const auto nan = [&](bool negative) {
    return static_cast<std::int32_t>(nan_code(format, policy, policy.nan, Unpacked{negative, Kind::nan, 0, 0}));
  };
  const bool payload = policy.nan == NanCode::sign_and_payload && format.specials == Specials::ieee;
  const int shift = 32 - format.bits();
  // This offset turns a sum's exponent field, which lies above the multiple, into the code of its binade less one.
  const int offset = (format.bias - 1 - 127 - magic_binades(format)) * (1 << format.mantissa_bits);
  return VectorEncode{.rounding = policy.rounding,
                      .mantissa_bits = format.mantissa_bits,
                      .rebias = static_cast<std::uint32_t>(127 - format.bias) << 23,
                      .smallest_normal = static_cast<std::uint32_t>(format.min_exponent() + 127) << 23,
                      .max_code = static_cast<std::int32_t>(format.max_code()),
                      .sign_shift = shift,
                      .sign = format.is_signed ? 0x80000000U : 0U,
                      .negative_zero = static_cast<std::int32_t>(zero_code(format, policy, true)),
                      .overflow_positive = finite_overflow(false),
                      .overflow_negative = finite_overflow(true),
                      .infinity_positive = infinity(false),
                      .infinity_negative = infinity(true),
                      .nan_positive = nan(false),
                      .nan_negative = nan(true),
                      .nan_payload = payload ? (1 << format.mantissa_bits) - 1 : 0,
                      .random_bits = random_bits,
                      .plain = is_plain(format, policy),
                      .plain_limit = word_of(format, overflow_code(format, policy.overflow, false)),
                      .plain_magic = ((127 + magic_binades(format)) << 23) + (offset & 0xFF),
                      .upper_half_limit = upper_half_limit(format, policy)};
}

void encode_vector(const VectorEncode& cast, const float* in, const std::uint32_t* random, std::uint8_t* out,
                   std::size_t count) {
  HWY_DYNAMIC_DISPATCH(EncodeFloatsToBytes)(cast, in, random, out, count);
}
void encode_vector(const VectorEncode& cast, const float* in, const std::uint32_t* random, std::uint16_t* out,
                   std::size_t count) {
  HWY_DYNAMIC_DISPATCH(EncodeFloatsToWords)(cast, in, random, out, count);
}
void encode_vector(const VectorEncode& cast, const Half* in, const std::uint32_t* random, std::uint8_t* out,
                   std::size_t count) {
  HWY_DYNAMIC_DISPATCH(EncodeHalvesToBytes)(cast, in, random, out, count);
}
void encode_vector(const VectorEncode& cast, const Half* in, const std::uint32_t* random, std::uint16_t* out,
                   std::size_t count) {
  HWY_DYNAMIC_DISPATCH(EncodeHalvesToWords)(cast, in, random, out, count);
}
void encode_vector(const VectorEncode& cast, const BFloat16* in, const std::uint32_t* random, std::uint8_t* out,
                   std::size_t count) {
  HWY_DYNAMIC_DISPATCH(EncodeBFloatsToBytes)(cast, in, random, out, count);
}
void encode_vector(const VectorEncode& cast, const BFloat16* in, const std::uint32_t* random, std::uint16_t* out,
                   std::size_t count) {
  HWY_DYNAMIC_DISPATCH(EncodeBFloatsToWords)(cast, in, random, out, count);
}

}  // namespace fp8lab
#endif
