// SPDX-License-Identifier: Apache-2.0
// The scales of many tiles, as many at a time as a vector has. The scalar functions of tile_scale.cpp define the
// result, and say where the rules come from.
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

template <MxRule kRule>
HWY_INLINE Integer MxCode(const MxConstants& mx, Integer amax) {
  const auto power = [&](Integer field) HWY_ATTR {
    return hn::Min(hn::Max(hn::Sub(field, Number(mx.largest_exponent)), Number(0)), Number(255));
  };
  const auto last = Number(mx.torchao_0_18 ? 0x7F800000 : 0x7F7FFFFF);
  const auto or_nan = [&](Integer of, Integer code)
                          HWY_ATTR { return hn::IfThenElse(hn::Gt(of, last), Number(255), code); };
  if constexpr (kRule == MxRule::floor) return or_nan(amax, power(hn::ShiftRight<23>(amax)));
  if constexpr (kRule == MxRule::ceil) {
    const auto up = hn::BitCast(Words(), hn::Add(amax, Number(0x7FFFFF)));  // of NaN, above the positive integers
    return or_nan(amax, power(hn::BitCast(Integers(), hn::ShiftRight<23>(up))));
  }
  if constexpr (kRule == MxRule::even) {
    const auto sum = hn::Add(amax, Number(static_cast<std::int32_t>(mx.half_spacing)));
    const auto field = hn::BitCast(Integers(), hn::ShiftRight<23>(hn::BitCast(Words(), sum)));
    // Where the sum left the positive integers, amax was NaN.
    const auto of = mx.torchao_0_18 ? amax : hn::Max(amax, sum);
    return or_nan(of, power(field));
  }
  const auto magnitude = [](Float x) HWY_ATTR { return Bits(hn::Abs(x)); };  // NaN may have got a sign
  if (kRule == MxRule::rceil && mx.torchao_0_18) {
    return E8m0UpByLog2(magnitude(hn::Div(FromBits(amax), hn::Set(Floats(), mx.largest))));
  }
  const auto ratio = magnitude(hn::Mul(FromBits(amax), hn::Set(Floats(), mx.inverse_largest)));
  if constexpr (kRule == MxRule::te) return E8m0Up(ratio);
  return hn::IfThenElse(hn::Gt(ratio, Number(0x7F000000)), Number(255), E8m0Up(ratio));
}

template <MxRule kRule>
HWY_INLINE std::uint32_t MxScalesBy(const MxConstants& mx, const std::uint32_t* amaxes, std::size_t count,
                                    const TileScaleArrays& out) {
  const Floats df;
  return ForTiles(amaxes, count, out, [&](Integer amax, const Outputs& to) HWY_ATTR {
    const auto code = MxCode<kRule>(mx, amax);
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
  switch (mx.rule) {
    case MxRule::te: return MxScalesBy<MxRule::te>(mx, amaxes, count, out);
    case MxRule::floor: return MxScalesBy<MxRule::floor>(mx, amaxes, count, out);
    case MxRule::ceil: return MxScalesBy<MxRule::ceil>(mx, amaxes, count, out);
    case MxRule::even: return MxScalesBy<MxRule::even>(mx, amaxes, count, out);
    case MxRule::rceil: return MxScalesBy<MxRule::rceil>(mx, amaxes, count, out);
  }
  return 0;
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

/// The scale of an amax by Transformer Engine's and torchao's rules, which make it and then its inverse.
template <BlockRule kRule>
HWY_INLINE Float ScaleOf(const BlockConstants& block, Float limited, hn::Mask<Floats> is_small) {
  const Floats df;
  const auto infinity = FromBits(Number(0x7F800000));
  const auto scale = hn::Div(hn::Set(df, block.largest), limited);
  if constexpr (kRule == BlockRule::torchao) {
    const auto bounded = hn::IfThenElse(is_small, hn::Set(df, block.at_least), scale);
    return block.power_of_two ? PowerByLog2(bounded) : bounded;
  } else {
    const auto bounded = hn::IfThenElse(hn::Eq(scale, infinity), hn::Set(df, block.beyond), scale);
    const auto rounded = block.power_of_two ? PowerBelow(bounded) : bounded;
    const auto usual = hn::And(hn::Gt(limited, hn::Zero(df)), hn::Lt(limited, infinity));
    return hn::IfThenElse(usual, rounded, hn::Set(df, 1.0F));
  }
}

template <BlockRule kRule>
HWY_INLINE std::uint32_t BlockScalesBy(const BlockConstants& block, const std::uint32_t* amaxes, std::size_t count,
                                       const TileScaleArrays& out) {
  const Floats df;
  const auto one = hn::Set(df, 1.0F);
  const auto largest = hn::Set(df, block.largest);
  const auto least = hn::Set(df, block.least_amax);
  return ForTiles(amaxes, count, out, [&](Integer bits, const Outputs& to) HWY_ATTR {
    const auto amax = FromBits(bits);
    const auto is_small = hn::Lt(amax, least);  // NaN is not
    const auto limited = hn::IfThenElse(is_small, least, amax);
    Float factor = one;
    Float inverse = one;
    if constexpr (kRule == BlockRule::te || kRule == BlockRule::torchao) {
      factor = ScaleOf<kRule>(block, limited, is_small);
      inverse = hn::Div(one, factor);
    } else {
      constexpr bool multiplies = kRule == BlockRule::deepgemm_cuda;
      auto s = multiplies ? hn::Mul(limited, hn::Set(df, block.inverse_largest)) : hn::Div(limited, largest);
      if (block.power_of_two) s = PowerAbove(s);
      constexpr bool divides = kRule == BlockRule::deepseek_2024 || kRule == BlockRule::deepseek_2025;
      factor = divides ? s : hn::Div(one, s);
      inverse = s;
    }
    hn::StoreU(factor, df, to.factors);
    hn::StoreU(inverse, df, to.scale_inv);
    return factor;
  });
}

HWY_ATTR std::uint32_t BlockScales(const BlockConstants& block, const std::uint32_t* amaxes, std::size_t count,
                                   const TileScaleArrays& out) {
  switch (block.rule) {
    case BlockRule::te: return BlockScalesBy<BlockRule::te>(block, amaxes, count, out);
    case BlockRule::deepseek_2024:
    case BlockRule::deepseek_2025: return BlockScalesBy<BlockRule::deepseek_2025>(block, amaxes, count, out);
    case BlockRule::deepgemm_cpu: return BlockScalesBy<BlockRule::deepgemm_cpu>(block, amaxes, count, out);
    case BlockRule::deepgemm_cuda: return BlockScalesBy<BlockRule::deepgemm_cuda>(block, amaxes, count, out);
    case BlockRule::torchao: return BlockScalesBy<BlockRule::torchao>(block, amaxes, count, out);
  }
  return 0;
}

/// The scale's code is that of amax * factor in E4M3, rounded to nearest even by adding the power of two whose ulp is
/// the spacing: the multiple that is left in its low bits, and its exponent, make the code.
HWY_ATTR std::uint32_t NvFp4Scales(const NvFp4Constants& nvfp4, const std::uint32_t* amaxes, std::size_t count,
                                   const TileScaleArrays& out) {
  constexpr int spacings = 20;  // powers of two from a binade to what rounds there: a float32 has that many bits more
  const Floats df;
  const auto largest_float = FromBits(Number(0x7F7FFFFF));
  return ForTiles(amaxes, count, out, [&](Integer amax, const Outputs& to) HWY_ATTR {
    const auto product = hn::Mul(FromBits(amax), hn::Set(df, nvfp4.factor));
    const auto limited = hn::Min(Bits(product), Bits(hn::Set(df, 448.0F)));
    const auto binade = hn::Max(hn::And(limited, Number(0x7F800000)), Bits(hn::Set(df, 0x1p-6F)));
    const auto magic = FromBits(hn::Add(binade, Number(spacings << 23)));
    const auto sum = hn::Add(FromBits(limited), magic);
    const auto field = hn::Sub(hn::ShiftRight<20>(Bits(magic)), Number((121 + spacings) << 3));
    const auto multiple = hn::Sub(Bits(sum), Bits(magic));
    const auto is_nan = hn::IsNaN(product);
    const auto code = hn::IfThenElse(hn::RebindMask(Integers(), is_nan), Number(0x7F), hn::Add(field, multiple));
    const auto decoded = hn::IfThenElse(is_nan, FromBits(Number(0x7FC00000)), hn::Sub(sum, magic));
    const auto inverse = hn::Div(hn::Set(df, 1.0F), hn::Mul(decoded, hn::Set(df, nvfp4.decode_scale)));
    // The smaller of the two, and where the quotient is NaN.
    const auto factor = hn::IfThenElse(hn::Le(inverse, largest_float), inverse, largest_float);
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
