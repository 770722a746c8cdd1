// SPDX-License-Identifier: Apache-2.0
// How an amax makes a scale: the rule of a recipe's record, for hosts and devices.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/host_device.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"
#include "fp8lab/reference/scaling/torch_log2.hpp"

namespace fp8lab {

/// The factor, scale and code that a recipe makes of the amax of elements that share a scale.
struct TileScale {
  float factor;           ///< x is multiplied with it, or divided by it where the recipe divides
  float scale_inv;        ///< multiplies on dequantize; under a tensor's scale, the value of the tile's alone
  std::uint8_t code = 0;  ///< of the scale, where it is E8M0 or E4M3
};

/// The facts of a tensor that the scales of its tiles depend on, beside their own amaxes.
struct TensorFacts {
  float amax = 0;                ///< of the tensor: for a tensor's scale over those of tiles
  Format input_type = binary32;  ///< binary32, binary16 or bfloat16
  float tensor_scale = 0;        ///< E where it is given; 0: the amax makes it
  float tensor_scale_inv = 0;    ///< D where it is given
};

/// Constants that the scales of all tiles of a tensor share.
struct ScaleConstants {
  Format input_type;
  float largest;               ///< of the format
  float inverse_largest;       ///< fl(1 / largest)
  float tensor_top;            ///< L, the range of the tensor's scale times largest
  int largest_exponent;        ///< of largest
  std::uint32_t half_spacing;  ///< of the mantissa that rounding `even` rounds to, in units of a float32's last bit
  float scale_limit;           ///< what an infinite scale becomes
  float tensor_scale;          ///< E
  float tensor_scale_inv;      ///< D
  float tensor_quotient;       ///< fl(G / largest), or fl(range * D) where the tensor's scale is given
  float given_scale;           ///< of the recipe
};

/// The largest value of a format. Precondition: binary32, or one that decode() to float32 takes.
FP8LAB_HD constexpr float largest_of(const Format& format) {
  constexpr Format widest = binary32;
  if (format == widest) return std::numeric_limits<float>::max();
  return decode(format, static_cast<std::uint32_t>(format.max_code()));
}

/// Whether the quotient makes scale_inv. Otherwise it makes the scale.
FP8LAB_HD constexpr bool makes_scale_inv(const Recipe& recipe) {
  switch (recipe.quotient) {
    case Quotient::given_scale:
    case Quotient::largest_over_amax:
    case Quotient::largest_times_inverse: return false;
    case Quotient::given_scale_inv:
    case Quotient::amax_over_largest:
    case Quotient::amax_times_inverse:
    case Quotient::amax_over_power:
    case Quotient::inverse_of_quotient:
    case Quotient::inverse_of_product: break;
  }
  return true;
}

/// The type of an arithmetic, for tensors of type `input`.
FP8LAB_HD constexpr Format type_of(ScaleArithmetic arithmetic, const Format& input) {
  constexpr Format widest =
      binary32;  // device code may use the value of a constant of namespace scope, not its address
  constexpr Format narrow = bfloat16;
  switch (arithmetic) {
    case ScaleArithmetic::float32: break;
    case ScaleArithmetic::input_type: return input;
    case ScaleArithmetic::bfloat16_type: return narrow;
  }
  return widest;
}

/// fl(x) in a type of 16 bits. On a device it is a call, for a rule has it in many places, where it would take ptxas
/// most of its time.
FP8LAB_HD_CALL float rounded_to_half(Format type, float x) {
  constexpr CastPolicy ieee{
      .overflow = Overflow::to_special, .infinity = Overflow::to_special, .nan = NanCode::sign_and_payload};
  return decode(type, encode(type, ieee, x));
}
/// fl(x) in the type of an arithmetic, for tensors of type `input`.
FP8LAB_HD inline float in_type(const Format& input, ScaleArithmetic arithmetic, float x) {
  constexpr Format widest = binary32;
  const Format type = type_of(arithmetic, input);
  return type == widest ? x : rounded_to_half(type, x);
}

/// The scale of a tensor over those of tiles, made of its amax; 1 where there is none.
FP8LAB_HD inline float tensor_scale_of(const Recipe& recipe, float largest, const TensorFacts& tensor) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float most = std::numeric_limits<float>::max();
  const float tensor_amax = tensor.amax;
  const float top = recipe.tensor_range * largest;
  switch (recipe.tensor_scale) {
    case TensorScaleRule::none: break;
    case TensorScaleRule::largest_over_amax: {
      const float quotient = top / tensor_amax;
      const float limited = quotient < most ? quotient : most;  // of NaN, too
      return tensor_amax == 0 || limited == 0 ? 1 : limited;
    }
    case TensorScaleRule::largest_times_inverse: {
      const auto rounded = [&](float x) { return in_type(tensor.input_type, recipe.arithmetic, x); };
      const float product = rounded(rounded(1 / tensor_amax) * top);
      return product < infinity ? product : 1;
    }
    case TensorScaleRule::amax_over_largest: return 1 / (tensor_amax / top);
    case TensorScaleRule::two_products: return recipe.tensor_range * (largest * (1 / tensor_amax));
  }
  return 1;
}

FP8LAB_HD inline ScaleConstants scale_constants(const Recipe& recipe, const TensorFacts& tensor) {
  const float largest = largest_of(recipe.format);
  const int even_bits = recipe.even_mantissa_bits == 0 ? recipe.format.mantissa_bits : recipe.even_mantissa_bits;
  const float top = recipe.tensor_range * largest;
  // 1. The tensor's scale and its inverse, of which one may be given.
  float scale = tensor_scale_of(recipe, largest, tensor);
  float inverse = recipe.tensor_scale == TensorScaleRule::amax_over_largest ? tensor.amax / top : 1 / scale;
  const bool is_given = tensor.tensor_scale != 0 || tensor.tensor_scale_inv != 0;
  if (is_given) {
    scale = tensor.tensor_scale != 0 ? tensor.tensor_scale : 1 / tensor.tensor_scale_inv;
    inverse = tensor.tensor_scale_inv != 0 ? tensor.tensor_scale_inv : 1 / tensor.tensor_scale;
  }
  // 2. What an infinite scale becomes.
  float limit = std::numeric_limits<float>::infinity();
  if (recipe.limit != ScaleLimit::none) {
    limit = recipe.limit == ScaleLimit::float32 ? std::numeric_limits<float>::max() : largest_of(tensor.input_type);
  }
  return {.input_type = tensor.input_type,
          .largest = largest,
          .inverse_largest = 1 / largest,
          .tensor_top = top,
          .largest_exponent = static_cast<int>(std::bit_cast<std::uint32_t>(largest) >> 23) - 127,
          .half_spacing = even_bits > 22 ? 0 : std::uint32_t{1} << (22 - even_bits),
          .scale_limit = limit,
          .tensor_scale = scale,
          .tensor_scale_inv = inverse,
          .tensor_quotient = is_given ? recipe.tensor_range * inverse : tensor.amax / largest,
          .given_scale = recipe.given_scale};
}

/// The number that an E8M0 code multiplies with on dequantize: its value, but for the codes at the edges.
FP8LAB_HD constexpr float e8m0_value(E8m0Edges edges, std::uint8_t code) {
  if (edges == E8m0Edges::te_before_2_19 || edges == E8m0Edges::te_before_2_13) {
    return std::bit_cast<float>(std::uint32_t{code} << 23);
  }
  constexpr Format powers = e8m0;  // device code may use the value of a constant of namespace scope, not its address
  return decode(powers, code);
}

/// The number that an E8M0 code multiplies with on quantize: the inverse of its value, but for the codes at the edges.
FP8LAB_HD constexpr float e8m0_inverse(E8m0Edges edges, std::uint8_t code) {
  if (code != 0 && code < 254) return std::bit_cast<float>((254U - code) << 23);
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  struct Ends {
    float at_0, at_254, at_255;
  };
  Ends ends{0x1p127F, 0x1p-127F, nan};
  switch (edges) {
    case E8m0Edges::specified:
    case E8m0Edges::te_before_2_19: break;
    case E8m0Edges::te_before_2_13: ends = {1, 0, -std::numeric_limits<float>::infinity()}; break;
    case E8m0Edges::torchao_0_18: ends = {0x1p126F, 0x1p-127F, 0}; break;  // it divides by 2^-126 or more, or infinity
    case E8m0Edges::torchao_0_18_rceil: ends = {1, 0x1p-127F, nan}; break;
    case E8m0Edges::zero_at_ends: ends = {0, 0, nan}; break;
  }
  if (code == 0) return ends.at_0;
  return code == 254 ? ends.at_254 : ends.at_255;
}

/// The number that a scale's code multiplies with on dequantize: of an E4M3 scale under a tensor's, both together.
/// `tensor_amax` is the amax that the constants are of, `given` whether their tensor's scale was.
FP8LAB_HD inline float value_of_scale_code(const Recipe& recipe, const ScaleConstants& constants, float tensor_amax,
                                           std::uint8_t code, bool given = false) {
  if (recipe.scale_type == ScaleType::e8m0_code) return e8m0_value(recipe.edges, code);
  constexpr Format unsigned_e4m3 = ue4m3;
  const float d = decode(unsigned_e4m3, code);
  switch (recipe.tensor_scale) {
    case TensorScaleRule::none: break;
    case TensorScaleRule::largest_over_amax:
      return given ? d * constants.tensor_scale_inv : d * tensor_amax * (1 / constants.tensor_top);
    case TensorScaleRule::largest_times_inverse:
    case TensorScaleRule::two_products: return d / constants.tensor_scale;
    case TensorScaleRule::amax_over_largest: return d * constants.tensor_scale_inv;
  }
  return d;
}

/// Whether scale_inv is the inverse of a scale that comes first: of a small amax that is infinite.
FP8LAB_HD constexpr bool inverts_scale(const Recipe& recipe) {
  return recipe.quotient == Quotient::inverse_of_quotient || recipe.quotient == Quotient::inverse_of_product;
}

/// fl(x) in the type of the recipe's arithmetic.
FP8LAB_HD inline float in_arithmetic(const Recipe& recipe, const ScaleConstants& constants, float x) {
  return in_type(constants.input_type, recipe.arithmetic, x);
}

/// The quotient of an amax, which is a float or a limit in double.
template <typename Real>
FP8LAB_HD float quotient_of(const Recipe& recipe, const ScaleConstants& constants, Real amax) {
  const auto rounded = [&](float x) { return in_arithmetic(recipe, constants, x); };
  switch (recipe.quotient) {
    case Quotient::given_scale:
    case Quotient::given_scale_inv: return constants.given_scale;
    case Quotient::largest_over_amax: return rounded(static_cast<float>(static_cast<Real>(constants.largest) / amax));
    case Quotient::largest_times_inverse: return rounded(rounded(1 / static_cast<float>(amax)) * constants.largest);
    case Quotient::amax_over_largest: return rounded(static_cast<float>(amax / static_cast<Real>(constants.largest)));
    case Quotient::amax_times_inverse:
      return rounded(static_cast<float>(amax * static_cast<Real>(constants.inverse_largest)));
    case Quotient::inverse_of_quotient:
      return rounded(1 / rounded(static_cast<float>(static_cast<Real>(constants.largest) / amax)));
    case Quotient::inverse_of_product:
      return rounded(1 / rounded(rounded(1 / static_cast<float>(amax)) * constants.largest));
    case Quotient::amax_over_power: break;
  }
  return static_cast<float>(amax);
}

/// The least amax: smaller ones count as this one.
FP8LAB_HD inline double least_amax_of(const Recipe& recipe, const ScaleConstants& constants) {
  if (recipe.least_amax_type == ScaleArithmetic::float32) return recipe.least_amax;
  return static_cast<double>(
      in_type(constants.input_type, recipe.least_amax_type, static_cast<float>(recipe.least_amax)));
}

/// An amax within the recipe's limits. What lies outside counts as the limit, in double.
FP8LAB_HD inline float limited_quotient(const Recipe& recipe, const ScaleConstants& constants, float amax) {
  const auto wide = static_cast<double>(amax);
  const double least = least_amax_of(recipe, constants);
  if (wide < least) return quotient_of(recipe, constants, least);
  if (wide > recipe.largest_amax) return quotient_of(recipe, constants, recipe.largest_amax);
  return quotient_of(recipe, constants, amax);
}

/// Tells which special case an amax is, after its limits.
FP8LAB_HD inline SpecialScale special_of(const Recipe& recipe, const ScaleConstants& constants, float amax) {
  const auto wide = static_cast<double>(amax);
  if (amax != amax) return recipe.nan_amax;
  if (wide < least_amax_of(recipe, constants) || wide > recipe.largest_amax) return SpecialScale::computed;
  if (amax == 0) return recipe.zero_amax;
  return amax == std::numeric_limits<float>::infinity() ? recipe.infinite_amax : SpecialScale::computed;
}

/// The exponent field after rounding, for the bits of an x >= 0 or infinite.
FP8LAB_HD inline std::uint32_t rounded_field(ScaleRounding rounding, std::uint32_t bits, std::uint32_t half_spacing) {
  switch (rounding) {
    case ScaleRounding::none:
    case ScaleRounding::down: break;
    case ScaleRounding::up: return (bits + 0x7FFFFFU) >> 23;
    case ScaleRounding::even: return (bits + half_spacing) >> 23;
    case ScaleRounding::nearest_by_log2:
    case ScaleRounding::down_by_log2:
    case ScaleRounding::up_by_log2: {
      if (bits == 0 || bits >= 0x7F800000U) return bits >> 23;
      int power = rounding == ScaleRounding::up_by_log2 ? ceil_log2(bits) : floor_log2(bits);
      if (rounding == ScaleRounding::nearest_by_log2) power = nearest_log2(bits);
      return static_cast<std::uint32_t>(std::max(power, -127) + 127);
    }
  }
  return bits >> 23;
}

/// The E8M0 code of a scale_inv, for the bits of an x >= 0, infinite or NaN, that is still to be divided by 2^shift.
FP8LAB_HD inline std::uint8_t e8m0_code_of(const Recipe& recipe, const ScaleConstants& constants, std::uint32_t bits) {
  if (bits > 0x7F800000U) return 255;
  const bool infinity_is_nan = recipe.infinite_amax == SpecialScale::nan;
  const std::uint32_t field = rounded_field(recipe.rounding, bits, constants.half_spacing);
  if (recipe.quotient == Quotient::amax_over_power) {
    const bool overflows = recipe.rounding == ScaleRounding::even ? field > 254 : bits > 0x7F7FFFFFU;
    if (overflows && infinity_is_nan) return 255;
    return static_cast<std::uint8_t>(std::clamp(static_cast<int>(field) - constants.largest_exponent, 0, 255));
  }
  if (bits > 0x7F000000U) {  // above 2^127
    const bool above = recipe.rounding == ScaleRounding::up || field > 254;
    return above && infinity_is_nan ? 255 : 254;
  }
  // Below 2^-126, where only the smallest code lies, by what is above its value.
  if (recipe.rounding == ScaleRounding::up && bits < 0x00800000U) return bits > 0x00400000U ? 1 : 0;
  return static_cast<std::uint8_t>(std::min(field, 254U));
}

/// A float32 scale, or scale_inv, rounded to a power of two where the recipe does that. The nearest is that of a
/// logarithm in the type of the recipe's arithmetic.
FP8LAB_HD inline float rounded_scale(const Recipe& recipe, const ScaleConstants& constants, float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  switch (recipe.rounding) {
    case ScaleRounding::none:
    case ScaleRounding::even: return x;
    case ScaleRounding::down: return x != x ? x : std::bit_cast<float>(bits & 0x7F800000U);
    case ScaleRounding::up: {
      // DeepGEMM's ceil_to_ue8m0; the power of two by log2 in DeepSeek's Triton kernels is meant to be the same.
      const std::uint32_t field = (bits >> 23 & 0xFFU) + ((bits & 0x7FFFFFU) != 0 ? 1 : 0);
      return std::bit_cast<float>(std::clamp(field, 1U, 254U) << 23);
    }
    case ScaleRounding::down_by_log2: return power_by_log2(x);
    case ScaleRounding::nearest_by_log2: {
      if (bits - 1 >= 0x7F7FFFFFU) return x;
      return float32_power(static_cast<int>(std::nearbyint(in_arithmetic(recipe, constants, float32_log2(bits)))));
    }
    case ScaleRounding::up_by_log2: break;
  }
  return upper_power_by_log2(x);
}

/// The E4M3 code of 2^-3, the epsilon of that type.
inline constexpr std::uint8_t e4m3_epsilon = 0x20;

/// x, at most the largest bfloat16, rounded to bfloat16; a NaN counts as the largest.
FP8LAB_HD inline float limited_bfloat16(float x) {
  constexpr float most = 0x1.FEp127F;
  constexpr Format type = bfloat16;
  constexpr CastPolicy nearest{};
  return decode(type, encode(type, nearest, x < most ? x : most));
}

/// The product that is rounded to the E4M3 scale of a tile under a tensor's.
FP8LAB_HD inline float product_under_tensors(const Recipe& recipe, const ScaleConstants& constants, float amax) {
  const float scale = constants.tensor_scale;
  const float inverse = constants.tensor_scale_inv;
  const auto in_own = [&](float x) { return in_arithmetic(recipe, constants, x); };
  switch (recipe.block_product) {
    case BlockProduct::amax_times_scale: break;
    case BlockProduct::scale_times_amax: return scale * in_own(amax * constants.inverse_largest);
    case BlockProduct::scale_times_quotient: return scale * in_own(amax / constants.largest);
    case BlockProduct::quotient_over_inverse: return in_own(amax / constants.largest) / inverse;
    case BlockProduct::amax_over_inverse: return amax / (constants.largest * inverse);
    case BlockProduct::quotient_over_quotient: {
      const float quotient = in_own(amax / constants.largest);
      const bool is_one = quotient == 0 && recipe.zero_amax == SpecialScale::one;
      return (is_one ? 1 : quotient) * recipe.tensor_range / constants.tensor_quotient;
    }
  }
  return amax * (scale * constants.inverse_largest);
}

/// The scale of a tile under a tensor's. `stretch` is 1.5 where 4 takes the place of 6.
FP8LAB_HD inline TileScale scale_under_tensors(const Recipe& recipe, const ScaleConstants& constants, float amax,
                                               float stretch = 1) {
  const float scale = constants.tensor_scale;
  const float inverse = constants.tensor_scale_inv;
  // 1. The scale of the tile.
  float product = product_under_tensors(recipe, constants, amax);
  if (stretch != 1) product = product * stretch;
  const bool is_zero = product == 0;
  const bool has_own_zero = recipe.block_product == BlockProduct::quotient_over_quotient;
  if (is_zero && recipe.zero_amax == SpecialScale::one && !has_own_zero) product = 1;
  const float limited = product < recipe.least_scale_inv ? recipe.least_scale_inv : product;
  constexpr Format unsigned_e4m3 = ue4m3;
  auto code = static_cast<std::uint8_t>(encode(unsigned_e4m3, CastPolicy{}, limited));
  if (code == 0 && recipe.zero_amax == SpecialScale::type_epsilon) code = e4m3_epsilon;
  const float d = decode(unsigned_e4m3, code);
  // 2. The elements' factor.
  const float factor = [&] {
    constexpr float most = std::numeric_limits<float>::max();
    switch (recipe.block_factor) {
      case BlockFactor::inverse_of_product: break;
      case BlockFactor::inverse_of_product_or_zero: return d == 0 ? 0.0F : 1 / (d * inverse);
      case BlockFactor::inverse_of_product_by_amax: return amax == 0 ? 0.0F : 1 / (d * inverse);
      case BlockFactor::inverse_of_product_by_product: return is_zero ? 0.0F : 1 / (d * inverse);
      case BlockFactor::scale_over_block: return scale / d;
      case BlockFactor::scale_over_block_bfloat16: return limited_bfloat16(scale / d);
      case BlockFactor::scale_times_inverse_or_zero: return d == 0 ? 0.0F : scale * (1 / d);
      case BlockFactor::product: return d * inverse;
      case BlockFactor::block_over_scale: return d / scale;
    }
    const float quotient = 1 / (d * inverse);
    return quotient < most ? quotient : most;  // of NaN, too
  }();
  return {factor, d, code};
}

/// The float32 scale, or scale_inv, that takes the place of a special one; x otherwise.
FP8LAB_HD inline float special_scale(const Recipe& recipe, const ScaleConstants& constants, SpecialScale special,
                                     float x) {
  switch (special) {
    case SpecialScale::computed:
    case SpecialScale::nan:
    case SpecialScale::smallest:
    case SpecialScale::smallest_of_nan:
    case SpecialScale::largest:
    case SpecialScale::zero_factor:
    case SpecialScale::as_infinity: break;
    case SpecialScale::one: return 1;
    case SpecialScale::epsilon: return makes_scale_inv(recipe) ? 0x1p-23F : 0x1p23F;
    case SpecialScale::type_epsilon: {
      return float32_power(-type_of(recipe.arithmetic, constants.input_type).mantissa_bits);
    }
  }
  return x;
}

/// Whether the recipe computes in float16 here.
FP8LAB_HD constexpr bool is_of_half(const Recipe& recipe, const ScaleConstants& constants) {
  constexpr Format half = binary16;
  return type_of(recipe.arithmetic, constants.input_type) == half;
}

/// An amax as rounding `even` in float16 takes it: all subnormal numbers have one spacing, and become 2^-14 or 0.
FP8LAB_HD inline float even_in_half(const Recipe& recipe, const ScaleConstants& constants, float amax) {
  constexpr float smallest = 0x1p-14F;
  if (recipe.rounding != ScaleRounding::even || !is_of_half(recipe, constants) || !(amax < smallest)) return amax;
  return amax + static_cast<float>(constants.half_spacing) * 0x1p-37F < smallest ? 0 : smallest;
}

/// The scale of a tile in E8M0, for a quotient x or a special amax.
FP8LAB_HD inline TileScale e8m0_scale(const Recipe& recipe, const ScaleConstants& constants, SpecialScale special,
                                      float x) {
  std::uint8_t code = 127;
  if (special == SpecialScale::type_epsilon) {
    code = is_of_half(recipe, constants) ? 127 : 0;  // 2^-127 is 0 in float16
  } else if (special == SpecialScale::computed) {
    code = e8m0_code_of(recipe, constants, std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFU);
  } else if (special != SpecialScale::one) {
    code = special == SpecialScale::nan ? 255 : 0;
    if (special == SpecialScale::largest) code = 254;
  }
  const float value = e8m0_value(recipe.edges, code);
  float factor = e8m0_inverse(recipe.edges, code);
  if (recipe.least_divisor > 0 && value < recipe.least_divisor) factor = 1 / recipe.least_divisor;
  if (special == SpecialScale::smallest_of_nan) factor = std::numeric_limits<float>::quiet_NaN();
  return {factor, value, code};
}

/// The scale and its inverse, and the factor by which elements meet it. `x` is the scale, or scale_inv, that an amax
/// made.
FP8LAB_HD inline TileScale with_factor(const Recipe& recipe, const ScaleConstants& constants, SpecialScale special,
                                       float amax, const TileScale& made) {
  const float x = made.scale_inv;
  const std::uint8_t code = made.code;
  const bool inverse = makes_scale_inv(recipe);
  const float scale_inv = inverse ? x : 1 / x;
  float divisor = scale_inv < recipe.least_divisor ? recipe.least_divisor : scale_inv;  // a NaN stays
  if (recipe.factor == FactorRule::of_rounded_scale) divisor = in_type(constants.input_type, recipe.product, divisor);
  if (divides(recipe.operation)) return {divisor, scale_inv, code};
  if (special == SpecialScale::zero_factor) return {0, scale_inv, code};
  if (!inverse) return {x, scale_inv, code};
  if (recipe.factor == FactorRule::of_scale) return {1 / divisor, x, code};
  const double least = least_amax_of(recipe, constants);
  const float limited = static_cast<double>(amax) < least ? static_cast<float>(least) : amax;
  const float quotient = constants.largest / limited;
  return {quotient > recipe.largest_factor ? recipe.largest_factor : quotient, x, code};
}

/// The scale that an amax makes, but for one that is to be flushed.
FP8LAB_HD_INLINE TileScale unflushed_scale(const Recipe& recipe, const ScaleConstants& constants, float amax) {
  if (recipe.tensor_scale != TensorScaleRule::none) return scale_under_tensors(recipe, constants, amax);
  if (recipe.nan_amax == SpecialScale::as_infinity && amax != amax) amax = std::numeric_limits<float>::infinity();
  amax = even_in_half(recipe, constants, amax);
  // 1. The quotient, or what a special amax makes.
  SpecialScale special = special_of(recipe, constants, amax);
  float x = limited_quotient(recipe, constants, amax);
  const bool inverse = makes_scale_inv(recipe);
  if (inverse && x == 0 && !inverts_scale(recipe)) special = recipe.zero_amax;
  if (special == SpecialScale::one && recipe.scale_type == ScaleType::float32) return {1, 1};
  if (x == std::numeric_limits<float>::infinity() && recipe.limit != ScaleLimit::none) x = constants.scale_limit;
  x = x < recipe.least_scale_inv ? recipe.least_scale_inv : x;  // a NaN stays
  // 2. Its rounding and its code.
  if (recipe.scale_type == ScaleType::e8m0_code) return e8m0_scale(recipe, constants, special, x);
  std::uint8_t code = 0;
  if (recipe.scale_type == ScaleType::e4m3_code) {
    constexpr Format unsigned_e4m3 = ue4m3;
    code = static_cast<std::uint8_t>(encode(unsigned_e4m3, CastPolicy{}, special == SpecialScale::one ? 1 : x));
    if (code == 0 && recipe.zero_amax == SpecialScale::type_epsilon) code = e4m3_epsilon;
    x = decode(unsigned_e4m3, code);
  } else {
    x = rounded_scale(recipe, constants, special_scale(recipe, constants, special, x));
  }
  // 3. The elements' factor.
  return with_factor(recipe, constants, special, amax, {0, x, code});
}

/// The scale that an amax makes by the recipe's fields. Total for recipes that check_recipe() takes and amaxes that are
/// 0, positive, infinite or NaN. Where the recipe has a block_choice, the scale is the usual one.
FP8LAB_HD_INLINE TileScale scale_of_amax(const Recipe& recipe, const ScaleConstants& constants, float amax) {
  TileScale scale = unflushed_scale(recipe, constants, amax);
  const auto bits = std::bit_cast<std::uint32_t>(amax);
  if (recipe.flush_subnormal_amax && (bits == 0 || (bits < 0x00800000U && floor_log2(bits) < -126))) scale.factor = 0;
  return scale;
}

}  // namespace fp8lab
