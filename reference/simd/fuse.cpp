// SPDX-License-Identifier: Apache-2.0
// The fused step of a tensor core in float lanes. Why they give its bits:
// - A product of two factors is exact (at most 24 bits), and so is its scaling by a power of two: by the limits of
//   exponents it is a normal number.
// - It is cut toward zero, as the step wants, to a whole number of units. Such numbers are added exactly as int32: one
//   sum, or two of half the products each.
// - Powers of two are compared instead of exponents, so that a zero's is zero. Nothing is below 2^-limit: a floor of
//   the power there leaves every accumulator a whole number of units.
// - An int32 has no infinities and NaN: where there may be one, SpecialSums() finds what floats make of it. They add
// and
//   multiply them as the tensor core does, but that the sign and the payload of NaN differ.
#include "simd/fuse.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/fuse.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "simd/fuse-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// A number of units as a float, cut toward zero. If kOdd, the last bit of one that was cut is set, so that rounding it
/// to fewer bits is rounding the number.
template <bool kOdd>
HWY_INLINE hn::Vec<Floats> ToFloat(hn::Vec<Ints> units) {
  const Ints di;
  const Floats d;
#if HWY_TARGET <= HWY_AVX3  // whose conversion can cut
  const hn::Vec<Floats> cut{_mm512_cvt_roundepi32_ps(units.raw, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)};
  if constexpr (!kOdd) return cut;
  const auto back = CutToInt(d, cut);
  auto bits = hn::BitCast(di, cut);
#else
  const auto nearest = hn::ConvertTo(d, units);
  const auto back = CutToInt(d, nearest);                                         // below 2^31
  const auto above = hn::VecFromMask(di, hn::Gt(hn::Abs(back), hn::Abs(units)));  // -1 where it was rounded up
  auto bits = hn::Add(hn::BitCast(di, nearest), above);
#endif
  if constexpr (kOdd) {
    const auto exact = hn::Eq(back, units);
    bits = hn::IfThenElse(exact, bits, hn::Or(bits, hn::Set(di, 1)));
  }
  return hn::BitCast(d, bits);
}
/// Rounds a double that is a whole number in the same way.
template <bool kOdd>
HWY_INLINE hn::Vec<hn::Rebind<float, Doubles>> ToFloat(hn::Vec<Doubles> units) {
  const Doubles d;
  const hn::RebindToUnsigned<Doubles> du;
  const auto dropped = hn::Set(du, (std::uint64_t{1} << 29) - 1);
  const auto bits = hn::BitCast(du, units);
  auto cut = hn::AndNot(dropped, bits);
  if constexpr (kOdd) {
    const auto exact = hn::Eq(hn::And(bits, dropped), hn::Zero(du));
    cut = hn::IfThenElse(exact, cut, hn::Or(cut, hn::Set(du, std::uint64_t{1} << 29)));
  }
  return hn::DemoteTo(hn::Rebind<float, Doubles>(), hn::BitCast(d, cut));
}
/// Rounds the sum of two numbers in the same way, of any size.
template <bool kOdd>
HWY_INLINE hn::Vec<Floats> SumToFloat(hn::Vec<Ints> units, hn::Vec<Ints> more) {
  const auto sum = [](auto x, auto y) HWY_ATTR {
    return ToFloat<kOdd>(hn::Add(hn::PromoteTo(Doubles(), x), hn::PromoteTo(Doubles(), y)));
  };
#if HWY_TARGET == HWY_SCALAR
  return sum(units, more);
#else
  const hn::Half<Ints> half;
  const auto lower = sum(hn::LowerHalf(half, units), hn::LowerHalf(half, more));
  const auto upper = sum(hn::UpperHalf(half, units), hn::UpperHalf(half, more));
  return hn::Combine(Floats(), upper, lower);
#endif
}
/// Negative where ToFloat() may not take the sum of two numbers of units.
HWY_INLINE hn::Vec<Ints> TooLarge(hn::Vec<Ints> units, hn::Vec<Ints> more) {
#if HWY_TARGET <= HWY_AVX3  // whose conversion takes any int32
  const auto sum = hn::Add(units, more);
  return hn::And(hn::Xor(units, sum), hn::Xor(more, sum));
#else
  // Sums of smaller ones fit an int32, and so does their float32.
  return hn::Sub(hn::Set(Ints(), (1 << 30) - (1 << 6) - 1), hn::Max(hn::Abs(units), hn::Abs(more)));
#endif
}

/// The state of a fused step in two vectors of columns.
template <StepSum kSum>
struct Open {
  Quad<Floats> power;  // the power that terms are aligned to
  Quad<Floats> units;  // multiplies a product to make it a number of units
  hn::Vec<Ints> sum[tile_rows][2], more[tile_rows][2];
  hn::Vec<Floats> largest;  // of the accumulators' powers
};

/// Steps 1 and 2 but for the products. `scales`: the exponents of the columns' scales; null without.
template <StepSum kSum, bool kHalf>
HWY_INLINE void Begin(const FuseShape& shape, const std::int16_t* fields, const std::int16_t* scales,
                      const float* accumulators, std::size_t row, std::size_t column, Open<kSum>& open) {
  const Floats d;
  const Ints di;
#pragma GCC unroll 2
  for (std::size_t i = 0; i < 2; ++i) {
    const std::size_t at = column + i * hn::Lanes(d);
    const auto accumulator = hn::LoadU(d, accumulators + at);
    auto own = LeadingPower(d, accumulator);
    open.largest = hn::Max(open.largest, own);
    if constexpr (kHalf) {
      // An infinity, which is common here, stays one; units of its power would make products subnormal, which is slow.
      own = hn::IfThenZeroElse(hn::Eq(own, hn::Inf(d)), own);
      own = hn::IfThenZeroElse(hn::Eq(accumulator, hn::Zero(d)), hn::Max(own, Power(d, -14)));
    }
    const auto power = hn::Max(own, Powers(d, fields + at));
    auto units = UnitsIn(d, shape, power);
    open.power[row][i] = power;
    open.sum[row][i] = CutToInt(d, hn::Mul(accumulator, units));
    if constexpr (kSum == StepSum::int_pairs) open.more[row][i] = hn::Zero(di);
    if (scales != nullptr) {
      // Where the accumulator is far above, any small power makes products nothing.
      const auto exponents = hn::PromoteTo(di, hn::LoadU(hn::Rebind<std::int16_t, Floats>(), scales + at));
      const auto scaled = hn::Add(hn::BitCast(di, units), hn::ShiftLeft<23>(exponents));
      units = hn::BitCast(d, hn::Max(scaled, hn::BitCast(di, Power(d, -126))));
    }
    open.units[row][i] = units;
  }
}

template <StepSum kSum>
HWY_INLINE void AddAllProducts(std::size_t products, const float* a0, const float* a1, const float* b,
                               Open<kSum>& open) {
  if constexpr (kSum == StepSum::int_pairs) {
    const std::size_t half = products / 2;
    AddProducts(half, a0, a1, b, open.units, open.sum);
    AddProducts(half, a0 + half, a1 + half, b + half * tile_columns, open.units, open.more);
  } else {
    AddProducts(products, a0, a1, b, open.units, open.sum);
  }
}

/// Step 3: the sums as float32, in units of 2^-fraction_bits of the alignment power.
template <StepSum kSum, bool kHalf>
HWY_INLINE void ConvertSums(const Open<kSum>& open, Quad<Floats>& sums) {
  const Ints di;
  if constexpr (kSum == StepSum::int_pairs) {
    const auto large = [&](std::size_t row, std::size_t i)
                           HWY_ATTR { return TooLarge(open.sum[row][i], open.more[row][i]); };
    const auto any = hn::Or(hn::Or(large(0, 0), large(0, 1)), hn::Or(large(1, 0), large(1, 1)));
    if (!hn::AllFalse(di, hn::Lt(any, hn::Zero(di)))) {
      for (std::size_t row = 0; row < tile_rows; ++row) {
        for (std::size_t i = 0; i < 2; ++i) sums[row][i] = SumToFloat<kHalf>(open.sum[row][i], open.more[row][i]);
      }
      return;
    }
  }
#pragma GCC unroll 2
  for (std::size_t row = 0; row < tile_rows; ++row) {
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i) {
      auto units = open.sum[row][i];
      if constexpr (kSum == StepSum::int_pairs) units = hn::Add(units, open.more[row][i]);
      sums[row][i] = ToFloat<kHalf>(units);
    }
  }
}

/// The accumulator's word of such a sum.
template <bool kHalf>
HWY_INLINE hn::Vec<Floats> Rounded(const FuseShape& shape, hn::Vec<Floats> sum, hn::Vec<Floats> power) {
  const Floats d;
  const auto x = hn::Mul(hn::Mul(sum, Power(d, -shape.fraction_bits)), power);
  if constexpr (kHalf) return SignedZero(d, shape, x, RoundToHalf(d, x));
  if (shape.output_bits == 23) return x;
  const auto mask = hn::Set(hn::RebindToUnsigned<Floats>(), ~((std::uint32_t{1} << (23 - shape.output_bits)) - 1));
  return hn::And(x, hn::BitCast(d, mask));  // sums below 2^-126 do not occur
}

/// Replaces results by the infinities and NaN that terms of them make.
HWY_INLINE void SpecialSums(std::size_t products, const float* a0, const float* a1, const float* b,
                            float* const (&accumulators)[tile_rows], std::size_t column, Quad<Floats>& results) {
  const Floats d;
  Quad<Floats> sum;
  for (std::size_t row = 0; row < tile_rows; ++row) {
    for (std::size_t i = 0; i < 2; ++i) sum[row][i] = hn::LoadU(d, accumulators[row] + column + i * hn::Lanes(d));
  }
  for (std::size_t k = 0; k < products; ++k, b += tile_columns) {
    for (std::size_t i = 0; i < 2; ++i) {
      const auto right = hn::LoadU(d, b + i * hn::Lanes(d));
      sum[0][i] = hn::MulAdd(hn::Set(d, a0[k]), right, sum[0][i]);
      sum[1][i] = hn::MulAdd(hn::Set(d, a1[k]), right, sum[1][i]);
    }
  }
  for (std::size_t row = 0; row < tile_rows; ++row) {
    for (std::size_t i = 0; i < 2; ++i) {
      results[row][i] = hn::IfThenElse(hn::IsFinite(sum[row][i]), results[row][i], sum[row][i]);
    }
  }
}

/// The exponents that a fused step aligns its terms by, for two rows.
struct Alignment {
  alignas(64) std::int16_t fields[tile_rows][tile_columns];
  alignas(64) std::int16_t scales[tile_rows][tile_columns];  // exponents
  bool has_scales;
};

/// No field is below that of this exponent.
HWY_INLINE int LeastExponent(const FuseShape& shape) { return std::max(shape.least_exponent, -fuse_exponent_limit); }

/// The fields of a row's largest products.
template <typename Exponent>
HWY_INLINE void SetFields(const FuseShape& shape, std::size_t row, const Exponent* top, int base,
                          Alignment& alignment) {
  MakeFields({Bits<Floats>::bias, LeastExponent(shape), base}, top,
             alignment.has_scales ? alignment.scales[row] : nullptr, alignment.fields[row]);
}

#if HWY_TARGET != HWY_SCALAR
/// The same from how far their exponents are below `base`, where there are no scales.
HWY_INLINE void SetNearFields(const FuseShape& shape, std::size_t row, const std::uint8_t* below, int base,
                              Alignment& alignment) {
  const hn::CappedTag<std::uint8_t, hn::MaxLanes(Shorts())> d;
  const Shorts ds;
  // Where all are absent, the base is any number.
  const auto highest = hn::Set(d, static_cast<std::uint8_t>(std::clamp(base + Bits<Floats>::bias, 0, 254)));
  const auto least =
      hn::Set(d, static_cast<std::uint8_t>(std::clamp(LeastExponent(shape) + Bits<Floats>::bias, 0, 254)));
  const auto farthest = hn::Set(d, std::uint8_t{2 * farthest_near});
  for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, below + column);
    const auto field = hn::IfThenZeroElse(hn::Gt(x, farthest), hn::SaturatedSub(highest, x));
    hn::StoreU(hn::PromoteTo(ds, hn::Max(field, least)), ds, alignment.fields[row] + column);
  }
}

/// By the exponents in bytes. Returns false where these do not tell.
template <typename Exponent>
HWY_INLINE bool AlignNear(const FuseShape& shape, const FactorsOf<Exponent> (&a)[tile_rows],
                          const FactorsOf<Exponent>& b, Alignment& alignment) {
  if (shape.products > most_near_products) return false;
  alignas(64) NearOf<Exponent> top[tile_rows][tile_columns];
  LargestNear(shape.products, a[0].near, a[1].near, b.near, top[0], top[1]);
  if constexpr (sizeof(Exponent) == 2) {
    if (AnyFar(top[0], top[1])) return false;
  }
  for (std::size_t row = 0; row < tile_rows; ++row) {
    const int base = a[row].near_base + b.near_base;
    if constexpr (sizeof(Exponent) == 2) {
      if (!alignment.has_scales) {
        SetNearFields(shape, row, top[row], base, alignment);
        continue;
      }
    }
    SetFields(shape, row, top[row], base, alignment);
  }
  return true;
}
#endif

template <typename Exponent>
HWY_INLINE void Align(const FuseShape& shape, const FactorsOf<Exponent> (&a)[tile_rows], const FactorsOf<Exponent>& b,
                      Alignment& alignment) {
  alignment.has_scales = shape.block != 0;
  for (std::size_t row = 0; alignment.has_scales && row < tile_rows; ++row) {
    AddScaleExponents(*a[row].scale_exponents, b.scale_exponents, alignment.scales[row]);
  }
#if HWY_TARGET != HWY_SCALAR
  if (AlignNear(shape, a, b, alignment)) return;
#endif
  alignas(64) Exponent top[tile_rows][tile_columns];
  LargestExponents(shape.products, a[0].exponents, a[1].exponents, b.exponents, top[0], top[1]);
  for (std::size_t row = 0; row < tile_rows; ++row) SetFields(shape, row, top[row], 0, alignment);
}

/// A fused step in two vectors of columns.
template <StepSum kSum, bool kHalf, typename Exponent>
HWY_INLINE void StepInColumns(const FuseShape& shape, const FactorsOf<Exponent> (&a)[tile_rows], const float* b,
                              const Alignment& alignment, bool special, std::size_t column,
                              float* const (&accumulators)[tile_rows]) {
  const Floats d;
  Open<kSum> open;
  open.largest = hn::Zero(d);
#pragma GCC unroll 2
  for (std::size_t row = 0; row < tile_rows; ++row) {
    const std::int16_t* const scales = alignment.has_scales ? alignment.scales[row] : nullptr;
    Begin<kSum, kHalf>(shape, alignment.fields[row], scales, accumulators[row], row, column, open);
  }
  const bool infinite = !hn::AllTrue(d, hn::Lt(open.largest, hn::Inf(d)));  // or NaN
  AddAllProducts(shape.products, a[0].values, a[1].values, b, open);
  Quad<Floats> results;
  ConvertSums<kSum, kHalf>(open, results);
#pragma GCC unroll 2
  for (std::size_t row = 0; row < tile_rows; ++row) {
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i) results[row][i] = Rounded<kHalf>(shape, results[row][i], open.power[row][i]);
  }
  if (special || infinite) {
    SpecialSums(shape.products, a[0].values, a[1].values, b, accumulators, column, results);
  }
#pragma GCC unroll 2
  for (std::size_t row = 0; row < tile_rows; ++row) {
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i) {
      hn::StoreU(results[row][i], d, accumulators[row] + column + i * hn::Lanes(d));
    }
  }
}

template <StepSum kSum, bool kHalf, typename Exponent>
HWY_INLINE void Step(const FuseShape& shape, const FactorsOf<Exponent> (&a)[tile_rows], const FactorsOf<Exponent>& b,
                     float* const (&accumulators)[tile_rows]) {
  Alignment alignment;
  Align(shape, a, b, alignment);
  const bool special = a[0].special || a[1].special || b.special;
  for (std::size_t column = 0; column < tile_columns; column += 2 * hn::Lanes(Floats())) {
    StepInColumns<kSum, kHalf>(shape, a, b.values + column, alignment, special, column, accumulators);
  }
}

template <StepSum kSum, bool kHalf, typename Exponent>
HWY_INLINE void StepsOf(const FuseShape& given, const RowsOf<Exponent>& a, const FactorsOf<Exponent>& b,
                        float* accumulators) {
  const FuseShape shape = given;  // a copy that no vector store can change: it stays in registers
  Steps(shape, a, b, accumulators,
        [&](const FactorsOf<Exponent>(&rows)[tile_rows], const FactorsOf<Exponent>& right,
            float* const(&sums)[tile_rows]) HWY_ATTR { Step<kSum, kHalf>(shape, rows, right, sums); });
}
template <StepSum kSum, typename Exponent>
HWY_INLINE void StepsOf(const FuseShape& shape, const RowsOf<Exponent>& a, const FactorsOf<Exponent>& b,
                        float* accumulators) {
  if constexpr (sizeof(Exponent) == 1) {  // binary16 is what FP16 and FP8 are added in
    if (shape.half) return StepsOf<kSum, true>(shape, a, b, accumulators);
  }
  StepsOf<kSum, false>(shape, a, b, accumulators);
}

template <typename Exponent>
HWY_INLINE void StepsOf(const FuseShape& shape, const RowsOf<Exponent>& a, const FactorsOf<Exponent>& b,
                        float* accumulators) {
  if (shape.sum == StepSum::int_pairs) return StepsOf<StepSum::int_pairs>(shape, a, b, accumulators);
  StepsOf<StepSum::ints>(shape, a, b, accumulators);
}

HWY_ATTR void FuseNarrow(const FuseShape& shape, const NarrowRows& a, const NarrowFactors& b, float* accumulators) {
  StepsOf(shape, a, b, accumulators);
}
HWY_ATTR void Fuse(const FuseShape& shape, const WideRows& a, const WideFactors& b, float* accumulators) {
  StepsOf(shape, a, b, accumulators);
}

/// As find_exponents() does, in vectors of `d`, of which there is a whole number.
template <typename Exponent, typename D>
HWY_INLINE bool FindExponents(D d, int least, bool flushes, float* values, std::size_t count, Exponent* exponents) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<Exponent, D> de;
  const auto lowest = hn::Set(di, least);
  const auto least_normal = hn::BitCast(d, hn::ShiftLeft<23>(hn::Set(di, flushes ? least + Bits<Floats>::bias : 0)));
  const auto absent = hn::Set(di, std::int32_t{absent_exponent_of<Exponent>});
  auto any = hn::Zero(di);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    auto x = hn::LoadU(d, values + i);
    x = hn::IfThenZeroElse(hn::Lt(hn::Abs(x), least_normal), x);
    const auto magnitude = hn::BitCast(di, hn::Abs(x));
    const auto field = hn::ShiftRight<23>(magnitude);
    const auto special = hn::Eq(field, hn::Set(di, 0xFF));
    const auto has_none = hn::Or(special, hn::Eq(magnitude, hn::Zero(di)));
    const auto exponent = hn::Max(hn::Sub(field, hn::Set(di, Bits<Floats>::bias)), lowest);
    any = hn::Or(any, hn::VecFromMask(di, special));
    if (flushes) hn::StoreU(x, d, values + i);
    hn::StoreU(hn::DemoteTo(de, hn::IfThenElse(has_none, absent, exponent)), de, exponents + i);
  }
  return !hn::AllTrue(di, hn::Eq(any, hn::Zero(di)));
}
template <typename Exponent>
HWY_INLINE bool FindAllExponents(int least, bool flushes, float* values, std::size_t count, Exponent* exponents) {
  const Floats d;
  const std::size_t whole = count / hn::Lanes(d) * hn::Lanes(d);
  const bool first = FindExponents(d, least, flushes, values, whole, exponents);
  const bool last =
      FindExponents(hn::CappedTag<float, 1>(), least, flushes, values + whole, count - whole, exponents + whole);
  return first || last;
}
HWY_ATTR bool FindNarrowExponents(int least, bool flushes, float* values, std::size_t count, std::int8_t* exponents) {
  return FindAllExponents(least, flushes, values, count, exponents);
}
/// As near_exponents() does, in vectors of `d`, of which there is a whole number.
template <typename D>
HWY_INLINE void MakeNear(D d, const std::int16_t* exponents, std::size_t count, int largest, std::uint8_t* near) {
  const hn::Rebind<std::uint8_t, D> d8;
  const auto base = hn::Set(d, static_cast<std::int16_t>(largest));
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, exponents + i);
    const auto is_absent = hn::Eq(x, hn::Set(d, absent_exponent_of<std::int16_t>));
    const auto below = hn::Min(hn::Sub(base, x), hn::Set(d, std::int16_t{farthest_near}));
    hn::StoreU(hn::DemoteTo(d8, hn::IfThenElse(is_absent, hn::Set(d, absent_near), below)), d8, near + i);
  }
}
HWY_ATTR void NearExponents(const std::int16_t* exponents, std::size_t count, int largest, std::uint8_t* near) {
  const Shorts d;
  const std::size_t whole = count / hn::Lanes(d) * hn::Lanes(d);
  MakeNear(d, exponents, whole, largest, near);
  MakeNear(hn::CappedTag<std::int16_t, 1>(), exponents + whole, count - whole, largest, near + whole);
}

/// Widens a range by exponents, in vectors of `d`, of which there is a whole number.
template <typename D>
HWY_INLINE void Widen(D d, const std::int16_t* exponents, std::size_t count, ExponentRange& range) {
  auto low = hn::Set(d, static_cast<std::int16_t>(range.low));
  auto high = hn::Set(d, static_cast<std::int16_t>(range.high));
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, exponents + i);
    const auto is_absent = hn::Eq(x, hn::Set(d, absent_exponent_of<std::int16_t>));
    low = hn::Min(low, hn::IfThenElse(is_absent, low, x));
    high = hn::Max(high, x);
  }
  alignas(64) std::int16_t lanes[hn::MaxLanes(d)];
  hn::Store(low, d, lanes);
  range.low = *std::min_element(lanes, lanes + hn::Lanes(d));
  hn::Store(high, d, lanes);
  range.high = *std::max_element(lanes, lanes + hn::Lanes(d));
}
HWY_ATTR void RangeOf(const std::int16_t* exponents, std::size_t count, ExponentRange& range) {
  const Shorts d;
  const std::size_t whole = count / hn::Lanes(d) * hn::Lanes(d);
  Widen(d, exponents, whole, range);
  Widen(hn::CappedTag<std::int16_t, 1>(), exponents + whole, count - whole, range);
}

HWY_ATTR bool FindWideExponents(int least, bool flushes, float* values, std::size_t count, std::int16_t* exponents) {
  return FindAllExponents(least, flushes, values, count, exponents);
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(FuseNarrow);
HWY_EXPORT(Fuse);
HWY_EXPORT(FindNarrowExponents);
HWY_EXPORT(FindWideExponents);
HWY_EXPORT(NearExponents);
HWY_EXPORT(RangeOf);

void fuse(const FuseShape& shape, const NarrowRows& a, const NarrowFactors& b, float* accumulators) {
  HWY_DYNAMIC_DISPATCH(FuseNarrow)(shape, a, b, accumulators);
}
void fuse(const FuseShape& shape, const WideRows& a, const WideFactors& b, float* accumulators) {
  HWY_DYNAMIC_DISPATCH(Fuse)(shape, a, b, accumulators);
}
bool find_exponents(int least, bool flushes, std::span<float> values, std::int8_t* exponents) {
  return HWY_DYNAMIC_DISPATCH(FindNarrowExponents)(least, flushes, values.data(), values.size(), exponents);
}
bool find_exponents(int least, bool flushes, std::span<float> values, std::int16_t* exponents) {
  return HWY_DYNAMIC_DISPATCH(FindWideExponents)(least, flushes, values.data(), values.size(), exponents);
}
ExponentRange range_of(std::span<const std::int16_t> exponents) {
  ExponentRange range{-absent_exponent_of<std::int16_t>, absent_exponent_of<std::int16_t>};
  HWY_DYNAMIC_DISPATCH(RangeOf)(exponents.data(), exponents.size(), range);
  return range;
}
void near_exponents(std::span<const std::int16_t> exponents, int largest, std::uint8_t* near) {
  HWY_DYNAMIC_DISPATCH(NearExponents)(exponents.data(), exponents.size(), largest, near);
}

}  // namespace fp8lab
#endif
