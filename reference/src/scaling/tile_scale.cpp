// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/tile_scale.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "formats/simd/targets.hpp"
#include "fp8lab/formats/environment.hpp"
#include "simd/tile_scale.hpp"

namespace fp8lab {
namespace {

/// Inlined whole, the casts of a scale know their format: tiles of 16 elements are many.
[[gnu::flatten]] std::uint32_t scale_each(const Recipe& recipe, const ScaleConstants& constants,
                                          std::span<const std::uint32_t> amaxes, const TileScaleArrays& out) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < amaxes.size(); ++i) {
    const auto amax = std::bit_cast<float>(amaxes[i]);
    const TileScale scale = scale_of_amax(recipe, constants, amax);
    most = std::max(most, std::bit_cast<std::uint32_t>(amax * scale.factor));
    out.factors[i] = scale.factor;
    out.scale_inv[i] = scale.scale_inv;
    out.codes[i] = scale.code;
  }
  return most;
}

/// Whether no part of the recipe is one that no vector code has. An amax over a power of two is exact in any type but
/// float16.
bool has_usual_parts(const Recipe& r, const ScaleConstants& constants) {
  const bool exact = r.quotient == Quotient::amax_over_power && !is_of_half(r, constants);
  return std::isinf(r.largest_amax) && (exact || r.arithmetic == ScaleArithmetic::float32) && r.least_scale_inv == 0 &&
         r.factor == FactorRule::of_scale && !r.flush_subnormal_amax && r.least_divisor == 0 &&
         r.least_amax_type == ScaleArithmetic::float32;
}

/// The rule as vector code for E8M0 has it, if it has.
bool mx_constants(const Recipe& r, const ScaleConstants& constants, MxConstants& mx) {
  if (r.scale_type != ScaleType::e8m0_code || r.least_amax != 0) return false;
  if (r.quotient == Quotient::inverse_of_quotient || r.quotient == Quotient::inverse_of_product) return false;
  const bool zero_is_usual = r.zero_amax == SpecialScale::computed ||  // an amax of zero has the smallest code
                             (r.zero_amax == SpecialScale::type_epsilon && r.quotient == Quotient::amax_over_power);
  if (!zero_is_usual || r.nan_amax != SpecialScale::computed) return false;
  const bool infinity_is_nan = r.infinite_amax == SpecialScale::nan;
  if (!infinity_is_nan && r.infinite_amax != SpecialScale::computed) return false;
  switch (r.rounding) {
    case ScaleRounding::down:
    case ScaleRounding::even:
      if (r.quotient != Quotient::amax_over_power) return false;
      break;
    case ScaleRounding::up: break;
    case ScaleRounding::up_by_log2:
      if (r.quotient != Quotient::amax_over_largest || infinity_is_nan) return false;
      break;
    case ScaleRounding::none:
    case ScaleRounding::nearest_by_log2:
    case ScaleRounding::down_by_log2: return false;
  }
  mx = {.quotient = r.quotient,
        .rounding = r.rounding,
        .infinity_is_nan = infinity_is_nan,
        .largest_exponent = constants.largest_exponent,
        .largest = constants.largest,
        .inverse_largest = constants.inverse_largest,
        .half_spacing = constants.half_spacing,
        .at_first = e8m0_inverse(r.edges, 0),
        .at_254 = e8m0_inverse(r.edges, 254),
        .at_nan = e8m0_inverse(r.edges, 255)};
  return true;
}

/// The rule as vector code for float32 scales has it, if it has.
bool block_constants(const Recipe& r, const ScaleConstants& constants, BlockConstants& block) {
  if (r.scale_type != ScaleType::float32) return false;
  const bool ones = r.zero_amax == SpecialScale::one;
  for (const SpecialScale special : {r.zero_amax, r.infinite_amax, r.nan_amax}) {
    if (special != (ones ? SpecialScale::one : SpecialScale::computed)) return false;
  }
  const bool is_divided = divides(r.operation);
  switch (r.quotient) {
    case Quotient::largest_over_amax:
      if (is_divided || (r.rounding != ScaleRounding::none && r.rounding != ScaleRounding::down &&
                         r.rounding != ScaleRounding::down_by_log2)) {
        return false;
      }
      break;
    case Quotient::amax_over_largest:
    case Quotient::amax_times_inverse:
      if (ones || (r.rounding != ScaleRounding::none && r.rounding != ScaleRounding::up)) return false;
      break;
    case Quotient::given_scale:
    case Quotient::given_scale_inv:
    case Quotient::largest_times_inverse:
    case Quotient::inverse_of_quotient:
    case Quotient::inverse_of_product:
    case Quotient::amax_over_power: return false;
  }
  auto least = static_cast<float>(r.least_amax);
  if (static_cast<double>(least) < r.least_amax) least = std::nextafter(least, std::numeric_limits<float>::infinity());
  block = {.quotient = r.quotient,
           .rounding = r.rounding,
           .divides = is_divided,
           .special_is_one = ones,
           .largest = constants.largest,
           .inverse_largest = constants.inverse_largest,
           .least_amax = least,
           .at_least = quotient_of(r, constants, r.least_amax),
           .scale_limit = constants.scale_limit};
  return true;
}

/// The rule as vector code for E4M3 under a tensor's scale has it, if it has.
bool nvfp4_constants(const Recipe& r, const ScaleConstants& constants, NvFp4Constants& nvfp4) {
  if (r.tensor_scale == TensorScaleRule::none || r.flush_subnormal_amax) return false;
  if (type_of(r.arithmetic, constants.input_type) != binary32) return false;
  nvfp4 = {.product = r.block_product,
           .factor = r.block_factor,
           .zero_amax = r.zero_amax,
           .largest = constants.largest,
           .inverse_largest = constants.inverse_largest,
           .scale = constants.tensor_scale,
           .scale_inv = constants.tensor_scale_inv,
           .tensor_range = r.tensor_range,
           .tensor_quotient = constants.tensor_quotient,
           .least = r.least_scale_inv};
  return true;
}

}  // namespace

TileScale tile_scale(const Recipe& recipe, float amax, const TensorFacts& tensor) {
  return by_default_arithmetic([&] { return scale_of_amax(recipe, scale_constants(recipe, tensor), amax); });
}

std::uint32_t tile_scales(const Recipe& recipe, std::span<const std::uint32_t> amaxes, const TensorFacts& tensor,
                          const TileScaleArrays& out) {
  const DefaultEnvironment environment;
  const ScaleConstants constants = scale_constants(recipe, tensor);
  if (!vector_code_allowed()) return scale_each(recipe, constants, amaxes, out);
  NvFp4Constants nvfp4{};
  if (nvfp4_constants(recipe, constants, nvfp4)) {
    return nvfp4_scales_vector(nvfp4, amaxes.data(), amaxes.size(), out);
  }
  if (!has_usual_parts(recipe, constants)) return scale_each(recipe, constants, amaxes, out);
  MxConstants mx{};
  if (mx_constants(recipe, constants, mx)) return mx_scales_vector(mx, amaxes.data(), amaxes.size(), out);
  BlockConstants block{};
  if (block_constants(recipe, constants, block)) return block_scales_vector(block, amaxes.data(), amaxes.size(), out);
  return scale_each(recipe, constants, amaxes, out);
}

}  // namespace fp8lab
