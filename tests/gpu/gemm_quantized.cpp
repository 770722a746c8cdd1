// SPDX-License-Identifier: Apache-2.0
// GEMM kernels on compact scales and on what quantize() made, and what they refuse.
#include <stdexcept>
#include <string>

#include "fp8lab/gpu/kernels/swizzle.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "scaled_problem.hpp"

namespace fp8lab::tests::quantized {
namespace {

using gpu::GemmKernel;
using gpu::HostChip;
using gpu::MmaType;

/// Normal values of many sizes.
std::vector<float> values(std::size_t count, std::uint64_t stream) {
  std::vector<float> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto word = static_cast<std::uint32_t>(random_bits(stream, i));
    all[i] = std::bit_cast<float>((word & 0x83FFFFFFU) + 0x3D000000U);
  }
  return all;
}
Quantized quantized(const std::string& recipe, std::size_t rows, std::size_t columns, std::uint64_t stream,
                    Direction direction = Direction::rowwise) {
  const std::vector<float> x = values(rows * columns, stream);
  return quantize(MatrixView(std::span(x), rows, columns), find_recipe(recipe).recipe, direction);
}

std::string refusal(GemmKernel kernel, const Quantized& a, const Quantized& b, std::optional<HostChip> chip = {}) {
  std::vector<float> out(operand_of(a).rows * operand_of(b).rows);
  try {
    gpu::gemm_on_host(kernel, a, b, {.out = std::span(out)}, {}, chip);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

void check(GemmKernel kernel, const std::string& recipe_a, const std::string& recipe_b,
           std::optional<HostChip> chip = {}, int promote_k = 0) {
  const Quantized a = quantized(recipe_a, 37, 288, 1);
  const Quantized b = quantized(recipe_b, 21, 288, 2);
  const std::vector<float> bias = values(21, 3);
  std::vector<float> out(std::size_t{37} * 21, -77);
  gpu::gemm_on_host(kernel, a, b, {.bias = bias, .out = std::span(out)}, {}, chip);
  std::vector<float> expected(out.size());
  gemm({.model = gpu::model_of(kernel, chip), .promote_k = promote_k}, operand_of(a), operand_of(b), expected,
       {.bias = bias});
  Mismatches wrong;
  for (std::size_t i = 0; i < out.size(); ++i) wrong.compare(i, i, bits(out[i]), bits(expected[i]));
  REQUIRE_NO(wrong);
}

}  // namespace

TEST_CASE("Blackwell's GEMMs swizzle compact scales themselves") {
  const ScaledKernel mxf8{GemmKernel::blackwell_mxf8f6f4, HostChip::rtx_blackwell, MmaType::e5m2, MmaType::e5m2};
  const ScaledKernel nvf4{GemmKernel::blackwell_mxf4nvf4};
  for (const gpu::HostOrder& order : host_orders) {
    mxf8.check({131, 3, 160}, Contents::specials, 1, order, ScaleLayout::compact);
    nvf4.check({5, 130, 96}, Contents::numbers, 1, order, ScaleLayout::compact);
  }
}

TEST_CASE("SwizzleScales is swizzle_scales()") {
  for (const auto& [rows, columns] : {std::pair<std::size_t, std::size_t>{1, 1}, {129, 9}, {300, 4}}) {
    std::vector<std::uint8_t> scales(rows * columns);
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::uint8_t>(random_bits(4, i) | 1);
    std::vector<std::uint8_t> swizzled(swizzled_size(rows, columns), 0xA5);
    for (const gpu::HostOrder& order : host_orders) {
      gpu::run_on_host(gpu::SwizzleScales{scales.data(), swizzled.data(), rows, columns}, order);
      CHECK(swizzled == swizzle_scales(scales, rows, columns));
    }
  }
}

TEST_CASE("GEMM kernels take what quantize() made") {
  for (const HostChip chip : {HostChip::blackwell, HostChip::rtx_blackwell}) {
    check(GemmKernel::blackwell_mxf8f6f4, "te_mxfp8", "te_mxfp8", chip);
    check(GemmKernel::blackwell_mxf4nvf4, "te_nvfp4", "te_nvfp4", chip);  // alpha of both amaxes
  }
  check(GemmKernel::blackwell_mxf4nvf4, "torchao_nvfp4", "torchao_nvfp4");  // of both inverse scales
  check(GemmKernel::blackwell_f8f6f4, "te_current_scaling", "te_current_scaling");
  check(GemmKernel::wgmma_fast, "te_current_scaling", "te_current_scaling");
  check(GemmKernel::wgmma_scaled_1d2d, "te_block_1x128", "te_block_128x128");
  check(GemmKernel::wgmma_scaled_1d1d, "te_block_1x128", "te_block_1x128");
  check(GemmKernel::mma_sync, "te_current_scaling", "te_current_scaling", HostChip::ada);
}

TEST_CASE("GEMM kernels refuse operands of other recipes, and chips without their instructions") {
  const Quantized mx = quantized("te_mxfp8", 32, 64, 1);
  const Quantized nv = quantized("te_nvfp4", 32, 64, 1);
  const Quantized one = quantized("te_current_scaling", 32, 64, 1);
  constexpr auto mxf8 = GemmKernel::blackwell_mxf8f6f4;
  constexpr auto nvf4 = GemmKernel::blackwell_mxf4nvf4;
  CHECK(refusal(mxf8, mx, mx).empty());
  CHECK(refusal(mxf8, mx, nv) == "blackwell_mxf8f6f4 does not take b: its format is neither e4m3 nor e5m2");
  CHECK(refusal(nvf4, mx, nv) == "blackwell_mxf4nvf4 does not take a: its format is not e2m1");
  CHECK(refusal(mxf8, mx, one) == "blackwell_mxf8f6f4 does not take b: it has no block scales");
  CHECK(refusal(GemmKernel::mma_sync, mx, one) == "mma_sync does not take a: it has block scales");
  CHECK(refusal(GemmKernel::blackwell_mxf4, nv, nv) ==
        "block_scales_a must be E8M0 codes of 32 elements for blackwell_mxf4");
  CHECK(refusal(mxf8, mx, quantized("te_mxfp8", 64, 32, 1, Direction::columnwise)) ==
        "blackwell_mxf8f6f4 does not take b: its codes do not have K along rows, as rowwise and transposed ones have");
  CHECK(refusal(mxf8, mx, quantized("te_mxfp8", 32, 96, 1)) == "b must have a's K, 64, not 96");
  CHECK(refusal(mxf8, mx, mx, HostChip::hopper) == "blackwell_mxf8f6f4 is for blackwell and rtx_blackwell");
  CHECK(refusal(GemmKernel::blackwell_f8f6f4, one, one, HostChip::rtx_blackwell) ==
        "blackwell_f8f6f4 is for blackwell alone");
  const ScaledProblem problem(gpu::model_of(nvf4), {e2m1, e2m1}, {4, 4, 64});
  const auto changed = [&](auto change) -> std::string {
    std::vector<float> out(16);
    gpu::GemmArguments arguments{.m = 4,
                                 .n = 4,
                                 .k = 64,
                                 .a = problem.a.codes,
                                 .b = problem.b.codes,
                                 .block_scales_a = {.codes = problem.a.scales},
                                 .block_scales_b = {.codes = problem.b.scales},
                                 .out = std::span(out)};
    change(arguments);
    try {
      gpu::gemm_on_host(nvf4, arguments);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  using Arguments = gpu::GemmArguments;
  CHECK(changed([](Arguments&) {}).empty());
  CHECK(changed([](Arguments& x) { x.k = 48; }) == "K must be a positive multiple of 32, not 48");
  CHECK(changed([](Arguments& x) { x.block_scales_b.codes = {}; }) == "block_scales_b must have 4 * 4 elements, not 0");
  CHECK(changed([](Arguments& x) { x.block_scales_a.layout = ScaleLayout::swizzled; }) ==
        "block_scales_a, swizzled, must have 1 * 512 elements, not 16");
}

}  // namespace fp8lab::tests::quantized
