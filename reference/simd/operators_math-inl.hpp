// SPDX-License-Identifier: Apache-2.0
// Included once for every target, after highway.h: float32 arithmetic of one lane and of a vector's lanes, for formulas
// that are templates of it. Both give the same bits: each operation is rounded once, and the elementary functions are
// rounded correctly.
#if defined(FP8LAB_OPERATORS_MATH_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_OPERATORS_MATH_INL
#undef FP8LAB_OPERATORS_MATH_INL
#else
#define FP8LAB_OPERATORS_MATH_INL
#endif

#include <hwy/highway.h>

#include <cmath>

#include "fp8lab/reference/operators/functions.hpp"
#include "units/function_constants.hpp"
#include "units/hopper_functions.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The arithmetic of one lane: what targets without fused multiply-adds use, and what defines the others' results.
struct ScalarMath {
  using V = float;
  static constexpr std::size_t lanes() { return 1; }
  static HWY_INLINE V Load(const float* in) { return *in; }
  static HWY_INLINE void Store(V x, float* out) { *out = x; }
  static HWY_INLINE V Number(float x) { return x; }
  static HWY_INLINE V Negative(V x) { return -x; }
  static HWY_INLINE V Magnitude(V x) { return std::abs(x); }
  static HWY_INLINE V Sum(V a, V b) { return a + b; }
  static HWY_INLINE V Difference(V a, V b) { return a - b; }
  static HWY_INLINE V Product(V a, V b) { return a * b; }
  static HWY_INLINE V Quotient(V a, V b) { return a / b; }
  static HWY_INLINE V Root(V x) { return std::sqrt(x); }
  static HWY_INLINE V Fused(V a, V b, V c) { return std::fma(a, b, c); }
  static HWY_INLINE V Exp(V x) { return rounded_exp(x); }
  static HWY_INLINE V Tanh(V x) { return rounded_tanh(x); }
  /// yes where a < b, else no: also where one of them is NaN.
  static HWY_INLINE V IfLess(V a, V b, V yes, V no) { return a < b ? yes : no; }
  static HWY_INLINE V IfLessOrEqual(V a, V b, V yes, V no) { return a <= b ? yes : no; }
  static HWY_INLINE V IfNan(V x, V yes, V no) { return x != x ? yes : no; }
};

/// The same with the functions of kernels on Hopper, which are compiled without options.
struct HopperMath : ScalarMath {
  static HWY_INLINE V Exp(V x) { return hopper_expf(x); }
  static HWY_INLINE V Tanh(V x) { return hopper_tanhf(x); }
};

#if HWY_NATIVE_FMA && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
/// The same of a vector's lanes.
struct VectorMath {
  using D = hn::ScalableTag<float>;
  using HalfD = hn::Half<D>;
  using Wide = hn::Rebind<double, HalfD>;
  using WideWords = hn::RebindToUnsigned<Wide>;
  using V = hn::Vec<D>;
  using Double = hn::Vec<Wide>;

  static HWY_INLINE std::size_t lanes() { return hn::Lanes(D()); }
  static HWY_INLINE V Load(const float* in) { return hn::LoadU(D(), in); }
  static HWY_INLINE void Store(V x, float* out) { hn::StoreU(x, D(), out); }
  static HWY_INLINE V Number(float x) { return hn::Set(D(), x); }
  static HWY_INLINE V Negative(V x) { return hn::Neg(x); }
  static HWY_INLINE V Magnitude(V x) { return hn::Abs(x); }
  static HWY_INLINE V Sum(V a, V b) { return hn::Add(a, b); }
  static HWY_INLINE V Difference(V a, V b) { return hn::Sub(a, b); }
  static HWY_INLINE V Product(V a, V b) { return hn::Mul(a, b); }
  static HWY_INLINE V Quotient(V a, V b) { return hn::Div(a, b); }
  static HWY_INLINE V Root(V x) { return hn::Sqrt(x); }
  static HWY_INLINE V Fused(V a, V b, V c) { return hn::MulAdd(a, b, c); }
  static HWY_INLINE V IfLess(V a, V b, V yes, V no) { return hn::IfThenElse(hn::Lt(a, b), yes, no); }
  static HWY_INLINE V IfLessOrEqual(V a, V b, V yes, V no) { return hn::IfThenElse(hn::Le(a, b), yes, no); }
  static HWY_INLINE V IfNan(V x, V yes, V no) { return hn::IfThenElse(hn::Eq(x, x), no, yes); }

  static HWY_INLINE V Exp(V x) {
    const V limited = hn::Min(hn::Max(x, Number(least_exp - 1)), Number(most_exp + 1));
    const Halves low = ExpHalf(hn::LowerHalf(HalfD(), limited));
    const Halves high = ExpHalf(hn::UpperHalf(HalfD(), limited));
    return Decided(x, low, high, rounded_exp);
  }
  static HWY_INLINE V Tanh(V x) {
    const V limited = hn::Min(hn::Abs(x), Number(most_tanh));
    const Halves low = TanhHalf(hn::LowerHalf(HalfD(), limited));
    const Halves high = TanhHalf(hn::UpperHalf(HalfD(), limited));
    return hn::CopySign(Decided(hn::Abs(x), low, high, rounded_tanh), x);
  }

 private:
  /// The float32 numbers that the ends of the interval of what a value may be round to.
  struct Halves {
    hn::Vec<HalfD> least, most;
  };
  static HWY_INLINE Double Wider(double x) { return hn::Set(Wide(), x); }

  /// 2^k, and e^r - 1 where x = k ln(2) + r: see rounded_functions.cpp. The sum with 1.5 * 2^52 has k in its lowest
  /// bits.
  struct Powers {
    Double power, rest;
  };
  static HWY_INLINE Powers PowersOf(Double x) {
    const Wide d;
    const Double shift = Wider(0x1.8p52);
    const Double sum = hn::MulAdd(x, Wider(log2_e), shift);
    const Double k = hn::Sub(sum, shift);
    const auto exponent = hn::Add(hn::BitCast(WideWords(), sum), hn::Set(WideWords(), 1023));
    const Double r = hn::NegMulAdd(k, Wider(ln2_low), hn::NegMulAdd(k, Wider(ln2_high), x));
    return {hn::BitCast(d, hn::ShiftLeft<52>(exponent)), Expm1OfRest(r)};
  }
  static HWY_INLINE Double Expm1OfRest(Double r) {
    const auto term = [](std::size_t i) HWY_ATTR { return Wider(exp_terms[i]); };
    const Double r2 = hn::Mul(r, r);
    const Double r4 = hn::Mul(r2, r2);
    const Double first = hn::MulAdd(hn::MulAdd(term(3), r, term(2)), r2, hn::MulAdd(term(1), r, term(0)));
    const Double second = hn::MulAdd(hn::MulAdd(term(7), r, term(6)), r2, hn::MulAdd(term(5), r, term(4)));
    const Double third = hn::MulAdd(hn::MulAdd(term(11), r, term(10)), r2, hn::MulAdd(term(9), r, term(8)));
    return hn::MulAdd(r2, hn::MulAdd(hn::MulAdd(third, r4, second), r4, first), r);
  }
  static HWY_INLINE Halves Ends(Double y, double relative_error) {
    const Double error = hn::Mul(y, Wider(relative_error));
    return {hn::DemoteTo(HalfD(), hn::Sub(y, error)), hn::DemoteTo(HalfD(), hn::Add(y, error))};
  }
  static HWY_INLINE Halves ExpHalf(hn::Vec<HalfD> x) {
    const Powers powers = PowersOf(hn::PromoteTo(Wide(), x));
    return Ends(hn::Mul(powers.power, hn::Add(powers.rest, Wider(1))), exp_error);
  }
  static HWY_INLINE Halves TanhHalf(hn::Vec<HalfD> magnitude) {
    const Double x = hn::PromoteTo(Wide(), magnitude);
    const Powers powers = PowersOf(hn::Add(x, x));
    const Double e = hn::MulAdd(powers.power, powers.rest, hn::Sub(powers.power, Wider(1)));
    return Ends(hn::Div(e, hn::Add(e, Wider(2))), tanh_error);
  }

  /// The two halves; where the ends differ or x is NaN, which Min and Max may drop, what `again` gives.
  static HWY_INLINE V Decided(V x, Halves low, Halves high, float (*again)(float)) {
    const D d;
    const V least = hn::Combine(d, high.least, low.least);
    const V most = hn::Combine(d, high.most, low.most);
    const auto decided = hn::And(hn::Eq(least, most), hn::Eq(x, x));
    if (HWY_LIKELY(hn::AllTrue(d, decided))) return least;
    return Again(x, least, decided, again);
  }
  static HWY_NOINLINE V Again(V x, V y, hn::Mask<D> decided, float (*again)(float)) {
    const D d;
    HWY_ALIGN float in[HWY_MAX_BYTES / sizeof(float)];
    HWY_ALIGN float out[HWY_MAX_BYTES / sizeof(float)];
    HWY_ALIGN float known[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(x, d, in);
    hn::Store(y, d, out);
    hn::Store(hn::IfThenElseZero(decided, Number(1)), d, known);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
      if (known[i] == 0) out[i] = again(in[i]);
    }
    return hn::Load(d, out);
  }
};
using TargetMath = VectorMath;
#else
using TargetMath = ScalarMath;
#endif

/// The arithmetic of a build with fast-math: what is subnormal becomes a zero of its sign, before each operation and
/// after it. So operands are what an operation gave, or Flush() of what a piece or a parameter has; a division
/// multiplies by the reciprocal.
template <class Math>
struct Flushed {
  using V = Math::V;
  static HWY_INLINE V Flush(V x) {
    return Math::IfLess(Math::Magnitude(x), Math::Number(0x1p-126F), Math::Product(x, Math::Number(0)), x);
  }
  static HWY_INLINE V Load(const float* in) { return Flush(Math::Load(in)); }
  static HWY_INLINE V Number(float x) { return Flush(Math::Number(x)); }
  static HWY_INLINE V Sum(V a, V b) { return Flush(Math::Sum(a, b)); }
  static HWY_INLINE V Difference(V a, V b) { return Flush(Math::Difference(a, b)); }
  static HWY_INLINE V Product(V a, V b) { return Flush(Math::Product(a, b)); }
  static HWY_INLINE V Fused(V a, V b, V c) { return Flush(Math::Fused(a, b, c)); }
  static HWY_INLINE V Reciprocal(V x) { return Flush(Math::Quotient(Math::Number(1), x)); }
  static HWY_INLINE V Root(V x) { return Math::Root(x); }
  static HWY_INLINE V Exp(V x) { return Flush(Math::Exp(x)); }
};

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
