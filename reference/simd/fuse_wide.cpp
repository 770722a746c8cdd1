// SPDX-License-Identifier: Apache-2.0
// The fused step in double lanes: for numbers of any size, and for FP4 in groups. Why they give its bits:
// - A product of two factors is exact (at most 48 bits), and so is its scaling by powers of two.
// - Trunc cuts toward zero, as the step wants. The cut terms are integers whose sum stays below 2^53, by the
//   precondition: adding them is exact.
// - Powers of two are compared instead of exponents, so that a zero's is zero.
// - Infinities and NaN add and multiply as the tensor core's do, but that the sign and the payload of NaN differ.
#include "simd/fuse.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/fuse_wide.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "simd/fuse-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Below any exponent that a product that counts has, and far enough above the least of a lane.
constexpr int least_exponent = -700;

/// Step 1 of a fused step: the power of two that terms are aligned to, given that of the products.
HWY_INLINE hn::Vec<Doubles> AlignmentPower(const FuseShape& shape, hn::Vec<Doubles> accumulator,
                                           hn::Vec<Doubles> products) {
  const Doubles d;
  const auto subnormal = Power(d, shape.half ? -14 : -126);  // the power of subnormal accumulators
  // The power of an infinite accumulator would make units so small that scales could turn them to zero.
  const auto own = hn::Min(hn::Max(LeadingPower(d, accumulator), subnormal), Power(d, 128));
  return hn::Max(hn::IfThenZeroElse(hn::Eq(accumulator, hn::Zero(d)), own), products);
}

/// x cut to binary32 or e8m13.
HWY_INLINE hn::Vec<Doubles> Cut(const FuseShape& shape, hn::Vec<Doubles> x) {
  const Doubles d;
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
HWY_INLINE hn::Vec<Doubles> Converted(const FuseShape& shape, hn::Vec<Doubles> sum, hn::Vec<Doubles> power) {
  const Doubles d;
  const auto x = hn::Mul(hn::Mul(sum, Power(d, -shape.fraction_bits)), power);
  return SignedZero(d, shape, x, shape.half ? RoundToHalf(d, x) : Cut(shape, x));
}

/// Step 2: sum += products, cut to whole units.
HWY_INLINE void AddProducts(std::size_t products, const float* a0, const float* a1, const float* b,
                            const Quad<Doubles>& units, Quad<Doubles>& sum) {
  const Doubles d;
  for (std::size_t k = 0; k < products; ++k, b += tile_columns) {
    const auto b0 = LoadFloats(d, b);
    const auto b1 = LoadFloats(d, b + hn::Lanes(d));
    const auto x0 = hn::Set(d, static_cast<double>(a0[k]));
    const auto x1 = hn::Set(d, static_cast<double>(a1[k]));
    sum[0][0] = hn::Add(sum[0][0], hn::Trunc(hn::Mul(hn::Mul(x0, b0), units[0][0])));
    sum[0][1] = hn::Add(sum[0][1], hn::Trunc(hn::Mul(hn::Mul(x0, b1), units[0][1])));
    sum[1][0] = hn::Add(sum[1][0], hn::Trunc(hn::Mul(hn::Mul(x1, b0), units[1][0])));
    sum[1][1] = hn::Add(sum[1][1], hn::Trunc(hn::Mul(hn::Mul(x1, b1), units[1][1])));
  }
}

/// A fused step.
template <typename Exponent>
HWY_INLINE void Step(const FuseShape& shape, const FactorsOf<Exponent> (&a)[tile_rows], const FactorsOf<Exponent>& b,
                     float* const (&accumulators)[tile_rows]) {
  const Doubles d;
  alignas(64) std::int16_t fields[tile_rows][tile_columns];
  alignas(64) std::int16_t scales[tile_columns];
  alignas(64) Exponent top[tile_rows][tile_columns];
  LargestExponents(shape.products, a[0].exponents, a[1].exponents, b.exponents, top[0], top[1]);
  const int least = std::max(shape.least_exponent, least_exponent);
  for (std::size_t row = 0; row < tile_rows; ++row) {
    if (shape.block != 0) AddScaleExponents(*a[row].scale_exponents, b.scale_exponents, scales);
    MakeFields({Bits<Doubles>::bias, least}, top[row], shape.block == 0 ? nullptr : scales, fields[row]);
  }
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t column = 0; column < tile_columns; column += 2 * lanes) {
    Quad<Doubles> power;
    Quad<Doubles> units;
    Quad<Doubles> sum;
    for (std::size_t row = 0; row < tile_rows; ++row) {
      for (std::size_t i = 0; i < 2; ++i) {
        const std::size_t at = column + i * lanes;
        const auto accumulator = LoadFloats(d, accumulators[row] + at);
        power[row][i] = AlignmentPower(shape, accumulator, Powers(d, fields[row] + at));
        units[row][i] = UnitsIn(d, shape, power[row][i]);
        sum[row][i] = hn::Trunc(hn::Mul(accumulator, units[row][i]));
        if (shape.block == 0) continue;
        const auto scale = hn::Mul(hn::Set(d, *a[row].scales), hn::LoadU(d, b.scales + at));
        units[row][i] = hn::Mul(units[row][i], scale);
      }
    }
    AddProducts(shape.products, a[0].values, a[1].values, b.values + column, units, sum);
    for (std::size_t row = 0; row < tile_rows; ++row) {
      for (std::size_t i = 0; i < 2; ++i) {
        StoreFloats(Converted(shape, sum[row][i], power[row][i]), accumulators[row] + column + i * lanes);
      }
    }
  }
}

template <typename Exponent>
HWY_INLINE void StepsOf(const FuseShape& given, const RowsOf<Exponent>& a, const FactorsOf<Exponent>& b,
                        float* accumulators) {
  const FuseShape shape = given;  // a copy that no vector store can change: it stays in registers
  Steps(shape, a, b, accumulators,
        [&](const FactorsOf<Exponent>(&rows)[tile_rows], const FactorsOf<Exponent>& right,
            float* const(&sums)[tile_rows]) HWY_ATTR { Step(shape, rows, right, sums); });
}

HWY_ATTR void FuseWideNarrow(const FuseShape& shape, const NarrowRows& a, const NarrowFactors& b, float* accumulators) {
  StepsOf(shape, a, b, accumulators);
}
HWY_ATTR void FuseWide(const FuseShape& shape, const WideRows& a, const WideFactors& b, float* accumulators) {
  StepsOf(shape, a, b, accumulators);
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

/// The power of two that groups and accumulators are aligned to, and what makes them a number of units.
struct GroupAlignment {
  alignas(64) std::int16_t fields[tile_columns];  // of the groups' power
  alignas(64) std::int16_t whole[tile_columns];   // below this power's, no group loses bits
};

HWY_INLINE void AlignGroups(const FuseShape& shape, const NarrowFactors& a, const NarrowFactors& b,
                            GroupAlignment& alignment) {
  const Shorts d;
  const std::size_t group_products = shape.products / shape.groups;
  const auto least = hn::Set(d, static_cast<std::int16_t>(std::max(shape.least_exponent, least_exponent)));
  const auto bias = hn::Set(d, static_cast<std::int16_t>(Bits<Doubles>::bias));
  const auto bits = hn::Set(d, static_cast<std::int16_t>(shape.fraction_bits - shape.group_bits));
  for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
    auto largest = least;
    auto smallest = hn::Set(d, std::int16_t{500});
    for (std::size_t group = 0; group < shape.groups; ++group) {
      const std::size_t block = group * group_products / shape.block;
      const auto scales = hn::Add(hn::LoadU(d, b.scale_exponents + block * tile_columns + column),
                                  hn::Set(d, a.scale_exponents[block]));
      smallest = hn::Min(smallest, scales);
      auto counted = scales;
      if (!shape.empty_groups_count) {
        const hn::RebindToUnsigned<Shorts> du;
        const auto nonzero = hn::LoadU(du, b.nonzero + group * tile_columns + column);
        const auto products = hn::BitCast(d, hn::And(nonzero, hn::Set(du, a.nonzero[group])));
        counted = hn::IfThenElse(hn::Eq(products, hn::Zero(d)), least, scales);
      }
      largest = hn::Max(largest, counted);
    }
    hn::StoreU(hn::Add(largest, bias), d, alignment.fields + column);
    const auto whole = hn::Max(hn::Add(smallest, bits), hn::Set(d, static_cast<std::int16_t>(least_exponent)));
    hn::StoreU(hn::Add(whole, bias), d, alignment.whole + column);
  }
}

/// Aligns a row's groups, with their scales, and the accumulators, and adds.
HWY_INLINE void AddGroups(const FuseShape& shape, const NarrowFactors& a, const NarrowFactors& b,
                          const float (&sums)[most_groups][tile_columns], float* accumulators) {
  const Doubles d;
  const std::size_t group_products = shape.products / shape.groups;
  GroupAlignment alignment;
  AlignGroups(shape, a, b, alignment);
  const auto scaled = [&](std::size_t group, std::size_t column) HWY_ATTR {
    const auto sum = LoadFloats(d, sums[group] + column);
    if (shape.scaled_values) return sum;
    const std::size_t block = group * group_products / shape.block;
    const auto right = hn::LoadU(d, b.scales + block * tile_columns + column);
    return hn::Mul(sum, hn::Mul(hn::Set(d, a.scales[block]), right));
  };
  for (std::size_t column = 0; column < tile_columns; column += hn::Lanes(d)) {
    const auto accumulator = LoadFloats(d, accumulators + column);
    const auto power = AlignmentPower(shape, accumulator, Powers(d, alignment.fields + column));
    const auto units = UnitsIn(d, shape, power);
    auto sum = hn::Trunc(hn::Mul(accumulator, units));
    if (hn::AllTrue(d, hn::Le(power, Powers(d, alignment.whole + column)))) {
      auto groups = scaled(0, column);
      for (std::size_t group = 1; group < shape.groups; ++group) groups = hn::Add(groups, scaled(group, column));
      sum = hn::MulAdd(groups, units, sum);
    } else {
      for (std::size_t group = 0; group < shape.groups; ++group) {
        sum = hn::Add(sum, hn::Trunc(hn::Mul(scaled(group, column), units)));
      }
    }
    StoreFloats(Converted(shape, sum, power), accumulators + column);
  }
}

HWY_ATTR void FuseGroups(const FuseShape& given, const NarrowRows& a, const NarrowFactors& b, float* accumulators) {
  const FuseShape shape = given;
  Steps(shape, a, b, accumulators,
        [&](const NarrowFactors(&rows)[tile_rows], const NarrowFactors& right, float* const(&to)[tile_rows]) HWY_ATTR {
          alignas(64) float sums[tile_rows][most_groups][tile_columns];
          const std::size_t products = shape.products / shape.groups;
          for (std::size_t group = 0; group < shape.groups; ++group) {
            const std::size_t k = group * products;
            SumGroup(products, rows[0].values + k, rows[1].values + k, right.values + k * tile_columns, sums[0][group],
                     sums[1][group]);
          }
          for (std::size_t row = 0; row < tile_rows; ++row) AddGroups(shape, rows[row], right, sums[row], to[row]);
        });
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(FuseWideNarrow);
HWY_EXPORT(FuseWide);
HWY_EXPORT(FuseGroups);

void fuse_wide(const FuseShape& shape, const NarrowRows& a, const NarrowFactors& b, float* accumulators) {
  HWY_DYNAMIC_DISPATCH(FuseWideNarrow)(shape, a, b, accumulators);
}
void fuse_wide(const FuseShape& shape, const WideRows& a, const WideFactors& b, float* accumulators) {
  HWY_DYNAMIC_DISPATCH(FuseWide)(shape, a, b, accumulators);
}
void fuse_groups(const FuseShape& shape, const NarrowRows& a, const NarrowFactors& b, float* accumulators) {
  HWY_DYNAMIC_DISPATCH(FuseGroups)(shape, a, b, accumulators);
}

}  // namespace fp8lab
#endif
