// SPDX-License-Identifier: Apache-2.0
// A recipe in words, from its record.
#include <cmath>
#include <string>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/recipe_names.hpp"
#include "fp8lab/reference/scaling/scale_rule.hpp"

namespace fp8lab {
namespace {

std::string tile_words(const Recipe& r) {
  if (r.tile_across == 0) return "the tensor";
  if (r.tile_along == 0) return "a row";
  return std::to_string(r.tile_across) + " x " + std::to_string(r.tile_along);
}

/// A limit as the shortest float32 or double that is the number.
void put_number(TextStream& text, double x) {
  const auto narrow = static_cast<float>(x);
  if (static_cast<double>(narrow) == x) {
    text << narrow;
  } else {
    text << x;
  }
}

void put_amax(TextStream& text, const Recipe& r) {
  if (r.least_amax != 0) {
    text << ", amax at least ";
    put_number(text, r.least_amax);
    if (r.least_amax_type != ScaleArithmetic::float32) text << ' ' << entry_of(r.least_amax_type).words;
  }
  if (!std::isinf(r.largest_amax)) {
    text << ", amax at most ";
    put_number(text, r.largest_amax);
  }
  if (r.flush_subnormal_amax) text << ", 0 for tiles whose amax is below 2^-126";
}

void put_scale(TextStream& text, const Recipe& r) {
  if (has_tensor_scale(r)) {
    text << "d = " << entry_of(r.block_product).words;
    if (r.least_scale_inv != 0) text << ", at least " << r.least_scale_inv;
    if (r.block_choice != BlockChoice::none) text << ", " << entry_of(r.block_choice).words;
    text << ", under a float32 scale of " << (r.tensor_scale_for_each_row ? "its row, " : "the tensor, ")
         << entry_of(r.tensor_scale).words;
    if (r.tensor_range != 448) text << " with " << r.tensor_range << " in place of 448";
    if (r.arithmetic != ScaleArithmetic::float32) text << ' ' << entry_of(r.arithmetic).words;
    return;
  }
  text << entry_of(r.quotient).words;
  if (is_given(r)) text << r.given_scale;
  if (r.arithmetic != ScaleArithmetic::float32) text << ' ' << entry_of(r.arithmetic).words;
  put_amax(text, r);
  if (r.least_scale_inv != 0) text << ", at least " << r.least_scale_inv;
  if (r.limit == ScaleLimit::input_type) text << ", " << entry_of(r.limit).words;
  if (r.rounding != ScaleRounding::none) text << ", " << entry_of(r.rounding).words;
  if (r.rounding == ScaleRounding::even) {
    text << ' ' << (r.even_mantissa_bits == 0 ? r.format.mantissa_bits : r.even_mantissa_bits) << " bits of mantissa";
  }
}

void put_special(TextStream& text, const Recipe& r) {
  const auto put = [&](const char* which, SpecialScale special) {
    if (special != SpecialScale::computed) text << "; " << entry_of(special).words << " where the amax is " << which;
  };
  if (r.zero_amax == SpecialScale::one && r.infinite_amax == SpecialScale::one && r.nan_amax == SpecialScale::one) {
    return put("0, infinite or NaN", SpecialScale::one);
  }
  put("0", r.zero_amax);
  put("infinite", r.infinite_amax);
  put("NaN", r.nan_amax);
}

/// How elements meet the scale, where that is not by multiplication with its rounded inverse.
void put_elements(TextStream& text, const Recipe& r) {
  if (has_tensor_scale(r)) {
    text << "; codes of x " << (divides(r.operation) ? "/ fl(" : "* fl(") << entry_of(r.block_factor).words << ')';
  } else if (divides(r.operation)) {
    text << "; codes of x / scale_inv";
    if (r.factor == FactorRule::of_rounded_scale) text << ' ' << entry_of(r.product).words;
  } else if (r.factor == FactorRule::largest_over_amax) {
    text << "; codes of x * fl(largest / amax)";
    if (!std::isinf(r.largest_factor)) text << ", at most " << r.largest_factor;
  } else if (makes_scale_inv(r) && r.scale_type != ScaleType::e8m0_code) {
    text << "; codes of x * fl(1 / scale_inv)";
  }
  if (r.least_divisor != 0) text << ", of at least " << r.least_divisor << " there";
  if (r.product == ScaleArithmetic::input_type) text << ", rounded to the tensor's type";
  if (r.product == ScaleArithmetic::bfloat16_type) text << ", rounded to bfloat16";
  if (r.float32_steps) text << "; rounded by steps in float32";
  if (!entry_of(r.operation).words.empty()) text << "; " << entry_of(r.operation).words;
  if (r.edges != E8m0Edges::specified) text << "; " << entry_of(r.edges).words;
  if (is_stochastic(r)) text << "; rounded stochastically";
  if (r.cast.rounding == Rounding::nearest_toward_zero) text << "; ties rounded toward zero";
  if (r.cast.zero_sign == ZeroSign::dropped) text << "; codes of zero have no sign";
}

}  // namespace

std::string describe(const Recipe& recipe) {
  const DefaultEnvironment environment;
  TextStream text;
  text << format_name(recipe.format);
  if (recipe.transform != Transform::none) text << ", " << entry_of(recipe.transform).words;
  text << ", " << entry_of(recipe.scale_type).words << " for " << tile_words(recipe) << ": ";
  put_scale(text, recipe);
  put_special(text, recipe);
  if (recipe.pads_tiles) text << "; the last tiles are filled up with zeros";
  if (recipe.nan_in_amax == NanInAmax::counted) text << "; a NaN makes the amax NaN";
  put_elements(text, recipe);
  return text.str();
}

}  // namespace fp8lab
