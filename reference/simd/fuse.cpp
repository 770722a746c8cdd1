// SPDX-License-Identifier: Apache-2.0
// The fused step of a tensor core in floating-point lanes. Why they give its bits:
// - A product of two factors is exact (at most 24 bits), and so is its scaling by a power of two.
// - Trunc cuts toward zero, as the step wants. The cut terms are integers whose sum stays below 2^24 in float lanes and
//   2^53 in double lanes, by the preconditions: adding them is exact.
// - Powers of two are compared instead of exponents, so that a zero's is zero.
// - Infinities and NaN add and multiply as the tensor core's do, but that the sign and the payload of NaN differ.
#include "simd/fuse.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/fuse.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Doubles = hn::CappedTag<double, 8>;

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

/// Below any power that a product that counts has, and far enough above the least of a lane.
template <class D>
constexpr int least_exponent = -100;
template <>
constexpr int least_exponent<Doubles> = -700;

/// The power of two with the exponent field `field` (the biased exponent).
template <class D>
HWY_INLINE hn::Vec<D> Power(D d, int exponent) {
  using Word = hn::TFromD<hn::RebindToUnsigned<D>>;
  return hn::BitCast(
      d, hn::Set(hn::RebindToUnsigned<D>(), static_cast<Word>(exponent + Bits<D>::bias) << Bits<D>::mantissa));
}

/// 2^exponent of exponents in memory.
HWY_INLINE hn::Vec<Floats> Powers(Floats d, const std::int8_t* exponents) {
  const hn::RebindToSigned<Floats> di;
  const auto wide = hn::PromoteTo(di, hn::LoadU(hn::Rebind<std::int8_t, Floats>(), exponents));
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(wide, hn::Set(di, 127))));
}
HWY_INLINE hn::Vec<Doubles> Powers(Doubles d, const std::int16_t* exponents) {
  const hn::RebindToSigned<Doubles> di;
  const auto words = hn::LoadU(hn::Rebind<std::int16_t, Doubles>(), exponents);
  const auto wide = hn::PromoteTo(di, hn::PromoteTo(hn::Rebind<std::int32_t, Doubles>(), words));
  return hn::BitCast(d, hn::ShiftLeft<52>(hn::Add(wide, hn::Set(di, 1023))));
}

HWY_INLINE hn::Vec<Floats> LoadFloats(Floats d, const float* from) { return hn::LoadU(d, from); }
HWY_INLINE hn::Vec<Doubles> LoadFloats(Doubles d, const float* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, Doubles>(), from));
}
HWY_INLINE void StoreFloats(Floats d, hn::Vec<Floats> x, float* to) { hn::StoreU(x, d, to); }
/// Rounds to nearest even where the lanes are not floats.
HWY_INLINE void StoreFloats(Doubles /*d*/, hn::Vec<Doubles> x, float* to) {
  const hn::Rebind<float, Doubles> df;
  hn::StoreU(hn::DemoteTo(df, x), df, to);
}

/// The power of two of x's leading bit; 0 for 0.
template <class D>
HWY_INLINE hn::Vec<D> LeadingPower(D d, hn::Vec<D> x) {
  return hn::And(x, hn::Inf(d));
}

/// Step 1 of a fused step: the power of two that terms are aligned to, given that of the products.
template <class D>
HWY_INLINE hn::Vec<D> AlignmentPower(D d, const FuseShape& shape, hn::Vec<D> accumulator, hn::Vec<D> products) {
  const auto subnormal = Power(d, shape.half ? -14 : -126);  // the power of subnormal accumulators
  auto own = hn::Max(LeadingPower(d, accumulator), subnormal);
  // The power of an infinite accumulator would make units so small that scales could turn them to zero.
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(double)) own = hn::Min(own, Power(d, 128));
  const auto counts = hn::IfThenZeroElse(hn::Eq(accumulator, hn::Zero(d)), own);
  return hn::Max(hn::Max(counts, products), Power(d, std::max(shape.least_exponent, least_exponent<D>)));
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

/// x cut to binary32 or e8m13, given as float lanes, which hold all of x: |x| is zero or far above 2^-126.
HWY_INLINE hn::Vec<Floats> Cut(Floats d, const FuseShape& shape, hn::Vec<Floats> x) {
  const auto mask = hn::Set(hn::RebindToUnsigned<Floats>(), ~((std::uint32_t{1} << (23 - shape.output_bits)) - 1));
  return hn::And(x, hn::BitCast(d, mask));
}
HWY_INLINE hn::Vec<Doubles> Cut(Doubles d, const FuseShape& shape, hn::Vec<Doubles> x) {
  const int dropped = 52 - shape.output_bits;
  const auto mask = hn::Set(hn::RebindToUnsigned<Doubles>(), ~((std::uint64_t{1} << dropped) - 1));
  const auto magnitude = hn::Abs(x);
  const auto normal = hn::And(x, hn::BitCast(d, mask));
  const int least = -126 - shape.output_bits;  // the exponent of the least subnormal
  const auto subnormal = hn::Mul(hn::Trunc(hn::Mul(x, Power(d, -least))), Power(d, least));
  const auto finite = hn::IfThenElse(hn::Lt(magnitude, Power(d, -126)), subnormal, normal);
  return hn::IfThenElse(hn::Ge(magnitude, Power(d, 128)), hn::CopySign(hn::Inf(d), x), finite);
}

/// Step 3: the sum, in units of 2^-fraction_bits of the alignment power, as the accumulator's word.
template <class D>
HWY_INLINE hn::Vec<D> Converted(D d, const FuseShape& shape, hn::Vec<D> sum, hn::Vec<D> power) {
  const auto x = hn::Mul(hn::Mul(sum, Power(d, -shape.fraction_bits)), power);
  const auto result = hn::Add(shape.half ? RoundToHalf(d, x) : Cut(d, shape, x), hn::Zero(d));
  if (!shape.keeps_sign) return result;
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::CopySign(result, x), result);
}

/// 2^fraction_bits / power: what makes a term a number of units.
template <class D>
HWY_INLINE hn::Vec<D> UnitsIn(D d, const FuseShape& shape, hn::Vec<D> power) {
  using Words = hn::RebindToUnsigned<D>;
  using Word = hn::TFromD<Words>;
  const auto base = hn::Set(Words(), static_cast<Word>(2 * Bits<D>::bias + shape.fraction_bits) << Bits<D>::mantissa);
  return hn::BitCast(d, hn::Sub(base, hn::BitCast(Words(), power)));
}

/// The largest exponent of the products, column by column.
template <typename Exponent>
HWY_INLINE void LargestExponents(std::size_t products, const Exponent* a0, const Exponent* a1, const Exponent* b,
                                 Exponent* top0, Exponent* top1) {
  const hn::CappedTag<Exponent, tile_columns> d;
  for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
    auto largest0 = hn::Set(d, absent_exponent_of<Exponent>);
    auto largest1 = largest0;
    for (std::size_t k = 0; k < products; ++k) {
      const auto right = hn::LoadU(d, b + k * tile_columns + column);
      largest0 = hn::Max(largest0, hn::SaturatedAdd(right, hn::Set(d, a0[k])));
      largest1 = hn::Max(largest1, hn::SaturatedAdd(right, hn::Set(d, a1[k])));
    }
    hn::StoreU(largest0, d, top0 + column);
    hn::StoreU(largest1, d, top1 + column);
  }
}

/// exponents = exponents + a + b (none if null), column by column, no less than the least that Powers() takes.
HWY_INLINE void AddExponents(std::int16_t a, const std::int16_t* b, std::int16_t* exponents) {
  const hn::CappedTag<std::int16_t, tile_columns> d;
  const auto least = hn::Set(d, least_exponent<Doubles>);
  for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
    auto sum = hn::Add(hn::LoadU(d, exponents + column), hn::Set(d, a));
    if (b != nullptr) sum = hn::Add(sum, hn::LoadU(d, b + column));
    hn::StoreU(hn::Max(sum, least), d, exponents + column);
  }
}

/// Takes the exponents of groups without a product that is not zero away, column by column: `a` and `b` tell by a bit a
/// factor which are not.
HWY_INLINE void DropEmptyGroups(std::uint16_t a, const std::uint16_t* b, std::int16_t* exponents) {
  const hn::CappedTag<std::int16_t, tile_columns> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
    const auto products = hn::BitCast(d, hn::And(hn::LoadU(du, b + column), hn::Set(du, a)));
    const auto own = hn::LoadU(d, exponents + column);
    const auto least = hn::Set(d, least_exponent<Doubles>);
    hn::StoreU(hn::IfThenElse(hn::Eq(products, hn::Zero(d)), least, own), d, exponents + column);
  }
}

/// Four vectors: 2 rows x 2 vectors of columns. Independent sums hide the latency of one.
template <class D>
using Quad = hn::Vec<D>[tile_rows][2];

/// Step 2: sum += products, cut to whole units.
template <class D, typename T>
HWY_INLINE void AddProducts(D d, std::size_t products, const T* a0, const T* a1, const T* b, const Quad<D>& units,
                            Quad<D>& sum) {
  for (std::size_t k = 0; k < products; ++k, b += tile_columns) {
    const auto b0 = hn::LoadU(d, b);
    const auto b1 = hn::LoadU(d, b + hn::Lanes(d));
    const auto x0 = hn::Set(d, a0[k]);
    const auto x1 = hn::Set(d, a1[k]);
    sum[0][0] = hn::Add(sum[0][0], hn::Trunc(hn::Mul(hn::Mul(x0, b0), units[0][0])));
    sum[0][1] = hn::Add(sum[0][1], hn::Trunc(hn::Mul(hn::Mul(x0, b1), units[0][1])));
    sum[1][0] = hn::Add(sum[1][0], hn::Trunc(hn::Mul(hn::Mul(x1, b0), units[1][0])));
    sum[1][1] = hn::Add(sum[1][1], hn::Trunc(hn::Mul(hn::Mul(x1, b1), units[1][1])));
  }
}

/// The same where no product loses bits: their sum is exact, and so is its number of units.
template <class D, typename T>
HWY_INLINE void AddWholeProducts(D d, std::size_t products, const T* a0, const T* a1, const T* b, const Quad<D>& units,
                                 Quad<D>& sum) {
  Quad<D> dot = {{hn::Zero(d), hn::Zero(d)}, {hn::Zero(d), hn::Zero(d)}};
  for (std::size_t k = 0; k < products; ++k, b += tile_columns) {
    const auto b0 = hn::LoadU(d, b);
    const auto b1 = hn::LoadU(d, b + hn::Lanes(d));
    dot[0][0] = hn::MulAdd(hn::Set(d, a0[k]), b0, dot[0][0]);
    dot[0][1] = hn::MulAdd(hn::Set(d, a0[k]), b1, dot[0][1]);
    dot[1][0] = hn::MulAdd(hn::Set(d, a1[k]), b0, dot[1][0]);
    dot[1][1] = hn::MulAdd(hn::Set(d, a1[k]), b1, dot[1][1]);
  }
  for (std::size_t row = 0; row < tile_rows; ++row) {
    for (std::size_t i = 0; i < 2; ++i) sum[row][i] = hn::MulAdd(dot[row][i], units[row][i], sum[row][i]);
  }
}

/// Where a step finds its factors.
template <typename Value, typename Exponent>
HWY_INLINE FactorsOf<Value, Exponent> At(const FuseShape& shape, const FactorsOf<Value, Exponent>& x, std::size_t step,
                                         std::size_t width) {
  const std::size_t k = step * shape.products;
  const std::size_t block = shape.block == 0 ? 0 : k / shape.block;
  return {x.values + k * width,     x.exponents + k * width,           x.grids + step * width,
          x.scales + block * width, x.scale_exponents + block * width, x.nonzero};
}

/// A row's largest exponents of products, and the grids of products times 2^fraction_bits, with their scales'.
HWY_INLINE void AddScales(const FuseShape& shape, const WideFactors& a, const WideFactors& b, std::int16_t* top,
                          std::int16_t* grid) {
  for (std::size_t column = 0; column < tile_columns; ++column) {
    grid[column] = static_cast<std::int16_t>(*a.grids + shape.fraction_bits);
  }
  AddExponents(0, b.grids, grid);
  if (shape.block != 0) AddExponents(*a.scale_exponents, b.scale_exponents, grid);
  AddExponents(shape.block == 0 ? std::int16_t{0} : *a.scale_exponents, shape.block == 0 ? nullptr : b.scale_exponents,
               top);
}

/// The state of a fused step in two vectors of columns.
template <class D>
struct Open {
  Quad<D> power;  // the power that terms are aligned to
  Quad<D> units;  // multiplies a product to make it a number of units
  Quad<D> sum;
  bool whole;  // no product loses bits
};

/// Steps 1 and 2 but for the products.
template <class D, typename Value, typename Exponent>
HWY_INLINE void Begin(D d, const FuseShape& shape, const FactorsOf<Value, Exponent>& a,
                      const FactorsOf<Value, Exponent>& b, const Exponent* top, const std::int16_t* grid,
                      const float* accumulators, std::size_t row, std::size_t column, Open<D>& open) {
  for (std::size_t i = 0; i < 2; ++i) {
    const std::size_t at = column + i * hn::Lanes(d);
    const auto accumulator = LoadFloats(d, accumulators + at);
    const auto power = AlignmentPower(d, shape, accumulator, Powers(d, top + at));
    auto units = UnitsIn(d, shape, power);
    open.power[row][i] = power;
    open.sum[row][i] = hn::Trunc(hn::Mul(accumulator, units));
    if constexpr (sizeof(Exponent) == 2) {
      open.whole = open.whole && hn::AllTrue(d, hn::Le(power, Powers(d, grid + at)));
      if (shape.block != 0) units = hn::Mul(units, hn::Mul(hn::Set(d, *a.scales), hn::LoadU(d, b.scales + at)));
    }
    open.units[row][i] = units;
  }
}

/// A fused step.
template <class D, typename Value, typename Exponent>
HWY_INLINE void Step(D d, const FuseShape& shape, const FactorsOf<Value, Exponent> (&a)[tile_rows],
                     const FactorsOf<Value, Exponent>& b, float* const (&accumulators)[tile_rows]) {
  constexpr bool wide = sizeof(Exponent) == 2;
  alignas(64) Exponent top[tile_rows][tile_columns];
  alignas(64) std::int16_t grid[tile_rows][tile_columns];
  LargestExponents(shape.products, a[0].exponents, a[1].exponents, b.exponents, top[0], top[1]);
  if constexpr (wide) {
    for (std::size_t row = 0; row < tile_rows; ++row) AddScales(shape, a[row], b, top[row], grid[row]);
  }
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t column = 0; column < tile_columns; column += 2 * lanes) {
    Open<D> open;
    open.whole = wide;
    for (std::size_t row = 0; row < tile_rows; ++row) {
      Begin(d, shape, a[row], b, top[row], grid[row], accumulators[row], row, column, open);
    }
    if (open.whole) {
      AddWholeProducts(d, shape.products, a[0].values, a[1].values, b.values + column, open.units, open.sum);
    } else {
      AddProducts(d, shape.products, a[0].values, a[1].values, b.values + column, open.units, open.sum);
    }
    for (std::size_t row = 0; row < tile_rows; ++row) {
      for (std::size_t i = 0; i < 2; ++i) {
        StoreFloats(d, Converted(d, shape, open.sum[row][i], open.power[row][i]),
                    accumulators[row] + column + i * lanes);
      }
    }
  }
}

/// c + x as IEEE 754 adds: a double holds enough of the sum of two floats that rounding it again is innocuous
/// (Figueroa, "When is double rounding innocuous?", 1995).
HWY_INLINE void AddLast(const FuseShape& shape, const float* x, float* c) {
  const Doubles d;
  for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
    const auto sum = hn::Add(LoadFloats(d, c + column), LoadFloats(d, x + column));
    StoreFloats(d, shape.half ? RoundToHalf(d, sum) : sum, c + column);
  }
}

template <class D, typename Value, typename Exponent>
HWY_INLINE void Steps(D d, const FuseShape& shape, const FactorsOf<Value, Exponent>& a0,
                      const FactorsOf<Value, Exponent>& a1, const FactorsOf<Value, Exponent>& b,
                      float* const (&accumulators)[tile_rows]) {
  for (std::size_t step = 0; step < shape.steps; ++step) {
    const FactorsOf<Value, Exponent> rows[tile_rows] = {At(shape, a0, step, 1), At(shape, a1, step, 1)};
    Step(d, shape, rows, At(shape, b, step, tile_columns), accumulators);
  }
}

HWY_ATTR void FuseNarrow(const FuseShape& shape, const NarrowFactors& a0, const NarrowFactors& a1,
                         const NarrowFactors& b, float* accumulators0, float* accumulators1) {
  Steps(Floats(), shape, a0, a1, b, {accumulators0, accumulators1});
}
HWY_ATTR void FuseWide(const FuseShape& shape, const WideFactors& a0, const WideFactors& a1, const WideFactors& b,
                       float* accumulators0, float* accumulators1) {
  if (!shape.adds_c_last) return Steps(Doubles(), shape, a0, a1, b, {accumulators0, accumulators1});
  alignas(64) float sums[tile_rows][tile_columns] = {};
  Steps(Doubles(), shape, a0, a1, b, {sums[0], sums[1]});
  AddLast(shape, sums[0], accumulators0);
  AddLast(shape, sums[1], accumulators1);
}

/// The exact sums of a group's products.
HWY_INLINE void SumGroup(std::size_t products, const float* a0, const float* a1, const float* b, float* out0,
                         float* out1) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t column = 0; column < tile_columns; column += 2 * lanes) {
    Quad<Floats> sum = {{hn::Zero(d), hn::Zero(d)}, {hn::Zero(d), hn::Zero(d)}};
    for (std::size_t k = 0; k < products; ++k) {
      const auto b0 = hn::LoadU(d, b + k * tile_columns + column);
      const auto b1 = hn::LoadU(d, b + k * tile_columns + column + lanes);
      sum[0][0] = hn::MulAdd(hn::Set(d, a0[k]), b0, sum[0][0]);
      sum[0][1] = hn::MulAdd(hn::Set(d, a0[k]), b1, sum[0][1]);
      sum[1][0] = hn::MulAdd(hn::Set(d, a1[k]), b0, sum[1][0]);
      sum[1][1] = hn::MulAdd(hn::Set(d, a1[k]), b1, sum[1][1]);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      hn::StoreU(sum[0][i], d, out0 + column + i * lanes);
      hn::StoreU(sum[1][i], d, out1 + column + i * lanes);
    }
  }
}

/// Aligns a row's groups, with their scales, and the accumulators, and adds.
HWY_INLINE void AddGroups(const FuseShape& shape, const NarrowFactors& a, const NarrowFactors& b,
                          const float (&sums)[most_groups][tile_columns], float* accumulators) {
  const Doubles d;
  const std::size_t group_products = shape.products / shape.groups;
  alignas(64) std::int16_t exponents[most_groups][tile_columns] = {};
  for (std::size_t group = 0; group < shape.groups; ++group) {
    const std::size_t block = group * group_products / shape.block;
    AddExponents(a.scale_exponents[block], b.scale_exponents + block * tile_columns, exponents[group]);
    if (!shape.empty_groups_count) {
      DropEmptyGroups(a.nonzero[group], b.nonzero + group * tile_columns, exponents[group]);
    }
  }
  for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
    const auto accumulator = LoadFloats(d, accumulators + column);
    auto products = hn::Zero(d);
    for (std::size_t group = 0; group < shape.groups; ++group) {
      products = hn::Max(products, Powers(d, exponents[group] + column));
    }
    const auto power = AlignmentPower(d, shape, accumulator, products);
    const auto units = UnitsIn(d, shape, power);
    auto sum = hn::Trunc(hn::Mul(accumulator, units));
    for (std::size_t group = 0; group < shape.groups; ++group) {
      const std::size_t block = group * group_products / shape.block;
      const auto scale = hn::Mul(hn::Set(d, a.scales[block]), hn::LoadU(d, b.scales + block * tile_columns + column));
      const auto products_sum = LoadFloats(d, sums[group] + column);
      sum = hn::Add(sum, hn::Trunc(hn::Mul(products_sum, hn::Mul(scale, units))));
    }
    StoreFloats(d, Converted(d, shape, sum, power), accumulators + column);
  }
}

HWY_ATTR void FuseGroups(const FuseShape& shape, const NarrowFactors& a0, const NarrowFactors& a1,
                         const NarrowFactors& b, float* accumulators0, float* accumulators1) {
  alignas(64) float sums[tile_rows][most_groups][tile_columns];
  const std::size_t products = shape.products / shape.groups;
  for (std::size_t group = 0; group < shape.groups; ++group) {
    const std::size_t k = group * products;
    SumGroup(products, a0.values + k, a1.values + k, b.values + k * tile_columns, sums[0][group], sums[1][group]);
  }
  AddGroups(shape, a0, b, sums[0], accumulators0);
  AddGroups(shape, a1, b, sums[1], accumulators1);
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(FuseNarrow);
HWY_EXPORT(FuseWide);
HWY_EXPORT(FuseGroups);

void fuse(const FuseShape& shape, const NarrowFactors& a0, const NarrowFactors& a1, const NarrowFactors& b,
          float* accumulators0, float* accumulators1) {
  HWY_DYNAMIC_DISPATCH(FuseNarrow)(shape, a0, a1, b, accumulators0, accumulators1);
}
void fuse(const FuseShape& shape, const WideFactors& a0, const WideFactors& a1, const WideFactors& b,
          float* accumulators0, float* accumulators1) {
  HWY_DYNAMIC_DISPATCH(FuseWide)(shape, a0, a1, b, accumulators0, accumulators1);
}
void fuse_groups(const FuseShape& shape, const NarrowFactors& a0, const NarrowFactors& a1, const NarrowFactors& b,
                 float* accumulators0, float* accumulators1) {
  HWY_DYNAMIC_DISPATCH(FuseGroups)(shape, a0, a1, b, accumulators0, accumulators1);
}

}  // namespace fp8lab
#endif
