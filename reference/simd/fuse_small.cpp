// SPDX-License-Identifier: Apache-2.0
// The fused step of a tensor core that keeps few bits, in floats that round downward. Why they give its bits:
// - A sum starts from 1.5 * 2^23 units of the power that terms are aligned to, and stays between 2^23 and 2^24 units,
//   where a float is a whole number of them: adding a product adds its floor, and rounds nothing else. One multiply-add
//   does it, for it rounds once; without such an instruction the product is exact, so the addition alone rounds.
// - The step cuts toward zero instead: that is one unit more where a negative product is no whole number of units. The
//   last place of a product is the sum of those of its factors, for a product of odd numbers is odd; bytes count where
//   it is below the unit.
// - Infinities and NaN add and multiply as the tensor core's do, but that the sign and the payload of NaN differ.
//   Accumulators that are such, or so large that there are no 2^23 of their units, are left to fuse().
#include "simd/fuse.hpp"

#include <algorithm>
#include <functional>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/fuse_small.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "simd/fuse-inl.hpp"
#include "simd/fuse_downward.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR  // which has no words of four bytes

/// Rows at a time, as many as there are registers for.
constexpr std::size_t small_rows = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

/// A row in a step.
struct SmallRow {
  const float* factors;
  float* accumulators;
  alignas(64) std::int32_t exponents[most_small_products];  // of the factors, each in four bytes
  alignas(64) std::int32_t lasts[most_small_products];      // likewise their last places
  alignas(64) std::uint32_t places[most_small_products];    // in FactorsOf::lasts, of what makes terms negative
  alignas(64) std::uint8_t top[tile_columns];               // the exponent field of the largest product
  alignas(64) std::uint8_t fields[tile_columns];            // that of the power that terms are aligned to
  alignas(64) std::int32_t power[tile_columns];             // its bits
  alignas(64) float sums[tile_columns];
  alignas(64) std::int8_t more[tile_columns];  // units
};

HWY_INLINE void Prepare(std::size_t products, const NarrowFactors& a, SmallRow& row) {
  const Floats d;
  const Ints di;
  const hn::RebindToUnsigned<Floats> du;
  const hn::Rebind<std::int16_t, Floats> ds;
  const hn::Repartition<std::int8_t, decltype(ds)> d8;
  row.factors = a.values;
  for (std::size_t k = 0; k < products; k += hn::Lanes(d)) {
    const auto exponents = hn::PromoteTo(di, hn::LoadU(hn::Rebind<std::int8_t, Floats>(), a.exponents + k));
    hn::Store(FourBytes(exponents), di, row.exponents + k);
    const auto pairs = hn::PromoteTo(di, hn::BitCast(ds, hn::LoadU(d8, a.lasts + 2 * k)));
    const auto last = hn::Min(hn::ShiftRight<24>(hn::ShiftLeft<24>(pairs)), hn::ShiftRight<8>(pairs));
    hn::Store(FourBytes(last), di, row.lasts + k);
    const auto negative = hn::ShiftRight<31>(hn::BitCast(du, hn::LoadU(d, a.values + k)));
    hn::Store(hn::ShiftLeft<6>(hn::Sub(hn::Set(du, 1), negative)), du, row.places + k);
    static_assert(tile_columns == 1 << 6);
  }
}

HWY_INLINE void StoreTop(hn::Vec<Bytes> top, int least, std::uint8_t* to) {
  const Bytes d;
  const auto none = hn::Lt(top, hn::Set(d, least_narrow_sum));
  const auto floor = hn::Set(d, static_cast<std::int8_t>(least));
  const auto field = hn::Add(hn::IfThenElse(none, floor, hn::Max(top, floor)), hn::Set(d, Bits<Floats>::bias));
  hn::Store(hn::BitCast(hn::RebindToUnsigned<Bytes>(), field), hn::RebindToUnsigned<Bytes>(), to);
}

/// The exponent fields of the largest products, whose exponent is no less than `least`.
HWY_INLINE void FindTop(std::size_t products, const std::int8_t* b, int least, SmallRow (&rows)[small_rows]) {
  const Bytes d;
  const hn::Repartition<std::int32_t, Bytes> di;
  constexpr bool four = small_rows == 4;
  for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
    auto top0 = hn::Set(d, static_cast<std::int8_t>(2 * absent_exponent_of<std::int8_t>));
    auto top1 = top0;
    auto top2 = top0;
    auto top3 = top0;
    const std::int8_t* right = b + column;
    for (std::size_t k = 0; k < products; k += unrolled) {
      for (std::size_t i = k; i < k + unrolled; ++i, right += tile_columns) {
        const auto x = hn::Load(d, right);
        top0 = hn::Max(top0, hn::Add(x, hn::BitCast(d, hn::Set(di, rows[0].exponents[i]))));
        top1 = hn::Max(top1, hn::Add(x, hn::BitCast(d, hn::Set(di, rows[1].exponents[i]))));
        if constexpr (four) {
          top2 = hn::Max(top2, hn::Add(x, hn::BitCast(d, hn::Set(di, rows[2].exponents[i]))));
          top3 = hn::Max(top3, hn::Add(x, hn::BitCast(d, hn::Set(di, rows[3].exponents[i]))));
        }
      }
    }
    StoreTop(top0, least, rows[0].top + column);
    StoreTop(top1, least, rows[1].top + column);
    if constexpr (four) {
      StoreTop(top2, least, rows[2].top + column);
      StoreTop(top3, least, rows[3].top + column);
    }
  }
}

/// What makes of a power's bits those of the number that sums start from.
HWY_INLINE std::int32_t StartOf(const FuseShape& shape) { return ((23 - shape.fraction_bits) << 23) + (1 << 22); }

/// The sums of the accumulators alone. False where one is 2^fuse_exponent_limit or more, infinite or NaN.
template <bool kHalf>
HWY_INLINE bool BeginSmall(const FuseShape& shape, SmallRow& row) {
  const Floats d;
  const Ints di;
  const hn::RebindToUnsigned<Floats> du;
  const hn::Rebind<std::uint8_t, Floats> d8;
  auto largest = hn::Zero(d);
  for (std::size_t i = 0; i < tile_columns; i += hn::Lanes(d)) {
    const auto c = hn::LoadU(d, row.accumulators + i);
    auto own = LeadingPower(d, c);
    largest = hn::Max(largest, own);
    if constexpr (kHalf) own = hn::IfThenZeroElse(hn::Eq(c, hn::Zero(d)), hn::Max(own, Power(d, -14)));
    const auto products = hn::ShiftLeft<23>(hn::PromoteTo(di, hn::Load(d8, row.top + i)));
    const auto power = hn::Max(hn::BitCast(di, own), products);
    hn::Store(power, di, row.power + i);
    hn::Store(hn::TruncateTo(d8, hn::ShiftRight<23>(hn::BitCast(du, power))), d8, row.fields + i);
    const auto start = hn::BitCast(d, hn::Add(power, hn::Set(di, StartOf(shape))));
    const auto cut = hn::Sub(hn::Add(start, hn::Abs(c)), start);
    hn::Store(hn::Add(start, hn::CopySign(cut, c)), d, row.sums + i);
  }
  return hn::AllTrue(d, hn::Lt(largest, Power(d, fuse_exponent_limit)));
}

struct FourSums {
  hn::Vec<Floats> v0, v1, v2, v3;
};
HWY_INLINE FourSums LoadFour(const float* sums) {
  const Floats d;
  const std::size_t n = hn::Lanes(d);
  return {hn::Load(d, sums), hn::Load(d, sums + n), hn::Load(d, sums + 2 * n), hn::Load(d, sums + 3 * n)};
}
HWY_INLINE void StoreFour(const FourSums& x, float* sums) {
  const Floats d;
  const std::size_t n = hn::Lanes(d);
  hn::Store(x.v0, d, sums);
  hn::Store(x.v1, d, sums + n);
  hn::Store(x.v2, d, sums + 2 * n);
  hn::Store(x.v3, d, sums + 3 * n);
}
HWY_INLINE void AddFour(float a, const FourSums& b, FourSums& sums) {
  const auto x = hn::Set(Floats(), a);
  sums.v0 = hn::MulAdd(x, b.v0, sums.v0);
  sums.v1 = hn::MulAdd(x, b.v1, sums.v1);
  sums.v2 = hn::MulAdd(x, b.v2, sums.v2);
  sums.v3 = hn::MulAdd(x, b.v3, sums.v3);
}

/// Adds the floors of the products.
HWY_NOINLINE HWY_ATTR void AddFloors(std::size_t products, const float* b, SmallRow (&rows)[small_rows]) {
  constexpr bool four = small_rows == 4;
  for (std::size_t column = 0; column < tile_columns; column += 4 * hn::Lanes(Floats())) {
    FourSums s0 = LoadFour(rows[0].sums + column);
    FourSums s1 = LoadFour(rows[1].sums + column);
    FourSums s2 = LoadFour(rows[four ? 2 : 0].sums + column);
    FourSums s3 = LoadFour(rows[four ? 3 : 0].sums + column);
    const float* right = b + column;
    for (std::size_t k = 0; k < products; ++k, right += tile_columns) {
      const FourSums x = LoadFour(right);
      AddFour(rows[0].factors[k], x, s0);
      AddFour(rows[1].factors[k], x, s1);
      if constexpr (four) {
        AddFour(rows[2].factors[k], x, s2);
        AddFour(rows[3].factors[k], x, s3);
      }
    }
    StoreFour(s0, rows[0].sums + column);
    StoreFour(s1, rows[1].sums + column);
    if constexpr (four) {
      StoreFour(s2, rows[2].sums + column);
      StoreFour(s3, rows[3].sums + column);
    }
  }
}

/// Counts the negative products that are no whole number of units.
HWY_INLINE void CountCut(std::size_t products, int fraction_bits, const std::int8_t* b, SmallRow& row) {
  const Bytes d;
  const hn::Repartition<std::int32_t, Bytes> di;
  for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
    // Above all last places that there are, and below what has none.
    const auto fields = hn::BitCast(d, hn::Load(hn::RebindToUnsigned<Bytes>(), row.fields + column));
    const auto exponents = hn::Sub(fields, hn::Set(d, static_cast<std::int8_t>(Bits<Floats>::bias + fraction_bits)));
    const auto unit = hn::Min(exponents, hn::Set(d, 40));
    auto more = hn::Zero(d);
    const std::int8_t* right = b + column;
    for (std::size_t k = 0; k < products; k += unrolled) {
      for (std::size_t i = k; i < k + unrolled; ++i, right += 2 * tile_columns) {
        const auto left = hn::BitCast(d, hn::Set(di, row.lasts[i]));
        const auto cut = hn::Lt(hn::Add(hn::Load(d, right + row.places[i]), left), unit);
#if HWY_TARGET <= HWY_AVX3
        more = hn::IfThenElse(cut, hn::Add(more, hn::Set(d, 1)), more);
#else
        more = hn::Sub(more, hn::VecFromMask(d, cut));
#endif
      }
    }
    hn::Store(more, d, row.more + column);
  }
}

/// A binary16 accumulator is rounded later.
template <bool kHalf>
HWY_INLINE void FinishSmall(const FuseShape& shape, const SmallRow& row) {
  const Floats d;
  const Ints di;
  const auto mask = hn::Set(di, static_cast<std::int32_t>(~((std::uint32_t{1} << (23 - shape.output_bits)) - 1)));
  for (std::size_t i = 0; i < tile_columns; i += hn::Lanes(d)) {
    const auto power = hn::Load(di, row.power + i);
    const auto start = hn::BitCast(d, hn::Add(power, hn::Set(di, StartOf(shape))));
    const auto unit = hn::BitCast(d, hn::Sub(power, hn::Set(di, shape.fraction_bits << 23)));
    const auto more = hn::ConvertTo(d, hn::PromoteTo(di, hn::Load(hn::Rebind<std::int8_t, Floats>(), row.more + i)));
    // Downward, a difference that is zero is -0.
    auto x = hn::Neg(hn::NegMulAdd(more, unit, hn::Sub(start, hn::Load(d, row.sums + i))));
    if constexpr (!kHalf) x = hn::And(x, hn::BitCast(d, mask));
    hn::StoreU(x, d, row.accumulators + i);
  }
}

template <bool kHalf>
HWY_INLINE void SmallStepOf(const FuseShape& given, const NarrowRows& a, const NarrowFactors& b, float* accumulators,
                            bool* done) {
  const FuseShape shape = given;  // a copy that no vector store can change: it stays in registers
  const int least = std::max(shape.least_exponent, -fuse_exponent_limit);
  SmallRow rows[small_rows];
  for (std::size_t first = 0; first < a.count; first += small_rows) {
    for (std::size_t i = 0; i < small_rows; ++i) {
      const std::size_t row = std::min(first + i, a.count - 1);
      rows[i].accumulators = accumulators + row * tile_columns;
      Prepare(shape.products, a[row], rows[i]);
    }
    FindTop(shape.products, b.exponents, least, rows);
    for (std::size_t i = 0; i < small_rows; ++i) done[first + i] = BeginSmall<kHalf>(shape, rows[i]);
    AddFloors(shape.products, b.values, rows);
    for (std::size_t i = 0; i < small_rows && first + i < a.count; ++i) {
      if (!done[first + i]) continue;
      CountCut(shape.products, shape.fraction_bits, b.lasts, rows[i]);
      FinishSmall<kHalf>(shape, rows[i]);
    }
  }
}

#endif

/// A step, rounding downward, in those rows for which `done` becomes true: there is room for a multiple of small_rows.
/// Sums of binary16 are not yet rounded.
HWY_ATTR HWY_NOINLINE void SmallStep(const FuseShape& shape, const NarrowRows& a, const NarrowFactors& b,
                                     float* accumulators, bool* done) {
#if HWY_TARGET == HWY_SCALAR
  static_cast<void>(shape), static_cast<void>(b), static_cast<void>(accumulators);
  std::fill_n(done, a.count, false);
#else
  if (shape.half) return SmallStepOf<true>(shape, a, b, accumulators, done);
  SmallStepOf<false>(shape, a, b, accumulators, done);
#endif
}

/// Rounds a row's sums to binary16, to nearest.
HWY_ATTR void RoundSums(const FuseShape& shape, float* accumulators) {
  const Floats d;
  for (std::size_t i = 0; i < tile_columns; i += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, accumulators + i);
    hn::StoreU(SignedZero(d, shape, x, RoundToHalf(d, x)), d, accumulators + i);
  }
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(SmallStep);
HWY_EXPORT(RoundSums);

namespace {

void step_downward(const FuseShape& shape, const NarrowRows& a, const NarrowFactors& b, float* accumulators,
                   bool* done) {
  const Downward rounding;
  HWY_DYNAMIC_DISPATCH(SmallStep)(shape, a, b, accumulators, done);
}

}  // namespace

void fuse_small(const FuseShape& shape, const NarrowRows& a, const NarrowFactors& b, float* accumulators) {
  FuseShape one = shape;
  one.steps = 1;
  for (std::size_t step = 0; step < shape.steps; ++step) {
    NarrowRows left = a;
    left.first = at_step(shape, a.first, step, 1);
    const NarrowFactors right = at_step(shape, b, step, tile_columns);
    bool done[most_block_rows];
    step_downward(one, left, right, accumulators, done);
    if (std::none_of(done, done + a.count, std::identity())) {
      fuse(one, left, right, accumulators);
      continue;
    }
    for (std::size_t row = 0; row < a.count; ++row) {
      float* const to = accumulators + row * tile_columns;
      if (!done[row]) {
        alignas(64) float pair[tile_rows * tile_columns] = {};
        std::copy_n(to, tile_columns, pair);
        fuse(one, left.only(row), right, pair);
        std::copy_n(pair, tile_columns, to);
      } else if (shape.half) {
        HWY_DYNAMIC_DISPATCH(RoundSums)(shape, to);
      }
    }
  }
}

}  // namespace fp8lab
#endif
