// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/gemm/operand.hpp"

#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "scaling/quantize_plan.hpp"

namespace fp8lab {
namespace {

bool has_row_scales(const Recipe& recipe) { return recipe.tile_across == 1 && recipe.tile_along == 0; }

}  // namespace

Operand operand_of(const Quantized& q) {
  check_quantized(q);
  const bool rowwise = q.direction == Direction::rowwise;
  Operand result = Operand::codes(std::span<const std::uint8_t>(q.codes), q.format, rowwise ? q.rows : q.columns,
                                  rowwise ? q.columns : q.rows);
  result.transposed = rowwise == q.transposed;
  result.packed = q.format.bits() == 4;
  const TileShape tile = tile_shape(q);
  const std::size_t across = rowwise ? tile.rows : tile.columns;
  const std::size_t along = rowwise ? tile.columns : tile.rows;
  if (!q.scale_codes.empty()) {
    result.scales = {.codes = q.scale_codes, .type = BlockScales{scale_format_of(q.recipe), static_cast<int>(along)}};
    if (has_tensor_scale(q.recipe)) result.tensor_scale = {q.amax, 6 * 448};
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
