// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/recipe.hpp"

#include <cmath>
#include <stdexcept>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/scale_rule.hpp"

namespace fp8lab {
namespace {

/// A recipe and what to do where it breaks a rule: throw the words, or remember that it did.
struct Checked {
  const Recipe& recipe;
  bool throws;
  bool is_valid = true;

  template <typename... Parts>
  void require(bool holds, const Parts&... parts) {
    if (holds) return;
    if (throws) refuse(parts...);
    is_valid = false;
  }
};

void check_element(Checked& c) {
  const Format& format = c.recipe.format;
  check_format(format);
  if (format.is_signed && format.has_subnormals && format.bits() <= 8) return;
  c.require(false, "format must have a sign, subnormals and at most 8 bits, as ", format_name(e4m3), " and ",
            format_name(e2m1), " do; ", format_name(format), " has not");
}

void check_tile(Checked& c) {
  const Recipe& r = c.recipe;
  c.require(r.tile_across <= 1 || r.tile_across == r.tile_along, "tile_across (rows of a block) must be 0, 1 or as ",
            "tile_along, ", r.tile_along, ", not ", r.tile_across);
  c.require(r.tile_along == 0 || r.tile_across != 0, "tile_along must be 0 where tile_across is, not ", r.tile_along);
  c.require(!r.whole_tiles || r.tile_along != 0, "whole_tiles is for tiles of a size: tile_along must be 1 or more");
  c.require(
      !r.pads_tiles || (r.tile_along != 0 && !r.whole_tiles && r.transform == Transform::none && !is_stochastic(r)),
      "pads_tiles is for tiles of a size that need not be whole, without a transform or random bits");
  c.require(!r.scale_for_each_row || r.tile_across > 1, "scale_for_each_row is for square tiles, and tile_across is ",
            r.tile_across);
  c.require(r.transform == Transform::none || (r.whole_tiles && r.tile_along % 16 == 0),
            "a Hadamard transform is for whole_tiles whose tile_along is a multiple of 16, not ", r.tile_along);
}

void check_amax(Checked& c) {
  const Recipe& r = c.recipe;
  c.require(r.least_amax >= 0 && std::isfinite(r.least_amax),
            "least_amax (amax_epsilon) must be 0 or more, and finite, ", "not ", r.least_amax);
  c.require(r.least_amax_type == ScaleArithmetic::float32 || r.least_amax != 0, "least_amax_type is for a least_amax");
  c.require(r.largest_amax > r.least_amax, "largest_amax must be above least_amax, ", r.least_amax, ", not ",
            r.largest_amax);
}

void check_given(Checked& c) {
  const Recipe& r = c.recipe;
  if (!is_given(r))
    return c.require(r.given_scale == 1, "given_scale is for the quotients given_scale and given_scale_inv");
  c.require(r.given_scale > 0 && std::isfinite(r.given_scale), "scale must be positive and finite, not ",
            r.given_scale);
  c.require(!std::isinf(1 / r.given_scale), "scale must have a finite inverse, which ", r.given_scale, " has not");
  c.require(r.scale_type == ScaleType::float32 && r.rounding == ScaleRounding::none && r.factor == FactorRule::of_scale,
            "a given scale is used as it is: scale_type must be float32, rounding none and factor of_scale");
  c.require(!r.flush_subnormal_amax, "flush_subnormal_amax is for scales that an amax makes");
}

void check_scale(Checked& c) {
  const Recipe& r = c.recipe;
  const bool e8m0 = r.scale_type == ScaleType::e8m0_code;
  const bool inverse = makes_scale_inv(r);
  c.require(e8m0 || r.quotient != Quotient::amax_over_power,
            "quotient amax_over_power makes powers of two: scale_type must be e8m0");
  c.require(!e8m0 || r.rounding != ScaleRounding::none, "scale_type e8m0 needs a rounding to a power of two, not none");
  c.require(r.scale_type == ScaleType::float32 || inverse,
            "scale_type e8m0 and e4m3 store a scale_inv: quotient must be one that makes it");
  c.require(r.scale_type != ScaleType::e4m3_code || r.rounding == ScaleRounding::none,
            "scale_type e4m3 is rounded to E4M3: rounding must be none");
  c.require(e8m0 || r.rounding != ScaleRounding::even, "rounding even is for scale_type e8m0");
  c.require(r.quotient != Quotient::amax_over_power || r.rounding != ScaleRounding::up_by_log2,
            "quotient amax_over_power is rounded down, up, even or down_by_log2, not up_by_log2");
  c.require(r.even_mantissa_bits >= 0 && r.even_mantissa_bits <= 22, "even_mantissa_bits must be from 0 to 22, not ",
            r.even_mantissa_bits);
  c.require(r.even_mantissa_bits == 0 || r.rounding == ScaleRounding::even, "even_mantissa_bits is for rounding even");
  c.require(r.limit == ScaleLimit::none || !inverse, "limit is for quotients that make the scale, not scale_inv");
  c.require(r.least_scale_inv >= 0 && std::isfinite(r.least_scale_inv),
            "least_scale_inv must be 0 or more, and finite, not ", r.least_scale_inv);
  c.require(r.least_scale_inv == 0 || inverse, "least_scale_inv is for quotients that make scale_inv");
  c.require(e8m0 || r.edges == E8m0Edges::specified, "edges are for scale_type e8m0");
}

void check_special(Checked& c, const char* field, const SpecialScale& special) {
  const Recipe& r = c.recipe;
  const bool e8m0 = r.scale_type == ScaleType::e8m0_code;
  const bool codes_only = special == SpecialScale::nan || special == SpecialScale::smallest ||
                          special == SpecialScale::smallest_of_nan || special == SpecialScale::largest;
  c.require(e8m0 || !codes_only, field, " may be nan or smallest for scale_type e8m0 only");
  c.require(special != SpecialScale::epsilon || r.scale_type == ScaleType::float32, field,
            " may be epsilon for scale_type float32 only");
  const bool is_zero = &special == &r.zero_amax;
  c.require(special != SpecialScale::zero_factor ||
                (is_zero && r.scale_type == ScaleType::float32 && makes_scale_inv(r) && !divides(r.operation)),
            field, " may be zero_factor for a zero amax and a float32 scale_inv that elements are not divided by");
  c.require(special != SpecialScale::as_infinity || &special == &r.nan_amax, field,
            " may be as_infinity for a NaN amax only");
  c.require(special != SpecialScale::type_epsilon || (is_zero && makes_scale_inv(r)), field,
            " may be type_epsilon for a zero amax and a scale_inv only");
  const bool of_tile = is_zero && (special == SpecialScale::one || special == SpecialScale::type_epsilon);
  c.require(
      special == SpecialScale::computed || (!is_given(r) && (of_tile || !has_tensor_scale(r))), field,
      " must be computed where the scale is given or lies under a tensor_scale (zero_amax: or one or type_epsilon)");
}

void check_tensor_scale(Checked& c) {
  const Recipe& r = c.recipe;
  if (!has_tensor_scale(r)) {
    return c.require(
        r.block_product == BlockProduct::amax_times_scale && r.block_factor == BlockFactor::inverse_of_product,
        "block_product and block_factor are for a tensor_scale");
  }
  c.require(r.scale_type == ScaleType::e4m3_code && r.tile_across != 0,
            "a tensor_scale lies over scales of tiles in E4M3: scale_type must be e4m3, and tile_across 1 or more");
  c.require((r.block_factor >= BlockFactor::product) == divides(r.operation),
            "operation must be divide for the block_factors product and block_over_scale, and for no others");
}

/// Checks the fields that only recipes with a tensor's scale over those of tiles have.
void check_under_tensor(Checked& c) {
  const Recipe& r = c.recipe;
  c.require(r.tensor_range > 0 && r.tensor_range <= 448, "tensor_range must be above 0 and at most 448, not ",
            r.tensor_range);
  const bool usual = r.tensor_range == 448 && !r.tensor_scale_for_each_row && r.block_choice == BlockChoice::none;
  c.require(usual || has_tensor_scale(r),
            "tensor_range, tensor_scale_for_each_row and block_choice are for a tensor_scale");
  c.require(!r.tensor_scale_for_each_row || r.tile_across == 1,
            "tensor_scale_for_each_row is for tiles of one row: tile_across must be 1, not ", r.tile_across);
  c.require(!r.tensor_scale_for_each_row || (!is_stochastic(r) && r.transform == Transform::none &&
                                             (r.transposed_columnwise || r.format.bits() == 4)),
            "tensor_scale_for_each_row is for transposed_columnwise codes, without a transform or random bits");
  c.require(r.block_choice == BlockChoice::none ||
                (r.format == e2m1 && r.whole_tiles && r.product == ScaleArithmetic::float32 && !is_stochastic(r)),
            "block_choice is for whole_tiles of e2m1, product float32 and a cast that is not stochastic");
}

void check_use(Checked& c) {
  const Recipe& r = c.recipe;
  const Rounding rounding = r.cast.rounding;
  c.require(!r.float32_steps || rounding == Rounding::nearest_even || rounding == Rounding::nearest_away ||
                rounding == Rounding::toward_zero,
            "float32_steps are for a cast that rounds to nearest_even, nearest_away or toward_zero");
  c.require(r.factor != FactorRule::largest_over_amax ||
                (makes_scale_inv(r) && !divides(r.operation) && r.scale_type == ScaleType::float32),
            "factor largest_over_amax is for a float32 scale_inv beside it, and is multiplied");
  c.require(r.factor != FactorRule::of_rounded_scale || (divides(r.operation) && r.scale_type == ScaleType::float32),
            "factor of_rounded_scale is for a float32 scale_inv that elements are divided by");
  c.require(r.largest_factor > 0, "largest_factor must be above 0, not ", r.largest_factor);
  c.require(std::isinf(r.largest_factor) || r.factor == FactorRule::largest_over_amax,
            "largest_factor is for the factor largest_over_amax");
  c.require(r.scale_type != ScaleType::e8m0_code || !divides(r.operation),
            "operation must not be divide for scale_type e8m0, whose inverses are exact");
  c.require(r.least_divisor >= 0 && std::isfinite(r.least_divisor), "least_divisor must be 0 or more, and finite, not ",
            r.least_divisor);
  c.require(r.least_divisor == 0 || (makes_scale_inv(r) && r.scale_type != ScaleType::e4m3_code &&
                                     r.factor != FactorRule::largest_over_amax),
            "least_divisor is for a scale_inv of float32 or e8m0 and factor of_scale");
}

void check(Checked& c) {
  const DefaultEnvironment environment;
  check_element(c);
  check_tile(c);
  check_amax(c);
  check_given(c);
  check_scale(c);
  check_special(c, "zero_amax", c.recipe.zero_amax);
  check_special(c, "infinite_amax", c.recipe.infinite_amax);
  check_special(c, "nan_amax", c.recipe.nan_amax);
  check_tensor_scale(c);
  check_under_tensor(c);
  check_use(c);
}

}  // namespace

void check_recipe(const Recipe& recipe) {
  Checked checked{.recipe = recipe, .throws = true};
  check(checked);
}

bool is_valid(const Recipe& recipe) {
  Checked checked{.recipe = recipe, .throws = false};
  try {
    check(checked);
  } catch (const std::invalid_argument&) {  // by check_format()
    return false;
  }
  return checked.is_valid;
}

}  // namespace fp8lab
