// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/tensor_core/scale_shapes.hpp"

#include <cstdint>
#include <vector>

#include "support.hpp"

namespace fp8lab::tests {
namespace {

TEST_CASE("float32 scales of an operand mean what their shape says") {
  const std::vector<std::uint8_t> codes(std::size_t{130} * 300);
  Operand operand = Operand::codes(codes, e4m3, 130, 300);
  const FloatScaleShapes shapes = float_scale_shapes(operand);
  CHECK(shapes.fine == ScaleShape{130, 3});
  CHECK(shapes.coarse == ScaleShape{2, 3});
  CHECK(shapes.rows == ScaleShape{130, 1});
  CHECK(block_scale_shape(operand, 20) == ScaleShape{130, 15});

  const std::vector<float> fine(390), coarse(6), rows(130);
  REQUIRE(set_float_scales(operand, coarse, std::vector<std::uint64_t>{2, 3}));
  CHECK(operand.tile_scales.rows == 128);
  CHECK(operand.tile_scales.depth == 128);
  REQUIRE(set_float_scales(operand, fine, {}));  // by their number
  CHECK(operand.tile_scales.rows == 1);
  REQUIRE(set_float_scales(operand, rows, std::vector<std::uint64_t>{130, 1}));
  CHECK(operand.row_scales.size() == 130);
  CHECK_FALSE(set_float_scales(operand, coarse, std::vector<std::uint64_t>{3, 2}));

  operand.transposed = true;
  CHECK(float_scale_shapes(operand).fine == ScaleShape{3, 130});
  CHECK(block_scale_shape(operand, 20) == ScaleShape{15, 130});
  CHECK(set_float_scales(operand, coarse, std::vector<std::uint64_t>{3, 2}));
}

}  // namespace
}  // namespace fp8lab::tests
