// SPDX-License-Identifier: Apache-2.0
// The library's kernels have no races in shared memory: pipelines go around more than once.
#include <array>
#include <vector>

#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "gpu/quantize_support.hpp"
#include "gpu/scaled_problem.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using gpu::GemmKernel;
using gpu::HostChip;

/// Multiplies ones.
void run_gemm(GemmKernel kernel, HostChip chip, std::size_t k, std::span<const float> scales = {}) {
  const std::vector<std::uint8_t> codes(k, 0x38);
  std::array<float, 2> out{};
  gpu::gemm_on_host(kernel,
                    {.m = 1,
                     .n = 1,
                     .k = k,
                     .a = codes,
                     .b = codes,
                     .tile_scales_a = scales,
                     .tile_scales_b = scales,
                     .promote_k = 192,
                     .out = std::span(out.data(), 1)},
                    {}, chip);
  CHECK(out[0] == static_cast<float>(k));
}

}  // namespace

TEST_CASE("no race: GEMMs of Hopper and Ada") {
  run_gemm(GemmKernel::wgmma_fast, HostChip::hopper, 5 * 128);
  run_gemm(GemmKernel::wgmma_promoted, HostChip::hopper, 7 * 128);
  run_gemm(GemmKernel::wgmma_scaled_1d1d, HostChip::hopper, 7 * 128, std::vector<float>(7, 1.0F));
  run_gemm(GemmKernel::mma_sync, HostChip::ada, 3 * 64);
}

TEST_CASE("no race: GEMMs of Blackwell") {
  ScaledKernel{GemmKernel::blackwell_mxf8f6f4, HostChip::blackwell}.check({1, 1, 4 * 128 + 32});
  ScaledKernel{GemmKernel::blackwell_mxf4nvf4, HostChip::rtx_blackwell}.check({1, 1, 2 * 256 + 32});
}

TEST_CASE("no race: quantizers") {
  const Tensor x(gpu::ElementType::bfloat16, 128, 128, 4);
  for (const auto* const name : {"te_mxfp8", "te_current_scaling", "te_block_1x128", "te_nvfp4_2d", "given_scale"}) {
    INFO(name);
    REQUIRE_NO(quantize_mismatches({find_recipe(name).recipe}, x, {}));
  }
  std::vector<float> amaxes(6, 1.0F);
  std::vector<float> scale(2, 1.0F);
  std::vector<float> scale_inv(2);
  gpu::update_scales_on_host({.amax_history_len = 3}, Pass::forward, {amaxes, scale, scale_inv});
  CHECK(scale == std::vector<float>(2, 448.0F));
}

}  // namespace fp8lab::tests
