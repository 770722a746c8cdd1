// SPDX-License-Identifier: Apache-2.0
#include "simd/hadamard.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/hadamard.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_ATTR void Turn(const HadamardSigns& signs, const HadamardRows& x,
                   std::array<std::array<float, hadamard_chunk>, hadamard_size>& out) {
  const hn::ScalableTag<double> doubles;
  const hn::Rebind<float, decltype(doubles)> floats;
  for (std::size_t c = 0; c < hadamard_chunk; c += hn::Lanes(doubles)) {
    for (std::size_t j = 0; j < hadamard_size; ++j) {
      // A product with 1 or -1 is exact, so that a fused sum has the same bits.
      auto sum = hn::Zero(doubles);
      for (std::size_t i = 0; i < hadamard_size; ++i) {
        sum = hn::MulAdd(hn::Set(doubles, signs[j][i]), hn::LoadU(doubles, x[i].data() + c), sum);
      }
      hn::StoreU(hn::DemoteTo(floats, hn::Mul(sum, hn::Set(doubles, 0.25))), floats, out[j].data() + c);
    }
  }
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(Turn);

void turn_rows(const HadamardSigns& signs, const HadamardRows& x,
               std::array<std::array<float, hadamard_chunk>, hadamard_size>& out) {
  HWY_DYNAMIC_DISPATCH(Turn)(signs, x, out);
}

}  // namespace fp8lab
#endif
