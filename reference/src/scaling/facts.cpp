// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/facts.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "scaling/quantize_plan.hpp"
#include "scaling/scale_values.hpp"

namespace fp8lab {
namespace {

/// Where the scales of a Quantized lie, in rows and columns of the tensor.
struct ScalePlaces {
  TileShape tile;        // that shares a scale
  TileShape entry;       // that has an entry: a row of a 2-D tile has one of its own
  std::size_t row_step;  // from an entry to that of the next row
  std::size_t column_step;

  explicit ScalePlaces(const Quantized& q) {
    const QuantizePlan plan = plan_of(q);
    tile = plan.uniform ? TileShape{q.rows, q.columns} : TileShape{plan.tile_rows, plan.tile_columns};
    entry = plan.uniform ? tile : TileShape{plan.scale_height(q.direction), plan.scale_width(q.direction)};
    row_step = plan.transposed ? 1 : q.scale_columns;
    column_step = plan.transposed ? q.scale_columns : 1;
  }
  [[nodiscard]] std::size_t index(std::size_t row, std::size_t column) const {
    return row / entry.rows * row_step + column / entry.columns * column_step;
  }
};

}  // namespace

TileShape tile_shape(const Recipe& recipe, Direction direction, std::size_t rows, std::size_t columns) {
  const QuantizePlan plan = quantize_plan(recipe, direction, rows, columns);
  return plan.uniform ? TileShape{rows, columns} : TileShape{plan.tile_rows, plan.tile_columns};
}
TileShape tile_shape(const Quantized& q) { return ScalePlaces(q).tile; }

Format scale_format_of(const Recipe& recipe) {
  switch (recipe.scale_type) {
    case ScaleType::float32: break;
    case ScaleType::e8m0_code: return e8m0;
    case ScaleType::e4m3_code: return ue4m3;
  }
  return binary32;
}

bool is_given(const Recipe& recipe) {
  return recipe.quotient == Quotient::given_scale || recipe.quotient == Quotient::given_scale_inv;
}

bool is_stochastic(const Recipe& recipe) { return recipe.cast.rounding == Rounding::stochastic; }

bool has_tensor_scale(const Recipe& recipe) { return recipe.tensor_scale != TensorScaleRule::none; }

std::vector<float> tile_scales_inv(const Quantized& q) {
  const DefaultEnvironment environment;
  check_quantized(q);
  const ScalePlaces grid(q);
  const ScaleValues values(q);
  std::vector<float> result;
  result.reserve(blocks_of(q.rows, grid.tile.rows) * blocks_of(q.columns, grid.tile.columns));
  for (std::size_t row = 0; row < q.rows; row += grid.tile.rows) {
    for (std::size_t column = 0; column < q.columns; column += grid.tile.columns) {
      result.push_back(values[grid.index(row, column)]);
    }
  }
  return result;
}

float scale_inv_at(const Quantized& q, std::size_t row, std::size_t column) {
  const DefaultEnvironment environment;
  check_quantized(q);
  if (row >= q.rows || column >= q.columns) {
    throw std::invalid_argument("there is no element (" + std::to_string(row) + ", " + std::to_string(column) +
                                ") in a tensor of " + std::to_string(q.rows) + " x " + std::to_string(q.columns));
  }
  return ScaleValues(q)[ScalePlaces(q).index(row, column)];
}

std::optional<float> tensor_factor(const Quantized& q) {
  if (!plan_of(q).uniform) return {};
  return tile_scale(q.recipe, q.amax).factor;
}

}  // namespace fp8lab
