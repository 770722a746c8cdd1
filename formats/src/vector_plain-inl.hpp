// SPDX-License-Identifier: Apache-2.0
// Included once for every target, after highway.h and vector_encode.hpp: the plain casts of VectorEncode. The scalar
// encode defines the result; here is why the steps give the same:
// - |x|, limited to what overflow becomes, is rounded to a multiple of its binade's spacing, to nearest even, by adding
//   the power of two whose ulp is that spacing (the caller sees to the rounding mode). Below the smallest normal number
//   the spacing is that of its binade. What is added is the binade's power of two times a constant, which is exact, so
//   that a fused multiplication and addition and two operations give the same.
// - The multiple n is left in the low bits of the sum, its binade in the exponent. Codes count numbers in order: that
//   of n spacings in binade e, of which the smallest normal number is in the first, is n + 2^mantissa_bits (e - 1),
//   also where n is rounded up to the next binade, or has no implicit bit. A constant on top of the power of two, even,
//   so that it changes no tie, sees to the offset modulo 256; bits above a code's byte are dropped.
// - float32 subnormals are far below half a unit, so that flushing them changes nothing.
#if defined(FP8LAB_VECTOR_PLAIN_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_VECTOR_PLAIN_INL
#undef FP8LAB_VECTOR_PLAIN_INL
#else
#define FP8LAB_VECTOR_PLAIN_INL
#endif

#include <hwy/highway.h>

#include "vector_load-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The casts that VectorEncode calls plain. What is above the low byte of a lane is open. With kInRange, no x
/// is NaN, none overflows.
template <int kMantissaBits, bool kInRange = false>
class PlainEncoder {
 public:
  static constexpr bool takes_random_bits = false;

  HWY_INLINE explicit PlainEncoder(const VectorEncode& cast)
      : limit_(hn::Set(Integers(), cast.plain_limit)),
        smallest_(hn::Set(Integers(), static_cast<std::int32_t>(cast.smallest_normal))),
        magic_(hn::BitCast(Floats(), hn::Set(Integers(), cast.plain_magic))),
        sign_(hn::Set(Integers(), static_cast<std::int32_t>(cast.sign >> cast.sign_shift))),
        nan_(hn::Set(Integers(), cast.nan_positive)),
        sign_shift_(cast.sign_shift) {}

  HWY_INLINE hn::Vec<Integers> operator()(hn::Vec<Floats> x, const std::uint32_t* /*random*/) const {
    const Integers di;
    const auto word = hn::BitCast(Words(), x);
    const auto magnitude = hn::And(hn::BitCast(di, word), hn::Set(di, 0x7FFFFFFF));
    const auto with_sign =
        hn::OrAnd(OfMagnitude(magnitude), sign_, hn::BitCast(di, hn::ShiftRightSame(word, sign_shift_)));
    if constexpr (kInRange) return with_sign;
    return hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, infinity)), nan_, with_sign);  // NaN has no sign
  }

  /// Without the sign, and NaN.
  HWY_INLINE hn::Vec<Integers> OfMagnitude(hn::Vec<Integers> magnitude) const {
    const Floats df;
    const Integers di;
    // 1. Round to a multiple of the binade's spacing: it is the ulp of what is added.
    const auto limited = kInRange ? magnitude : hn::Min(magnitude, limit_);
    const auto binade = hn::Max(hn::And(limited, hn::Set(di, infinity)), smallest_);
    const auto sum = hn::MulAdd(hn::BitCast(df, binade), magic_, hn::BitCast(df, limited));
    // 2. The exponent, and the multiple, whose highest bit is one more exponent.
    const auto bits = hn::BitCast(di, sum);
    return hn::Add(hn::ShiftRight<23 - kMantissaBits>(bits), bits);
  }

 private:
  static constexpr std::int32_t infinity = 0x7F800000;

  hn::Vec<Integers> limit_, smallest_;
  hn::Vec<Floats> magic_;
  hn::Vec<Integers> sign_, nan_;
  int sign_shift_;
};

#if HWY_TARGET != HWY_SCALAR  // which has no lanes to bring together
using PackedBytes = hn::Repartition<std::uint8_t, Words>;

/// The low bytes of four vectors of 32-bit lanes, in order.
template <class V>
HWY_INLINE hn::Vec<PackedBytes> Pack(V code0, V code1, V code2, V code3) {
  const PackedBytes bytes;
  const hn::Repartition<std::uint16_t, Words> shorts;
  const auto low = hn::ConcatEven(shorts, hn::BitCast(shorts, code1), hn::BitCast(shorts, code0));
  const auto high = hn::ConcatEven(shorts, hn::BitCast(shorts, code3), hn::BitCast(shorts, code2));
  return hn::ConcatEven(bytes, hn::BitCast(bytes, high), hn::BitCast(bytes, low));
}

#endif

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
