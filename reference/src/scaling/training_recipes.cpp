// SPDX-License-Identifier: Apache-2.0
// The recipes of training: Transformer Engine, torchao, OCP, DeepSeek.
#include <string_view>
#include <vector>

#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "scaling/recipe_tables.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view te_current_source =
    "NVIDIA/TransformerEngine after 2.18 (d0067d0), Float8CurrentScaling, common/recipe/recipe_common.cuh";
constexpr std::string_view te_mx =
    "NVIDIA/TransformerEngine after 2.18 (d0067d0), MXFP8BlockScaling, common/cast/mxfp8/quantize_mxfp8.cuh";
constexpr std::string_view te_block =
    "NVIDIA/TransformerEngine after 2.18 (d0067d0), Float8BlockScaling; as in DeepSeek-V3, arXiv 2412.19437";
constexpr std::string_view te_nvfp4 =
    "NVIDIA/TransformerEngine since 2.14, NVFP4BlockScaling; NVIDIA, arXiv 2509.25149";
constexpr std::string_view te_nvfp4_old = "NVIDIA/TransformerEngine 2.8 to 2.13, NVFP4BlockScaling";
constexpr std::string_view te_4over6 = "NVIDIA/TransformerEngine since 2.17, NVFP4BlockScaling with nvfp4_4over6";
constexpr std::string_view te_row_scaled =
    "NVIDIA/TransformerEngine since 2.16, NVFP4BlockScaling with row_scaled_activation";
constexpr std::string_view te_nvfp4_fast =
    "NVIDIA/TransformerEngine after 2.18 (d0067d0), NVFP4 of bfloat16 rows with NVTE_USE_FAST_MATH=1";
constexpr std::string_view ocp = "OCP Microscaling Formats (MX) 1.0";
constexpr std::string_view torchao_mx = "pytorch/ao after 0.18 (36027d8), torchao/prototype/mx_formats/mx_tensor.py";
constexpr std::string_view torchao_0_18_mx = "pytorch/ao 0.18.0, torchao/prototype/mx_formats/mx_tensor.py";
constexpr std::string_view torchao_float8 = "torchao 0.18.0 (and pytorch/ao 36027d8), torchao/float8/float8_utils.py";
constexpr std::string_view deepseek_2024 = "deepseek-ai/DeepSeek-V3, inference/kernel.py from 2024-12 to 2025-08";
constexpr std::string_view deepseek_2025 = "deepseek-ai/DeepSeek-V3, inference/kernel.py after 2025-08-27";
constexpr std::string_view deepgemm = "deepseek-ai/DeepGEMM (54e2261), deep_gemm/utils/math.py";
constexpr std::string_view torchao_block =
    "torchao 0.18.0 (and pytorch/ao 36027d8), torchao/prototype/blockwise_fp8_training/kernels.py";

Recipe torchao_mx_block(MxRule rule, E8m0Edges edges = E8m0Edges::specified) {
  return MxBlock{.rule = rule, .nan = NanInAmax::counted, .edges = edges};
}

Recipe four_over_six(float range, BlockChoice choice, bool square = false) {
  Recipe recipe = NvFp4{.with_2d_quantization = square};
  recipe.tensor_range = range;
  recipe.block_product = BlockProduct::scale_times_quotient;
  recipe.block_choice = choice;
  return recipe;
}

/// The block's amax was divided by 6 before it met the tensor's scale.
Recipe before_2_14(Recipe recipe) {
  recipe.block_product = BlockProduct::scale_times_quotient;
  return recipe;
}

Recipe row_scaled() {
  Recipe recipe = NvFp4{};
  recipe.tensor_scale_for_each_row = true;
  return recipe;
}

Recipe fast_math() {
  Recipe recipe = NvFp4{};
  recipe.block_factor = BlockFactor::scale_over_block_bfloat16;
  recipe.operation = TileOperation::multiply_add_zero;
  return recipe;
}

}  // namespace

std::vector<NamedRecipe> training_recipes() {
  return {
      {"given_scale", GivenScale{}, "a number; delayed scaling gives one every step"},
      {"te_current_scaling", JustInTime{}, te_current_source},
      {"te_current_scaling_pow2", JustInTime{.force_pow_2_scales = true}, te_current_source},
      {"te_current_scaling_e5m2", JustInTime{.format = e5m2}, te_current_source},
      {"torchao_tensorwise", JustInTime{.rule = JustInTimeRule::torchao}, torchao_float8},
      {"torchao_rowwise", JustInTime{.rule = JustInTimeRule::torchao, .axis = Axis::row}, torchao_float8},
      {"te_mxfp8", MxBlock{}, te_mx},
      {"te_mxfp8_2d", MxBlock{.enable_2d_quantization = true}, te_mx},
      {"ocp_mxfp8_e4m3", MxBlock{.rule = MxRule::floor}, ocp},
      {"ocp_mxfp8_e5m2", MxBlock{.format = e5m2, .rule = MxRule::floor}, ocp},
      {"ocp_mxfp6_e2m3", MxBlock{.format = e2m3, .rule = MxRule::floor}, ocp},
      {"ocp_mxfp6_e3m2", MxBlock{.format = e3m2, .rule = MxRule::floor}, ocp},
      {"ocp_mxfp4", MxBlock{.format = e2m1, .rule = MxRule::floor}, ocp},
      {"torchao_mxfp8_floor", torchao_mx_block(MxRule::floor), torchao_mx},
      {"torchao_mxfp8_ceil", torchao_mx_block(MxRule::ceil), torchao_mx},
      {"torchao_mxfp8_even", torchao_mx_block(MxRule::even), torchao_mx},
      {"torchao_mxfp8_rceil", torchao_mx_block(MxRule::rceil), torchao_mx},
      {"torchao_0_18_mxfp8_floor", torchao_mx_block(MxRule::floor, E8m0Edges::torchao_0_18), torchao_0_18_mx},
      {"torchao_0_18_mxfp8_ceil", torchao_mx_block(MxRule::ceil, E8m0Edges::torchao_0_18), torchao_0_18_mx},
      {"torchao_0_18_mxfp8_even", torchao_mx_block(MxRule::even, E8m0Edges::torchao_0_18), torchao_0_18_mx},
      {"torchao_0_18_mxfp8_rceil", torchao_mx_block(MxRule::rceil, E8m0Edges::torchao_0_18), torchao_0_18_mx},
      {"te_block_1x128", Block{}, te_block},
      {"te_block_128x128", Block{.rows = 128}, te_block},
      {"te_block_1x128_fp32", Block{.force_pow_2_scales = false}, te_block},
      {"deepseek_v3_2024", Block{.rule = BlockRule::deepseek_2024}, deepseek_2024},
      {"deepseek_v3_2025", Block{.rule = BlockRule::deepseek_2025}, deepseek_2025},
      {"deepgemm_cpu", Block{.rule = BlockRule::deepgemm_cpu}, deepgemm},
      {"deepgemm_cuda", Block{.rule = BlockRule::deepgemm_cuda}, deepgemm},
      {"deepgemm_ue8m0", Block{.rule = BlockRule::deepgemm_cuda, .force_pow_2_scales = true}, deepgemm},
      {"torchao_blockwise", Block{.rule = BlockRule::torchao}, torchao_block},
      {"te_nvfp4", NvFp4{}, te_nvfp4},
      {"te_nvfp4_2d", NvFp4{.with_2d_quantization = true}, te_nvfp4},
      {"te_nvfp4_rht", NvFp4{.with_rht = true}, te_nvfp4},
      {"te_nvfp4_before_2_14", before_2_14(NvFp4{}), te_nvfp4_old},
      {"te_nvfp4_2d_before_2_14", before_2_14(NvFp4{.with_2d_quantization = true}), te_nvfp4_old},
      {"te_nvfp4_rht_before_2_14", before_2_14(NvFp4{.with_rht = true}), te_nvfp4_old},
      {"te_nvfp4_4over6", four_over_six(256, BlockChoice::four_or_six_absolute), te_4over6},
      {"te_nvfp4_4over6_mse", four_over_six(256, BlockChoice::four_or_six_squared), te_4over6},
      {"te_nvfp4_4over6_448", four_over_six(448, BlockChoice::four_or_six_absolute), te_4over6},
      {"te_nvfp4_4over6_448_mse", four_over_six(448, BlockChoice::four_or_six_squared), te_4over6},
      {"te_nvfp4_4over6_2d", four_over_six(256, BlockChoice::four_or_six_absolute, true), te_4over6},
      {"te_nvfp4_row_scaled", row_scaled(), te_row_scaled},
      {"te_nvfp4_fast_math", fast_math(), te_nvfp4_fast},
  };
}

}  // namespace fp8lab
