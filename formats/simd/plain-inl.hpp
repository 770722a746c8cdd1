// SPDX-License-Identifier: Apache-2.0
// Included once for every target, after highway.h and encode.hpp of this folder: the plain casts of VectorEncode. The
// scalar encode defines the result; here is why the steps give the same:
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

#include "simd/load-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Lower half * 2^kLower + upper half * 2^kUpper of each lane. Bits from 16 on are open.
template <int kLower, int kUpper>
HWY_INLINE hn::Vec<Integers> SumOfHalves(hn::Vec<Integers> x) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  // One instruction: these targets do not reorder.
  const Integers di;
  const hn::Repartition<std::int16_t, Integers> halves;
  const auto factors = hn::Set(Words(), (1U << (16 + kUpper)) + (1U << kLower));
  auto other = hn::Zero(di);
  return hn::ReorderWidenMulAccumulate(di, hn::BitCast(halves, x), hn::BitCast(halves, factors), hn::Zero(di), other);
#else
  return hn::Add(hn::ShiftLeft<kLower>(x), hn::ShiftLeft<kUpper>(hn::ShiftRight<16>(x)));
#endif
}

/// The casts that VectorEncode calls plain. What is above the second byte of a lane is open. With kInRange, no x
/// is NaN, none overflows.
template <int kMantissaBits, bool kInRange = false>
class PlainEncoder {
 public:
  static constexpr bool takes_random_bits = false;
  static constexpr int first_bit = 8;  // of codes

  HWY_INLINE explicit PlainEncoder(const VectorEncode& cast)
      : limit_(hn::Set(Integers(), cast.plain_limit)),
        smallest_(hn::Set(Integers(), static_cast<std::int32_t>(cast.smallest_normal))),
        magic_(hn::BitCast(Floats(), hn::Set(Integers(), cast.plain_magic))),
        sign_(hn::Set(Integers(), static_cast<std::int32_t>(cast.sign >> (cast.sign_shift - first_bit)))),
        nan_(hn::Set(Integers(), cast.nan_positive << first_bit)),
        sign_shift_(cast.sign_shift - first_bit) {}

  HWY_INLINE hn::Vec<Integers> operator()(hn::Vec<Floats> x, const std::uint32_t* /*random*/) const {
    const Integers di;
    const auto word = hn::BitCast(Words(), x);
    const auto magnitude = hn::And(hn::BitCast(di, word), hn::Set(di, 0x7FFFFFFF));
    const auto with_sign =
        hn::OrAnd(OfMagnitude(magnitude), sign_, hn::BitCast(di, hn::ShiftRightSame(word, sign_shift_)));
    if constexpr (kInRange) return with_sign;
    return hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, infinity)), nan_, with_sign);  // NaN has no sign
  }

  /// Without the sign, and NaN; from bit kFirst on, below which are zeros.
  template <int kFirst = first_bit>
  HWY_INLINE hn::Vec<Integers> OfMagnitude(hn::Vec<Integers> magnitude) const {
    const Floats df;
    const Integers di;
    // 1. Round to a multiple of the binade's spacing: it is the ulp of what is added.
    const auto limited = kInRange ? magnitude : hn::Min(magnitude, limit_);
    const auto binade = hn::Max(hn::And(limited, hn::Set(di, infinity)), smallest_);
    const auto sum = hn::MulAdd(hn::BitCast(df, binade), magic_, hn::BitCast(df, limited));
    // 2. The exponent, and the multiple, whose highest bit is one more exponent.
    return SumOfHalves<kFirst, kFirst + kMantissaBits - exponent_bit>(hn::BitCast(di, sum));
  }

 private:
  static constexpr std::int32_t infinity = 0x7F800000;
  static constexpr int exponent_bit = 7;  // of the upper half

  hn::Vec<Integers> limit_, smallest_;
  hn::Vec<Floats> magic_;
  hn::Vec<Integers> sign_, nan_;
  int sign_shift_;
};

#if HWY_TARGET != HWY_SCALAR  // which has no lanes to bring together
using PackedBytes = hn::Repartition<std::uint8_t, Words>;
using PackedShorts = hn::Repartition<std::uint16_t, Words>;

/// The lower halves of two vectors of 32-bit lanes, in order.
template <class V>
HWY_INLINE hn::Vec<PackedShorts> LowerHalves(V low, V high) {
  const PackedShorts shorts;
  return hn::ConcatEven(shorts, hn::BitCast(shorts, high), hn::BitCast(shorts, low));
}
/// The first or the second bytes, by kFirstBit, of two vectors of 16-bit lanes.
template <int kFirstBit>
HWY_INLINE hn::Vec<PackedBytes> BytesOf(hn::Vec<PackedShorts> low, hn::Vec<PackedShorts> high) {
  const PackedBytes bytes;
  static_assert(kFirstBit == 0 || kFirstBit == 8);
  if constexpr (kFirstBit == 0) return hn::ConcatEven(bytes, hn::BitCast(bytes, high), hn::BitCast(bytes, low));
  return hn::ConcatOdd(bytes, hn::BitCast(bytes, high), hn::BitCast(bytes, low));
}
/// Does the same to four vectors of 32-bit lanes.
template <int kFirstBit, class V>
HWY_INLINE hn::Vec<PackedBytes> BytesOf(V code0, V code1, V code2, V code3) {
  return BytesOf<kFirstBit>(LowerHalves(code0, code1), LowerHalves(code2, code3));
}
#endif

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
