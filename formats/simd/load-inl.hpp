// SPDX-License-Identifier: Apache-2.0
// Included once for every target, after highway.h: vectors of 32-bit lanes, and elements as floats in them.
#if defined(FP8LAB_VECTOR_LOAD_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_VECTOR_LOAD_INL
#undef FP8LAB_VECTOR_LOAD_INL
#else
#define FP8LAB_VECTOR_LOAD_INL
#endif

#include <hwy/highway.h>

#include "fp8lab/formats/unpack.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Integers = hn::RebindToSigned<Floats>;
using Words = hn::RebindToUnsigned<Floats>;
using Bytes = hn::Rebind<std::uint8_t, Floats>;
using Shorts = hn::Rebind<std::uint16_t, Floats>;

HWY_INLINE hn::Vec<Floats> Load(const float* in) { return hn::LoadU(Floats(), in); }
HWY_INLINE hn::Vec<Floats> Load(const BFloat16* in) {
  const auto words = hn::PromoteTo(Words(), hn::LoadU(Shorts(), reinterpret_cast<const std::uint16_t*>(in)));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(words));
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
