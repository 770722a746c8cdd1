// SPDX-License-Identifier: Apache-2.0
#include "scaling/quantize_plan.hpp"

#include <stdexcept>
#include <string>

#include "fp8lab/reference/scaling/facts.hpp"

namespace fp8lab {
namespace {

/// A size that is no multiple of its block: named, with the nearest that are.
void check_multiple(const char* what, std::size_t size, std::size_t block, const std::string& why) {
  if (size % block == 0) return;
  const std::size_t below = size / block * block;
  std::string nearest = below == 0 ? "" : std::to_string(below) + " or ";
  nearest += std::to_string(below + block);
  throw std::invalid_argument(std::string(what) + " must be a multiple of " + std::to_string(block) + ", " + why +
                              ", not " + std::to_string(size) + " (nearest: " + nearest + ")");
}

}  // namespace

QuantizePlan quantize_plan(const Recipe& recipe, Direction direction, std::size_t rows, std::size_t columns) {
  check_recipe(recipe);
  const bool rowwise = direction == Direction::rowwise;
  const bool is_pairs = recipe.format.bits() == 4;
  const std::size_t length = rowwise ? columns : rows;
  const std::size_t along = recipe.tile_along != 0 ? recipe.tile_along : length;
  const bool uniform = recipe.tile_across == 0;
  QuantizePlan plan{.format = recipe.format,
                    .policy = recipe.cast,
                    .operation = recipe.operation,
                    .nan = recipe.nan_in_amax,
                    .uniform = uniform,
                    .tensor_amax = (uniform && !is_given(recipe)) || has_tensor_scale(recipe),
                    .replicated = recipe.scale_for_each_row,
                    .transposed = !rowwise && (recipe.transposed_columnwise || is_pairs),
                    .scale_codes = recipe.scale_type != ScaleType::float32};
  if (!uniform) {
    plan.tile_rows = rowwise ? recipe.tile_across : along;
    plan.tile_columns = rowwise ? along : recipe.tile_across;
  }
  if (recipe.whole_tiles || recipe.pads_tiles) {  // quantize() has filled the latter up
    check_multiple("rows", rows, plan.tile_rows, "the recipe's block");
    check_multiple("columns", columns, plan.tile_columns, "the recipe's block");
  }
  if (is_pairs) {
    check_multiple(rowwise ? "columns" : "rows", rowwise ? columns : rows, 2, "codes of 4 bits a byte");
    check_multiple("tile_along (columns of a block)", recipe.tile_along, 2, "codes of 4 bits a byte");
  }
  return plan;
}

QuantizePlan plan_of(const Quantized& q) {
  Recipe recipe = q.recipe;
  if (is_given(recipe)) recipe.given_scale = 1;
  return quantize_plan(recipe, q.direction, q.rows, q.columns);
}

}  // namespace fp8lab
