// SPDX-License-Identifier: Apache-2.0
// Layouts of an operand: packed, transposed and swizzled ones are the same product, and where scales of rows multiply.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "reference/gemm/problems.hpp"
#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("codes that are packed, or swizzled scales, are the same operand") {
  std::vector<std::uint8_t> codes(140 * 128), scales(140 * 8);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(random_bits(1, i) % 16);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::uint8_t>(random_bits(2, i) % 127);
  std::vector<std::uint8_t> pairs(codes.size() / 2);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    pairs[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
  const Operand plain = Operand::codes(codes, e2m1, 140, 128, scales);
  std::vector<float> expected(140 * 140), out(140 * 140);
  gemm({.model = blackwell_nvf4}, plain, plain, expected);
  Operand packed = Operand::codes(pairs, e2m1, 140, 128, scales);
  packed.packed = true;
  gemm({.model = blackwell_nvf4}, packed, plain, out);
  CHECK(out == expected);
  const std::vector<std::uint8_t> swizzled = swizzle_scales(scales, 140, 8);
  packed.scales = {.codes = swizzled, .layout = ScaleLayout::swizzled};
  gemm({.model = blackwell_nvf4}, plain, packed, out);
  CHECK(out == expected);
  packed.scales.codes = std::span(swizzled).first(1120);
  CHECK_THROWS_WITH(gemm({.model = blackwell_nvf4}, plain, packed, out),
                    "scale_b must have 140 * 8 codes, one for every 16 of K, swizzled to 2048, not 1120");
  packed.format = e4m3;
  CHECK_THROWS_WITH(gemm({.model = hopper_wgmma_fp8}, packed, packed, out),
                    "a is e4m3; codes of 4 bits alone are packed");
  Operand transposed = Operand::codes(pairs, e2m1, 128, 140);  // the same bytes as (K, rows)
  transposed.packed = transposed.transposed = true;
  Operand bytes = Operand::codes(codes, e2m1, 128, 140);
  bytes.transposed = true;
  expected.resize(128 * 128);
  out.resize(128 * 128);
  gemm({.model = blackwell_tcgen05_fp8}, bytes, bytes, expected);
  gemm({.model = blackwell_tcgen05_fp8}, transposed, transposed, out);
  CHECK(out == expected);
}

TEST_CASE("scales of rows multiply in the epilogue, in the order asked for") {
  std::vector<std::uint8_t> codes(3 * 200);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(random_bits(1, i) % 120);
  const std::vector<float> rows{0.1F, 3e-4F, 1.7F};
  Operand a = Operand::codes(codes, e4m3, 3, 200);
  std::vector<float> plain(9), out(9);
  gemm({.model = hopper_wgmma_fp8, .promote_k = 64}, a, a, plain);
  Operand b = a;
  a.row_scales = b.row_scales = rows;
  a.tensor_scale = {3, 7};
  b.tensor_scale = {0.3F, 11};
  for (const auto order : {std::optional<ScaleOrder>(), std::optional(ScaleOrder::scales_first)}) {
    gemm({.model = hopper_wgmma_fp8, .promote_k = 64, .scale_order = order}, a, b, out);
    for (std::size_t i = 0; i < 9; ++i) {
      const float left = rows[i / 3];
      const float right = rows[i % 3];
      const float scaled = order ? plain[i] * (left * right) : plain[i] * left * right;
      REQUIRE(bits(out[i]) == bits(scaled * (3 * 0.3F * (1.0F / 77))));
    }
  }
  a.row_scales = std::span(rows).first(2);
  CHECK_THROWS_WITH(gemm({.model = hopper_wgmma_fp8}, a, b, out), "row scales of a must be 3, one a row, not 2");
  CHECK_THROWS_WITH(mma(hopper_wgmma_fp8, b, b, std::span<const float>(), std::span(out).first(3)),
                    ContainsSubstring("scales of tiles, rows and tensors are for gemm"));
}

TEST_CASE("transposed operands, with their scales, are the same product") {
  const auto transposed = [](const auto& rows, std::size_t count) {
    auto result = rows;
    const std::size_t width = rows.size() / count;
    for (std::size_t i = 0; i < rows.size(); ++i) result[i % width * count + i / width] = rows[i];
    return result;
  };
  for (const MmaModel& model : {hopper_wgmma_fp8, blackwell_mxf8, blackwell_nvf4, hopper_fp16, hopper_tf32, exact}) {
    GemmProblem p = hard_problem(model.k() == 0 ? hopper_wgmma_fp8 : model, 3, 70);
    const std::vector<float> tiles{2, 3, 4, 5, 6, 7, 8, 9, 10};
    const bool has_tiles = model.name == hopper_wgmma_fp8.name;
    Operand a = p.a();
    if (has_tiles) a.tile_scales = {std::span(tiles).first(3 * ((p.depth + 31) / 32)), 1, 32};
    std::vector<float> expected(3 * 70);
    gemm({.model = model}, a, p.b(), expected);
    const auto tiles_transposed = transposed(std::vector(a.tile_scales.values.begin(), a.tile_scales.values.end()), 3);
    p.left_elements = Elements(transposed(p.left, 3), p.format);
    p.right_elements = Elements(transposed(p.right, 70), p.format);
    p.scale_left = transposed(p.scale_left, 3);
    p.scale_right = transposed(p.scale_right, 70);
    a = p.a();
    Operand b = p.b();
    a.transposed = b.transposed = true;
    if (has_tiles) a.tile_scales = {tiles_transposed, 1, 32};
    std::vector<float> out(3 * 70);
    gemm({.model = model}, a, b, out);
    INFO(model.name);
    REQUIRE_NO(float_differences(out, expected));
  }
}

}  // namespace fp8lab::tests
