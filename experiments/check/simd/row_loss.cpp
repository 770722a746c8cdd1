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

/// What a row adds up, in the lanes of vectors: counts, and the sums of squares, lane i % 8 for element i.
struct LossSums {
  static constexpr std::size_t parts = lanes_of_sums / hn::MaxLanes(SumDoubles());
  hn::Vec<WideWords> zeroed, subnormal;
  hn::Vec<SumDoubles> noise[parts];
};

/// The counts, one more in each lane where the mask is true: a true lane is all ones, which is -1.
HWY_INLINE hn::Vec<WideWords> CountedWhere(hn::Mask<WideFloats> mask, hn::Vec<WideWords> counts) {
  return hn::Sub(counts, hn::BitCast(WideWords(), hn::VecFromMask(WideFloats(), mask)));
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
                                        hn::Vec<WideFloats> multiplier, LossSums& sums) {
  const WideFloats df;
  const WideWords dw;
  auto scaled = kDivides ? hn::Div(x, factor) : hn::Mul(x, factor);
  scaled = hn::Min(scaled, hn::Set(df, cast.largest));
  if constexpr (kRoundsProduct) scaled = RoundedTo(cast.product, scaled);
  const auto value = RoundedTo(cast.format, scaled);
  const auto back = hn::Mul(value, multiplier);
  const auto zero = hn::Zero(df);
  // Zero, less one, is the largest word.
  const auto one = hn::Set(dw, 1U);
  const auto least_normal = hn::BitCast(dw, hn::Set(df, cast.format.smallest_normal));
  const auto is_subnormal = hn::Lt(hn::Sub(hn::BitCast(dw, value), one), hn::Sub(least_normal, one));
  sums.zeroed = CountedWhere(hn::And(hn::Eq(back, zero), hn::Gt(x, zero)), sums.zeroed);
  sums.subnormal = CountedWhere(hn::RebindMask(df, is_subnormal), sums.subnormal);
  return back;
}

/// Adds a run of elements: those from `count` on are zeros that fill it up.
template <bool kDivides, bool kRoundsProduct>
HWY_INLINE void AddRun(const SaturatingCast& cast, const float* x, std::size_t count, hn::Vec<WideFloats> factor,
                       hn::Vec<WideFloats> multiplier, LossSums& sums) {
  const WideFloats df;
  const SumDoubles d;
  const SumFloats dsum;
  constexpr std::size_t lanes = hn::MaxLanes(df);
  constexpr std::size_t sum_lanes = hn::MaxLanes(d);
  HWY_ALIGN float back[run_length];
  for (std::size_t i = 0; i < run_length; i += lanes) {
    hn::Store(CameBack<kDivides, kRoundsProduct>(cast, hn::LoadU(df, x + i), factor, multiplier, sums), df, back + i);
  }
  if (count < run_length) std::fill(back + count, back + run_length, 0.0F);
  for (std::size_t i = 0; i < run_length; i += sum_lanes) {
    auto& sum = sums.noise[i % lanes_of_sums / sum_lanes];
    const auto error = hn::Sub(hn::PromoteTo(d, hn::Load(dsum, back + i)), hn::PromoteTo(d, hn::LoadU(dsum, x + i)));
    sum = hn::Add(sum, hn::Mul(error, error));
  }
}

/// Precondition: tiles are whole runs, but for the last.
template <bool kDivides, bool kRoundsProduct>
HWY_INLINE RowLoss LossOf(const SaturatingCast& cast, const float* x, std::size_t count, std::size_t tile,
                          const float* factors, const float* multipliers) {
  const WideFloats df;
  const WideWords dw;
  const SumDoubles d;
  LossSums sums;
  sums.zeroed = sums.subnormal = hn::Zero(dw);
  for (auto& part : sums.noise) part = hn::Zero(d);
  for (std::size_t t = 0, i = 0; i < count; ++t) {
    const auto factor = hn::Set(df, factors[t]);
    const auto multiplier = hn::Set(df, multipliers[t]);
    const std::size_t end = std::min(count - i, tile) + i;
    for (; i + run_length <= end; i += run_length) {
      AddRun<kDivides, kRoundsProduct>(cast, x + i, run_length, factor, multiplier, sums);
    }
    if (i == end) continue;
    float last[run_length] = {};
    std::copy(x + i, x + end, last);
    AddRun<kDivides, kRoundsProduct>(cast, last, end - i, factor, multiplier, sums);
    i = end;
  }
  SumLanes lanes;
  for (std::size_t part = 0; part < LossSums::parts; ++part) {
    hn::StoreU(sums.noise[part], d, &lanes[part * hn::MaxLanes(d)]);
  }
  return {.noise = AddedUp(lanes),
          .zeroed = hn::GetLane(hn::SumOfLanes(dw, sums.zeroed)),
          .subnormal = hn::GetLane(hn::SumOfLanes(dw, sums.subnormal))};
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

/// The sum of squares, and the amaxes of runs.
HWY_ATTR double EnergyAndAmaxes(const float* x, std::size_t count, float* amaxes) {
  const WideFloats df;
  const WideWords dw;
  const SumDoubles d;
  const SumFloats dsum;
  constexpr std::size_t sum_lanes = hn::MaxLanes(d);
  // Magnitudes as integers have the order of the numbers, with NaN above all.
  const auto magnitudes = [&](const float* from) HWY_ATTR {
    return hn::And(hn::BitCast(dw, hn::LoadU(df, from)), hn::Set(dw, 0x7FFFFFFFU));
  };
  hn::Vec<SumDoubles> sums[lanes_of_sums / sum_lanes];
  for (auto& part : sums) part = hn::Zero(d);
  const auto add_run = [&](const float* from) HWY_ATTR {
    auto most = magnitudes(from);
    for (std::size_t k = hn::Lanes(df); k < run_length; k += hn::Lanes(df)) most = hn::Max(most, magnitudes(from + k));
    *amaxes++ = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(dw, most)));
    for (std::size_t i = 0; i < run_length; i += sum_lanes) {
      auto& sum = sums[i % lanes_of_sums / sum_lanes];
      const auto value = hn::PromoteTo(d, hn::LoadU(dsum, from + i));
      sum = hn::Add(sum, hn::Mul(value, value));
    }
  };
  std::size_t i = 0;
  for (; i + run_length <= count; i += run_length) add_run(x + i);
  if (i < count) {
    float last[run_length] = {};
    std::copy(x + i, x + count, last);
    add_run(last);
  }
  SumLanes lanes;
  for (std::size_t part = 0; part < lanes_of_sums / sum_lanes; ++part) {
    hn::StoreU(sums[part], d, &lanes[part * sum_lanes]);
  }
  return AddedUp(lanes);
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

/// The same of bfloat16, as words.
HWY_ATTR FiniteAmax AmaxOfBFloats(const std::uint16_t* x, std::size_t count) {
  constexpr std::size_t most_lanes = 32;
  const hn::CappedTag<std::uint16_t, most_lanes> d;
  const auto infinity = hn::Set(d, std::uint16_t{0x7F80U});
  const std::size_t lanes = hn::Lanes(d);
  FiniteAmax all{0, 0};
  auto most = hn::Zero(d);
  const auto add = [&](const std::uint16_t* from) HWY_ATTR {
    const auto magnitude = hn::And(hn::LoadU(d, from), hn::Set(d, std::uint16_t{0x7FFFU}));
    const auto finite = hn::Lt(magnitude, infinity);
    all.not_finite += lanes - hn::CountTrue(d, finite);
    most = hn::Max(most, hn::IfThenElseZero(finite, magnitude));
  };
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) add(x + i);
  if (i < count) {
    std::uint16_t last[most_lanes] = {};
    std::copy(x + i, x + count, last);
    add(last);
  }
  HWY_ALIGN std::uint16_t mosts[most_lanes] = {};
  hn::Store(most, d, mosts);
  const std::uint16_t largest = *std::max_element(mosts, mosts + lanes);
  all.amax = std::bit_cast<float>(std::uint32_t{largest} << 16U);
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
HWY_EXPORT(Loss);
HWY_EXPORT(EnergyAndAmaxes);
HWY_EXPORT(AmaxOf);
HWY_EXPORT(AmaxOfBFloats);
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

double row_noise(std::span<const float> back, std::span<const float> x) {
  return HWY_DYNAMIC_DISPATCH(RowNoise)(back.data(), x.data(), x.size());
}
double energy_and_amaxes(std::span<const float> x, std::span<float> amaxes) {
  return HWY_DYNAMIC_DISPATCH(EnergyAndAmaxes)(x.data(), x.size(), amaxes.data());
}
FiniteAmax finite_amax(std::span<const float> x) { return HWY_DYNAMIC_DISPATCH(AmaxOf)(x.data(), x.size()); }
FiniteAmax finite_amax(std::span<const BFloat16> x) {
  return HWY_DYNAMIC_DISPATCH(AmaxOfBFloats)(reinterpret_cast<const std::uint16_t*>(x.data()), x.size());
}

}  // namespace fp8lab::experiments
#endif
