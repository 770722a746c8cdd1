// SPDX-License-Identifier: Apache-2.0
// The table of real systems' linear recipes. A new one is an entry, with the package, version and file that it is of.
#include <string_view>
#include <vector>

#include "fp8lab/formats/named.hpp"
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

/// All GEMMs on one model, by Transformer Engine. y and dx are bfloat16; dw is binary32, as is the main_grad that it is
/// added to.
LinearRecipe on_model(const MmaModel& model, const Casts& casts) {
  return {.fprop = {.model = model, .a = casts.x, .b = casts.w, .output = bfloat16},
          .dgrad = {.model = model, .a = casts.dy, .b = casts.w, .output = bfloat16},
          .wgrad = {.model = model, .a = casts.dy, .b = casts.x, .output = binary32},
          .system = LinearSystem::transformer_engine};
}

/// On Hopper, with the accumulator of dgrad and wgrad promoted every 128. (The interval is CUTLASS's; that of cuBLAS is
/// not documented.)
LinearRecipe with_fast_fprop(const Casts& casts) {
  LinearRecipe recipe = on_model(hopper_wgmma_fp8, casts);
  recipe.dgrad.promote_k = 128;
  recipe.wgrad.promote_k = 128;
  return recipe;
}

LinearRecipe with_scale_order(LinearRecipe recipe, ScaleOrder order) {
  recipe.fprop.scale_order = order;
  recipe.dgrad.scale_order = order;
  recipe.wgrad.scale_order = order;
  return recipe;
}

/// Operands that are not quantized: cuBLAS takes them in all sizes.
LinearRecipe unquantized(const MmaModel& model, const Format& format, const Format& output) {
  LinearRecipe recipe = on_model(model, {format, format, format});
  recipe.fprop.output = output;
  recipe.dgrad.output = output;
  recipe.system = LinearSystem::none;
  return recipe;
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
  const LinearRecipe te_block = on_model(hopper_wgmma_fp8, block);
  LinearRecipe deepseek_v3 = on_model(hopper_wgmma_fp8, deepseek);
  deepseek_v3.system = LinearSystem::deepseek;
  return {
      {"te_delayed_hopper", with_fast_fprop(delayed), te_linear},
      {"te_delayed_hopper_e4m3", with_fast_fprop(delayed_e4m3), te_linear},
      {"te_delayed_blackwell", on_model(blackwell_tcgen05_fp8, delayed), te_linear},
      {"te_current_scaling_hopper", with_fast_fprop(current), te_linear},
      {"te_current_scaling_hopper_e4m3", with_fast_fprop(current_e4m3), te_linear},
      {"te_current_scaling_blackwell", on_model(blackwell_tcgen05_fp8, current), te_linear},
      {"te_mxfp8_blackwell", on_model(blackwell_mxf8, mx), te_linear},
      {"te_block_hopper", with_scale_order(te_block, ScaleOrder::accumulator_first), te_linear},
      {"te_block_blackwell", on_model(blackwell_mxf8, block), te_linear},
      {"te_nvfp4_blackwell", on_model(blackwell_nvf4, nvfp4), te_linear},
      {"deepseek_v3_hopper", with_scale_order(deepseek_v3, ScaleOrder::scales_first), deepseek_linear},
      {"bf16_hopper", unquantized(hopper_bf16, bfloat16, bfloat16), "cuBLAS in bfloat16, float32 accumulation"},
      {"bf16_blackwell", unquantized(blackwell_bf16, bfloat16, bfloat16), "cuBLAS in bfloat16, float32 accumulation"},
      {"tf32_hopper", unquantized(hopper_tf32, binary32, binary32), te_linear},
      {"fp32_cdna3", unquantized(cdna3_fp32, binary32, binary32),
       "float32 on AMD's CDNA3: one fused multiply-add after the other, of ascending k"},
      {"exact", unquantized(exact, binary32, binary32), "the real product, rounded once"},
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
