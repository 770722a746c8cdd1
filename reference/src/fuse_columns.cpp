// SPDX-License-Identifier: Apache-2.0
// The fused step for 2 rows x 2 vectors of columns at a time. Why floats may be used here:
// - a product of two factors is exact (at most 24 bits), and its alignment exponent is that of power * power;
// - scaling by 2^(fraction_bits - E) is exact, and converting to an integer cuts toward zero, as the step wants;
// - the sum of the integers stays below 2^31 by the precondition.
#include "fuse_columns.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fuse_columns.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Words = hn::RebindToUnsigned<Floats>;
using Integers = hn::RebindToSigned<Floats>;
using FloatVector = hn::Vec<Floats>;
using IntegerVector = hn::Vec<Integers>;

/// sum as a float32 cut toward zero. Precondition: |sum| < 2^31.
HWY_INLINE FloatVector CutToFloat(IntegerVector sum) {
  const Floats df;
  const Words du;
  const Integers di;
  const auto magnitude = hn::Abs(sum);
  const auto nearest = hn::ConvertTo(df, magnitude);
  // Where the conversion rounded up, the float below is the one wanted.
  const auto too_large = hn::Gt(hn::ConvertTo(di, nearest), magnitude);
  const auto bits = hn::Add(hn::BitCast(di, nearest), hn::VecFromMask(di, too_large));
  return hn::CopySign(hn::BitCast(df, hn::BitCast(du, bits)), hn::BitCast(df, sum));
}

/// The accumulators of one row and one vector of columns.
struct Lane {
  FloatVector accumulator;
  FloatVector promoted;
};

HWY_ATTR void FuseColumnsOf(const FuseColumns& shape, FactorRow a0, FactorRow a1, FactorRow b, float* out0,
                            float* out1) {
  const Floats df;
  const Words du;
  const Integers di;
  const std::size_t lanes = hn::Lanes(df);
  const auto exponent_mask = hn::Set(du, 0x7F800000U);
  const auto output_mask = hn::Set(du, shape.output_mask);
  const auto smallest_power = hn::Set(df, 0x1p-100F);
  const auto scale_base = hn::Set(du, static_cast<std::uint32_t>(254 + shape.fraction_bits) << 23);
  const auto unit_base = hn::Set(du, static_cast<std::uint32_t>(shape.fraction_bits) << 23);
  const auto zero = hn::Zero(df);

  const auto power_of = [&](FloatVector accumulator) HWY_ATTR {
    return hn::Max(hn::BitCast(df, hn::And(hn::BitCast(du, accumulator), exponent_mask)), smallest_power);
  };
  const auto scale_of = [&](FloatVector power) HWY_ATTR {  // 2^(fraction_bits - E)
    return hn::BitCast(df, hn::Sub(scale_base, hn::BitCast(du, power)));
  };
  const auto cut = [&](FloatVector x) HWY_ATTR { return hn::ConvertTo(di, x); };
  const auto finish = [&](IntegerVector sum, FloatVector power) HWY_ATTR {
    const auto unit = hn::BitCast(df, hn::Sub(hn::BitCast(du, power), unit_base));  // 2^(E - fraction_bits)
    const auto result = hn::Mul(CutToFloat(sum), unit);
    return hn::BitCast(df, hn::And(hn::BitCast(du, result), output_mask));
  };

  for (std::size_t column = 0; column < tile_columns; column += 2 * lanes) {
    Lane l00{zero, zero};
    Lane l01{zero, zero};
    Lane l10{zero, zero};
    Lane l11{zero, zero};
    const auto promote = [&](Lane& lane) HWY_ATTR {
      lane.promoted = hn::Add(lane.promoted, lane.accumulator);
      lane.accumulator = zero;
    };
    const float* value = b.value + column;
    const float* power = b.power + column;
    for (std::size_t step = 0; step < shape.steps; ++step) {
      const std::size_t k0 = step * shape.products_per_step;
      const std::size_t k1 = k0 + shape.products_per_step;
      // 1. 2^E of each column.
      auto p00 = power_of(l00.accumulator);
      auto p01 = power_of(l01.accumulator);
      auto p10 = power_of(l10.accumulator);
      auto p11 = power_of(l11.accumulator);
      for (std::size_t k = k0; k < k1; ++k) {
        const auto b0 = hn::LoadU(df, power + k * tile_columns);
        const auto b1 = hn::LoadU(df, power + k * tile_columns + lanes);
        const auto x0 = hn::Set(df, a0.power[k]);
        const auto x1 = hn::Set(df, a1.power[k]);
        p00 = hn::Max(p00, hn::Mul(x0, b0));
        p01 = hn::Max(p01, hn::Mul(x0, b1));
        p10 = hn::Max(p10, hn::Mul(x1, b0));
        p11 = hn::Max(p11, hn::Mul(x1, b1));
      }
      // 2. Cut and add.
      const auto s00 = scale_of(p00);
      const auto s01 = scale_of(p01);
      const auto s10 = scale_of(p10);
      const auto s11 = scale_of(p11);
      auto t00 = cut(hn::Mul(l00.accumulator, s00));
      auto t01 = cut(hn::Mul(l01.accumulator, s01));
      auto t10 = cut(hn::Mul(l10.accumulator, s10));
      auto t11 = cut(hn::Mul(l11.accumulator, s11));
      for (std::size_t k = k0; k < k1; ++k) {
        const auto b0 = hn::LoadU(df, value + k * tile_columns);
        const auto b1 = hn::LoadU(df, value + k * tile_columns + lanes);
        const auto x0 = hn::Set(df, a0.value[k]);
        const auto x1 = hn::Set(df, a1.value[k]);
        t00 = hn::Add(t00, cut(hn::Mul(hn::Mul(x0, b0), s00)));
        t01 = hn::Add(t01, cut(hn::Mul(hn::Mul(x0, b1), s01)));
        t10 = hn::Add(t10, cut(hn::Mul(hn::Mul(x1, b0), s10)));
        t11 = hn::Add(t11, cut(hn::Mul(hn::Mul(x1, b1), s11)));
      }
      // 3. Cut the sums to the accumulator's width.
      l00.accumulator = finish(t00, p00);
      l01.accumulator = finish(t01, p01);
      l10.accumulator = finish(t10, p10);
      l11.accumulator = finish(t11, p11);
      if (shape.steps_per_promotion != 0 && (step + 1) % shape.steps_per_promotion == 0) {
        promote(l00), promote(l01), promote(l10), promote(l11);
      }
    }
    if (shape.steps_per_promotion != 0) {
      promote(l00), promote(l01), promote(l10), promote(l11);
      l00.accumulator = l00.promoted, l01.accumulator = l01.promoted;
      l10.accumulator = l10.promoted, l11.accumulator = l11.promoted;
    }
    hn::StoreU(l00.accumulator, df, out0 + column);
    hn::StoreU(l01.accumulator, df, out0 + column + lanes);
    hn::StoreU(l10.accumulator, df, out1 + column);
    hn::StoreU(l11.accumulator, df, out1 + column + lanes);
  }
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(FuseColumnsOf);

void fuse_columns(const FuseColumns& shape, FactorRow a0, FactorRow a1, FactorRow b, float* out0, float* out1) {
  HWY_DYNAMIC_DISPATCH(FuseColumnsOf)(shape, a0, a1, b, out0, out1);
}

std::int64_t fuse_columns_targets() { return hwy::SupportedTargets() & HWY_TARGETS; }

void force_fuse_columns_target(std::int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace fp8lab
#endif
