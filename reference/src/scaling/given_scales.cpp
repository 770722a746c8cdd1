// SPDX-License-Identifier: Apache-2.0
#include "scaling/given_scales.hpp"

#include <cmath>

#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/recipe_names.hpp"

namespace fp8lab {
namespace {

void check_array(const char* name, std::span<const float> given, const QuantizePlan& plan, std::size_t rows,
                 std::size_t columns) {
  if (given.empty()) return;
  const std::size_t down = plan.uniform ? 1 : blocks_of(rows, plan.tile_rows);
  const std::size_t across = plan.uniform ? 1 : blocks_of(columns, plan.tile_columns);
  if (given.size() != 1 && given.size() != down * across) {
    refuse(name, " must have one element, or one for each of the ", down, " x ", across, " tiles, not ", given.size());
  }
  for (const float value : given) {
    if (value < 0) refuse(name, " must not have negative elements, as ", value, " is");
  }
}

}  // namespace

void check_tensor_scale(const char* name, float scale) {
  if (scale == 0 || (scale > 0 && std::isfinite(scale))) return;
  refuse(name, " must be positive and finite, or 0 where it is not given, not ", scale);
}

void check_given(const Recipe& recipe, const QuantizeOptions& options) {
  const GivenScales& given = options.given;
  if (!given.scales.empty() && !given.scales_inv.empty()) refuse("scales and scales_inv must not both be given");
  if (!given.amaxes.empty() && (is_given(recipe) || options.amax_before_rounding)) {
    refuse("amaxes are for recipes that make scales of them, and not for amax_before_rounding");
  }
  const bool of_tensor = given.tensor_amax || given.tensor_scale != 0 || given.tensor_scale_inv != 0;
  if (of_tensor && (!has_tensor_scale(recipe) || recipe.tensor_scale_for_each_row)) {
    refuse("tensor_amax, tensor_scale and tensor_scale_inv are for recipes with one tensor_scale over scales of tiles");
  }
  if (!given.row_amaxes.empty() && !recipe.tensor_scale_for_each_row) {
    refuse("row_amaxes are for recipes where each row has a scale over those of tiles");
  }
  for (const float amax : given.row_amaxes) {
    if (!(amax >= 0)) refuse("row_amaxes must be 0 or more, not ", amax);
  }
  if (given.tensor_amax && !(*given.tensor_amax >= 0))
    refuse("tensor_amax must be 0 or more, not ", *given.tensor_amax);
  check_tensor_scale("tensor_scale", given.tensor_scale);
  check_tensor_scale("tensor_scale_inv", given.tensor_scale_inv);
}

void check_given_sizes(const GivenScales& given, const QuantizePlan& plan, std::size_t rows, std::size_t columns) {
  check_array("amaxes", given.amaxes, plan, rows, columns);
  check_array("scales", given.scales, plan, rows, columns);
  check_array("scale_inv", given.scales_inv, plan, rows, columns);
}

GivenTiles given_tiles(const Recipe& recipe, const GivenScales& given) {
  if (given.scales.empty() && given.scales_inv.empty()) return {recipe, {}};
  const bool inverse = given.scales.empty();
  GivenTiles own{given_recipe(recipe, inverse ? Quotient::given_scale_inv : Quotient::given_scale),
                 inverse ? given.scales_inv : given.scales};
  if (own.scales.size() == 1) {
    const float scale = own.scales.front();
    const bool is_usable = scale > 0 && std::isfinite(scale);
    if (!is_usable) refuse(inverse ? "scale_inv" : "scale", " must be positive and finite, not ", scale);
    own.recipe.given_scale = own.scales.front();
    own.scales = {};
  }
  return own;
}

Recipe given_recipe(const Recipe& recipe, Quotient quotient) {
  if (quotient != Quotient::given_scale && quotient != Quotient::given_scale_inv) {
    refuse("quotient must be given_scale or given_scale_inv");
  }
  if (recipe.scale_type != ScaleType::float32) {
    refuse("scale and scale_inv are given to recipes whose scales are float32; this one has ",
           entry_of(recipe.scale_type).words, ": give amaxes, or the tensor's scale");
  }
  Recipe own = recipe;
  const Recipe usual;
  own.least_amax = usual.least_amax;
  own.least_amax_type = usual.least_amax_type;
  own.largest_amax = usual.largest_amax;
  own.flush_subnormal_amax = false;
  if (own.quotient != quotient) own.given_scale = 1;
  own.quotient = quotient;
  own.arithmetic = usual.arithmetic;
  own.least_scale_inv = 0;
  own.rounding = ScaleRounding::none;
  own.limit = ScaleLimit::none;
  own.zero_amax = own.infinite_amax = own.nan_amax = SpecialScale::computed;
  own.factor = FactorRule::of_scale;
  own.largest_factor = usual.largest_factor;
  if (quotient == Quotient::given_scale) own.least_divisor = 0;
  return own;
}

}  // namespace fp8lab
