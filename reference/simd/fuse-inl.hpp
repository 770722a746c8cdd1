// SPDX-License-Identifier: Apache-2.0
// Included once for every target: what the fused steps in float lanes, in double lanes and in groups share.
#if defined(FP8LAB_FUSE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_FUSE_INL
#undef FP8LAB_FUSE_INL
#else
#define FP8LAB_FUSE_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "simd/fuse.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Doubles = hn::CappedTag<double, 8>;
using Shorts = hn::CappedTag<std::int16_t, tile_columns>;

template <class D>
struct Bits;  // of a lane
template <>
struct Bits<Floats> {
  static constexpr int mantissa = 23, bias = 127;
};
template <>
struct Bits<Doubles> {
  static constexpr int mantissa = 52, bias = 1023;
};

/// 2^exponent.
template <class D>
HWY_INLINE hn::Vec<D> Power(D d, int exponent) {
  using Word = hn::TFromD<hn::RebindToUnsigned<D>>;
  return hn::BitCast(
      d, hn::Set(hn::RebindToUnsigned<D>(), static_cast<Word>(exponent + Bits<D>::bias) << Bits<D>::mantissa));
}

/// The powers of two with the exponent fields (biased exponents) in memory.
HWY_INLINE hn::Vec<Floats> Powers(Floats d, const std::int16_t* fields) {
  const hn::RebindToSigned<Floats> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::PromoteTo(di, hn::LoadU(hn::Rebind<std::int16_t, Floats>(), fields))));
}
HWY_INLINE hn::Vec<Doubles> Powers(Doubles d, const std::int16_t* fields) {
  const hn::RebindToSigned<Doubles> di;
  const auto words = hn::LoadU(hn::Rebind<std::int16_t, Doubles>(), fields);
  return hn::BitCast(d,
                     hn::ShiftLeft<52>(hn::PromoteTo(di, hn::PromoteTo(hn::Rebind<std::int32_t, Doubles>(), words))));
}

HWY_INLINE hn::Vec<Doubles> LoadFloats(Doubles d, const float* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, Doubles>(), from));
}

/// Rounds to nearest even.
HWY_INLINE void StoreFloats(hn::Vec<Doubles> x, float* to) {
  const hn::Rebind<float, Doubles> df;
  hn::StoreU(hn::DemoteTo(df, x), df, to);
}

/// The power of two of x's leading bit; 0 for 0.
template <class D>
HWY_INLINE hn::Vec<D> LeadingPower(D d, hn::Vec<D> x) {
  return hn::And(x, hn::Inf(d));
}

/// x rounded to binary16, nearest even: adding 1.5 * 2^(52 or 23) times the last place that is kept rounds there.
template <class D>
HWY_INLINE hn::Vec<D> RoundToHalf(D d, hn::Vec<D> x) {
  const auto power = hn::Min(hn::Max(LeadingPower(d, x), Power(d, -14)), Power(d, 20));
  const auto magic = hn::Mul(power, hn::Mul(hn::Set(d, hn::TFromD<D>{1.5}), Power(d, Bits<D>::mantissa - 10)));
  const auto rounded = hn::Sub(hn::Add(x, magic), magic);
  const auto overflows = hn::Gt(hn::Abs(rounded), hn::Set(d, hn::TFromD<D>{65504}));
  return hn::IfThenElse(overflows, hn::CopySign(hn::Inf(d), x), rounded);
}

/// The sign of a result: no zero is negative unless a negative sum that underflowed keeps its sign.
template <class D>
HWY_INLINE hn::Vec<D> SignedZero(D d, const FuseShape& shape, hn::Vec<D> sum, hn::Vec<D> result) {
  result = hn::Add(result, hn::Zero(d));
  if (!shape.keeps_sign) return result;
  return hn::IfThenElse(hn::Lt(sum, hn::Zero(d)), hn::CopySign(result, sum), result);
}

/// 2^fraction_bits / power: what makes a term a number of units.
template <class D>
HWY_INLINE hn::Vec<D> UnitsIn(D d, const FuseShape& shape, hn::Vec<D> power) {
  using Words = hn::RebindToUnsigned<D>;
  using Word = hn::TFromD<Words>;
  const auto base = hn::Set(Words(), static_cast<Word>(2 * Bits<D>::bias + shape.fraction_bits) << Bits<D>::mantissa);
  return hn::BitCast(d, hn::Sub(base, hn::BitCast(Words(), power)));
}

/// The largest exponent of the products in one vector of columns or, for which a row's are spread once, in two.
template <std::size_t kVectors, typename Exponent>
HWY_INLINE void LargestExponentsIn(std::size_t products, const Exponent* a0, const Exponent* a1, const Exponent* b,
                                   Exponent* top0, Exponent* top1) {
  const hn::CappedTag<Exponent, tile_columns> d;
  const auto none = hn::Set(d, static_cast<Exponent>(2 * absent_exponent_of<Exponent>));
  auto top00 = none;
  auto top01 = none;
  auto top10 = none;
  auto top11 = none;
  for (std::size_t k = 0; k < products; ++k, b += tile_columns) {
    const auto left0 = hn::Set(d, a0[k]);
    const auto left1 = hn::Set(d, a1[k]);
    const auto right = hn::LoadU(d, b);
    top00 = hn::Max(top00, hn::Add(right, left0));
    top10 = hn::Max(top10, hn::Add(right, left1));
    if constexpr (kVectors == 2) {
      const auto next = hn::LoadU(d, b + hn::Lanes(d));
      top01 = hn::Max(top01, hn::Add(next, left0));
      top11 = hn::Max(top11, hn::Add(next, left1));
    }
  }
  hn::StoreU(top00, d, top0);
  hn::StoreU(top10, d, top1);
  if constexpr (kVectors == 2) {
    hn::StoreU(top01, d, top0 + hn::Lanes(d));
    hn::StoreU(top11, d, top1 + hn::Lanes(d));
  }
}

/// The largest exponent of the products, column by column.
template <typename Exponent>
HWY_INLINE void LargestExponents(std::size_t products, const Exponent* a0, const Exponent* a1, const Exponent* b,
                                 Exponent* top0, Exponent* top1) {
  const hn::CappedTag<Exponent, tile_columns> d;
  constexpr std::size_t vectors = hn::MaxLanes(hn::CappedTag<Exponent, tile_columns>()) == tile_columns ? 1 : 2;
  for (std::size_t column = 0; column < tile_columns; column += vectors * hn::Lanes(d)) {
    LargestExponentsIn<vectors>(products, a0, a1, b + column, top0 + column, top1 + column);
  }
}

/// sums = a + b, column by column.
HWY_INLINE void AddScaleExponents(std::int16_t a, const std::int16_t* b, std::int16_t* sums) {
  const Shorts d;
  for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
    hn::StoreU(hn::Add(hn::LoadU(d, b + column), hn::Set(d, a)), d, sums + column);
  }
}

HWY_INLINE hn::Vec<Shorts> LoadExponents(Shorts d, const std::int16_t* from) { return hn::LoadU(d, from); }
HWY_INLINE hn::Vec<Shorts> LoadExponents(Shorts d, const std::int8_t* from) {
  const auto exponents = hn::PromoteTo(d, hn::LoadU(hn::Rebind<std::int8_t, Shorts>(), from));
  const auto absent = hn::Lt(exponents, hn::Set(d, std::int16_t{least_narrow_sum}));
  return hn::IfThenElse(absent, hn::Set(d, absent_exponent_of<std::int16_t>), exponents);
}
HWY_INLINE hn::Vec<Shorts> LoadExponents(Shorts d, const std::uint8_t* from) {
  const auto below = hn::PromoteTo(d, hn::LoadU(hn::Rebind<std::uint8_t, Shorts>(), from));
  const auto absent = hn::Gt(below, hn::Set(d, std::int16_t{2 * farthest_near}));
  return hn::IfThenElse(absent, hn::Set(d, absent_exponent_of<std::int16_t>), hn::Neg(below));
}

/// What makes fields of exponents.
struct FieldsOf {
  int bias;      // of the lanes' type
  int least;     // no exponent is below it
  int base = 0;  // added to exponents
};

/// The fields of exponents plus those of scales (none if null).
template <typename Exponent>
HWY_INLINE void MakeFields(const FieldsOf& of, const Exponent* exponents, const std::int16_t* scales,
                           std::int16_t* fields) {
  const Shorts d;
  for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
    auto sum = LoadExponents(d, exponents + column);
    if (scales != nullptr) sum = hn::Add(sum, hn::LoadU(d, scales + column));
    sum = hn::Max(hn::Add(sum, hn::Set(d, static_cast<std::int16_t>(of.base))),
                  hn::Set(d, static_cast<std::int16_t>(of.least)));
    hn::StoreU(hn::Add(sum, hn::Set(d, static_cast<std::int16_t>(of.bias))), d, fields + column);
  }
}

/// Four vectors: 2 rows x 2 vectors of columns. Independent sums hide the latency of one.
template <class D>
using Quad = hn::Vec<D>[tile_rows][2];

using Ints = hn::RebindToSigned<Floats>;

/// Passes of a loop at a time, so that the processor can foresee its end.
constexpr std::size_t unrolled = 8;

/// x cut toward zero to an integer; any number where that is not an int32. (ConvertTo spends instructions on those.)
HWY_INLINE hn::Vec<Ints> CutToInt(Floats /*d*/, hn::Vec<Floats> x) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  using Raw = decltype(hn::Vec<Ints>::raw);
  using Lanes __attribute__((vector_size(sizeof(Raw)))) = std::int32_t;
  return hn::Vec<Ints>{reinterpret_cast<Raw>(__builtin_convertvector(x.raw, Lanes))};
#else
  return hn::ConvertTo(Ints(), x);
#endif
}

/// sum += a product, cut to whole units.
HWY_INLINE void AddProduct(float a0, float a1, const float* b, const Quad<Floats>& units,
                           hn::Vec<Ints> (&sum)[tile_rows][2]) {
  const Floats d;
  const auto b0 = hn::LoadU(d, b);
  const auto b1 = hn::LoadU(d, b + hn::Lanes(d));
  const auto x0 = hn::Set(d, a0);
  const auto x1 = hn::Set(d, a1);
  sum[0][0] = hn::Add(sum[0][0], CutToInt(d, hn::Mul(hn::Mul(x0, b0), units[0][0])));
  sum[0][1] = hn::Add(sum[0][1], CutToInt(d, hn::Mul(hn::Mul(x0, b1), units[0][1])));
  sum[1][0] = hn::Add(sum[1][0], CutToInt(d, hn::Mul(hn::Mul(x1, b0), units[1][0])));
  sum[1][1] = hn::Add(sum[1][1], CutToInt(d, hn::Mul(hn::Mul(x1, b1), units[1][1])));
}
HWY_INLINE void AddProducts(std::size_t products, const float* a0, const float* a1, const float* b,
                            const Quad<Floats>& units, hn::Vec<Ints> (&sum)[tile_rows][2]) {
  std::size_t k = 0;
  for (; k + unrolled <= products; k += unrolled) {
#pragma GCC unroll 8
    for (std::size_t i = k; i < k + unrolled; ++i) AddProduct(a0[i], a1[i], b + i * tile_columns, units, sum);
  }
  for (; k < products; ++k) AddProduct(a0[k], a1[k], b + k * tile_columns, units, sum);
}

#if HWY_TARGET != HWY_SCALAR  // which has no words of four bytes

using Bytes = hn::CappedTag<std::int8_t, tile_columns>;

/// The lowest byte of each lane in its four bytes.
HWY_INLINE hn::Vec<Ints> FourBytes(hn::Vec<Ints> byte) {
  alignas(16) static constexpr std::uint8_t lowest[16] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
  const hn::Repartition<std::uint8_t, Ints> d;
  return hn::BitCast(Ints(), hn::TableLookupBytes(hn::BitCast(d, byte), hn::LoadDup128(d, lowest)));
}

constexpr std::size_t most_near_products = 32;

/// What is larger than a sum of near exponents: the largest of them is sought among bytes, or the least that says how
/// far it is below.
template <class D>
HWY_INLINE hn::Vec<D> Larger(hn::Vec<D> largest, hn::Vec<D> x, hn::Vec<D> y) {
  if constexpr (std::is_signed_v<hn::TFromD<D>>) {
    return hn::Max(largest, hn::Add(x, y));
  } else {
    return hn::Min(largest, hn::Add(x, y));
  }
}

/// Whether one of the sums may be that of exponents that are farther from the largest than bytes tell.
HWY_INLINE bool AnyFar(const std::uint8_t* top0, const std::uint8_t* top1) {
  const hn::CappedTag<std::uint8_t, tile_columns> d;
  const auto first = hn::Set(d, farthest_near);
  auto least = hn::Set(d, std::uint8_t{255});
  for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {  // what is below wraps
    least = hn::Min(least, hn::Sub(hn::LoadU(d, top0 + column), first));
    least = hn::Min(least, hn::Sub(hn::LoadU(d, top1 + column), first));
  }
  return !hn::AllTrue(d, hn::Gt(least, first));
}

/// The largest sums of near exponents, column by column.
template <typename Near>
HWY_INLINE void LargestNear(std::size_t products, const Near* a0, const Near* a1, const Near* b, Near* top0,
                            Near* top1) {
  using Nears = hn::CappedTag<Near, tile_columns>;
  const Nears d;
  const hn::Repartition<std::int32_t, Nears> di;
  const Ints words;
  const hn::Rebind<Near, Ints> bytes;
  alignas(64) std::int32_t left0[most_near_products];
  alignas(64) std::int32_t left1[most_near_products];
  for (std::size_t k = 0; k < products; k += hn::Lanes(words)) {
    hn::Store(FourBytes(hn::PromoteTo(words, hn::LoadU(bytes, a0 + k))), words, left0 + k);
    hn::Store(FourBytes(hn::PromoteTo(words, hn::LoadU(bytes, a1 + k))), words, left1 + k);
  }
  const auto absent =
      hn::Set(d, std::is_signed_v<Near> ? std::numeric_limits<Near>::min() : std::numeric_limits<Near>::max());
  for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
    auto largest0 = absent;
    auto largest1 = absent;
    const auto add = [&](std::size_t k) HWY_ATTR {
      const auto x = hn::LoadU(d, b + k * tile_columns + column);
      largest0 = Larger<Nears>(largest0, x, hn::BitCast(d, hn::Set(di, left0[k])));
      largest1 = Larger<Nears>(largest1, x, hn::BitCast(d, hn::Set(di, left1[k])));
    };
    std::size_t k = 0;
    for (; k + unrolled <= products; k += unrolled) {
#pragma GCC unroll 8
      for (std::size_t i = k; i < k + unrolled; ++i) add(i);
    }
    for (; k < products; ++k) add(k);
    hn::StoreU(largest0, d, top0 + column);
    hn::StoreU(largest1, d, top1 + column);
  }
}

#endif

/// c + x as IEEE 754 adds, `count` numbers. Two binary16 fit a float32, whose sum of them may be rounded again
/// (Figueroa, "When is double rounding innocuous?", 1995).
HWY_INLINE void AddLast(const FuseShape& shape, const float* x, std::size_t count, float* c) {
  const Floats d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto sum = hn::Add(hn::LoadU(d, c + i), hn::LoadU(d, x + i));
    hn::StoreU(shape.half ? RoundToHalf(d, sum) : sum, d, c + i);
  }
}

/// Makes an instruction of its steps: step(two rows of a, b, their accumulators). Every step is made in all rows before
/// the next, which needs its results.
template <typename Exponent, typename Step>
HWY_INLINE void Steps(const FuseShape& shape, const RowsOf<Exponent>& a, const FactorsOf<Exponent>& b,
                      float* accumulators, const Step& step) {
  alignas(64) float zeros[most_block_rows * tile_columns];
  float* const sums = shape.adds_c_last ? zeros : accumulators;
  if (shape.adds_c_last) std::fill_n(zeros, a.count * tile_columns, 0.0F);
  for (std::size_t i = 0; i < shape.steps; ++i) {
    const FactorsOf<Exponent> right = at_step(shape, b, i, tile_columns);
    for (std::size_t row = 0; row < a.count; row += tile_rows) {
      const std::size_t last = std::min(row + 1, a.count - 1);
      const FactorsOf<Exponent> rows[tile_rows] = {at_step(shape, a[row], i, 1), at_step(shape, a[last], i, 1)};
      float* const to[tile_rows] = {sums + row * tile_columns, sums + (row + 1) * tile_columns};
      step(rows, right, to);
    }
  }
  if (shape.adds_c_last) AddLast(shape, zeros, a.count * tile_columns, accumulators);
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
