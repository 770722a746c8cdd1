// SPDX-License-Identifier: Apache-2.0
// The scales of many tiles, as many at a time as a vector has. scale_of_amax() of scale_rule.hpp defines
// the result.
#include "simd/tile_scale.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/tile_scale.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Integers = hn::RebindToSigned<Floats>;
using Words = hn::RebindToUnsigned<Floats>;
using Bytes = hn::Rebind<std::uint8_t, Floats>;
using Float = hn::Vec<Floats>;
using Integer = hn::Vec<Integers>;

HWY_INLINE Integer Bits(Float x) { return hn::BitCast(Integers(), x); }
struct Outputs {
  float* factors;
  float* scale_inv;
  std::uint8_t* codes;
};
HWY_INLINE Float FromBits(Integer bits) { return hn::BitCast(Floats(), bits); }
HWY_INLINE Integer Number(std::int32_t x) { return hn::Set(Integers(), x); }

/// Calls one(amaxes, out), which returns the factors, for vectors of tiles, the last by way of a full one. Returns what
/// tile_scales() does; tiles whose amax is 0 and that fill up the last vector add nothing, or NaN.
template <class One>
HWY_INLINE std::uint32_t ForTiles(const std::uint32_t* amaxes, std::size_t count, const TileScaleArrays& out,
                                  const One& one) {
  constexpr std::size_t room = HWY_MAX_BYTES / sizeof(float);
  const std::size_t lanes = hn::Lanes(Floats());
  std::uint32_t last[room] = {};
  float factors[room];
  float scale_inv[room];
  std::uint8_t codes[room];
  auto most = hn::Zero(Words());
  for (std::size_t i = 0; i < count; i += lanes) {
    const std::size_t rest = count - i;
    const bool is_last = rest < lanes;
    if (is_last) std::copy_n(amaxes + i, rest, last);
    const Outputs apart{factors, scale_inv, codes};
    const Outputs in_place{out.factors.data() + i, out.scale_inv.data() + i, out.codes.data() + i};
    const auto amax = hn::BitCast(Integers(), hn::LoadU(Words(), is_last ? last : amaxes + i));
    const auto factor = one(amax, is_last ? apart : in_place);
    most = hn::Max(most, hn::BitCast(Words(), hn::Mul(FromBits(amax), factor)));
    if (!is_last) continue;
    std::copy_n(factors, rest, in_place.factors);
    std::copy_n(scale_inv, rest, in_place.scale_inv);
    std::copy_n(codes, rest, in_place.codes);
  }
  return hn::GetLane(hn::MaxOfLanes(Words(), most));
}

/// Magnitudes are compared as integers: NaN is above infinity.
HWY_INLINE auto IsNan(Integer magnitude) { return hn::Gt(magnitude, Number(0x7F800000)); }

/// The smallest E8M0 code whose value is not below x >= 0.
HWY_INLINE Integer E8m0Up(Integer bits) {
  const auto tiny = hn::IfThenElseZero(hn::Gt(bits, Number(0x00400000)), Number(1));
  // An infinity has the exponent after 254; what is added does not take NaN out of the positive integers.
  const auto rounded = hn::ShiftRight<23>(hn::Add(hn::Min(bits, Number(0x7F000000)), Number(0x7FFFFF)));
  const auto code = hn::IfThenElse(hn::Lt(bits, Number(0x00800000)), tiny, rounded);
  return hn::IfThenElse(IsNan(bits), Number(255), code);
}

/// log2_slack() of the exponents.
HWY_INLINE Integer Log2Slack(Integer exponent) {
  const auto below = hn::Xor(exponent, hn::ShiftRight<31>(exponent));
  const auto two = hn::Or(below, hn::ShiftRight<1>(below));
  const auto four = hn::Or(two, hn::ShiftRight<2>(two));
  const auto ones = hn::Or(four, hn::ShiftRight<4>(four));  // of 8 bits
  const auto power = hn::Sub(ones, hn::ShiftRight<1>(ones));
  return hn::ShiftRight<4>(hn::Add(hn::ShiftLeft<3>(power), hn::Add(power, hn::ShiftLeft<1>(power))));
}
/// The exponent field without its bias.
HWY_INLINE Integer Exponent(Integer bits) { return hn::Sub(hn::ShiftRight<23>(bits), Number(127)); }

/// e8m0_up_by_log2() for the bits of x >= 0, infinite or NaN.
HWY_INLINE Integer E8m0UpByLog2(Integer bits) {
  const auto limited = hn::Min(bits, Number(0x7F000000));
  const auto kept = hn::ShiftRight<1>(Log2Slack(Exponent(limited)));
  const auto rounded = hn::ShiftRight<23>(hn::Sub(hn::Add(limited, Number(0x7FFFFF)), kept));
  // Subnormals from 2^-127 have half the bits after it.
  const auto tiny = hn::IfThenElseZero(hn::Gt(bits, hn::Add(Number(0x00400000), hn::ShiftRight<1>(kept))), Number(1));
  const auto code = hn::IfThenElse(hn::Lt(bits, Number(0x00800000)), tiny, rounded);
  return hn::IfThenElse(IsNan(bits), Number(255), code);
}

/// The code of an amax over the power of two of the format's largest value.
template <ScaleRounding kRounding>
HWY_INLINE Integer PowerCode(const MxConstants& mx, Integer amax) {
  const auto last = Number(mx.infinity_is_nan ? 0x7F7FFFFF : 0x7F800000);
  const auto or_nan = [&](Integer of, hn::Vec<Words> sum) HWY_ATTR {
    const auto field = hn::BitCast(Integers(), hn::ShiftRight<23>(sum));
    const auto power = hn::Min(hn::Max(hn::Sub(field, Number(mx.largest_exponent)), Number(0)), Number(255));
    return hn::IfThenElse(hn::Gt(of, last), Number(255), power);
  };
  if constexpr (kRounding == ScaleRounding::down) return or_nan(amax, hn::BitCast(Words(), amax));
  if constexpr (kRounding == ScaleRounding::up) {
    return or_nan(amax, hn::BitCast(Words(), hn::Add(amax, Number(0x7FFFFF))));  // of NaN, above the positive integers
  }
  const auto sum = hn::Add(amax, Number(static_cast<std::int32_t>(mx.half_spacing)));
  // Where the sum left the positive integers, amax was NaN.
  return or_nan(mx.infinity_is_nan ? hn::Max(amax, sum) : amax, hn::BitCast(Words(), sum));
}

template <Quotient kQuotient, ScaleRounding kRounding>
HWY_INLINE Integer MxCode(const MxConstants& mx, Integer amax) {
  if constexpr (kQuotient == Quotient::amax_over_power) return PowerCode<kRounding>(mx, amax);
  const auto magnitude = [](Float x) HWY_ATTR { return Bits(hn::Abs(x)); };  // NaN may have got a sign
  Integer ratio;
  if constexpr (kQuotient == Quotient::amax_over_largest) {
    ratio = magnitude(hn::Div(FromBits(amax), hn::Set(Floats(), mx.largest)));
  } else {
    ratio = magnitude(hn::Mul(FromBits(amax), hn::Set(Floats(), mx.inverse_largest)));
  }
  if constexpr (kRounding == ScaleRounding::up_by_log2) return E8m0UpByLog2(ratio);
  if (!mx.infinity_is_nan) return E8m0Up(ratio);
  return hn::IfThenElse(hn::Gt(ratio, Number(0x7F000000)), Number(255), E8m0Up(ratio));
}

template <Quotient kQuotient, ScaleRounding kRounding>
HWY_INLINE std::uint32_t MxScalesBy(const MxConstants& mx, const std::uint32_t* amaxes, std::size_t count,
                                    const TileScaleArrays& out) {
  const Floats df;
  return ForTiles(amaxes, count, out, [&](Integer amax, const Outputs& to) HWY_ATTR {
    const auto code = MxCode<kQuotient, kRounding>(mx, amax);
    auto factor = FromBits(hn::ShiftLeft<23>(hn::Sub(Number(254), code)));
    const auto put = [&](std::int32_t at, float value) HWY_ATTR {
      factor = hn::IfThenElse(hn::RebindMask(df, hn::Eq(code, Number(at))), hn::Set(df, value), factor);
    };
    put(0, mx.at_first);
    put(254, mx.at_254);
    put(255, mx.at_nan);
    hn::StoreU(factor, df, to.factors);
    hn::StoreU(hn::TruncateTo(Bytes(), hn::BitCast(Words(), code)), Bytes(), to.codes);
    return factor;
  });
}

HWY_ATTR std::uint32_t MxScales(const MxConstants& mx, const std::uint32_t* amaxes, std::size_t count,
                                const TileScaleArrays& out) {
  constexpr auto up = ScaleRounding::up;
  switch (mx.quotient) {
    case Quotient::amax_over_power:
      if (mx.rounding == ScaleRounding::down) {
        return MxScalesBy<Quotient::amax_over_power, ScaleRounding::down>(mx, amaxes, count, out);
      }
      if (mx.rounding == up) return MxScalesBy<Quotient::amax_over_power, up>(mx, amaxes, count, out);
      return MxScalesBy<Quotient::amax_over_power, ScaleRounding::even>(mx, amaxes, count, out);
    case Quotient::amax_over_largest:
      if (mx.rounding == up) return MxScalesBy<Quotient::amax_over_largest, up>(mx, amaxes, count, out);
      return MxScalesBy<Quotient::amax_over_largest, ScaleRounding::up_by_log2>(mx, amaxes, count, out);
    case Quotient::amax_times_inverse:
    case Quotient::given_scale:
    case Quotient::given_scale_inv:
    case Quotient::largest_over_amax:
    case Quotient::inverse_of_quotient:
    case Quotient::inverse_of_product:
    case Quotient::largest_times_inverse: break;
  }
  return MxScalesBy<Quotient::amax_times_inverse, up>(mx, amaxes, count, out);
}

/// Without its mantissa: a power of two, infinity or 0; NaN stays.
HWY_INLINE Float PowerBelow(Float x) {
  const auto power = FromBits(hn::And(Bits(x), Number(0x7F800000)));
  return hn::IfThenElse(hn::IsNaN(x), x, power);
}
/// power_by_log2() for x >= 0 or NaN.
HWY_INLINE Float PowerByLog2(Float x) {
  const Floats df;
  const auto is_subnormal = hn::Lt(x, hn::Set(df, 0x1p-126F));
  const auto normal = hn::IfThenElse(is_subnormal, hn::Mul(x, hn::Set(df, 0x1p24F)), x);
  const auto shift = hn::IfThenElseZero(hn::RebindMask(Integers(), is_subnormal), Number(24));
  const auto slack = Log2Slack(hn::Sub(Exponent(Bits(normal)), shift));
  const auto power = FromBits(hn::And(hn::Add(Bits(normal), slack), Number(0x7F800000)));
  const auto result = hn::IfThenElse(is_subnormal, hn::Mul(power, hn::Set(df, 0x1p-24F)), power);
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}
/// The smallest power of two from 2^-126 to 2^127 that is not below x >= 0, or 2^127.
HWY_INLINE Float PowerAbove(Float x) {
  const auto up = hn::ShiftRight<23>(hn::Add(hn::Min(Bits(hn::Abs(x)), Number(0x7F000000)), Number(0x7FFFFF)));
  return FromBits(hn::ShiftLeft<23>(hn::Max(up, Number(1))));
}

/// The scale of an amax, of which the inverse is made then.
template <ScaleRounding kRounding>
HWY_INLINE Float ScaleOf(const BlockConstants& block, Float amax, hn::Mask<Floats> is_small) {
  const Floats df;
  const auto infinity = FromBits(Number(0x7F800000));
  const auto quotient = hn::Div(hn::Set(df, block.largest), amax);
  const auto scale = hn::IfThenElse(is_small, hn::Set(df, block.at_least), quotient);
  const auto limited = hn::IfThenElse(hn::Eq(scale, infinity), hn::Set(df, block.scale_limit), scale);
  Float rounded = limited;
  if constexpr (kRounding == ScaleRounding::down) rounded = PowerBelow(limited);
  if constexpr (kRounding == ScaleRounding::down_by_log2) rounded = PowerByLog2(limited);
  if (!block.special_is_one) return rounded;
  const auto usual = hn::And(hn::Gt(amax, hn::Zero(df)), hn::Lt(amax, infinity));
  return hn::IfThenElse(hn::Or(usual, is_small), rounded, hn::Set(df, 1.0F));
}

template <Quotient kQuotient, ScaleRounding kRounding>
HWY_INLINE std::uint32_t BlockScalesBy(const BlockConstants& block, const std::uint32_t* amaxes, std::size_t count,
                                       const TileScaleArrays& out) {
  const Floats df;
  const auto one = hn::Set(df, 1.0F);
  const auto least = hn::Set(df, block.least_amax);
  return ForTiles(amaxes, count, out, [&](Integer bits, const Outputs& to) HWY_ATTR {
    const auto amax = FromBits(bits);
    const auto is_small = hn::Lt(amax, least);  // NaN is not
    Float factor = one;
    Float inverse = one;
    if constexpr (kQuotient == Quotient::largest_over_amax) {
      factor = ScaleOf<kRounding>(block, amax, is_small);
      inverse = hn::Div(one, factor);
    } else {
      constexpr bool multiplies = kQuotient == Quotient::amax_times_inverse;
      const auto quotient =
          multiplies ? hn::Mul(amax, hn::Set(df, block.inverse_largest)) : hn::Div(amax, hn::Set(df, block.largest));
      auto s = hn::IfThenElse(is_small, hn::Set(df, block.at_least), quotient);
      if constexpr (kRounding == ScaleRounding::up) s = PowerAbove(s);
      factor = block.divides ? s : hn::Div(one, s);
      inverse = s;
    }
    hn::StoreU(factor, df, to.factors);
    hn::StoreU(inverse, df, to.scale_inv);
    return factor;
  });
}

HWY_ATTR std::uint32_t BlockScales(const BlockConstants& block, const std::uint32_t* amaxes, std::size_t count,
                                   const TileScaleArrays& out) {
  constexpr auto none = ScaleRounding::none;
  constexpr auto up = ScaleRounding::up;
  switch (block.quotient) {
    case Quotient::amax_over_largest:
      if (block.rounding == up) return BlockScalesBy<Quotient::amax_over_largest, up>(block, amaxes, count, out);
      return BlockScalesBy<Quotient::amax_over_largest, none>(block, amaxes, count, out);
    case Quotient::amax_times_inverse:
      if (block.rounding == up) return BlockScalesBy<Quotient::amax_times_inverse, up>(block, amaxes, count, out);
      return BlockScalesBy<Quotient::amax_times_inverse, none>(block, amaxes, count, out);
    case Quotient::largest_over_amax:
    case Quotient::given_scale:
    case Quotient::given_scale_inv:
    case Quotient::largest_times_inverse:
    case Quotient::inverse_of_quotient:
    case Quotient::inverse_of_product:
    case Quotient::amax_over_power: break;
  }
  constexpr auto over = Quotient::largest_over_amax;
  if (block.rounding == ScaleRounding::down) {
    return BlockScalesBy<over, ScaleRounding::down>(block, amaxes, count, out);
  }
  if (block.rounding == ScaleRounding::down_by_log2) {
    return BlockScalesBy<over, ScaleRounding::down_by_log2>(block, amaxes, count, out);
  }
  return BlockScalesBy<over, none>(block, amaxes, count, out);
}

/// product_under_tensors().
HWY_INLINE Float ProductUnderTensors(const NvFp4Constants& nvfp4, Float amax) {
  const Floats df;
  const auto quotient = [&] { return hn::Div(amax, hn::Set(df, nvfp4.largest)); };
  switch (nvfp4.product) {
    case BlockProduct::amax_times_scale: break;
    case BlockProduct::scale_times_amax:
      return hn::Mul(hn::Set(df, nvfp4.scale), hn::Mul(amax, hn::Set(df, nvfp4.inverse_largest)));
    case BlockProduct::scale_times_quotient: return hn::Mul(hn::Set(df, nvfp4.scale), quotient());
    case BlockProduct::quotient_over_inverse: return hn::Div(quotient(), hn::Set(df, nvfp4.scale_inv));
    case BlockProduct::amax_over_inverse: return hn::Div(amax, hn::Set(df, nvfp4.largest * nvfp4.scale_inv));
    case BlockProduct::quotient_over_quotient: {
      const auto own = quotient();
      const bool has_one = nvfp4.zero_amax == SpecialScale::one;
      const auto made = has_one ? hn::IfThenElse(hn::Eq(own, hn::Zero(df)), hn::Set(df, 1.0F), own) : own;
      return hn::Div(hn::Mul(made, hn::Set(df, nvfp4.tensor_range)), hn::Set(df, nvfp4.tensor_quotient));
    }
  }
  return hn::Mul(amax, hn::Set(df, nvfp4.scale * nvfp4.inverse_largest));
}

/// limited_bfloat16() of what is not negative.
HWY_INLINE Float LimitedBFloat16(Float x) {
  const auto most = hn::Set(Floats(), 0x1.FEp127F);
  const auto bits = Bits(hn::IfThenElse(hn::Lt(x, most), x, most));
  const auto is_odd = hn::And(hn::ShiftRight<16>(bits), Number(1));
  return FromBits(hn::And(hn::Add(bits, hn::Add(is_odd, Number(0x7FFF))), Number(-0x10000)));
}

/// The factor of elements for a tile's scale d.
HWY_INLINE Float FactorUnderTensors(const NvFp4Constants& nvfp4, Float amax, Float product, Float d) {
  const Floats df;
  const auto scale = hn::Set(df, nvfp4.scale);
  const auto one = hn::Set(df, 1.0F);
  const auto inverse = [&] { return hn::Div(one, hn::Mul(d, hn::Set(df, nvfp4.scale_inv))); };
  const auto unless_zero = [&](Float x, Float factor) {
    return hn::IfThenElse(hn::Eq(x, hn::Zero(df)), hn::Zero(df), factor);
  };
  switch (nvfp4.factor) {
    case BlockFactor::inverse_of_product: break;
    case BlockFactor::inverse_of_product_or_zero: return unless_zero(d, inverse());
    case BlockFactor::inverse_of_product_by_amax: return unless_zero(amax, inverse());
    case BlockFactor::inverse_of_product_by_product: return unless_zero(product, inverse());
    case BlockFactor::scale_over_block: return hn::Div(scale, d);
    case BlockFactor::scale_over_block_bfloat16: return LimitedBFloat16(hn::Div(scale, d));
    case BlockFactor::scale_times_inverse_or_zero: return unless_zero(d, hn::Mul(scale, hn::Div(one, d)));
    case BlockFactor::product: return hn::Mul(d, hn::Set(df, nvfp4.scale_inv));
    case BlockFactor::block_over_scale: return hn::Div(d, scale);
  }
  // The smaller of the two, and where the quotient is NaN.
  const auto largest_float = FromBits(Number(0x7F7FFFFF));
  const auto quotient = inverse();
  return hn::IfThenElse(hn::Le(quotient, largest_float), quotient, largest_float);
}

/// scale_under_tensors(). The product is rounded to E4M3, nearest even, by adding the power of two whose ulp is the
/// spacing: the multiple that is left in its low bits, and its exponent, make the code.
HWY_ATTR std::uint32_t NvFp4Scales(const NvFp4Constants& nvfp4, const std::uint32_t* amaxes, std::size_t count,
                                   const TileScaleArrays& out) {
  constexpr int spacings = 20;  // powers of two from a binade to what rounds there: a float32 has that many bits more
  const Floats df;
  const auto least = hn::Set(df, nvfp4.least);
  const bool has_one = nvfp4.zero_amax == SpecialScale::one && nvfp4.product != BlockProduct::quotient_over_quotient;
  const bool has_epsilon = nvfp4.zero_amax == SpecialScale::type_epsilon;
  return ForTiles(amaxes, count, out, [&](Integer amax, const Outputs& to) HWY_ATTR {
    const auto product = ProductUnderTensors(nvfp4, FromBits(amax));
    auto encoded = product;
    if (has_one) encoded = hn::IfThenElse(hn::Eq(product, hn::Zero(df)), hn::Set(df, 1.0F), encoded);
    encoded = hn::IfThenElse(hn::Lt(encoded, least), least, encoded);
    const auto limited = hn::Min(Bits(encoded), Bits(hn::Set(df, 448.0F)));
    const auto binade = hn::Max(hn::And(limited, Number(0x7F800000)), Bits(hn::Set(df, 0x1p-6F)));
    const auto magic = FromBits(hn::Add(binade, Number(spacings << 23)));
    const auto sum = hn::Add(FromBits(limited), magic);
    const auto field = hn::Sub(hn::ShiftRight<20>(Bits(magic)), Number((121 + spacings) << 3));
    const auto multiple = hn::Sub(Bits(sum), Bits(magic));
    const auto is_nan = hn::IsNaN(encoded);
    auto code = hn::IfThenElse(hn::RebindMask(Integers(), is_nan), Number(0x7F), hn::Add(field, multiple));
    auto decoded = hn::IfThenElse(is_nan, FromBits(Number(0x7FC00000)), hn::Sub(sum, magic));
    if (has_epsilon) {
      const auto is_zero = hn::Eq(decoded, hn::Zero(df));
      code = hn::IfThenElse(hn::RebindMask(Integers(), is_zero), Number(e4m3_epsilon), code);
      decoded = hn::IfThenElse(is_zero, hn::Set(df, 0.125F), decoded);
    }
    const auto factor = FactorUnderTensors(nvfp4, FromBits(amax), product, decoded);
    hn::StoreU(factor, df, to.factors);
    hn::StoreU(decoded, df, to.scale_inv);
    hn::StoreU(hn::TruncateTo(Bytes(), hn::BitCast(Words(), code)), Bytes(), to.codes);
    return factor;
  });
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(MxScales);
HWY_EXPORT(BlockScales);
HWY_EXPORT(NvFp4Scales);

std::uint32_t mx_scales_vector(const MxConstants& mx, const std::uint32_t* amaxes, std::size_t count,
                               const TileScaleArrays& out) {
  return HWY_DYNAMIC_DISPATCH(MxScales)(mx, amaxes, count, out);
}
std::uint32_t block_scales_vector(const BlockConstants& block, const std::uint32_t* amaxes, std::size_t count,
                                  const TileScaleArrays& out) {
  return HWY_DYNAMIC_DISPATCH(BlockScales)(block, amaxes, count, out);
}
std::uint32_t nvfp4_scales_vector(const NvFp4Constants& nvfp4, const std::uint32_t* amaxes, std::size_t count,
                                  const TileScaleArrays& out) {
  return HWY_DYNAMIC_DISPATCH(NvFp4Scales)(nvfp4, amaxes, count, out);
}

}  // namespace fp8lab
#endif
