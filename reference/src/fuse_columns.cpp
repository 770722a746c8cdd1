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

/// One vector for each of 2 rows x 2 vectors of columns: four independent chains hide the latency of one.
template <typename Vector>
struct Quad {
  Vector v00, v01, v10, v11;
};
using FloatQuad = Quad<FloatVector>;
using IntegerQuad = Quad<IntegerVector>;

template <typename Function, typename... Quads>
HWY_INLINE auto Map(const Function& f, const Quads&... q) {
  return Quad<decltype(f(q.v00...))>{f(q.v00...), f(q.v01...), f(q.v10...), f(q.v11...)};
}

/// Calls f(row factor, column factors, its quadrant) for the four products of one k.
template <typename Function, typename Vector, typename Other>
HWY_INLINE void ForProducts(const Function& f, const float* a0, const float* a1, const float* b, Quad<Vector>& q,
                            const Quad<Other>& constant) {
  const Floats df;
  const auto b0 = hn::LoadU(df, b);
  const auto b1 = hn::LoadU(df, b + hn::Lanes(df));
  const auto x0 = hn::Set(df, *a0);
  const auto x1 = hn::Set(df, *a1);
  q.v00 = f(q.v00, hn::Mul(x0, b0), constant.v00);
  q.v01 = f(q.v01, hn::Mul(x0, b1), constant.v01);
  q.v10 = f(q.v10, hn::Mul(x1, b0), constant.v10);
  q.v11 = f(q.v11, hn::Mul(x1, b1), constant.v11);
}

/// Step 1: 2^E of each column, E the largest exponent of products k0 to k1 and the accumulator; at least 2^-100.
HWY_INLINE FloatQuad AlignmentPowers(std::size_t k0, std::size_t k1, FactorRow a0, FactorRow a1, const float* b,
                                     const FloatQuad& accumulator) {
  const Floats df;
  const Words du;
  const auto exponent_mask = hn::Set(du, 0x7F800000U);
  const auto smallest = hn::Set(df, 0x1p-100F);
  FloatQuad power =
      Map([&](FloatVector x)
              HWY_ATTR { return hn::Max(hn::BitCast(df, hn::And(hn::BitCast(du, x), exponent_mask)), smallest); },
          accumulator);
  const auto larger = [](FloatVector top, FloatVector product, FloatVector) HWY_ATTR { return hn::Max(top, product); };
  for (std::size_t k = k0; k < k1; ++k) {
    ForProducts(larger, a0.power + k, a1.power + k, b + k * tile_columns, power, accumulator);
  }
  return power;
}

/// Step 2: accumulator and products k0 to k1, each cut to a multiple of 1 / scale, as the sum of those multiples.
HWY_INLINE IntegerQuad SumOfCuts(std::size_t k0, std::size_t k1, FactorRow a0, FactorRow a1, const float* b,
                                 const FloatQuad& accumulator, const FloatQuad& scale) {
  const Integers di;
  const auto cut = [&](FloatVector x, FloatVector s) HWY_ATTR { return hn::ConvertTo(di, hn::Mul(x, s)); };
  IntegerQuad sum = Map(cut, accumulator, scale);
  const auto add = [&](IntegerVector total, FloatVector product, FloatVector s)
                       HWY_ATTR { return hn::Add(total, cut(product, s)); };
  for (std::size_t k = k0; k < k1; ++k) {
    ForProducts(add, a0.value + k, a1.value + k, b + k * tile_columns, sum, scale);
  }
  return sum;
}

HWY_INLINE FloatQuad OneStep(const FuseColumns& shape, std::size_t k0, FactorRow a0, FactorRow a1, FactorRow b,
                             const FloatQuad& accumulator) {
  const Floats df;
  const Words du;
  const auto scale_base = hn::Set(du, static_cast<std::uint32_t>(254 + shape.fraction_bits) << 23);
  const auto unit_base = hn::Set(du, static_cast<std::uint32_t>(shape.fraction_bits) << 23);
  const auto output_mask = hn::Set(du, shape.output_mask);
  const std::size_t k1 = k0 + shape.products_per_step;
  const FloatQuad power = AlignmentPowers(k0, k1, a0, a1, b.power, accumulator);
  const FloatQuad scale = Map(  // 2^(fraction_bits - E)
      [&](FloatVector p) HWY_ATTR { return hn::BitCast(df, hn::Sub(scale_base, hn::BitCast(du, p))); }, power);
  const IntegerQuad sum = SumOfCuts(k0, k1, a0, a1, b.value, accumulator, scale);
  // Step 3: the sum times 2^(E - fraction_bits), cut to the accumulator's width.
  return Map(
      [&](IntegerVector total, FloatVector p) HWY_ATTR {
        const auto unit = hn::BitCast(df, hn::Sub(hn::BitCast(du, p), unit_base));
        return hn::BitCast(df, hn::And(hn::BitCast(du, hn::Mul(CutToFloat(total), unit)), output_mask));
      },
      sum, power);
}

HWY_ATTR void FuseColumnsOf(const FuseColumns& shape, FactorRow a0, FactorRow a1, FactorRow b, float* out0,
                            float* out1) {
  const Floats df;
  const std::size_t lanes = hn::Lanes(df);
  const auto zero = hn::Zero(df);
  const auto sum = [](FloatVector x, FloatVector y) HWY_ATTR { return hn::Add(x, y); };
  for (std::size_t column = 0; column < tile_columns; column += 2 * lanes) {
    FloatQuad accumulator{zero, zero, zero, zero};
    FloatQuad promoted = accumulator;
    const FactorRow columns{b.value + column, b.power + column};
    for (std::size_t step = 0; step < shape.steps; ++step) {
      accumulator = OneStep(shape, step * shape.products_per_step, a0, a1, columns, accumulator);
      if (shape.steps_per_promotion != 0 && (step + 1) % shape.steps_per_promotion == 0) {
        promoted = Map(sum, promoted, accumulator);
        accumulator = {zero, zero, zero, zero};
      }
    }
    if (shape.steps_per_promotion != 0) accumulator = Map(sum, promoted, accumulator);
    hn::StoreU(accumulator.v00, df, out0 + column);
    hn::StoreU(accumulator.v01, df, out0 + column + lanes);
    hn::StoreU(accumulator.v10, df, out1 + column);
    hn::StoreU(accumulator.v11, df, out1 + column + lanes);
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

}  // namespace fp8lab
#endif
