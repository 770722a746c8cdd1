// SPDX-License-Identifier: Apache-2.0
// The steps of AMD's matrix cores (amd_steps.cpp has them for one element) in vector code.
// - products_first: products in float lanes with int32 sums (fuse.cpp says why) where they allow it, else in double
//   lanes, as the rest, of which no sum needs more than 53 bits; infinities and NaN are what doubles make of them. A
//   product of 2^128 or more is infinite.
// - flushed_pairs and fma_chain: as float32 does them.
// - exact: Knuth's TwoSum gives the sum of doubles and what it lost. Where that is one double, too, the sum is rounded
//   to odd, after which rounding it to float32 is rounding the real sum (Boldo and Melquiond, "Emulation of FMA and
//   correctly rounded sums", 2008). Where it is not, which is rare, the lane is done again by ExactSum.
#include <cmath>

#include "fp8lab/reference/tensor_core/exact_sum.hpp"
#include "simd/fuse.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/fuse_amd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "simd/fuse-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Below any exponent of a product, and far enough above the least of a double.
constexpr int no_product = -700;

/// x / y of powers of two.
HWY_INLINE hn::Vec<Doubles> Ratio(hn::Vec<Doubles> x, hn::Vec<Doubles> y) {
  const Doubles d;
  const hn::RebindToUnsigned<Doubles> du;
  const auto one = hn::BitCast(du, hn::Set(d, 1.0));
  return hn::BitCast(d, hn::Add(one, hn::Sub(hn::BitCast(du, x), hn::BitCast(du, y))));
}

/// A product, cut toward zero to whole units.
template <typename Exponent>
HWY_INLINE hn::Vec<Doubles> CutProduct(hn::Vec<Doubles> x, hn::Vec<Doubles> y, hn::Vec<Doubles> units) {
  const Doubles d;
  auto product = hn::Mul(x, y);
  if constexpr (sizeof(Exponent) == 2) {
    const auto overflows = hn::Ge(hn::Abs(product), Power(d, 128));
    product = hn::IfThenElse(overflows, hn::CopySign(hn::Inf(d), product), product);
  }
  return hn::Trunc(hn::Mul(product, units));
}

/// c + the sum of products, which is a number of units of 2^-fraction_bits of `power`: aligned, normalised and cut
/// downward, then rounded to the nearest float32.
HWY_INLINE hn::Vec<Doubles> WithAccumulator(const FuseShape& shape, hn::Vec<Doubles> products, hn::Vec<Doubles> power,
                                            hn::Vec<Doubles> c) {
  const Doubles d;
  const int wide = shape.sum_bits + 1;
  const auto more = Power(d, wide - shape.fraction_bits);
  const auto power_of_c = hn::Min(hn::Max(LeadingPower(d, c), Power(d, -126)), Power(d, 128));
  const auto top = hn::Max(power, power_of_c);
  auto aligned = hn::Mul(hn::Floor(hn::Mul(c, UnitsIn(d, shape, top))), more);
  if (shape.drops_small_c) {
    const auto small = hn::Lt(power_of_c, hn::Mul(top, Power(d, -shape.fraction_bits - 1)));
    aligned = hn::IfThenZeroElse(hn::And(small, hn::IsFinite(c)), aligned);
  }
  const auto sum = hn::Add(hn::Floor(hn::Mul(hn::Mul(products, more), Ratio(power, top))), aligned);
  // Units of sum are 2^-wide of top; what stays is a multiple of `unit` of them.
  const auto leading = hn::Mul(LeadingPower(d, sum), Power(d, -shape.sum_bits));
  const auto least = Ratio(Power(d, wide - 126 - shape.sum_bits), top);
  const auto unit = hn::Max(hn::Max(hn::Set(d, 1.0), least), hn::IfThenZeroElse(hn::IsInf(sum), leading));
  const auto cut = hn::Mul(hn::Floor(hn::Mul(sum, Ratio(hn::Set(d, 1.0), unit))), unit);
  return hn::Mul(hn::Mul(cut, Power(d, -wide)), top);
}

/// The sums of a step's products, in units of 2^-fraction_bits of the power that each is aligned to. kSums: how many.
template <std::size_t kSums, typename Unit>
struct ProductSums {
  alignas(64) std::int16_t fields[kSums][tile_rows][tile_columns];  // the powers' exponent fields, of doubles
  alignas(64) Unit units[kSums][tile_rows][tile_columns];
};

/// In float lanes, which need limits of exponents; no infinities and NaN.
template <std::size_t kSums, typename Exponent>
HWY_INLINE void SumInFloats(const FuseShape& shape, const FactorsOf<Exponent> (&a)[tile_rows],
                            const FactorsOf<Exponent>& b, ProductSums<kSums, std::int32_t>& sums) {
  const Floats d;
  const Ints di;
  const std::size_t products = shape.products / kSums;  // of a sum; they lie together
  for (std::size_t sum = 0; sum < kSums; ++sum) {
    const std::size_t first = sum * products;
    alignas(64) Exponent top[tile_rows][tile_columns];
    alignas(64) std::int16_t fields[tile_rows][tile_columns];
    LargestExponents(products, a[0].exponents + first, a[1].exponents + first, b.exponents + first * tile_columns,
                     top[0], top[1]);
    for (std::size_t row = 0; row < tile_rows; ++row) {
      MakeFields({Bits<Doubles>::bias, no_product}, top[row], nullptr, sums.fields[sum][row]);
      MakeFields({Bits<Floats>::bias, -fuse_exponent_limit}, top[row], nullptr, fields[row]);
    }
    for (std::size_t column = 0; column < tile_columns; column += 2 * hn::Lanes(d)) {
      Quad<Floats> units;
      Quad<Ints> total = {{hn::Zero(di), hn::Zero(di)}, {hn::Zero(di), hn::Zero(di)}};
      for (std::size_t row = 0; row < tile_rows; ++row) {
        for (std::size_t i = 0; i < 2; ++i) {
          units[row][i] = UnitsIn(d, shape, Powers(d, fields[row] + column + i * hn::Lanes(d)));
        }
      }
      AddProducts(products, a[0].values + first, a[1].values + first, b.values + first * tile_columns + column, units,
                  total);
      for (std::size_t row = 0; row < tile_rows; ++row) {
        for (std::size_t i = 0; i < 2; ++i) {
          hn::StoreU(total[row][i], di, &sums.units[sum][row][column + i * hn::Lanes(d)]);
        }
      }
    }
  }
}

/// In double lanes.
template <std::size_t kSums, typename Exponent>
HWY_INLINE void SumInDoubles(const FuseShape& shape, const FactorsOf<Exponent> (&a)[tile_rows],
                             const FactorsOf<Exponent>& b, ProductSums<kSums, double>& sums) {
  const Doubles d;
  const std::size_t products = shape.products / kSums;
  for (std::size_t sum = 0; sum < kSums; ++sum) {
    const std::size_t first = sum * products;
    alignas(64) Exponent top[tile_rows][tile_columns];
    LargestExponents(products, a[0].exponents + first, a[1].exponents + first, b.exponents + first * tile_columns,
                     top[0], top[1]);
    for (std::size_t row = 0; row < tile_rows; ++row) {
      MakeFields({Bits<Doubles>::bias, no_product}, top[row], nullptr, sums.fields[sum][row]);
    }
    for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
      for (std::size_t row = 0; row < tile_rows; ++row) {
        const auto units = UnitsIn(d, shape, Powers(d, sums.fields[sum][row] + column));
        auto total = hn::Zero(d);
        for (std::size_t k = first; k < first + products; ++k) {
          const auto y = LoadFloats(d, b.values + k * tile_columns + column);
          total = hn::Add(total, CutProduct<Exponent>(hn::Set(d, static_cast<double>(a[row].values[k])), y, units));
        }
        hn::StoreU(total, d, &sums.units[sum][row][column]);
      }
    }
  }
}

HWY_INLINE hn::Vec<Doubles> LoadUnits(const std::int32_t* from) {
  return hn::PromoteTo(Doubles(), hn::LoadU(hn::Rebind<std::int32_t, Doubles>(), from));
}
HWY_INLINE hn::Vec<Doubles> LoadUnits(const double* from) { return hn::LoadU(Doubles(), from); }

template <std::size_t kSums, typename Unit>
HWY_INLINE void AddAccumulators(const FuseShape& shape, const ProductSums<kSums, Unit>& sums,
                                float* const (&accumulators)[tile_rows]) {
  const Doubles d;
  for (std::size_t row = 0; row < tile_rows; ++row) {
    for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
      auto top = Powers(d, sums.fields[0][row] + column);
      auto whole = LoadUnits(&sums.units[0][row][column]);
      if constexpr (kSums == 2) {
        const auto own = top;
        const auto other = Powers(d, sums.fields[1][row] + column);
        top = hn::Max(own, other);
        whole = hn::Add(hn::Floor(hn::Mul(whole, Ratio(own, top))),
                        hn::Floor(hn::Mul(LoadUnits(&sums.units[1][row][column]), Ratio(other, top))));
      }
      float* const c = accumulators[row] + column;
      StoreFloats(WithAccumulator(shape, whole, top, LoadFloats(d, c)), c);
    }
  }
}

template <std::size_t kSums, typename Exponent>
HWY_INLINE void ProductsFirstStep(const FuseShape& shape, bool within_limits, const FactorsOf<Exponent> (&a)[tile_rows],
                                  const FactorsOf<Exponent>& b, float* const (&accumulators)[tile_rows]) {
  if (within_limits && !a[0].special && !a[1].special && !b.special) {
    ProductSums<kSums, std::int32_t> sums;
    SumInFloats(shape, a, b, sums);
    AddAccumulators(shape, sums, accumulators);
  } else {
    ProductSums<kSums, double> sums;
    SumInDoubles(shape, a, b, sums);
    AddAccumulators(shape, sums, accumulators);
  }
}

/// x with a subnormal number as a zero of its sign.
HWY_INLINE hn::Vec<Floats> Flushed(hn::Vec<Floats> x) {
  const Floats d;
  return hn::IfThenElse(hn::Lt(hn::Abs(x), Power(d, -126)), hn::And(x, hn::SignBit(d)), x);
}

template <typename Exponent>
HWY_INLINE void FlushedPairsStep(const FuseShape& shape, const FactorsOf<Exponent> (&a)[tile_rows],
                                 const FactorsOf<Exponent>& b, float* const (&accumulators)[tile_rows]) {
  const Floats d;
  for (std::size_t row = 0; row < tile_rows; ++row) {
    for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
      const auto product = [&](std::size_t k) HWY_ATTR {
        const auto right = hn::LoadU(d, b.values + k * tile_columns + column);
        return Flushed(hn::Mul(hn::Set(d, a[row].values[k]), right));
      };
      auto sum = Flushed(hn::Add(product(0), product(1)));
      if (shape.products == 4) sum = Flushed(hn::Add(sum, Flushed(hn::Add(product(2), product(3)))));
      float* const c = accumulators[row] + column;
      hn::StoreU(Flushed(hn::Add(hn::LoadU(d, c), sum)), d, c);
    }
  }
}

template <typename Exponent>
HWY_INLINE void FmaChainStep(const FuseShape& shape, const FactorsOf<Exponent> (&a)[tile_rows],
                             const FactorsOf<Exponent>& b, float* const (&accumulators)[tile_rows]) {
  for (std::size_t row = 0; row < tile_rows; ++row) {
#if HWY_NATIVE_FMA
    const Floats d;
    for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
      auto c = hn::LoadU(d, accumulators[row] + column);
      for (std::size_t k = 0; k < shape.products; ++k) {
        c = hn::MulAdd(hn::Set(d, a[row].values[k]), hn::LoadU(d, b.values + k * tile_columns + column), c);
      }
      hn::StoreU(c, d, accumulators[row] + column);
    }
#else  // where MulAdd would round twice
    for (std::size_t k = 0; k < shape.products; ++k) {
      for (std::size_t i = 0; i < tile_columns; ++i) {
        float& c = accumulators[row][i];
        c = std::fma(a[row].values[k], b.values[k * tile_columns + i], c);
      }
    }
#endif
  }
}

/// x + y, rounded, and the rest.
HWY_INLINE hn::Vec<Doubles> TwoSum(hn::Vec<Doubles> x, hn::Vec<Doubles> y, hn::Vec<Doubles>& rest) {
  const auto sum = hn::Add(x, y);
  const auto part = hn::Sub(sum, x);
  rest = hn::Add(hn::Sub(x, hn::Sub(sum, part)), hn::Sub(y, part));
  return sum;
}

/// high + low, of which high is the nearest double, rounded to odd.
HWY_INLINE hn::Vec<Doubles> RoundToOdd(hn::Vec<Doubles> high, hn::Vec<Doubles> low) {
  const Doubles d;
  const hn::RebindToSigned<Doubles> di;
  const auto bits = hn::BitCast(di, high);
  const auto one = hn::Set(di, std::int64_t{1});
  const auto even = hn::Eq(hn::And(bits, one), hn::Zero(di));
  const auto apart = hn::Lt(hn::Xor(bits, hn::BitCast(di, low)), hn::Zero(di));  // of different signs
  const auto odd = hn::IfThenElse(apart, hn::Sub(bits, one), hn::Add(bits, one));
  const auto exact = hn::MaskFromVec(hn::BitCast(di, hn::VecFromMask(d, hn::Eq(low, hn::Zero(d)))));
  return hn::BitCast(d, hn::IfThenElse(hn::And(even, hn::Not(exact)), odd, bits));
}

template <typename Exponent>
HWY_INLINE void ExactStep(const FuseShape& shape, const FactorsOf<Exponent> (&a)[tile_rows],
                          const FactorsOf<Exponent>& b, float* const (&accumulators)[tile_rows]) {
  const Doubles d;
  for (std::size_t row = 0; row < tile_rows; ++row) {
    for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
      float* const c = accumulators[row] + column;
      auto sum = LoadFloats(d, c);
      auto lost = hn::Zero(d);
      auto rest = hn::Zero(d);  // not zero where `lost` lost something
      for (std::size_t k = 0; k < shape.products; ++k) {
        const auto x = hn::Set(d, static_cast<double>(a[row].values[k]));
        hn::Vec<Doubles> error;
        hn::Vec<Doubles> more;
        sum = TwoSum(sum, hn::Mul(x, LoadFloats(d, b.values + k * tile_columns + column)), error);
        lost = TwoSum(lost, error, more);
        rest = hn::Or(rest, more);
      }
      const auto finite = hn::IsFinite(sum);
      hn::Vec<Doubles> low;
      const auto high = TwoSum(sum, lost, low);
      const auto result = hn::Add(hn::IfThenElse(finite, RoundToOdd(high, low), sum), hn::Zero(d));
      if (hn::AllFalse(d, hn::And(finite, hn::Ne(rest, hn::Zero(d))))) {
        StoreFloats(result, c);
      } else {
        alignas(64) float old[tile_columns];
        std::copy_n(c, hn::Lanes(d), old);
        StoreFloats(result, c);
        for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
          exact_step(shape.products, a[row].values, b.values + column + i, old[i], c[i]);
        }
      }
    }
  }
}

/// accumulators = +0 where they are subnormal or zero.
HWY_INLINE void FlushAccumulators(std::size_t count, float* accumulators) {
  const Floats d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto c = hn::LoadU(d, accumulators + i);
    hn::StoreU(hn::IfThenZeroElse(hn::Lt(hn::Abs(c), Power(d, -126)), c), d, accumulators + i);
  }
}

template <typename Exponent>
HWY_INLINE void FuseAmdOf(const FuseShape& given, bool within_limits, const RowsOf<Exponent>& a,
                          const FactorsOf<Exponent>& b, float* accumulators) {
  FuseShape shape = given;  // a copy that no vector store can change: it stays in registers
  using Rows = FactorsOf<Exponent>[tile_rows];
  using Sums = float* const[tile_rows];
  switch (shape.arithmetic) {
    case Arithmetic::products_first:
      if (shape.sums == 2) {
        return Steps(shape, a, b, accumulators,
                     [&](const Rows& rows, const FactorsOf<Exponent>& right, const Sums& sums)
                         HWY_ATTR { ProductsFirstStep<2>(shape, within_limits, rows, right, sums); });
      }
      return Steps(shape, a, b, accumulators,
                   [&](const Rows& rows, const FactorsOf<Exponent>& right, const Sums& sums)
                       HWY_ATTR { ProductsFirstStep<1>(shape, within_limits, rows, right, sums); });
    case Arithmetic::flushed_pairs:
      FlushAccumulators(a.count * tile_columns, accumulators);
      return Steps(shape, a, b, accumulators,
                   [&](const Rows& rows, const FactorsOf<Exponent>& right, const Sums& sums)
                       HWY_ATTR { FlushedPairsStep(shape, rows, right, sums); });
    case Arithmetic::fma_chain:
      shape.products *= shape.steps;  // one chain
      shape.steps = 1;
      return Steps(shape, a, b, accumulators,
                   [&](const Rows& rows, const FactorsOf<Exponent>& right, const Sums& sums)
                       HWY_ATTR { FmaChainStep(shape, rows, right, sums); });
    case Arithmetic::exact:
      return Steps(shape, a, b, accumulators,
                   [&](const Rows& rows, const FactorsOf<Exponent>& right, const Sums& sums)
                       HWY_ATTR { ExactStep(shape, rows, right, sums); });
    case Arithmetic::fused: break;
  }
}

HWY_ATTR void FuseAmdNarrow(const FuseShape& shape, bool within_limits, const NarrowRows& a, const NarrowFactors& b,
                            float* accumulators) {
  FuseAmdOf(shape, within_limits, a, b, accumulators);
}
HWY_ATTR void FuseAmd(const FuseShape& shape, bool within_limits, const WideRows& a, const WideFactors& b,
                      float* accumulators) {
  FuseAmdOf(shape, within_limits, a, b, accumulators);
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

void exact_step(std::size_t products, const float* a, const float* b, float c, float& result) {
  ExactSum sum;
  bool finite = std::isfinite(c);
  for (std::size_t k = 0; k < products; ++k)
    finite = finite && std::isfinite(a[k]) && std::isfinite(b[k * tile_columns]);
  if (!finite) return;
  sum.add(c);
  for (std::size_t k = 0; k < products; ++k) sum.add_product(a[k], b[k * tile_columns]);
  result = sum.to_float();
}

HWY_EXPORT(FuseAmdNarrow);
HWY_EXPORT(FuseAmd);

void fuse_amd(const FuseShape& shape, bool within_limits, const NarrowRows& a, const NarrowFactors& b,
              float* accumulators) {
  HWY_DYNAMIC_DISPATCH(FuseAmdNarrow)(shape, within_limits, a, b, accumulators);
}
void fuse_amd(const FuseShape& shape, bool within_limits, const WideRows& a, const WideFactors& b,
              float* accumulators) {
  HWY_DYNAMIC_DISPATCH(FuseAmd)(shape, within_limits, a, b, accumulators);
}

}  // namespace fp8lab
#endif
