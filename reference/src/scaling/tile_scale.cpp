// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/tile_scale.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "formats/simd/targets.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "scaling/torch_log2.hpp"
#include "simd/tile_scale.hpp"

namespace fp8lab {
namespace {

constexpr float largest_float = std::numeric_limits<float>::max();
// What smaller amaxes count as.
constexpr float deepseek_least = 1e-4F;
constexpr double torchao_least = 1e-12;

float largest_of(const Format& format) {
  // What float32 codes have no room for in decode() is known.
  if (format == binary32) return largest_float;
  return max_value(format);
}

/// Rounded toward zero to a power of two; 0 and NaN stay.
float without_mantissa(float x) {
  return std::isnan(x) ? x : std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7F800000U);
}

/// compute_scale_from_amax of Transformer Engine's recipe_common.cuh.
float te_scale(float amax, float largest, float epsilon, bool power_of_two, float beyond) {
  amax = std::max(amax, epsilon);  // NaN stays
  if (std::isinf(amax) || amax == 0 || std::isnan(amax)) return 1;
  float scale = largest / amax;
  if (std::isinf(scale)) scale = beyond;
  return power_of_two ? without_mantissa(scale) : scale;
}

/// torchao divides in double to agree with its compiled code; rounded to float32 that is the float32 quotient.
float torchao_scale(float amax, float largest, bool power_of_two) {
  const double limited = amax < torchao_least ? torchao_least : static_cast<double>(amax);
  const auto scale = static_cast<float>(static_cast<double>(largest) / limited);
  return power_of_two ? power_by_log2(scale) : scale;
}

/// The exponent field without its bias: -127 for subnormals and zero.
int exponent_of(std::uint32_t bits) { return static_cast<int>(bits >> 23) - 127; }

/// encode(e8m0, {.rounding = Rounding::upward}, x) for the bits of an x >= 0 or NaN: the exponent field, and one more
/// where the fraction is not 0; below 2^-126, where only the smallest code lies, by what is above its value.
std::uint32_t e8m0_up(std::uint32_t bits) {
  const std::uint32_t tiny = bits > 0x00400000U ? 1 : 0;
  const std::uint32_t code = bits < 0x00800000U ? tiny : (bits + 0x7FFFFFU) >> 23;
  const std::uint32_t limited = bits > 0x7F000000U ? 254 : code;
  return bits > 0x7F800000U ? 255 : limited;
}

/// The same by ceil(log2 x) in float32, as torchao 0.18 has it, for the bits of an x >= 0, infinite or NaN.
std::uint32_t e8m0_up_by_log2(std::uint32_t bits) {
  if (bits > 0x7F800000U) return 255;
  if (bits == 0 || bits == 0x7F800000U) return bits == 0 ? 0 : 254;
  return static_cast<std::uint32_t>(std::clamp(ceil_log2(bits), -127, 127) + 127);
}

/// Half the spacing of a format's numbers from 1 to 2, in units of a float32's last bit.
std::uint32_t half_spacing(const Format& format) { return std::uint32_t{1} << (22 - format.mantissa_bits); }

/// The code of a scale, for the bits of an amax, by a rule.
template <MxRule kRule>
std::uint32_t mx_code_by(const MxBlock& recipe, std::uint32_t amax, float largest) {
  const int emax = static_cast<int>(std::bit_cast<std::uint32_t>(largest) >> 23) - 127;
  const auto power = [&](std::uint32_t field) {
    return static_cast<std::uint32_t>(std::clamp(static_cast<int>(field) - emax, 0, 255));
  };
  const bool released = recipe.edges == E8m0Edges::torchao_0_18;
  const auto ratio = std::bit_cast<std::uint32_t>(std::bit_cast<float>(amax) * (1 / largest));
  const std::uint32_t rounded = amax + half_spacing(recipe.format);
  const std::uint32_t last = released ? 0x7F800000U : 0x7F7FFFFFU;
  switch (kRule) {
    case MxRule::te: return e8m0_up(ratio);
    case MxRule::rceil: {
      if (released) return e8m0_up_by_log2(std::bit_cast<std::uint32_t>(std::bit_cast<float>(amax) / largest));
      return ratio > 0x7F000000U ? 255 : e8m0_up(ratio);
    }
    case MxRule::floor: return amax > last ? 255 : power(amax >> 23);
    case MxRule::ceil: return amax > last ? 255 : power((amax + 0x7FFFFFU) >> 23);
    case MxRule::even: return (released ? amax : rounded) > last ? 255 : power(rounded >> 23);
  }
  return 255;
}

/// Calls with(rule) with a constant.
template <typename With>
auto by_rule(MxRule rule, const With& with) {
  switch (rule) {
    case MxRule::te: break;
    case MxRule::floor: return with(std::integral_constant<MxRule, MxRule::floor>());
    case MxRule::ceil: return with(std::integral_constant<MxRule, MxRule::ceil>());
    case MxRule::even: return with(std::integral_constant<MxRule, MxRule::even>());
    case MxRule::rceil: return with(std::integral_constant<MxRule, MxRule::rceil>());
  }
  return with(std::integral_constant<MxRule, MxRule::te>());
}

TileScale scale_one(const GivenScale& recipe, float /*amax*/, float /*largest*/, const TensorFacts& /*tensor*/) {
  return {recipe.scale, 1 / recipe.scale};
}

TileScale scale_one(const JustInTime& recipe, float amax, float largest, const TensorFacts& /*tensor*/) {
  const float scale = [&] {
    switch (recipe.rule) {
      case JustInTimeRule::te:
        return te_scale(amax, largest, recipe.amax_epsilon, recipe.force_pow_2_scales, largest_float);
      case JustInTimeRule::torchao: return torchao_scale(amax, largest, recipe.force_pow_2_scales);
    }
    return 1.0F;
  }();
  return {scale, 1 / scale};
}

TileScale scale_one(const MxBlock& recipe, float amax, float largest, const TensorFacts& /*tensor*/) {
  const auto code = static_cast<std::uint8_t>(by_rule(recipe.rule, [&](auto rule) {
    return mx_code_by<decltype(rule)::value>(recipe, std::bit_cast<std::uint32_t>(amax), largest);
  }));
  return {e8m0_inverse(recipe, code), e8m0_value(recipe, code), code};
}

TileScale scale_one(const Block& recipe, float amax, float largest, const TensorFacts& tensor) {
  // DeepGEMM's ceil_to_ue8m0; the power of two by log2 in DeepSeek's Triton kernels is meant to be the same.
  const auto maybe_power = [&](float s) {
    const auto bits = std::bit_cast<std::uint32_t>(s);
    const int above = (bits & 0x7FFFFFU) != 0 ? 1 : 0;
    const auto field = static_cast<std::uint32_t>(std::clamp(exponent_of(bits) + 127 + above, 1, 254));
    return recipe.force_pow_2_scales ? std::bit_cast<float>(field << 23) : s;
  };
  const float limited = amax < deepseek_least ? deepseek_least : amax;
  switch (recipe.rule) {
    case BlockRule::te: {
      const float beyond = largest_of(tensor.input_type);
      const float scale = te_scale(amax, largest, recipe.amax_epsilon, recipe.force_pow_2_scales, beyond);
      return {scale, 1 / scale};
    }
    case BlockRule::deepseek_2024: {
      const float s = maybe_power(amax / largest);
      return {s, s};
    }
    case BlockRule::deepseek_2025: {
      const float s = maybe_power(limited / largest);
      return {s, s};
    }
    case BlockRule::deepgemm_cpu: {
      const float s = maybe_power(limited / largest);
      return {1 / s, s};
    }
    case BlockRule::deepgemm_cuda: {
      const float s = maybe_power(limited * (1 / largest));
      return {1 / s, s};
    }
    case BlockRule::torchao: {
      const float scale = torchao_scale(amax, largest, recipe.force_pow_2_scales);
      return {scale, 1 / scale};
    }
  }
  return {1, 1};
}

/// The scale that NVFP4's block scales are encoded with.
float nvfp4_encode_scale(float tensor_amax) {
  const float scale = std::fmin((448.0F * 6.0F) / tensor_amax, largest_float);
  return tensor_amax == 0 || scale == 0 ? 1 : scale;
}

TileScale scale_one(const NvFp4& /*recipe*/, float amax, float /*largest*/, const TensorFacts& tensor) {
  const float encode_scale = nvfp4_encode_scale(tensor.amax);
  const float product = amax * (encode_scale * (1.0F / 6.0F));
  const auto code = static_cast<std::uint8_t>(encode(ue4m3, {}, product));
  const float decoded = decode(ue4m3, code);
  const float inverse = std::fmin(1 / (decoded * (1 / encode_scale)), largest_float);
  return {inverse, decoded, code};
}

/// Scales of many tiles: one after the other, or by vector code.
template <typename OneRecipe>
std::uint32_t scale_each(const OneRecipe& recipe, std::span<const std::uint32_t> amaxes, float largest,
                         const TensorFacts& tensor, const TileScaleArrays& out) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < amaxes.size(); ++i) {
    const auto amax = std::bit_cast<float>(amaxes[i]);
    const TileScale scale = scale_one(recipe, amax, largest, tensor);
    most = std::max(most, std::bit_cast<std::uint32_t>(amax * scale.factor));
    out.factors[i] = scale.factor;
    out.scale_inv[i] = scale.scale_inv;
    out.codes[i] = scale.code;
  }
  return most;
}
template <typename OneRecipe>
std::uint32_t scale_vectors(const OneRecipe& recipe, std::span<const std::uint32_t> amaxes, float largest,
                            const TensorFacts& tensor, const TileScaleArrays& out) {
  return scale_each(recipe, amaxes, largest, tensor, out);
}
std::uint32_t scale_vectors(const MxBlock& recipe, std::span<const std::uint32_t> amaxes, float largest,
                            const TensorFacts& /*tensor*/, const TileScaleArrays& out) {
  const MxConstants mx{.rule = recipe.rule,
                       .torchao_0_18 = recipe.edges == E8m0Edges::torchao_0_18,
                       .largest_exponent = exponent_of(std::bit_cast<std::uint32_t>(largest)),
                       .largest = largest,
                       .inverse_largest = 1 / largest,
                       .half_spacing = half_spacing(recipe.format),
                       .at_first = e8m0_inverse(recipe, 0),
                       .at_254 = e8m0_inverse(recipe, 254),
                       .at_nan = e8m0_inverse(recipe, 255)};
  return mx_scales_vector(mx, amaxes.data(), amaxes.size(), out);
}
std::uint32_t scale_vectors(const Block& recipe, std::span<const std::uint32_t> amaxes, float largest,
                            const TensorFacts& tensor, const TileScaleArrays& out) {
  const float least = [&] {
    switch (recipe.rule) {
      case BlockRule::te: return recipe.amax_epsilon;
      case BlockRule::deepseek_2024: return 0.0F;
      case BlockRule::deepseek_2025:
      case BlockRule::deepgemm_cpu:
      case BlockRule::deepgemm_cuda: return deepseek_least;
      case BlockRule::torchao: return std::nextafter(static_cast<float>(torchao_least), 1.0F);
    }
    return 0.0F;
  }();
  const BlockConstants block{.rule = recipe.rule,
                             .power_of_two = recipe.force_pow_2_scales,
                             .largest = largest,
                             .inverse_largest = 1 / largest,
                             .least_amax = least,
                             .beyond = largest_of(tensor.input_type),
                             .at_least = static_cast<float>(static_cast<double>(largest) / torchao_least)};
  return block_scales_vector(block, amaxes.data(), amaxes.size(), out);
}
std::uint32_t scale_vectors(const NvFp4& /*recipe*/, std::span<const std::uint32_t> amaxes, float /*largest*/,
                            const TensorFacts& tensor, const TileScaleArrays& out) {
  const float encode_scale = nvfp4_encode_scale(tensor.amax);
  return nvfp4_scales_vector({.factor = encode_scale * (1.0F / 6.0F), .decode_scale = 1 / encode_scale}, amaxes.data(),
                             amaxes.size(), out);
}

}  // namespace

float e8m0_value(const MxBlock& recipe, std::uint8_t code) {
  switch (recipe.edges) {
    case E8m0Edges::specified:
    case E8m0Edges::torchao_0_18: return decode(e8m0, code);
    case E8m0Edges::te_before_2_19:
    case E8m0Edges::te_before_2_13: break;
  }
  return std::bit_cast<float>(std::uint32_t{code} << 23);
}

float e8m0_inverse(const MxBlock& recipe, std::uint8_t code) {
  if (code != 0 && code < 254) return std::bit_cast<float>((254U - code) << 23);
  struct Ends {
    float at_0, at_254, at_255;
  };
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const Ends ends = [&]() -> Ends {
    switch (recipe.edges) {
      case E8m0Edges::specified:
      case E8m0Edges::te_before_2_19: break;
      case E8m0Edges::te_before_2_13: return {1, 0, -std::numeric_limits<float>::infinity()};
      case E8m0Edges::torchao_0_18:
        if (recipe.rule == MxRule::rceil) return {1, 0x1p-127F, nan};
        return {0x1p126F, 0x1p-127F, 0};  // it divides by a scale of 2^-126 or more, which is infinite for 255
    }
    return {0x1p127F, 0x1p-127F, nan};
  }();
  if (code == 0) return ends.at_0;
  return code == 254 ? ends.at_254 : ends.at_255;
}

TileScale tile_scale(const Recipe& recipe, float amax, const TensorFacts& tensor) {
  const float largest = largest_of(format_of(recipe));
  return by_default_arithmetic(
      [&] { return std::visit([&](const auto& one) { return scale_one(one, amax, largest, tensor); }, recipe); });
}

std::uint32_t tile_scales(const Recipe& recipe, std::span<const std::uint32_t> amaxes, const TensorFacts& tensor,
                          const TileScaleArrays& out) {
  const DefaultEnvironment environment;
  const float largest = largest_of(format_of(recipe));
  return std::visit(
      [&](const auto& one) {
        if (vector_code_allowed()) return scale_vectors(one, amaxes, largest, tensor, out);
        return scale_each(one, amaxes, largest, tensor, out);
      },
      recipe);
}

}  // namespace fp8lab
