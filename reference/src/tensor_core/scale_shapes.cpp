// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/tensor_core/scale_shapes.hpp"

#include <utility>

namespace fp8lab {
namespace {

constexpr std::size_t tile_side = 128;  // of DeepSeek-V3's recipe, whose scales these are

}  // namespace

FloatScaleShapes float_scale_shapes(const Operand& operand) {
  const std::size_t along = (operand.depth + tile_side - 1) / tile_side;
  FloatScaleShapes shapes{.fine = {operand.rows, along},
                          .coarse = {(operand.rows + tile_side - 1) / tile_side, along},
                          .rows = {operand.rows, 1}};
  if (operand.transposed) {
    for (ScaleShape* shape : {&shapes.fine, &shapes.coarse, &shapes.rows}) std::swap(shape->down, shape->along);
  }
  return shapes;
}

ScaleShape block_scale_shape(const Operand& operand, std::size_t block) {
  const std::size_t along = operand.depth / block;
  return operand.transposed ? ScaleShape{along, operand.rows} : ScaleShape{operand.rows, along};
}

bool set_float_scales(Operand& operand, std::span<const float> scales, std::span<const std::uint64_t> shape) {
  const FloatScaleShapes shapes = float_scale_shapes(operand);
  const auto has = [&](const ScaleShape& wanted) {
    if (scales.size() != wanted.down * wanted.along) return false;
    return shape.size() < 2 || (shape.size() == 2 && shape[0] == wanted.down && shape[1] == wanted.along);
  };
  if (has(shapes.fine)) {
    operand.tile_scales = {scales, 1, tile_side};
  } else if (has(shapes.coarse)) {
    operand.tile_scales = {scales, tile_side, tile_side};
  } else if (has(shapes.rows)) {
    operand.row_scales = scales;
  } else {
    return false;
  }
  return true;
}

}  // namespace fp8lab
