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
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86  // smaller is better, and these have the instruction
HWY_INLINE hn::Vec<Floats> Load(const Half* in) {
  const hn::Rebind<hwy::float16_t, Floats> halves;
  return hn::PromoteTo(Floats(), hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(in)));
}
#else
HWY_INLINE hn::Vec<Floats> Load(const Half* in) {
  // Highway's own promotion leaves infinities and NaNs open on targets without the instruction.
  const Floats df;
  const Words du;
  const auto word = hn::PromoteTo(du, hn::LoadU(Shorts(), reinterpret_cast<const std::uint16_t*>(in)));
  const auto magnitude = hn::And(word, hn::Set(du, 0x7FFFU));
  const auto rebias = hn::Set(du, (127U - 15U) << 23);
  const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), rebias);
  const auto subnormal = hn::Mul(hn::ConvertTo(df, hn::BitCast(Integers(), magnitude)), hn::Set(df, 0x1p-24F));
  const auto is_subnormal = hn::Lt(hn::BitCast(Integers(), magnitude), hn::Set(Integers(), 0x0400));
  const auto is_special = hn::Gt(hn::BitCast(Integers(), magnitude), hn::Set(Integers(), 0x7BFF));
  const auto finite = hn::IfThenElse(hn::RebindMask(df, is_subnormal), subnormal, hn::BitCast(df, normal));
  const auto value = hn::IfThenElse(hn::RebindMask(df, is_special), hn::BitCast(df, hn::Add(normal, rebias)), finite);
  const auto is_nan = hn::Gt(hn::BitCast(Integers(), magnitude), hn::Set(Integers(), 0x7C00));
  const auto quiet = hn::IfThenElseZero(hn::RebindMask(du, is_nan), hn::Set(du, 0x00400000U));  // as of the instruction
  const auto sign = hn::ShiftLeft<16>(hn::AndNot(hn::Set(du, 0x7FFFU), word));
  return hn::BitCast(df, hn::Or(hn::Or(hn::BitCast(du, value), quiet), sign));
}
#endif

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
