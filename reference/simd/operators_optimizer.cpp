// SPDX-License-Identifier: Apache-2.0
// Updates of optimizers on float32 arrays. The arithmetic of one lane defines the result.
#include "simd/operators_optimizer.hpp"

#include "formats/simd/targets.hpp"
#include "simd/operators_rows.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/operators_optimizer.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "simd/operators_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {

/// Whether a comparison with 0 that takes subnormal numbers for zeros finds another number.
inline bool IsUsed(float x) { return !(std::abs(x) < 0x1p-126F); }

template <class Math>
struct OptimizerLoops {
  using Fast = Flushed<Math>;
  using V = Math::V;

  static HWY_ATTR void AdamMoments(const AdamParameters& parameters, const AdamConstants& constants,
                                   const OptimizerPiece& piece, float* roots) {
    const V beta1 = Fast::Number(parameters.beta1);
    const V beta2 = Fast::Number(parameters.beta2);
    const V rest1 = Fast::Difference(Fast::Number(1), beta1);
    const V rest2 = Fast::Difference(Fast::Number(1), beta2);
    const V decay = Fast::Number(parameters.weight_decay);
    for (std::size_t i = 0; i < piece.count; i += Math::lanes()) {
      V g = Fast::Load(piece.grad + i);
      if (parameters.mode == AdamMode::l2) g = Fast::Fused(decay, Fast::Load(piece.param + i), g);
      const V m = Fast::Fused(Fast::Load(piece.m + i), beta1, Fast::Product(rest1, g));
      const V v = Fast::Fused(Fast::Load(piece.v + i), beta2, Fast::Product(Fast::Product(rest2, g), g));
      Math::Store(Fast::Product(v, Fast::Number(constants.inverse_correction2)), roots + i);
      Math::Store(m, piece.m + i);
      Math::Store(v, piece.v + i);
    }
  }
  static HWY_ATTR void AdamShares(float eps, float* x, std::size_t count) {
    for (std::size_t i = 0; i < count; i += Math::lanes()) {
      Math::Store(Fast::Reciprocal(Fast::Sum(Fast::Root(Fast::Load(x + i)), Fast::Number(eps))), x + i);
    }
  }
  static HWY_ATTR void AdamStep(const AdamParameters& parameters, const AdamConstants& constants,
                                const OptimizerPiece& piece, const float* shares) {
    const V decay = Fast::Number(parameters.weight_decay);
    const V minus_lr = Fast::Number(-parameters.lr);
    for (std::size_t i = 0; i < piece.count; i += Math::lanes()) {
      const V param = Fast::Load(piece.param + i);
      const V unbiased = Fast::Product(Fast::Load(piece.m + i), Fast::Number(constants.inverse_correction1));
      V update = Fast::Product(unbiased, Fast::Load(shares + i));
      if (parameters.mode == AdamMode::decoupled) update = Fast::Fused(decay, param, update);
      const V next = constants.is_step_fused ? Fast::Fused(minus_lr, update, param)
                                             : Fast::Sum(Fast::Product(minus_lr, update), param);
      Math::Store(next, piece.param + i);
    }
  }

  static HWY_ATTR void SgdGradient(const SgdParameters& parameters, const OptimizerPiece& piece) {
    const V decay = Fast::Number(parameters.weight_decay);
    const V factor = Fast::Number(parameters.momentum);
    const V rest = Fast::Difference(Fast::Number(1), Fast::Number(parameters.dampening));
    const bool decays = IsUsed(parameters.weight_decay);
    for (std::size_t i = 0; i < piece.count; i += Math::lanes()) {
      const V param = Fast::Load(piece.param + i);
      V g = Fast::Product(Fast::Load(piece.grad + i), Fast::Number(parameters.scale));
      if (decays && !parameters.weight_decay_after_momentum) g = Fast::Fused(decay, param, g);
      if (IsUsed(parameters.momentum)) {
        V m = g;
        if (!parameters.first_run) m = Fast::Fused(Fast::Load(piece.m + i), factor, Fast::Product(rest, g));
        Math::Store(m, piece.m + i);
        g = parameters.nesterov ? Fast::Fused(m, factor, g) : m;
      }
      if (decays && parameters.weight_decay_after_momentum) g = Fast::Fused(decay, param, g);
      Math::Store(g, piece.grad + i);
    }
  }
  static HWY_ATTR void SgdStep(float lr, const OptimizerPiece& piece) {
    const V times = Fast::Number(lr);
    for (std::size_t i = 0; i < piece.count; i += Math::lanes()) {
      const V minus = Math::Negative(Fast::Load(piece.grad + i));
      Math::Store(Fast::Fused(minus, times, Fast::Load(piece.param + i)), piece.param + i);
    }
  }
  static HWY_ATTR void SgdChange(float lr, const OptimizerPiece& piece) {
    const V times = Fast::Number(lr);
    for (std::size_t i = 0; i < piece.count; i += Math::lanes()) {
      Math::Store(Math::Negative(Fast::Product(Fast::Load(piece.grad + i), times)), piece.grad + i);
    }
  }
  static HWY_ATTR float SumOfSquares(const float* x, std::size_t count) {
    HWY_ALIGN float lanes[sum_lanes] = {};
    for (std::size_t i = 0; i < count; i += Math::lanes()) {
      const V value = Fast::Load(x + i);
      float* lane = lanes + i % sum_lanes;
      Math::Store(Fast::Fused(value, value, Fast::Load(lane)), lane);
    }
    return sum_of_lanes(lanes);
  }
  static HWY_ATTR void AddSquares(const float* x, float* sums, std::size_t count) {
    for (std::size_t i = 0; i < count; i += Math::lanes()) {
      const V value = Fast::Load(x + i);
      Math::Store(Fast::Fused(value, value, Fast::Load(sums + i)), sums + i);
    }
  }
  static OptimizerFunctions All() {
    return {&AdamMoments, &AdamShares, &AdamStep, &SgdGradient, &SgdStep, &SgdChange, &SumOfSquares, &AddSquares};
  }
};

OptimizerFunctions OptimizerOfTarget() { return OptimizerLoops<TargetMath>::All(); }
#if HWY_ONCE
OptimizerFunctions OptimizerOfLane() { return OptimizerLoops<ScalarMath>::All(); }
#endif

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(OptimizerOfTarget);

OptimizerFunctions optimizer_functions() {
  return vector_code_allowed() ? HWY_DYNAMIC_DISPATCH(OptimizerOfTarget)() : HWY_STATIC_DISPATCH(OptimizerOfLane)();
}

}  // namespace fp8lab
#endif
