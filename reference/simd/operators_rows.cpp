// SPDX-License-Identifier: Apache-2.0
// Rows of operators as float32: conversions, sums in a fixed order, and the loops of norms. The arithmetic of one lane
// defines the result.
#include "simd/operators_rows.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "formats/simd/targets.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/formats/widen.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/operators_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "formats/simd/load-inl.hpp"
#include "simd/operators_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {

// 1. Conversions.
HWY_INLINE float NarrowOne(float x, const float* /*type*/) { return x == x ? x : std::bit_cast<float>(0x7FFFFFFFU); }
HWY_INLINE Half NarrowOne(float x, const Half* /*type*/) {
  return {static_cast<std::uint16_t>(encode(binary16, cuda_nosat_policy, x))};
}
HWY_INLINE BFloat16 NarrowOne(float x, const BFloat16* /*type*/) {
  const auto word = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded_word = (word + 0x7FFFU + (word >> 16 & 1U)) >> 16;
  return {static_cast<std::uint16_t>(x == x ? rounded_word : 0x7FFFU)};
}
template <class T>
HWY_INLINE void NarrowRest(const float* in, std::size_t first, std::size_t count, T* out) {
  for (std::size_t i = first; i < count; ++i) out[i] = NarrowOne(in[i], out);
}
template <class T>
HWY_INLINE void WidenRest(const T* in, std::size_t first, std::size_t count, float* out) {
  for (std::size_t i = first; i < count; ++i) out[i] = widened(in[i]);
  std::fill(out + count, out + padded(count), 0.0F);
}

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
template <class T>
HWY_INLINE void WidenVectors(const T* in, std::size_t count, float* out) {
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(Load(in + i), Floats(), out + i);
  WidenRest(in, i, count, out);
}
HWY_ATTR void WidenFloats(const float* in, std::size_t count, float* out) { WidenVectors(in, count, out); }
HWY_ATTR void WidenHalves(const Half* in, std::size_t count, float* out) { WidenVectors(in, count, out); }
HWY_ATTR void WidenBFloats(const BFloat16* in, std::size_t count, float* out) { WidenVectors(in, count, out); }

HWY_ATTR void NarrowToFloats(const float* in, std::size_t count, float* out) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const auto nan = hn::BitCast(d, hn::Set(Words(), 0x7FFFFFFFU));
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(d, in + i);
    hn::StoreU(hn::IfThenElse(hn::Eq(x, x), x, nan), d, out + i);
  }
  NarrowRest(in, i, count, out);
}
HWY_ATTR void NarrowToBFloats(const float* in, std::size_t count, BFloat16* out) {
  const Floats d;
  const Words words;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(d, in + i);
    const auto word = hn::BitCast(words, x);
    const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(words, 1));
    const auto nearest = hn::ShiftRight<16>(hn::Add(word, hn::Add(odd, hn::Set(words, 0x7FFFU))));
    const auto is_number = hn::RebindMask(words, hn::Eq(x, x));
    const auto code = hn::IfThenElse(is_number, nearest, hn::Set(words, 0x7FFFU));
    hn::StoreU(hn::TruncateTo(Shorts(), code), Shorts(), reinterpret_cast<std::uint16_t*>(out + i));
  }
  NarrowRest(in, i, count, out);
}
HWY_ATTR void NarrowToHalves(const float* in, std::size_t count, Half* out) {
  std::size_t i = 0;
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86  // smaller is better, and these have the instruction
  const Floats d;
  const hn::Rebind<hwy::float16_t, Floats> halves;
  const std::size_t lanes = hn::Lanes(d);
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(d, in + i);
    if (!hn::AllTrue(d, hn::Eq(x, x))) {
      NarrowRest(in, i, i + lanes, out);
      continue;
    }
    hn::StoreU(hn::DemoteTo(halves, x), halves, reinterpret_cast<hwy::float16_t*>(out + i));
  }
#endif
  NarrowRest(in, i, count, out);
}
#else
HWY_ATTR void WidenFloats(const float* in, std::size_t count, float* out) { WidenRest(in, 0, count, out); }
HWY_ATTR void WidenHalves(const Half* in, std::size_t count, float* out) { WidenRest(in, 0, count, out); }
HWY_ATTR void WidenBFloats(const BFloat16* in, std::size_t count, float* out) { WidenRest(in, 0, count, out); }
HWY_ATTR void NarrowToFloats(const float* in, std::size_t count, float* out) { NarrowRest(in, 0, count, out); }
HWY_ATTR void NarrowToHalves(const float* in, std::size_t count, Half* out) { NarrowRest(in, 0, count, out); }
HWY_ATTR void NarrowToBFloats(const float* in, std::size_t count, BFloat16* out) { NarrowRest(in, 0, count, out); }
#endif

// 2. Loops over rows of a multiple of sum_lanes, as templates of the arithmetic.
template <class Math>
struct RowLoops {
  template <class Each>
  static HWY_INLINE void ForEach(std::size_t count, const Each& each) {
    for (std::size_t i = 0; i < count; i += Math::lanes()) each(i);
  }
  /// lanes[i % sum_lanes] = next(i, that).
  template <class Next>
  static HWY_INLINE float Sum(std::size_t count, const Next& next) {
    HWY_ALIGN float lanes[sum_lanes] = {};
    for (std::size_t i = 0; i < count; i += sum_lanes) {
      for (std::size_t lane = 0; lane < sum_lanes; lane += Math::lanes()) {
        Math::Store(next(i + lane, Math::Load(lanes + lane)), lanes + lane);
      }
    }
    return sum_of_lanes(lanes);
  }

  static HWY_ATTR void Exp(const float* x, std::size_t count, float* out) {
    ForEach(count, [&](std::size_t i) HWY_ATTR { Math::Store(Math::Exp(Math::Load(x + i)), out + i); });
  }
  static HWY_ATTR void Tanh(const float* x, std::size_t count, float* out) {
    ForEach(count, [&](std::size_t i) HWY_ATTR { Math::Store(Math::Tanh(Math::Load(x + i)), out + i); });
  }
  static HWY_ATTR float SumOfRow(const float* x, std::size_t count) {
    return Sum(count, [x](std::size_t i, auto sum) HWY_ATTR { return Math::Sum(sum, Math::Load(x + i)); });
  }
  static HWY_ATTR float SumOfSquares(const float* x, std::size_t count) {
    return Sum(count, [x](std::size_t i, auto sum) HWY_ATTR {
      const auto value = Math::Load(x + i);
      return Math::Fused(value, value, sum);
    });
  }
  static HWY_ATTR void Normalize(const float* x, const float* mean, float factor, std::size_t count, float* out) {
    const auto times = Math::Number(factor);
    if (mean == nullptr) {
      ForEach(count, [&](std::size_t i) HWY_ATTR { Math::Store(Math::Product(times, Math::Load(x + i)), out + i); });
      return;
    }
    const auto middle = Math::Number(*mean);
    ForEach(count, [&](std::size_t i) HWY_ATTR {
      Math::Store(Math::Product(times, Math::Difference(Math::Load(x + i), middle)), out + i);
    });
  }
  static HWY_ATTR void Subtract(const float* x, float mean, std::size_t count, float* out) {
    const auto middle = Math::Number(mean);
    ForEach(count, [&](std::size_t i) HWY_ATTR { Math::Store(Math::Difference(Math::Load(x + i), middle), out + i); });
  }
  static HWY_ATTR void Scale(const float* x, float factor, const float* gamma, const float* beta, std::size_t count,
                             float* out) {
    const auto times = Math::Number(factor);
    ForEach(count, [&](std::size_t i) HWY_ATTR {
      const auto y = Math::Product(times, Math::Load(x + i));
      const auto g = Math::Load(gamma + i);
      Math::Store(beta == nullptr ? Math::Product(g, y) : Math::Fused(g, y, Math::Load(beta + i)), out + i);
    });
  }
  static HWY_ATTR void Turn(const float* x, const float* other, const float* cosine, const float* sine,
                            std::size_t count, float* out) {
    ForEach(count, [&](std::size_t i) HWY_ATTR {
      const auto crossed = Math::Product(Math::Load(other + i), Math::Load(sine + i));
      Math::Store(Math::Fused(Math::Load(x + i), Math::Load(cosine + i), crossed), out + i);
    });
  }
  static HWY_ATTR void Add(const float* x, std::size_t count, float* sum) {
    ForEach(count,
            [&](std::size_t i) HWY_ATTR { Math::Store(Math::Sum(Math::Load(sum + i), Math::Load(x + i)), sum + i); });
  }
  static HWY_ATTR NormSums GradientSums(const float* dz, const float* y, const float* gamma, std::size_t count,
                                        float* dy, float* dgamma, float* dbeta) {
    ForEach(count, [&](std::size_t i) HWY_ATTR {
      const auto of_output = Math::Load(dz + i);
      Math::Store(Math::Product(Math::Load(gamma + i), of_output), dy + i);
      Math::Store(Math::Fused(of_output, Math::Load(y + i), Math::Load(dgamma + i)), dgamma + i);
    });
    if (dbeta != nullptr) Add(dz, count, dbeta);
    const float of_dy_y = Sum(count, [&](std::size_t i, auto sum)
                                         HWY_ATTR { return Math::Fused(Math::Load(dy + i), Math::Load(y + i), sum); });
    return {SumOfRow(dy, count), of_dy_y};
  }
  static HWY_ATTR void LayernormGradient(const float* dy, const float* y, NormSums sums, float inverse_count,
                                         float rsigma, std::size_t count, float* out) {
    const auto of_dy = Math::Number(sums.of_dy);
    const auto of_dy_y = Math::Number(sums.of_dy_y * inverse_count);
    const auto inverse = Math::Number(inverse_count);
    const auto times = Math::Number(rsigma);
    ForEach(count, [&](std::size_t i) HWY_ATTR {
      const auto both = Math::Fused(of_dy, inverse, Math::Product(of_dy_y, Math::Load(y + i)));
      Math::Store(Math::Product(times, Math::Difference(Math::Load(dy + i), both)), out + i);
    });
  }
  static HWY_ATTR void LayernormGradientOfMeans(const float* dy, const float* y, NormSums sums, float inverse_count,
                                                float rsigma, std::size_t count, float* out) {
    const auto of_dy = Math::Number(sums.of_dy * inverse_count);
    const auto of_dy_y = Math::Number(sums.of_dy_y * inverse_count);
    const auto times = Math::Number(rsigma);
    ForEach(count, [&](std::size_t i) HWY_ATTR {
      const auto both = Math::Fused(of_dy_y, Math::Load(y + i), of_dy);
      Math::Store(Math::Product(times, Math::Difference(Math::Load(dy + i), both)), out + i);
    });
  }
  static HWY_ATTR void RmsnormGradient(const float* dy, const float* y, const float* add, float of_dy_y,
                                       float inverse_count, float rsigma, std::size_t count, float* out) {
    const auto minus = Math::Number(-(of_dy_y * inverse_count));
    const auto times = Math::Number(rsigma);
    ForEach(count, [&](std::size_t i) HWY_ATTR {
      const auto inner = Math::Fused(minus, Math::Load(y + i), Math::Load(dy + i));
      Math::Store(add == nullptr ? Math::Product(times, inner) : Math::Fused(times, inner, Math::Load(add + i)),
                  out + i);
    });
  }
};

template <class Math>
RowFunctions FunctionsOf() {
  using Loops = RowLoops<Math>;
  return {.exp = &Loops::Exp,
          .tanh = &Loops::Tanh,
          .sum_of_row = &Loops::SumOfRow,
          .sum_of_squares = &Loops::SumOfSquares,
          .normalize = &Loops::Normalize,
          .subtract = &Loops::Subtract,
          .scale = &Loops::Scale,
          .turn = &Loops::Turn,
          .add = &Loops::Add,
          .norm_gradient_sums = &Loops::GradientSums,
          .layernorm_gradient = &Loops::LayernormGradient,
          .layernorm_gradient_of_means = &Loops::LayernormGradientOfMeans,
          .rmsnorm_gradient = &Loops::RmsnormGradient};
}
RowFunctions FunctionsOfTarget() { return FunctionsOf<TargetMath>(); }
#if HWY_ONCE
RowFunctions FunctionsOfLane() { return FunctionsOf<ScalarMath>(); }

// What conversions to and from all types give by scalar code.
template <class T>
void WidenByOne(const T* in, std::size_t count, float* out) {
  WidenRest(in, 0, count, out);
}
template <class T>
void NarrowByOne(const float* in, std::size_t count, T* out) {
  NarrowRest(in, 0, count, out);
}
#endif

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(FunctionsOfTarget);
HWY_EXPORT(WidenFloats);
HWY_EXPORT(WidenHalves);
HWY_EXPORT(WidenBFloats);
HWY_EXPORT(NarrowToFloats);
HWY_EXPORT(NarrowToHalves);
HWY_EXPORT(NarrowToBFloats);

RowFunctions row_functions() {
  return vector_code_allowed() ? HWY_DYNAMIC_DISPATCH(FunctionsOfTarget)() : HWY_STATIC_DISPATCH(FunctionsOfLane)();
}

void widen_row(const float* in, std::size_t count, float* out) {
  if (!vector_code_allowed()) return HWY_STATIC_DISPATCH(WidenByOne<float>)(in, count, out);
  HWY_DYNAMIC_DISPATCH(WidenFloats)(in, count, out);
}
void widen_row(const Half* in, std::size_t count, float* out) {
  if (!vector_code_allowed()) return HWY_STATIC_DISPATCH(WidenByOne<Half>)(in, count, out);
  HWY_DYNAMIC_DISPATCH(WidenHalves)(in, count, out);
}
void widen_row(const BFloat16* in, std::size_t count, float* out) {
  if (!vector_code_allowed()) return HWY_STATIC_DISPATCH(WidenByOne<BFloat16>)(in, count, out);
  HWY_DYNAMIC_DISPATCH(WidenBFloats)(in, count, out);
}
void narrow_row(const float* in, std::size_t count, float* out) {
  if (!vector_code_allowed()) return HWY_STATIC_DISPATCH(NarrowByOne<float>)(in, count, out);
  HWY_DYNAMIC_DISPATCH(NarrowToFloats)(in, count, out);
}
void narrow_row(const float* in, std::size_t count, Half* out) {
  if (!vector_code_allowed()) return HWY_STATIC_DISPATCH(NarrowByOne<Half>)(in, count, out);
  HWY_DYNAMIC_DISPATCH(NarrowToHalves)(in, count, out);
}
void narrow_row(const float* in, std::size_t count, BFloat16* out) {
  if (!vector_code_allowed()) return HWY_STATIC_DISPATCH(NarrowByOne<BFloat16>)(in, count, out);
  HWY_DYNAMIC_DISPATCH(NarrowToBFloats)(in, count, out);
}

float sum_of_lanes(const float* lanes) {
  std::array<float, sum_lanes> sums{};
  std::copy(lanes, lanes + sum_lanes, sums.begin());
  for (std::size_t half = sum_lanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

}  // namespace fp8lab
#endif
