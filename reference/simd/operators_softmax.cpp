// SPDX-License-Identifier: Apache-2.0
// Rows of softmaxes as float32. The arithmetic of one lane defines the result.
#include "simd/operators_softmax.hpp"

#include "formats/simd/targets.hpp"
#include "simd/operators_rows.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/operators_softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "simd/operators_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {

template <class Math>
struct SoftmaxLoops {
  using Fast = Flushed<Math>;

  static HWY_ATTR void Scale(const float* x, float factor, std::size_t count, float* out) {
    const auto times = Fast::Number(factor);
    for (std::size_t i = 0; i < count; i += Math::lanes()) {
      Math::Store(Fast::Product(Fast::Load(x + i), times), out + i);
    }
  }
  static HWY_ATTR void Subtract(const float* x, float y, std::size_t count, float* out) {
    const auto minus = Fast::Number(y);
    for (std::size_t i = 0; i < count; i += Math::lanes()) {
      Math::Store(Fast::Difference(Fast::Load(x + i), minus), out + i);
    }
  }
  static HWY_ATTR float Exponentials(const float* x, float largest, std::size_t count, float* out) {
    const auto most = Fast::Number(largest);
    HWY_ALIGN float lanes[sum_lanes] = {};
    for (std::size_t i = 0; i < count; i += Math::lanes()) {
      const auto e = Fast::Exp(Fast::Difference(Fast::Load(x + i), most));
      float* lane = lanes + i % sum_lanes;
      Math::Store(Fast::Sum(Fast::Load(lane), e), lane);
      Math::Store(e, out + i);
    }
    return sum_of_lanes(lanes);
  }
  static HWY_ATTR float Products(const float* a, const float* b, std::size_t count, float* out) {
    HWY_ALIGN float lanes[sum_lanes] = {};
    for (std::size_t i = 0; i < count; i += Math::lanes()) {
      const auto product = Fast::Product(Fast::Load(a + i), Fast::Load(b + i));
      float* lane = lanes + i % sum_lanes;
      Math::Store(Fast::Sum(Fast::Load(lane), product), lane);
      Math::Store(product, out + i);
    }
    return sum_of_lanes(lanes);
  }
  static HWY_ATTR void Gradient(const float* products, const float* y, float sum, float scale, std::size_t count,
                                float* out) {
    const auto minus = Fast::Number(-sum);
    const auto times = Fast::Number(scale);
    for (std::size_t i = 0; i < count; i += Math::lanes()) {
      const auto inner = Fast::Fused(minus, Fast::Load(y + i), Fast::Load(products + i));
      Math::Store(Fast::Product(times, inner), out + i);
    }
  }
  static HWY_ATTR void EntropyGradient(const float* x, float sum, float eps, float factor, std::size_t count,
                                       float* out) {
    for (std::size_t i = 0; i < count; i += Math::lanes()) {
      const auto share = Math::Quotient(Math::Load(x + i), Math::Number(sum));
      const auto rest = Math::Difference(share, Math::Number(eps));
      Math::Store(Math::Product(rest, Math::Number(factor)), out + i);
    }
  }
  static SoftmaxFunctions All() { return {&Scale, &Subtract, &Exponentials, &Products, &Gradient, &EntropyGradient}; }
};

SoftmaxFunctions SoftmaxOfTarget() { return SoftmaxLoops<TargetMath>::All(); }
#if HWY_ONCE
SoftmaxFunctions SoftmaxOfLane() { return SoftmaxLoops<ScalarMath>::All(); }
#endif

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(SoftmaxOfTarget);

SoftmaxFunctions softmax_functions() {
  return vector_code_allowed() ? HWY_DYNAMIC_DISPATCH(SoftmaxOfTarget)() : HWY_STATIC_DISPATCH(SoftmaxOfLane)();
}

}  // namespace fp8lab
#endif
