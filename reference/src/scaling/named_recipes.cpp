// SPDX-License-Identifier: Apache-2.0
// The table of real systems' recipes. A new one is an entry, with the package, version and file that it is of.
#include "fp8lab/reference/scaling/named_recipes.hpp"

#include <string_view>
#include <vector>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/policy.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view te_current_source =
    "NVIDIA/TransformerEngine, Float8CurrentScaling, common/recipe/recipe_common.cuh";
constexpr std::string_view te_mx =
    "NVIDIA/TransformerEngine after 2.18 (d0067d0), MXFP8BlockScaling, common/cast/mxfp8/quantize_mxfp8.cuh";
constexpr std::string_view te_block =
    "NVIDIA/TransformerEngine, Float8BlockScaling; as in DeepSeek-V3, arXiv 2412.19437";
constexpr std::string_view te_nvfp4 = "NVIDIA/TransformerEngine since 2.8, NVFP4BlockScaling; NVIDIA, arXiv 2509.25149";
constexpr std::string_view ocp = "OCP Microscaling Formats (MX) 1.0";
constexpr std::string_view torchao_mx = "pytorch/ao after 0.18 (36027d8), torchao/prototype/mx_formats/mx_tensor.py";
constexpr std::string_view torchao_0_18_mx = "pytorch/ao 0.18.0, torchao/prototype/mx_formats/mx_tensor.py";
constexpr std::string_view torchao_float8 = "pytorch/ao, torchao/float8/float8_utils.py";
constexpr std::string_view deepseek = "deepseek-ai/DeepSeek-V3, inference/kernel.py";
constexpr std::string_view deepgemm = "deepseek-ai/DeepGEMM, deep_gemm/utils/math.py";
constexpr std::string_view torchao_block = "pytorch/ao, torchao/prototype/blockwise_fp8_training";

Recipe torchao_mx_block(MxRule rule, E8m0Edges edges = E8m0Edges::specified) {
  return MxBlock{.rule = rule, .nan = NanInAmax::counted, .edges = edges};
}

/// Transformer Engine, torchao, OCP, DeepSeek.
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
      {"deepseek_v3_2024", Block{.rule = BlockRule::deepseek_2024}, deepseek},
      {"deepseek_v3_2025", Block{.rule = BlockRule::deepseek_2025}, deepseek},
      {"deepgemm_cpu", Block{.rule = BlockRule::deepgemm_cpu}, deepgemm},
      {"deepgemm_cuda", Block{.rule = BlockRule::deepgemm_cuda}, deepgemm},
      {"deepgemm_ue8m0", Block{.rule = BlockRule::deepgemm_cuda, .force_pow_2_scales = true}, deepgemm},
      {"torchao_blockwise", Block{.rule = BlockRule::torchao}, torchao_block},
      {"te_nvfp4", NvFp4{}, te_nvfp4},
      {"te_nvfp4_2d", NvFp4{.with_2d_quantization = true}, te_nvfp4},
      {"te_nvfp4_rht", NvFp4{.with_rht = true}, te_nvfp4},
  };
}

constexpr std::string_view vllm_fp8 = "vllm 0.33.0, csrc/quantization/w8a8/fp8/common.cu";
constexpr std::string_view vllm_fp4 = "vllm 0.33.0, csrc/quantization/fp4/nvfp4_utils.cuh";
constexpr std::string_view sglang = "sglang 0.5.23, kernels/jit/csrc/gemm/per_token_group_quant.cuh";
constexpr std::string_view sglang_token = "sglang 0.5.23, kernels/jit/csrc/gemm/per_token_quant_fp8.cuh";
constexpr std::string_view flashinfer = "flashinfer 0.7.2.post1 (fb28d72), quantization_utils.cuh and its CuTe kernels";
constexpr std::string_view trtllm = "TensorRT-LLM 0193dbd, perTokenQuantization and scale_1x128_kernel";
constexpr std::string_view torchao_tensor =
    "torchao 0.18.0, torchao/quantization/quant_primitives.py:_choose_scale_float8";
constexpr std::string_view torchao_fp4 = "torchao 0.18.0, torchao/prototype/mx_formats/nvfp4_tensor.py:nvfp4_quantize";
constexpr std::string_view modelopt = "nvidia-modelopt 0.47.0, modelopt/torch/quantization/qtensor/mxfp8_tensor.py";
constexpr std::string_view transformers_fp8 =
    "transformers 5.23.0, integrations/finegrained_fp8.py:Fp8Quantize._quantize_one";
constexpr std::string_view quark = "amd-quark 0.13, observer.py:get_scale";

/// Clamps by fminf and fmaxf, which turn NaN into the largest value.
constexpr CastPolicy nan_is_largest{.nan = NanCode::largest};

/// As torch's maximum and clamp have it.
Recipe of_torch(Recipe recipe) {
  recipe.nan_in_amax = NanInAmax::counted;
  recipe.cast = find_profile("clamp_then_cast").policy;
  return recipe;
}

constexpr Recipe mx_tile(Recipe recipe) {
  recipe.tile_across = 1;
  recipe.tile_along = 32;
  recipe.whole_tiles = true;
  recipe.scale_type = ScaleType::e8m0_code;
  recipe.transposed_columnwise = false;
  return recipe;
}

constexpr Recipe nvfp4_tile(Recipe recipe) {
  recipe.tile_across = 1;
  recipe.tile_along = 16;
  recipe.whole_tiles = true;
  recipe.scale_type = ScaleType::e4m3_code;
  recipe.format = e2m1;
  return recipe;
}

/// What serving, export and quantization packages do.
std::vector<NamedRecipe> serving_recipes() {
  return {
      {"vllm_per_tensor", {.quotient = Quotient::amax_over_largest, .cast = nan_is_largest}, vllm_fp8},
      {"vllm_per_token",
       {.tile_across = 1,
        .quotient = Quotient::amax_over_largest,
        .least_scale_inv = 1 / (448.0F * 512.0F),
        .operation = TileOperation::divide,
        .cast = nan_is_largest},
       vllm_fp8},
      {"vllm_nvfp4",
       nvfp4_tile({.quotient = Quotient::amax_times_inverse,
                   .tensor_scale = TensorScaleRule::largest_over_amax,
                   .block_product = BlockProduct::scale_times_amax,
                   .block_factor = BlockFactor::inverse_of_product_or_zero}),
       vllm_fp4},
      {"vllm_mxfp4",
       mx_tile({.quotient = Quotient::amax_over_power,
                .rounding = ScaleRounding::even,
                .even_mantissa_bits = 1,
                .edges = E8m0Edges::zero_at_0,
                .format = e2m1}),
       "vllm 0.33.0, its MXFP4 quantization for experts"},
      {"sglang_per_token",
       {.tile_across = 1, .quotient = Quotient::amax_over_largest, .cast = nan_is_largest},
       sglang_token},
      {"sglang_group",
       {.tile_across = 1,
        .tile_along = 128,
        .whole_tiles = true,
        .least_amax = static_cast<double>(1e-10F),
        .quotient = Quotient::amax_times_inverse,
        .factor = FactorRule::largest_over_amax},
       sglang},
      {"sglang_group_ue8m0",
       {.tile_across = 1,
        .tile_along = 128,
        .whole_tiles = true,
        .least_amax = static_cast<double>(1e-10F),
        .quotient = Quotient::amax_times_inverse,
        .rounding = ScaleRounding::up,
        .infinite_amax = SpecialScale::nan,
        .scale_type = ScaleType::e8m0_code,
        .edges = E8m0Edges::te_before_2_13},
       sglang},
      {"flashinfer_mxfp8",
       mx_tile({.quotient = Quotient::amax_times_inverse,
                .rounding = ScaleRounding::up,
                .edges = E8m0Edges::zero_at_0,
                .cast = nan_is_largest}),
       flashinfer},
      {"flashinfer_mxfp4",
       mx_tile({.quotient = Quotient::amax_times_inverse,
                .rounding = ScaleRounding::up,
                .edges = E8m0Edges::zero_at_0,
                .format = e2m1}),
       flashinfer},
      {"trtllm_per_token",
       {.tile_across = 1,
        .least_amax = 0x1.0Cp-20,  // 1e-6 as bfloat16, the type of the model
        .quotient = Quotient::amax_over_largest,
        .factor = FactorRule::largest_over_amax},
       trtllm},
      {"trtllm_1x128",
       {.tile_across = 1, .tile_along = 128, .quotient = Quotient::largest_over_amax, .zero_amax = SpecialScale::one},
       trtllm},
      {"torchao_float8_tensor",
       of_torch({.quotient = Quotient::amax_over_largest,
                 .arithmetic = ScaleArithmetic::input_type,
                 .operation = TileOperation::divide}),
       torchao_tensor},
      {"torchao_float8_row",
       of_torch({.tile_across = 1,
                 .quotient = Quotient::amax_over_largest,
                 .arithmetic = ScaleArithmetic::input_type,
                 .operation = TileOperation::divide}),
       torchao_tensor},
      {"torchao_nvfp4",
       of_torch(nvfp4_tile({.quotient = Quotient::amax_over_largest,
                            .least_scale_inv = 0x1p-6F,
                            .tensor_scale = TensorScaleRule::amax_over_largest,
                            .block_product = BlockProduct::quotient_over_inverse,
                            .block_factor = BlockFactor::scale_over_block})),
       torchao_fp4},
      {"torchao_nvfp4_one_level",
       of_torch(nvfp4_tile({.quotient = Quotient::amax_over_largest, .least_scale_inv = 0x1p-6F})), torchao_fp4},
      {"modelopt_mxfp8",
       of_torch(mx_tile({.quotient = Quotient::amax_over_largest,
                         .rounding = ScaleRounding::up_by_log2,
                         .nan_amax = SpecialScale::smallest})),
       modelopt},
      {"microxcaling_mxfp8",
       mx_tile({.nan_in_amax = NanInAmax::counted,
                .quotient = Quotient::amax_over_power,
                .rounding = ScaleRounding::down_by_log2,
                .infinite_amax = SpecialScale::nan,
                .operation = TileOperation::multiply_add_zero,
                .cast = {.rounding = Rounding::nearest_away}}),
       "microxcaling 7bc4195, mx/mx_ops.py:_quantize_mx with round 'nearest'"},
      {"transformers_fp8_weight",
       of_torch({.tile_across = 128,
                 .tile_along = 128,
                 .whole_tiles = true,
                 .quotient = Quotient::largest_times_inverse,
                 .zero_amax = SpecialScale::one,
                 .nan_amax = SpecialScale::one}),
       transformers_fp8},
      {"transformers_mxfp8",
       mx_tile({.quotient = Quotient::amax_over_largest, .least_scale_inv = 0x1p-126F, .rounding = ScaleRounding::up}),
       transformers_fp8},
      {"quark_fp8",
       of_torch({.quotient = Quotient::amax_over_largest,
                 .arithmetic = ScaleArithmetic::input_type,
                 .zero_amax = SpecialScale::epsilon,
                 .operation = TileOperation::divide}),
       quark},
  };
}

}  // namespace

std::span<const NamedRecipe> recipes() {
  static const std::vector<NamedRecipe> all = [] {
    std::vector<NamedRecipe> list = training_recipes();
    const std::vector<NamedRecipe> others = serving_recipes();
    list.insert(list.end(), others.begin(), others.end());
    return list;
  }();
  return all;
}

const NamedRecipe& find_recipe(std::string_view name) { return find_named(recipes(), "recipe", name); }

}  // namespace fp8lab
