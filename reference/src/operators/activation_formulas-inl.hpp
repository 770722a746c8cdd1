// SPDX-License-Identifier: Apache-2.0
// Included once for every target of vector code: the formulas of activations, as templates of the arithmetic. What is
// fused into one rounding is what nvcc 13.0 fuses for sm_90, read from the machine code of these formulas.
#if defined(FP8LAB_ACTIVATION_FORMULAS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_ACTIVATION_FORMULAS_INL
#undef FP8LAB_ACTIVATION_FORMULAS_INL
#else
#define FP8LAB_ACTIVATION_FORMULAS_INL
#endif

#include <hwy/highway.h>

#include "fp8lab/reference/operators/activation.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {

/// f(x), f'(x), and for kernels that scale rows both at once: they write the gradient another way.
template <class Math>
struct Formulas {
  using V = Math::V;

  static HWY_INLINE V Sigmoid(V x) {
    const V one = Math::Number(1);
    return Math::Quotient(one, Math::Sum(one, Math::Exp(Math::Negative(x))));
  }
  /// s (1 - s).
  static HWY_INLINE V SigmoidGradient(V s) { return Math::Product(s, Math::Difference(Math::Number(1), s)); }
  /// max(x, 0) as fmaxf has it: 0 of NaN.
  static HWY_INLINE V Positive(V x) {
    const V zero = Math::Number(0);
    return Math::IfLess(zero, x, x, zero);
  }
  static HWY_INLINE V AtMost(V x, V limit) { return Math::IfLess(x, limit, x, limit); }

  static HWY_INLINE V Gelu(V x) {
    const V inner = Math::Fused(x, Math::Product(x, Math::Number(0.03567741F)), Math::Number(0.79788456F));
    const V half = Math::Number(0.5F);
    return Math::Product(x, Math::Fused(Math::Tanh(Math::Product(x, inner)), half, half));
  }
  static HWY_INLINE V GeluGradient(V x) {
    const V one = Math::Number(1);
    const V half = Math::Number(0.5F);
    const V inner = Math::Fused(x, Math::Product(x, Math::Number(0.044715F)), one);
    const V t = Math::Tanh(Math::Product(Math::Product(x, Math::Number(0.79788456F)), inner));
    const V slope = Math::Fused(Math::Negative(t), t, one);
    const V of_inner = Math::Fused(x, Math::Product(x, Math::Number(0.1070322243F)), Math::Number(0.79788456F));
    const V product = Math::Product(Math::Product(x, half), Math::Product(slope, of_inner));
    return Math::Fused(Math::Sum(t, one), half, product);
  }
  /// x sigmoid(alpha x), and its derivative.
  static HWY_INLINE V Swish(V x, V alpha) { return Math::Product(x, Sigmoid(Math::Product(alpha, x))); }
  static HWY_INLINE V SwishGradient(V x, V alpha) {
    const V u = Math::Product(alpha, x);
    const V s = Sigmoid(u);
    return Math::Fused(u, SigmoidGradient(s), s);
  }
  /// tanh(x / beta), and its derivative by x / beta.
  static HWY_INLINE V TanhOfShare(V x, V beta) { return Math::Tanh(Math::Quotient(x, beta)); }
  static HWY_INLINE V TanhGradient(V t) { return Math::Fused(Math::Negative(t), t, Math::Number(1)); }
  static HWY_INLINE V SituGradient(V x, V beta) {
    const V t = TanhOfShare(x, beta);
    const V s = Sigmoid(x);
    const V of_sigmoid = Math::Product(Math::Product(Math::Product(beta, t), s), Math::Difference(Math::Number(1), s));
    return Math::Fused(TanhGradient(t), s, of_sigmoid);
  }

  /// The activation's function of its first half, or of all of x.
  template <KernelActivation kActivation>
  static HWY_INLINE V Value(const ActivationParameters& parameters, V x) {
    switch (kActivation) {
      case KernelActivation::gelu:
      case KernelActivation::geglu: return Gelu(x);
      case KernelActivation::qgelu:
      case KernelActivation::qgeglu: return Swish(x, Math::Number(1.702F));
      case KernelActivation::relu:
      case KernelActivation::reglu: return Positive(x);
      case KernelActivation::srelu:
      case KernelActivation::sreglu: return Math::IfLess(Math::Number(0), x, Math::Product(x, x), Math::Number(0));
      case KernelActivation::silu:
      case KernelActivation::swiglu: return Math::Product(x, Sigmoid(x));
      case KernelActivation::glu: return Sigmoid(x);
      case KernelActivation::clamped_swiglu:
        return Swish(AtMost(x, Math::Number(parameters.limit)), Math::Number(parameters.alpha));
      case KernelActivation::situglu: {
        const V beta = Math::Number(parameters.beta1);
        return Math::Product(Math::Product(beta, TanhOfShare(x, beta)), Sigmoid(x));
      }
    }
    return x;
  }
  template <KernelActivation kActivation>
  static HWY_INLINE V Gradient(const ActivationParameters& parameters, V x) {
    const V zero = Math::Number(0);
    switch (kActivation) {
      case KernelActivation::gelu:
      case KernelActivation::geglu: return GeluGradient(x);
      case KernelActivation::qgelu:
      case KernelActivation::qgeglu: return SwishGradient(x, Math::Number(1.702F));
      case KernelActivation::relu:
      case KernelActivation::reglu: return Math::IfLess(zero, x, Math::Number(1), zero);
      case KernelActivation::srelu:
      case KernelActivation::sreglu: return Positive(Math::Product(x, Math::Number(2)));
      case KernelActivation::silu:
      case KernelActivation::swiglu: {
        const V s = Sigmoid(x);
        return Math::Fused(x, SigmoidGradient(s), s);
      }
      case KernelActivation::glu: return SigmoidGradient(Sigmoid(x));
      case KernelActivation::clamped_swiglu: {
        const V limit = Math::Number(parameters.limit);
        const V inside = SwishGradient(AtMost(x, limit), Math::Number(parameters.alpha));
        return Math::IfLessOrEqual(x, limit, inside, zero);
      }
      case KernelActivation::situglu: return SituGradient(x, Math::Number(parameters.beta1));
    }
    return x;
  }
  /// The gradient where rows are scaled: x s goes into the fused operation, not s (1 - s).
  template <KernelActivation kActivation>
  static HWY_INLINE V ScaledGradient(const ActivationParameters& parameters, V x) {
    const V one = Math::Number(1);
    const V limit = Math::Number(parameters.limit);
    switch (kActivation) {
      case KernelActivation::silu:
      case KernelActivation::swiglu: {
        const V s = Sigmoid(x);
        return Math::Fused(Math::Product(x, s), Math::Difference(one, s), s);
      }
      case KernelActivation::clamped_swiglu: {
        const V u = Math::Product(Math::Number(parameters.alpha), AtMost(x, limit));
        const V s = Sigmoid(u);
        const V inside = Math::Fused(Math::Product(u, s), Math::Difference(one, s), s);
        return Math::IfLessOrEqual(x, limit, inside, Math::Number(0));
      }
      case KernelActivation::gelu:
      case KernelActivation::geglu:
      case KernelActivation::qgelu:
      case KernelActivation::qgeglu:
      case KernelActivation::relu:
      case KernelActivation::reglu:
      case KernelActivation::srelu:
      case KernelActivation::sreglu:
      case KernelActivation::situglu:
      case KernelActivation::glu: return Gradient<kActivation>(parameters, x);
    }
    return x;
  }

  /// The second half as it multiplies: clamped_swiglu limits it to [-limit, limit], NaN to -limit, and adds the offset;
  /// situglu limits it smoothly.
  template <KernelActivation kActivation>
  static HWY_INLINE V Gate(const ActivationParameters& parameters, V gate) {
    if constexpr (kActivation == KernelActivation::situglu) {
      const V beta = Math::Number(parameters.beta2);
      return Math::Product(beta, TanhOfShare(gate, beta));
    }
    if constexpr (kActivation != KernelActivation::clamped_swiglu) return gate;
    const V limit = Math::Number(parameters.limit);
    const V least = Math::Negative(limit);
    const V raised = Math::IfLess(least, gate, gate, least);
    return Math::Sum(Math::IfLess(limit, raised, limit, raised), Math::Number(parameters.offset));
  }
  /// The gate's own derivative; of clamped_swiglu 0 outside of the clamp. A NaN lies outside for plain kernels, inside
  /// for those that scale rows.
  template <KernelActivation kActivation, bool kScaled>
  static HWY_INLINE V GateGradient(const ActivationParameters& parameters, V gate) {
    const V one = Math::Number(1);
    if constexpr (kActivation == KernelActivation::situglu) {
      return TanhGradient(TanhOfShare(gate, Math::Number(parameters.beta2)));
    }
    if constexpr (kActivation != KernelActivation::clamped_swiglu) return one;
    const V zero = Math::Number(0);
    const V limit = Math::Number(parameters.limit);
    const V below = Math::IfLessOrEqual(gate, limit, one, zero);
    const V inside = Math::IfLessOrEqual(Math::Negative(limit), gate, below, zero);
    return kScaled ? Math::IfNan(gate, one, inside) : inside;
  }
};

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
