// SPDX-License-Identifier: Apache-2.0
// The table of real systems' linear recipes. A new one is an entry, with the package, version and file that it is of.
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/gemm/named_gemm_recipes.hpp"
#include "fp8lab/reference/linear/linear_recipe.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view te_linear =
    "NVIDIA/TransformerEngine after 2.18 (d0067d0), transformer_engine/pytorch/module/linear.py and "
    "common/recipe/__init__.py";
constexpr std::string_view deepseek_linear =
    "DeepSeek-V3, arXiv 2412.19437, 3.3; deepseek-ai/DeepSeek-V3, inference/kernel.py; deepseek-ai/DeepGEMM (54e2261)";

/// How each of the tensors is cast.
struct Casts {
  LinearCast x, w, dy;
};

/// All GEMMs by the named recipes "<name>_fprop", and "<name>_dgrad" where it is another one, and "<name>_wgrad", by
/// Transformer Engine. y and dx are bfloat16; dw is binary32, as is the main_grad that it is added to.
LinearRecipe by_gemms(const std::string& name, const Casts& casts) {
  const auto named = [&](const std::string& pass) { return find_gemm_recipe(name + pass).recipe; };
  const bool has_dgrad = name == "te_hopper";
  return {.fprop = {.recipe = named("_fprop"), .a = casts.x, .b = casts.w},
          .dgrad = {.recipe = named(has_dgrad ? "_dgrad" : "_fprop"), .a = casts.dy, .b = casts.w},
          .wgrad = {.recipe = named("_wgrad"), .a = casts.dy, .b = casts.x},
          .system = LinearSystem::transformer_engine};
}

/// Operands that are not quantized: cuBLAS takes them in all sizes. dw is binary32.
LinearRecipe unquantized(std::string_view name, const Format& format) {
  const GemmRecipe& gemm = find_gemm_recipe(name).recipe;
  LinearRecipe recipe{
      .fprop = {gemm, format, format}, .dgrad = {gemm, format, format}, .wgrad = {gemm, format, format}};
  recipe.wgrad.recipe.output = binary32;
  return recipe;
}

/// DeepSeek-V3's GEMMs, which are DeepGEMM's.
LinearRecipe by_deepgemm(const Casts& casts) {
  const GemmRecipe& forward = find_gemm_recipe("deepgemm_1d2d_hopper").recipe;
  const GemmRecipe& backward = find_gemm_recipe("deepgemm_1d1d_hopper").recipe;
  return {.fprop = {forward, casts.x, casts.w},
          .dgrad = {forward, casts.dy, casts.w},
          .wgrad = {backward, casts.dy, casts.x},
          .system = LinearSystem::deepseek};
}

std::vector<NamedLinearRecipe> all_linear_recipes() {
  const Casts current{JustInTime{}, JustInTime{}, JustInTime{.format = e5m2}};
  const Casts delayed{GivenScale{}, GivenScale{}, GivenScale{.format = e5m2}};
  const Casts current_e4m3{JustInTime{}, JustInTime{}, JustInTime{}};
  const Casts delayed_e4m3{GivenScale{}, GivenScale{}, GivenScale{}};
  const Casts mx{MxBlock{}, MxBlock{}, MxBlock{}};
  const Casts block{Block{}, Block{.rows = 128}, Block{}};
  const Casts nvfp4{NvFp4{.with_rht = true}, NvFp4{.with_2d_quantization = true},
                    NvFp4{.stochastic_rounding = true, .with_rht = true}};
  const Casts deepseek{Block{.rule = BlockRule::deepseek_2025}, Block{.rule = BlockRule::deepseek_2025, .rows = 128},
                       Block{.rule = BlockRule::deepseek_2025}};
  return {
      {"te_delayed_hopper", by_gemms("te_hopper", delayed), te_linear},
      {"te_delayed_hopper_e4m3", by_gemms("te_hopper", delayed_e4m3), te_linear},
      {"te_delayed_blackwell", by_gemms("te_blackwell", delayed), te_linear},
      {"te_current_scaling_hopper", by_gemms("te_hopper", current), te_linear},
      {"te_current_scaling_hopper_e4m3", by_gemms("te_hopper", current_e4m3), te_linear},
      {"te_current_scaling_blackwell", by_gemms("te_blackwell", current), te_linear},
      {"te_mxfp8_blackwell", by_gemms("te_mxfp8_blackwell", mx), te_linear},
      {"te_block_hopper", by_gemms("te_block_hopper", block), te_linear},
      {"te_block_blackwell", by_gemms("te_mxfp8_blackwell", block), te_linear},
      {"te_nvfp4_blackwell", by_gemms("te_nvfp4_blackwell", nvfp4), te_linear},
      {"deepseek_v3_hopper", by_deepgemm(deepseek), deepseek_linear},
      {"bf16_hopper", unquantized("bf16_hopper", bfloat16), "cuBLAS in bfloat16, float32 accumulation"},
      {"bf16_blackwell", unquantized("bf16_blackwell", bfloat16), "cuBLAS in bfloat16, float32 accumulation"},
      {"tf32_hopper", unquantized("tf32_hopper", binary32), te_linear},
      {"fp32_cdna3", unquantized("fp32_cdna3", binary32),
       "float32 on AMD's CDNA3: one fused multiply-add after the other, of ascending k"},
      {"exact", unquantized("exact", binary32), "the real product, rounded once"},
  };
}

}  // namespace

std::span<const NamedLinearRecipe> linear_recipes() {
  static const std::vector<NamedLinearRecipe> all = all_linear_recipes();
  return all;
}

const NamedLinearRecipe& find_linear_recipe(std::string_view name) {
  return find_named(linear_recipes(), "linear recipe", name);
}

}  // namespace fp8lab
