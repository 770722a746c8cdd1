// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/tensor_core/operand.hpp"

#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "scaling/quantize_plan.hpp"
#include "scaling/scale_values.hpp"

namespace fp8lab {
namespace {

/// The tensor's scale, by the numbers with which its system undoes it.
TensorScale tensor_scale_of(const Quantized& q) {
  const TensorFacts facts = tensor_facts(q);
  const ScaleConstants constants = scale_constants(q.recipe, facts);
  const bool has_given = facts.tensor_scale != 0 || facts.tensor_scale_inv != 0;
  switch (q.recipe.tensor_scale) {
    case TensorScaleRule::none: break;
    case TensorScaleRule::largest_over_amax:
      if (has_given) return {constants.tensor_scale_inv, 1};
      return {q.amax, constants.tensor_top};
    case TensorScaleRule::largest_times_inverse:
    case TensorScaleRule::two_products: return {1, constants.tensor_scale};
    case TensorScaleRule::amax_over_largest: return {constants.tensor_scale_inv, 1};
  }
  return {};
}

bool has_row_scales(const Recipe& recipe) { return recipe.tile_across == 1 && recipe.tile_along == 0; }

}  // namespace

Operand operand_of(const Quantized& q) {
  check_quantized(q);
  if (!q.row_amaxes.empty()) {
    refuse("a GEMM takes no operand with a tensor's scale for each row: dequantize it first");
  }
  const bool rowwise = q.direction == Direction::rowwise;
  Operand result = Operand::codes(std::span<const std::uint8_t>(q.codes), q.format, rowwise ? q.rows : q.columns,
                                  rowwise ? q.columns : q.rows);
  result.transposed = rowwise == q.transposed;
  result.packed = q.format.bits() == 4;
  const TileShape tile = tile_shape(q);
  const std::size_t across = rowwise ? tile.rows : tile.columns;
  const std::size_t along = rowwise ? tile.columns : tile.rows;
  if (!q.scale_codes.empty() && plan_of(q).uniform) {
    result.tensor_scale = {tile_scales_inv(q).front()};
  } else if (!q.scale_codes.empty()) {
    result.scales = {.codes = q.scale_codes, .type = BlockScales{scale_format_of(q.recipe), static_cast<int>(along)}};
    result.tensor_scale = tensor_scale_of(q);
  } else if (plan_of(q).uniform) {
    result.tensor_scale = {q.scale_inv.front()};
  } else if (has_row_scales(q.recipe)) {
    result.row_scales = q.scale_inv;
  } else {
    result.tile_scales = {q.scale_inv, across, along};
  }
  return result;
}

}  // namespace fp8lab
