// SPDX-License-Identifier: Apache-2.0
// The table of real systems' recipes. A new one is an entry, with the package, version and file that it is of. Here are
// FP8 tensors, tokens, groups and blocks of serving, export and quantization packages. What a GPU approximates
// (divisions of fast-math builds, logarithms) is as IEEE has it.
#include "fp8lab/reference/scaling/named_recipes.hpp"

#include <limits>
#include <string_view>
#include <vector>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "scaling/recipe_tables.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view vllm_fp8 = "vllm 0.33.0, csrc/quantization/w8a8/fp8/common.cu";
constexpr std::string_view sglang = "sglang 0.5.23, kernels/jit/csrc/gemm/per_token_group_quant.cuh";
constexpr std::string_view sglang_token = "sglang 0.5.23, kernels/jit/csrc/gemm/per_token_quant_fp8.cuh";
constexpr std::string_view trtllm_token =
    "TensorRT-LLM 0193dbd, cpp/tensorrt_llm/kernels/quantization.cuh:perTokenQuantization, whose products "
    "common/cudaTypeUtils.cuh:cuda_cast rounds to bfloat16 first";
constexpr std::string_view trtllm_1x128 =
    "TensorRT-LLM dad183f, cutlass_kernels/fp8_blockscale_gemm/fp8_blockscale_gemm_kernel.cuh:scale_1x128_kernel, as "
    "in "
    "FlashInfer fb28d72";
constexpr std::string_view torchao_tensor =
    "torchao 0.18.0, torchao/quantization/quant_primitives.py:_choose_scale_float8";
constexpr std::string_view transformers_fp8 =
    "transformers 5.23.0, integrations/finegrained_fp8.py:Fp8Quantize._quantize_one";
constexpr std::string_view quark = "amd-quark 0.13, observer.py:get_scale";
constexpr std::string_view vllm_group = "vllm 0.33.0, csrc/quantization/w8a8/fp8/per_token_group_quant.cu";
constexpr std::string_view vllm_native = "vllm 0.33.0, QuantFP8.forward_native on a CPU";
constexpr std::string_view vllm_native_group =
    "vllm 0.33.0, input_quant_fp8.py:QuantFP8._quantize_group_native on a CPU";
constexpr std::string_view vllm_triton =
    "vllm 0.33.0, the Triton kernel for groups of tensors that are not contiguous, on sm_90 and later, its divisions "
    "as "
    "IEEE has them";
constexpr std::string_view sglang_tensor = "sglang 0.5.23, kernels/jit/csrc/gemm/per_tensor_quant_fp8.cuh";
constexpr std::string_view compressed =
    "compressed-tensors 0.20.0, quantization/utils/helpers.py:calculate_qparams, "
    "lifecycle/forward_helpers.py:_quantize";
constexpr std::string_view compressed_given =
    "compressed-tensors 0.20.0, quantization/lifecycle/forward_helpers.py:_quantize with scales of a calibration";
constexpr std::string_view modelopt = "nvidia-modelopt 0.47.0, modelopt/torch/quantization/qtensor/fp8_tensor.py";

/// The floor of a token's scale_inv in vLLM, TensorRT-LLM and FBGEMM.
constexpr float least_token_scale = 1 / (448.0F * 512.0F);
constexpr float unlimited = std::numeric_limits<float>::infinity();

/// Tiles of a row and 128 elements along K, as groups are by default.
constexpr Recipe group_tile(Recipe recipe) {
  recipe.tile_across = 1;
  recipe.tile_along = 128;
  recipe.whole_tiles = true;
  return recipe;
}

/// compressed-tensors works in the type of the weight, and adds a zero point of 0.
Recipe compressed_tensors(std::size_t across, std::size_t along) {
  return of_torch({.tile_across = across,
                   .tile_along = along,
                   .quotient = Quotient::amax_over_largest,
                   .arithmetic = ScaleArithmetic::input_type,
                   .zero_amax = SpecialScale::type_epsilon,
                   .operation = TileOperation::divide_then_add_zero,
                   .product = ScaleArithmetic::input_type});
}

/// The recipe with scales of the caller's, in the type of the tensor.
Recipe compressed_tensors_static(std::size_t across, std::size_t along) {
  Recipe recipe = given_recipe(compressed_tensors(across, along), Quotient::given_scale_inv);
  recipe.whole_tiles = across == 1 && along != 0;  // groups are refused where they do not divide a row
  return recipe;
}

/// 448 / amax with an amax of at least 1e-12, and products: vLLM's in the tensor's type, SGLang's in float32.
Recipe input_to_float8(ScaleArithmetic arithmetic) {
  return of_torch({.least_amax = static_cast<double>(1e-12F),
                   .least_amax_type = arithmetic,
                   .quotient = Quotient::largest_times_inverse,
                   .arithmetic = arithmetic,
                   .product = arithmetic});
}

/// Groups with an amax of at least 1e-10, whose clamps turn NaN into -448.
Recipe vllm_groups(Recipe recipe) {
  recipe.least_amax = static_cast<double>(1e-10F);
  recipe.cast = {.nan = NanCode::negative_largest};
  return group_tile(recipe);
}
Recipe vllm_ue8m0(Recipe recipe) {
  recipe.least_scale_inv = 1e-10F;
  recipe.rounding = ScaleRounding::up_by_log2;
  return vllm_groups(recipe);
}

/// Rows that groups do not divide are padded with zeros, and the codes cut.
Recipe vllm_native_groups(ScaleRounding rounding) {
  return of_torch({.tile_across = 1,
                   .tile_along = 128,
                   .quotient = Quotient::amax_over_largest,
                   .least_scale_inv = least_token_scale,
                   .rounding = rounding,
                   .operation = TileOperation::divide});
}

Recipe without_clamp(Recipe recipe) {
  recipe.nan_in_amax = NanInAmax::counted;
  recipe.cast = find_profile("torch_2_13").policy;
  return recipe;
}

/// Weights in blocks of 128 x 128, the last of which zeros fill up.
Recipe weight_ue8m0(ScaleRounding rounding) {
  return without_clamp({.tile_across = 128,
                        .tile_along = 128,
                        .least_amax = static_cast<double>(1e-4F),
                        .quotient = Quotient::amax_over_largest,
                        .rounding = rounding});
}

/// The amax's floor is 1e-6 in the type of the tensor. A NaN, clamped to what -FLT_MAX is in 16 bits, is infinite.
Recipe trtllm_tokens(float least_scale_inv, float largest_factor) {
  return {.tile_across = 1,
          .nan_in_amax = NanInAmax::counted,
          .least_amax = static_cast<double>(1e-6F),
          .least_amax_type = ScaleArithmetic::input_type,
          .quotient = Quotient::amax_over_largest,
          .least_scale_inv = least_scale_inv,
          .nan_amax = SpecialScale::as_infinity,
          .factor = FactorRule::largest_over_amax,
          .largest_factor = largest_factor,
          .product = ScaleArithmetic::bfloat16_type};
}

/// The scale of a history of one amax; any but a positive, finite one keeps the scale before, here 1.
Recipe flax(Recipe recipe) {
  recipe.quotient = Quotient::largest_over_amax;
  recipe.zero_amax = recipe.infinite_amax = recipe.nan_amax = SpecialScale::one;
  recipe.operation = TileOperation::divide;
  return of_torch(recipe);
}

Recipe modelopt_fp8(std::size_t across) {
  return without_clamp({.tile_across = across,
                        .quotient = Quotient::amax_over_largest,
                        .arithmetic = ScaleArithmetic::input_type,
                        .operation = TileOperation::divide,
                        .product = ScaleArithmetic::input_type});
}

std::vector<NamedRecipe> fp8_recipes() {
  return {
      {"vllm_per_tensor", {.quotient = Quotient::amax_over_largest, .cast = nan_is_largest}, vllm_fp8},
      {"vllm_per_token",
       {.tile_across = 1,
        .quotient = Quotient::amax_over_largest,
        .least_scale_inv = least_token_scale,
        .operation = TileOperation::divide,
        .cast = nan_is_largest},
       vllm_fp8},
      {"sglang_per_token",
       {.tile_across = 1, .quotient = Quotient::amax_over_largest, .cast = nan_is_largest},
       sglang_token},
      {"sglang_per_token_warp",
       {.tile_across = 1,
        .quotient = Quotient::amax_over_largest,
        .zero_amax = SpecialScale::zero_factor,
        .cast = nan_is_largest},
       "sglang 0.5.23, kernels/jit/csrc/gemm/per_token_quant_fp8.cuh for 16 tokens a multiprocessor and more"},
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
      {"trtllm_per_token", trtllm_tokens(0, unlimited), trtllm_token},
      {"trtllm_per_token_min_scaling", trtllm_tokens(least_token_scale, 448 * 512), trtllm_token},
      {"trtllm_1x128",
       {.tile_across = 1, .tile_along = 128, .quotient = Quotient::largest_over_amax, .zero_amax = SpecialScale::one},
       trtllm_1x128},
      {"trtllm_1x128_ue8m0",
       {.tile_across = 1,
        .tile_along = 128,
        .quotient = Quotient::inverse_of_quotient,
        .rounding = ScaleRounding::up,
        .zero_amax = SpecialScale::one,
        .scale_type = ScaleType::e8m0_code},
       "TensorRT-LLM since 5f737b8 (2025-10-28), here dad183f, fp8_blockscale_gemm_kernel.cuh:scale_1x128_kernel with "
       "USE_UE8M0; "
       "sgl-kernel, fp8_blockscale/fp8_quantize_1x128.cu"},
      {"trtllm_1x128_packed",
       {.tile_across = 1,
        .tile_along = 128,
        .least_amax = static_cast<double>(1e-10F),
        .quotient = Quotient::amax_times_inverse,
        .rounding = ScaleRounding::up,
        .scale_type = ScaleType::e8m0_code},
       "TensorRT-LLM 0a31e9b, cutlass_kernels/fp8_blockscale_gemm/fp8_blockscale_quant_packed.cu, for DeepGEMM on "
       "sm_100"},
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
      {"transformers_fp8_weight",
       of_torch({.tile_across = 128,
                 .tile_along = 128,
                 .whole_tiles = true,
                 .quotient = Quotient::largest_times_inverse,
                 .zero_amax = SpecialScale::one,
                 .nan_amax = SpecialScale::one}),
       transformers_fp8},
      {"vllm_static",
       {.quotient = Quotient::given_scale_inv, .cast = nan_is_largest},
       "vllm 0.33.0, csrc/quantization/w8a8/fp8/common.cu:static_scaled_fp8_quant with the caller's scale"},
      {"vllm_static_row",
       {.tile_across = 1,
        .quotient = Quotient::given_scale_inv,
        .cast = nan_is_largest,
        .transposed_columnwise = false},
       "vllm 0.33.0, common.cu:static_scaled_fp8_quant with the caller's scale of each row or, columnwise, column"},
      {"vllm_static_group",
       group_tile({.quotient = Quotient::given_scale_inv, .cast = nan_is_largest, .transposed_columnwise = false}),
       "vllm 0.33.0, common.cu:static_scaled_fp8_quant with the caller's scales of groups"},
      {"vllm_per_token_native",
       of_torch({.tile_across = 1, .quotient = Quotient::amax_over_largest, .least_scale_inv = least_token_scale}),
       vllm_native},
      {"vllm_group", vllm_groups({.quotient = Quotient::amax_over_largest}), vllm_group},
      {"vllm_group_ue8m0", vllm_ue8m0({.quotient = Quotient::amax_over_largest}), vllm_group},
      {"vllm_group_packed",
       vllm_groups({.quotient = Quotient::amax_over_largest,
                    .least_scale_inv = 1e-10F,
                    .rounding = ScaleRounding::up,
                    .infinite_amax = SpecialScale::nan,
                    .scale_type = ScaleType::e8m0_code,
                    .edges = E8m0Edges::torchao_0_18}),
       "vllm 0.33.0, per_token_group_quant.cu:per_token_group_quant_8bit_packed_register_kernel, exponents in bytes"},
      {"vllm_group_native", vllm_native_groups(ScaleRounding::none), vllm_native_group},
      {"vllm_group_native_ue8m0", vllm_native_groups(ScaleRounding::up_by_log2), vllm_native_group},
      {"vllm_group_before_0_33",
       vllm_groups({.quotient = Quotient::amax_over_largest, .operation = TileOperation::divide}),
       "vllm before 0.33 (619f1cf), csrc/quantization/w8a8/fp8/per_token_group_quant.cu"},
      {"vllm_triton_group",
       group_tile({.least_amax = static_cast<double>(1e-10F),
                   .quotient = Quotient::amax_times_inverse,
                   .operation = TileOperation::divide,
                   .cast = nan_is_largest}),
       vllm_triton},
      {"vllm_triton_group_ue8m0",
       group_tile({.least_amax = static_cast<double>(1e-10F),
                   .quotient = Quotient::amax_times_inverse,
                   .rounding = ScaleRounding::up_by_log2,
                   .operation = TileOperation::divide,
                   .cast = nan_is_largest}),
       vllm_triton},
      {"vllm_input_to_float8", input_to_float8(ScaleArithmetic::input_type), "vllm 0.33.0, input_to_float8"},
      {"vllm_weight_ue8m0", weight_ue8m0(ScaleRounding::up_by_log2),
       "vllm 0.33.0, utils/deep_gemm.py:per_block_cast_to_fp8 of requant_weight_ue8m0_inplace, on a CPU"},
      {"deepgemm_weight_ue8m0", weight_ue8m0(ScaleRounding::up),
       "deepseek-ai/DeepGEMM (54e2261), deep_gemm/utils/math.py:per_block_cast_to_fp8; sglang 0.5.23, "
       "quant_weight_ue8m0"},
      {"sglang_per_tensor", {.quotient = Quotient::amax_over_largest, .cast = nan_is_largest}, sglang_tensor},
      {"sglang_group_half",
       group_tile({.least_amax = static_cast<double>(1e-10F),
                   .quotient = Quotient::amax_times_inverse,
                   .factor = FactorRule::largest_over_amax,
                   .cast = nan_is_largest}),
       "sglang 0.5.23, the same for float16 and float32 inputs, which a minimum clamps"},
      {"sglang_input_to_float8", input_to_float8(ScaleArithmetic::float32), "sglang 0.5.23, input_to_float8"},
      {"compressed_tensors_tensor", compressed_tensors(0, 0), compressed},
      {"compressed_tensors_channel", compressed_tensors(1, 0), compressed},
      {"compressed_tensors_block", compressed_tensors(128, 128), compressed},
      {"compressed_tensors_static", compressed_tensors_static(0, 0), compressed_given},
      {"compressed_tensors_static_channel", compressed_tensors_static(1, 0), compressed_given},
      {"compressed_tensors_static_group", compressed_tensors_static(1, 128), compressed_given},
      {"compressed_tensors_static_block", compressed_tensors_static(128, 128), compressed_given},
      {"torchao_float8_tensor_e8m0",
       of_torch({.quotient = Quotient::amax_over_largest,
                 .arithmetic = ScaleArithmetic::input_type,
                 .rounding = ScaleRounding::nearest_by_log2,
                 .operation = TileOperation::divide}),
       "torchao 0.18.0, torchao/quantization/quant_primitives.py:_choose_scale_float8 with scale_dtype float8_e8m0fnu, "
       "which returns powers of two in float32"},
      {"modelopt_fp8", modelopt_fp8(0), modelopt},
      {"modelopt_fp8_channel", modelopt_fp8(1), modelopt},
      {"transformers_fp8_weight_ue8m0",
       of_torch({.tile_across = 128,
                 .tile_along = 128,
                 .whole_tiles = true,
                 .quotient = Quotient::inverse_of_product,
                 .least_scale_inv = 0x1p-126F,
                 .rounding = ScaleRounding::up_by_log2,
                 .zero_amax = SpecialScale::one,
                 .infinite_amax = SpecialScale::nan,
                 .nan_amax = SpecialScale::one,
                 .scale_type = ScaleType::e8m0_code}),
       transformers_fp8},
      {"transformers_fp8_activation",
       group_tile(
           {.quotient = Quotient::amax_over_largest, .least_divisor = 1e-12F, .operation = TileOperation::divide}),
       "kernels-community finegrained-fp8 (017b01b), which transformers 5.23.0 loads for activations"},
      {"flax_fp8", flax({}),
       "flax 0.12.8, linen/fp8_ops.py on jax 0.10.2 with compute_dtype float32: the scale of a history of one amax"},
      {"flax_fp8_bfloat16", flax({.factor = FactorRule::of_rounded_scale, .product = ScaleArithmetic::bfloat16_type}),
       "flax 0.12.8, linen/fp8_ops.py on jax 0.10.2 with compute_dtype bfloat16, of bfloat16 tensors"},
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
    for (const auto& others : {fp8_recipes(), block_recipes()}) list.insert(list.end(), others.begin(), others.end());
    return list;
  }();
  return all;
}

const NamedRecipe& find_recipe(std::string_view name) { return find_named(recipes(), "recipe", name); }

}  // namespace fp8lab
