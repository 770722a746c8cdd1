// SPDX-License-Identifier: Apache-2.0
#include "check/simd/row_loss.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "fp8lab/formats/decode.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "check/simd/row_loss.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp8lab::experiments::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t lanes_of_sums = 8;
using SumDoubles = hn::CappedTag<double, lanes_of_sums>;
using SumFloats = hn::Rebind<float, SumDoubles>;
using WideFloats = hn::CappedTag<float, 16>;  // the length of a run
using WideWords = hn::RebindToUnsigned<WideFloats>;
using SumLanes = double[lanes_of_sums];

HWY_INLINE double AddedUp(const SumLanes& a) {
  return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

/// Adds the squares of one(i), a vector of doubles from element i on, to the lanes. Precondition: 8 divides count.
template <class One>
HWY_INLINE void AddSquaresOf(std::size_t count, SumLanes& sums, const One& one) {
  const SumDoubles d;
  for (std::size_t lane = 0; lane < lanes_of_sums; lane += hn::Lanes(d)) {
    auto sum = hn::LoadU(d, &sums[lane]);
    for (std::size_t i = lane; i < count; i += lanes_of_sums) {
      const auto x = one(i);
      sum = hn::Add(sum, hn::Mul(x, x));
    }
    hn::StoreU(sum, d, &sums[lane]);
  }
}

HWY_INLINE void AddNoise(const float* back, const float* x, std::size_t count, SumLanes& sums) {
  const SumDoubles d;
  const SumFloats df;
  const auto add = [&](const float* a, const float* b, std::size_t some) HWY_ATTR {
    AddSquaresOf(some, sums, [&](std::size_t i) HWY_ATTR {
      return hn::Sub(hn::PromoteTo(d, hn::LoadU(df, a + i)), hn::PromoteTo(d, hn::LoadU(df, b + i)));
    });
  };
  const std::size_t whole = count / lanes_of_sums * lanes_of_sums;
  add(back, x, whole);
  if (whole == count) return;
  float last_back[lanes_of_sums] = {};  // zeros change no sum
  float last_x[lanes_of_sums] = {};
  std::copy(back + whole, back + count, last_back);
  std::copy(x + whole, x + count, last_x);
  add(last_back, last_x, lanes_of_sums);
}

HWY_ATTR double RowNoise(const float* back, const float* x, std::size_t count) {
  SumLanes sums = {};
  AddNoise(back, x, count, sums);
  return AddedUp(sums);
}

HWY_ATTR double RowEnergy(const float* x, std::size_t count) {
  const SumDoubles d;
  const SumFloats df;
  SumLanes sums = {};
  const std::size_t whole = count / lanes_of_sums * lanes_of_sums;
  AddSquaresOf(whole, sums, [&](std::size_t i) HWY_ATTR { return hn::PromoteTo(d, hn::LoadU(df, x + i)); });
  float last[lanes_of_sums] = {};
  std::copy(x + whole, x + count, last);
  AddSquaresOf(lanes_of_sums, sums, [&](std::size_t i) HWY_ATTR { return hn::PromoteTo(d, hn::LoadU(df, last + i)); });
  return AddedUp(sums);
}

/// Counts in the lanes of a vector, of some 1000 elements.
struct LossCounts {
  hn::Vec<WideWords> zeroed, subnormal;
};

HWY_INLINE hn::Vec<WideWords> OneWhere(hn::Mask<WideFloats> mask) {
  const WideWords dw;
  return hn::And(hn::BitCast(dw, hn::VecFromMask(WideFloats(), mask)), hn::Set(dw, 1U));
}

/// Magnitudes rounded to nearest even: the power of two whose ulp is the spacing of a magnitude's binade is added and
/// taken away again, and both sums are exact but for that rounding.
HWY_INLINE hn::Vec<WideFloats> RoundedTo(const RoundedPrecision& precision, hn::Vec<WideFloats> x) {
  const WideFloats df;
  const WideWords dw;
  const auto exponent = hn::And(hn::BitCast(dw, x), hn::Set(dw, 0x7F800000U));
  const auto binade = hn::Max(exponent, hn::BitCast(dw, hn::Set(df, precision.smallest_normal)));
  const auto magic = hn::BitCast(df, hn::Add(binade, hn::Set(dw, precision.spacings)));
  return hn::Sub(hn::Add(x, magic), magic);
}

/// The elements of a vector as they come back. Both types of a rounding have the largest value, so that what is above
/// it can be cut off first.
template <bool kDivides, bool kRoundsProduct>
HWY_INLINE hn::Vec<WideFloats> CameBack(const SaturatingCast& cast, hn::Vec<WideFloats> x, hn::Vec<WideFloats> factor,
                                        hn::Vec<WideFloats> multiplier, LossCounts& counts) {
  const WideFloats df;
  auto scaled = kDivides ? hn::Div(x, factor) : hn::Mul(x, factor);
  scaled = hn::Min(scaled, hn::Set(df, cast.largest));
  if constexpr (kRoundsProduct) scaled = RoundedTo(cast.product, scaled);
  const auto value = RoundedTo(cast.format, scaled);
  const auto back = hn::Mul(value, multiplier);
  const auto zero = hn::Zero(df);
  const auto is_subnormal = hn::And(hn::Lt(value, hn::Set(df, cast.format.smallest_normal)), hn::Gt(value, zero));
  counts.zeroed = hn::Add(counts.zeroed, OneWhere(hn::And(hn::Eq(back, zero), hn::Gt(x, zero))));
  counts.subnormal = hn::Add(counts.subnormal, OneWhere(is_subnormal));
  return back;
}

/// The elements of a tile, or a part of one, as they come back.
template <bool kDivides, bool kRoundsProduct>
HWY_INLINE void CastTile(const SaturatingCast& cast, const float* x, std::size_t count, float factor, float multiplier,
                         float* back, LossCounts& counts) {
  const WideFloats df;
  const auto factors = hn::Set(df, factor);
  const auto multipliers = hn::Set(df, multiplier);
  const std::size_t lanes = hn::Lanes(df);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(CameBack<kDivides, kRoundsProduct>(cast, hn::LoadU(df, x + i), factors, multipliers, counts), df,
               back + i);
  }
  if (i == count) return;
  float last[run_length] = {};  // zeros, which are not counted, fill it up
  std::copy(x + i, x + count, last);
  hn::StoreU(CameBack<kDivides, kRoundsProduct>(cast, hn::LoadU(df, last), factors, multipliers, counts), df, last);
  std::copy(last, last + (count - i), back + i);
}

template <bool kDivides, bool kRoundsProduct>
HWY_INLINE RowLoss LossOf(const SaturatingCast& cast, const float* x, std::size_t count, std::size_t tile,
                          const float* factors, const float* multipliers) {
  constexpr std::size_t piece = 1024;
  const WideWords dw;
  HWY_ALIGN float back[piece];
  SumLanes sums = {};
  RowLoss loss;
  std::size_t t = 0;
  std::size_t tile_end = std::min(tile, count);
  for (std::size_t first = 0; first < count; first += piece) {
    const std::size_t end = std::min(count, first + piece);
    LossCounts counts{hn::Zero(dw), hn::Zero(dw)};
    for (std::size_t i = first; i < end;) {
      const std::size_t stop = std::min(end, tile_end);
      CastTile<kDivides, kRoundsProduct>(cast, x + i, stop - i, factors[t], multipliers[t], back + (i - first), counts);
      i = stop;
      if (stop < tile_end) continue;
      ++t;
      tile_end = std::min(tile_end + tile, count);
    }
    AddNoise(back, x + first, end - first, sums);
    loss.zeroed += hn::GetLane(hn::SumOfLanes(dw, counts.zeroed));
    loss.subnormal += hn::GetLane(hn::SumOfLanes(dw, counts.subnormal));
  }
  loss.noise = AddedUp(sums);
  return loss;
}

HWY_ATTR RowLoss Loss(const SaturatingCast& cast, const float* x, std::size_t count, std::size_t tile,
                      const float* factors, const float* multipliers) {
  if (cast.rounds_product) {
    return cast.divides ? LossOf<true, true>(cast, x, count, tile, factors, multipliers)
                        : LossOf<false, true>(cast, x, count, tile, factors, multipliers);
  }
  return cast.divides ? LossOf<true, false>(cast, x, count, tile, factors, multipliers)
                      : LossOf<false, false>(cast, x, count, tile, factors, multipliers);
}

HWY_ATTR void RunAmaxes(const float* x, std::size_t count, float* out) {
  const WideFloats df;
  const std::size_t lanes = hn::Lanes(df);
  std::size_t i = 0;
  for (; i + run_length <= count; i += run_length) {
    auto most = hn::Abs(hn::LoadU(df, x + i));
    for (std::size_t k = lanes; k < run_length; k += lanes) most = hn::Max(most, hn::Abs(hn::LoadU(df, x + i + k)));
    *out++ = hn::GetLane(hn::MaxOfLanes(df, most));
  }
  if (i == count) return;
  float most = 0;
  for (; i < count; ++i) most = std::max(most, x[i] < 0 ? -x[i] : x[i]);
  *out = most;
}

HWY_ATTR FiniteAmax AmaxOf(const float* x, std::size_t count) {
  const WideFloats df;
  const WideWords dw;
  const auto infinity = hn::Set(dw, 0x7F800000U);
  const std::size_t lanes = hn::Lanes(df);
  FiniteAmax all{0, 0};
  auto most = hn::Zero(df);
  const auto add = [&](const float* from) HWY_ATTR {
    const auto magnitude = hn::And(hn::BitCast(dw, hn::LoadU(df, from)), hn::Set(dw, 0x7FFFFFFFU));
    const auto finite = hn::Ne(hn::And(magnitude, infinity), infinity);
    all.not_finite += lanes - hn::CountTrue(dw, finite);
    most = hn::Max(most, hn::BitCast(df, hn::IfThenElseZero(finite, magnitude)));
  };
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) add(x + i);
  if (i < count) {
    float last[run_length] = {};
    std::copy(x + i, x + count, last);
    add(last);
  }
  all.amax = hn::GetLane(hn::MaxOfLanes(df, most));
  return all;
}

HWY_ATTR void BFloatMagnitudes(const std::uint16_t* x, std::size_t count, float* out) {
  const WideFloats df;
  const WideWords dw;
  const hn::Rebind<std::uint16_t, WideWords> ds;
  const std::size_t lanes = hn::Lanes(df);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto words = hn::And(hn::PromoteTo(dw, hn::LoadU(ds, x + i)), hn::Set(dw, 0x7FFFU));
    hn::StoreU(hn::BitCast(df, hn::ShiftLeft<16>(words)), df, out + i);
  }
  for (; i < count; ++i) out[i] = std::bit_cast<float>((x[i] & 0x7FFFU) << 16);
}

}  // namespace fp8lab::experiments::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab::experiments {

HWY_EXPORT(RowNoise);
HWY_EXPORT(RowEnergy);
HWY_EXPORT(Loss);
HWY_EXPORT(RunAmaxes);
HWY_EXPORT(AmaxOf);
HWY_EXPORT(BFloatMagnitudes);

namespace {

RoundedPrecision precision_of(const Format& format) {
  constexpr std::uint32_t float_bits = 23;
  const auto dropped_bits = float_bits - static_cast<std::uint32_t>(format.mantissa_bits);
  return {decode(format, std::uint32_t{1} << format.mantissa_bits), dropped_bits << float_bits};
}

}  // namespace

SaturatingCast saturating_cast(const Format& format, bool divides, const Format& product) {
  const bool rounds_product = product != binary32;
  return {.largest = max_value(format),
          .format = precision_of(format),
          .divides = divides,
          .rounds_product = rounds_product,
          .product = rounds_product ? precision_of(product) : RoundedPrecision{}};
}

RowLoss row_loss(const SaturatingCast& cast, std::span<const float> magnitudes, std::size_t tile,
                 std::span<const float> factors, std::span<const float> multipliers) {
  return HWY_DYNAMIC_DISPATCH(Loss)(cast, magnitudes.data(), magnitudes.size(), tile, factors.data(),
                                    multipliers.data());
}

void magnitudes_of(std::span<const float> x, std::span<float> out) {
  std::ranges::transform(
      x, out.begin(), [](float one) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(one) & 0x7FFFFFFFU); });
}
void magnitudes_of(std::span<const Half> x, std::span<float> out) {
  std::ranges::transform(x, out.begin(), [](Half one) {
    const std::uint32_t word = one.bits & 0x7FFFU;
    // The exponent and the fraction at the places of a float32's, times the ratio of the two scales, which is exact.
    const float value = std::bit_cast<float>(word << 13) * 0x1p112F;
    return word >= 0x7C00U ? std::bit_cast<float>(0x7F800000U | (word & 0x3FFU)) : value;
  });
}
void magnitudes_of(std::span<const BFloat16> x, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(BFloatMagnitudes)(reinterpret_cast<const std::uint16_t*>(x.data()), x.size(), out.data());
}

double row_energy(std::span<const float> x) { return HWY_DYNAMIC_DISPATCH(RowEnergy)(x.data(), x.size()); }
double row_noise(std::span<const float> back, std::span<const float> x) {
  return HWY_DYNAMIC_DISPATCH(RowNoise)(back.data(), x.data(), x.size());
}
void amaxes_of_runs(std::span<const float> x, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(RunAmaxes)(x.data(), x.size(), out.data());
}
FiniteAmax finite_amax(std::span<const float> x) { return HWY_DYNAMIC_DISPATCH(AmaxOf)(x.data(), x.size()); }

}  // namespace fp8lab::experiments
#endif
