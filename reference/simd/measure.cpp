// SPDX-License-Identifier: Apache-2.0
// Errors, their sums and the bins they fall into, as many elements at a time as a vector has. The scalar code in
// src/measure/ defines the result.
#include "simd/measure.hpp"

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/measure.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
using Longs = hn::RebindToUnsigned<Doubles>;
using Slots = hn::Rebind<std::int32_t, Doubles>;
using Double = hn::Vec<Doubles>;
constexpr std::size_t most_lanes = HWY_MAX_BYTES / sizeof(double);

HWY_INLINE Double Number(double x) { return hn::Set(Doubles(), x); }

/// Calls one(a, b), which returns a vector, for vectors of pairs; the last pairs by way of a full vector.
template <class One>
HWY_INLINE void ForPairs(const double* a, const double* b, std::size_t count, double* out, const One& one) {
  const Doubles d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(one(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  if (i == count) return;
  double last_a[most_lanes] = {};
  double last_b[most_lanes] = {};
  for (std::size_t k = 0; i + k < count; ++k) {
    last_a[k] = a[i + k];
    last_b[k] = b[i + k];
  }
  hn::StoreU(one(hn::LoadU(d, last_a), hn::LoadU(d, last_b)), d, last_a);
  for (std::size_t k = 0; i + k < count; ++k) out[i + k] = last_a[k];
}

HWY_ATTR void AbsoluteErrors(const double* actual, const double* reference, std::size_t count, double* out) {
  ForPairs(actual, reference, count, out, [](Double a, Double r) HWY_ATTR { return hn::Sub(a, r); });
}

HWY_ATTR void RelativeErrors(const double* actual, const double* reference, std::size_t count, double* out) {
  ForPairs(actual, reference, count, out, [](Double a, Double r) HWY_ATTR {
    return hn::IfThenZeroElse(hn::Eq(a, r), hn::Div(hn::Sub(a, r), hn::Abs(r)));
  });
}

/// The reference's exponent field is a power of two, 0 for zero and infinite for infinity and NaN, of which no unit
/// changes the error.
HWY_ATTR void UlpErrors(const UlpConstants& ulp, const double* actual, const double* reference, std::size_t count,
                        double* out) {
  const Doubles d;
  const Longs dw;
  const auto field = hn::Set(dw, 0x7FF0000000000000U);
  const auto one = hn::BitCast(dw, Number(1));
  const auto top = hn::Add(hn::BitCast(dw, Number(ulp.values_a_binade)), one);
  ForPairs(actual, reference, count, out, [&](Double a, Double r) HWY_ATTR {
    const auto power = hn::BitCast(d, hn::And(hn::BitCast(dw, r), field));
    const auto binade = hn::Min(hn::Max(power, Number(ulp.lowest)), Number(ulp.highest));
    const auto units = hn::BitCast(d, hn::Sub(top, hn::BitCast(dw, binade)));  // values_a_binade / binade
    return hn::IfThenZeroElse(hn::Eq(a, r), hn::Mul(hn::Sub(a, r), units));
  });
}

using Capped = hn::CappedTag<double, error_lanes>;

/// Every error_lanes-th pair from the first on, as many lanes at a time as a vector has.
HWY_INLINE void AddLanes(const double* actual, const double* reference, std::size_t count, std::size_t lane,
                         ErrorLanes& lanes) {
  const Capped d;
  const auto largest = hn::Set(d, std::numeric_limits<double>::max());
  auto error = hn::LoadU(d, &lanes.error[lane]);
  auto absolute = hn::LoadU(d, &lanes.absolute_error[lane]);
  auto squared = hn::LoadU(d, &lanes.squared_error[lane]);
  auto reference_squared = hn::LoadU(d, &lanes.squared_reference[lane]);
  auto most = hn::LoadU(d, &lanes.max_absolute_error[lane]);
  auto relative = hn::LoadU(d, &lanes.max_relative_error[lane]);
  std::size_t not_finite = 0;
  for (std::size_t i = lane; i < count; i += error_lanes) {
    const auto a = hn::LoadU(d, actual + i);
    const auto r = hn::LoadU(d, reference + i);
    const auto finite = hn::And(hn::Le(hn::Abs(a), largest), hn::Le(hn::Abs(r), largest));
    not_finite += hn::Lanes(d) - hn::CountTrue(d, finite);
    const auto e = hn::IfThenElseZero(finite, hn::Sub(a, r));
    const auto known = hn::IfThenElseZero(finite, r);
    const auto magnitude = hn::Abs(e);
    error = hn::Add(error, e);
    absolute = hn::Add(absolute, magnitude);
    squared = hn::Add(squared, hn::Mul(e, e));
    reference_squared = hn::Add(reference_squared, hn::Mul(known, known));
    most = hn::Max(most, magnitude);
    const auto ratio = hn::Div(magnitude, hn::Abs(known));
    relative = hn::Max(relative, hn::IfThenZeroElse(hn::Eq(known, hn::Zero(d)), ratio));
  }
  hn::StoreU(error, d, &lanes.error[lane]);
  hn::StoreU(absolute, d, &lanes.absolute_error[lane]);
  hn::StoreU(squared, d, &lanes.squared_error[lane]);
  hn::StoreU(reference_squared, d, &lanes.squared_reference[lane]);
  hn::StoreU(most, d, &lanes.max_absolute_error[lane]);
  hn::StoreU(relative, d, &lanes.max_relative_error[lane]);
  lanes.not_finite += not_finite;
}

/// Pairs of zeros, which change no sum, fill up the last error_lanes.
HWY_ATTR void AddErrorLanes(const double* actual, const double* reference, std::size_t count, ErrorLanes& lanes) {
  const std::size_t whole = count / error_lanes * error_lanes;
  double last_actual[error_lanes] = {};
  double last_reference[error_lanes] = {};
  for (std::size_t i = whole; i < count; ++i) {
    last_actual[i - whole] = actual[i];
    last_reference[i - whole] = reference[i];
  }
  for (std::size_t lane = 0; lane < error_lanes; lane += hn::Lanes(Capped())) {
    AddLanes(actual, reference, whole, lane, lanes);
    if (whole < count) AddLanes(last_actual, last_reference, error_lanes, lane, lanes);
  }
}

HWY_INLINE hn::Vec<Slots> LinearSlot(const LinearConstants& bins, Double x) {
  const Doubles d;
  const auto magnitude = hn::Abs(x);
  const auto bin = hn::Add(hn::Floor(hn::Mul(x, Number(bins.bins_a_unit))), Number(bins.first_bin));
  auto slot = hn::Add(hn::Max(hn::Min(bin, Number(bins.count)), Number(-1)), Number(2));
  slot = hn::IfThenZeroElse(hn::Eq(x, hn::Zero(d)), slot);
  const auto infinity = Number(std::numeric_limits<double>::infinity());
  slot = hn::IfThenElse(hn::Eq(magnitude, infinity), Number(bins.count + 3), slot);
  slot = hn::IfThenElse(hn::Eq(x, x), slot, Number(bins.count + 4));
  return hn::DemoteTo(Slots(), slot);
}

HWY_ATTR void LinearSlots(const LinearConstants& bins, const double* values, std::size_t count, std::int32_t* slots) {
  const Doubles d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(LinearSlot(bins, hn::LoadU(d, values + i)), Slots(), slots + i);
  if (i == count) return;
  double last[most_lanes] = {};
  std::int32_t last_slots[most_lanes];
  for (std::size_t k = 0; i + k < count; ++k) last[k] = values[i + k];
  hn::StoreU(LinearSlot(bins, hn::LoadU(d, last)), Slots(), last_slots);
  for (std::size_t k = 0; i + k < count; ++k) slots[i + k] = last_slots[k];
}

/// Counts whole vectors; returns how many elements these had.
HWY_INLINE std::size_t CountVectors(const OutcomeConstants& limits, const double* x, const double* scaled,
                                    const double* result, std::size_t count, OutcomeCounts& counts) {
  const Doubles d;
  const std::size_t lanes = hn::Lanes(d);
  const auto zero = hn::Zero(d);
  const auto infinity = Number(std::numeric_limits<double>::infinity());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = hn::LoadU(d, x + i);
    const auto in_units = hn::LoadU(d, scaled + i);
    const auto magnitude = hn::Abs(value);
    const auto is_zero = hn::Eq(value, zero);
    const auto takes_part = hn::And(hn::AndNot(is_zero, hn::Lt(magnitude, infinity)),
                                    hn::Le(hn::Abs(in_units), Number(limits.largest_scaled)));
    const auto is_underflow = hn::Eq(hn::LoadU(d, result + i), zero);
    const auto is_beyond = hn::Or(hn::Ge(in_units, Number(limits.saturated_positive)),
                                  hn::Le(in_units, Number(-limits.saturated_negative)));
    counts.zeros += hn::CountTrue(d, is_zero);
    counts.infinities += hn::CountTrue(d, hn::Eq(magnitude, infinity));
    counts.nans += lanes - hn::CountTrue(d, hn::Eq(value, value));
    counts.underflows += hn::CountTrue(d, hn::And(takes_part, is_underflow));
    counts.saturated += hn::CountTrue(d, hn::And(takes_part, hn::AndNot(is_underflow, is_beyond)));
  }
  return i;
}

/// Zeros, which are taken off again, fill up the last vector.
HWY_ATTR void CountOutcomes(const OutcomeConstants& limits, const double* x, const double* scaled, const double* result,
                            std::size_t count, OutcomeCounts& counts) {
  OutcomeCounts own;
  const std::size_t whole = CountVectors(limits, x, scaled, result, count, own);
  if (whole < count) {
    const std::size_t rest = count - whole;
    const std::size_t lanes = hn::Lanes(Doubles());
    double last[3][most_lanes] = {};
    for (std::size_t k = 0; k < rest; ++k) {
      last[0][k] = x[whole + k];
      last[1][k] = scaled[whole + k];
      last[2][k] = result[whole + k];
    }
    CountVectors(limits, last[0], last[1], last[2], lanes, own);
    own.zeros -= lanes - rest;
  }
  counts.merge(own);
}

HWY_INLINE Double Widened(const float* in) {
  return hn::PromoteTo(Doubles(), hn::LoadU(hn::Rebind<float, Doubles>(), in));
}
/// A half's exponent and fraction, at the places of a float's, times the ratio of the two scales, which is exact.
HWY_INLINE Double Widened(const Half* in) {
  const hn::Rebind<float, Doubles> df;
  const hn::Rebind<std::uint32_t, Doubles> dw;
  const hn::Rebind<std::uint16_t, Doubles> ds;
  const auto words = hn::PromoteTo(dw, hn::LoadU(ds, reinterpret_cast<const std::uint16_t*>(in)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(words, hn::Set(dw, 0x7FFFU)));
  const auto value = hn::BitCast(dw, hn::Mul(hn::BitCast(df, magnitude), hn::Set(df, 0x1p112F)));
  const auto is_special = hn::Ge(hn::BitCast(df, magnitude), hn::BitCast(df, hn::Set(dw, 0x7C00U << 13)));
  const auto special = hn::VecFromMask(dw, hn::RebindMask(dw, is_special));
  const auto exponent = hn::And(special, hn::Set(dw, 0x7F800000U));
  const auto sign = hn::ShiftLeft<16>(hn::And(words, hn::Set(dw, 0x8000U)));
  return hn::PromoteTo(Doubles(), hn::BitCast(df, hn::Or(hn::Or(value, exponent), sign)));
}
HWY_INLINE Double Widened(const BFloat16* in) {
  const hn::Rebind<float, Doubles> df;
  const hn::Rebind<std::uint32_t, Doubles> dw;
  const hn::Rebind<std::uint16_t, Doubles> ds;
  const auto words = hn::PromoteTo(dw, hn::LoadU(ds, reinterpret_cast<const std::uint16_t*>(in)));
  return hn::PromoteTo(Doubles(), hn::BitCast(df, hn::ShiftLeft<16>(words)));
}

template <class T>
HWY_INLINE void WidenAll(const T* in, std::size_t count, double* out) {
  const Doubles d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(Widened(in + i), d, out + i);
  if (i == count) return;
  T last[most_lanes] = {};
  double values[most_lanes];
  for (std::size_t k = 0; i + k < count; ++k) last[k] = in[i + k];
  hn::StoreU(Widened(last), d, values);
  for (std::size_t k = 0; i + k < count; ++k) out[i + k] = values[k];
}
HWY_ATTR void WidenFloats(const float* in, std::size_t count, double* out) { WidenAll(in, count, out); }
HWY_ATTR void WidenHalves(const Half* in, std::size_t count, double* out) { WidenAll(in, count, out); }
HWY_ATTR void WidenBFloats(const BFloat16* in, std::size_t count, double* out) { WidenAll(in, count, out); }

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(AddErrorLanes);
HWY_EXPORT(AbsoluteErrors);
HWY_EXPORT(RelativeErrors);
HWY_EXPORT(UlpErrors);
HWY_EXPORT(LinearSlots);
HWY_EXPORT(CountOutcomes);
HWY_EXPORT(WidenFloats);
HWY_EXPORT(WidenHalves);
HWY_EXPORT(WidenBFloats);

void add_error_lanes_vector(const double* actual, const double* reference, std::size_t count, ErrorLanes& lanes) {
  HWY_DYNAMIC_DISPATCH(AddErrorLanes)(actual, reference, count, lanes);
}
void absolute_errors_vector(const double* actual, const double* reference, std::size_t count, double* out) {
  HWY_DYNAMIC_DISPATCH(AbsoluteErrors)(actual, reference, count, out);
}
void relative_errors_vector(const double* actual, const double* reference, std::size_t count, double* out) {
  HWY_DYNAMIC_DISPATCH(RelativeErrors)(actual, reference, count, out);
}
void ulp_errors_vector(const UlpConstants& ulp, const double* actual, const double* reference, std::size_t count,
                       double* out) {
  HWY_DYNAMIC_DISPATCH(UlpErrors)(ulp, actual, reference, count, out);
}
void linear_slots_vector(const LinearConstants& bins, const double* values, std::size_t count, std::int32_t* slots) {
  HWY_DYNAMIC_DISPATCH(LinearSlots)(bins, values, count, slots);
}
void count_outcomes_vector(const OutcomeConstants& limits, const double* x, const double* scaled, const double* result,
                           std::size_t count, OutcomeCounts& counts) {
  HWY_DYNAMIC_DISPATCH(CountOutcomes)(limits, x, scaled, result, count, counts);
}
void widen_vector(const float* in, std::size_t count, double* out) {
  HWY_DYNAMIC_DISPATCH(WidenFloats)(in, count, out);
}
void widen_vector(const Half* in, std::size_t count, double* out) { HWY_DYNAMIC_DISPATCH(WidenHalves)(in, count, out); }
void widen_vector(const BFloat16* in, std::size_t count, double* out) {
  HWY_DYNAMIC_DISPATCH(WidenBFloats)(in, count, out);
}

}  // namespace fp8lab
#endif
