// SPDX-License-Identifier: Apache-2.0
// MX and NVFP4 of serving, export and quantization packages. What a GPU approximates (reciprocals, divisions,
// logarithms) is as IEEE has it.
#include <string_view>
#include <vector>

#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "scaling/recipe_tables.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view vllm_fp4 = "vllm 0.33.0, csrc/quantization/fp4/nvfp4_utils.cuh";
constexpr std::string_view flashinfer =
    "flashinfer 0.7.2.post1 and fb28d72, quantization_utils.cuh and its CuTe kernels";
constexpr std::string_view torchao_fp4 = "torchao 0.18.0, torchao/prototype/mx_formats/nvfp4_tensor.py:nvfp4_quantize";
constexpr std::string_view microxcaling_source = "microxcaling 7bc4195, mx/mx_ops.py:_quantize_mx on PyTorch";
constexpr std::string_view modelopt_blocks =
    "nvidia-modelopt 0.47.0, modelopt/torch/quantization/qtensor/mxfp8_tensor.py";
constexpr std::string_view modelopt_nvfp4 =
    "nvidia-modelopt 0.47.0, modelopt/torch/quantization/qtensor/nvfp4_tensor.py";
constexpr std::string_view compressed_mx =
    "compressed-tensors 0.20.0, quantization/utils/mxfp_utils.py:generate_mx_scales, helpers.py:calculate_qparams";
constexpr std::string_view torchao_mxfp4 = "pytorch/ao after 0.18 (36027d8), torchao/prototype/mx_formats/mx_tensor.py";
constexpr std::string_view torchao_0_18_mxfp4 = "pytorch/ao 0.18.0, torchao/prototype/mx_formats/mx_tensor.py";
constexpr std::string_view deepgemm_blocks =
    "deepseek-ai/DeepGEMM (54e2261), deep_gemm/utils/math.py:per_token_cast_to_fp4";
constexpr std::string_view quark_blocks = "amd-quark 0.13, observer.py:get_scale";

constexpr Recipe mx_tile(Recipe recipe) {
  recipe.tile_across = 1;
  recipe.tile_along = 32;
  recipe.whole_tiles = true;
  recipe.scale_type = ScaleType::e8m0_code;
  recipe.transposed_columnwise = false;
  return recipe;
}

/// Rows that blocks do not divide are filled up with zeros, which are stored.
Recipe filled_up(Recipe recipe) {
  recipe.whole_tiles = false;
  recipe.pads_tiles = true;
  return recipe;
}

/// Rows that blocks do not divide are filled up with zeros, of which no codes are stored.
Recipe cut(Recipe recipe) {
  recipe.whole_tiles = false;
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

Recipe microxcaling(const Format& format, Rounding rounding = Rounding::nearest_away, bool flush = false) {
  return cut(mx_tile({.nan_in_amax = NanInAmax::counted,
                      .flush_subnormal_amax = flush,
                      .quotient = Quotient::amax_over_power,
                      .rounding = ScaleRounding::down_by_log2,
                      .infinite_amax = SpecialScale::nan,
                      .operation = TileOperation::multiply_then_add_zero,
                      .float32_steps = true,
                      .format = format,
                      .cast = {.rounding = rounding}}));
}

Recipe compressed_tensors_mx(const Format& format) {
  return of_torch(mx_tile({.quotient = Quotient::amax_over_power,
                           .arithmetic = ScaleArithmetic::input_type,
                           .rounding = ScaleRounding::even,
                           .even_mantissa_bits = format == e2m3 ? 3 : 1,
                           .zero_amax = SpecialScale::type_epsilon,
                           .operation = TileOperation::multiply_then_add_zero,
                           .product = ScaleArithmetic::input_type,
                           .format = format}));
}

Recipe quark_mx(const Format& format) {
  return of_torch(mx_tile({.quotient = Quotient::amax_over_power,
                           .rounding = ScaleRounding::even,
                           .infinite_amax = SpecialScale::largest,
                           .format = format}));
}

/// DeepGEMM counts midpoints below the magnitude, of which a NaN has none.
Recipe deepgemm_fp4(std::size_t along, ScaleRounding rounding, Quotient quotient = Quotient::amax_over_largest) {
  return {.tile_across = 1,
          .tile_along = along,
          .nan_in_amax = NanInAmax::counted,
          .least_amax = static_cast<double>(1e-4F),
          .quotient = quotient,
          .rounding = rounding,
          .format = e2m1,
          .cast = {.rounding = Rounding::nearest_toward_zero,
                   .missing_nan = MissingNan::positive_zero,
                   .zero_sign = ZeroSign::dropped}};
}

/// FlashInfer's and TensorRT-LLM's NVFP4 but for the guard of its factor.
Recipe fast_nvfp4(BlockFactor factor) {
  return nvfp4_tile({.quotient = Quotient::amax_times_inverse,
                     .tensor_scale = TensorScaleRule::largest_over_amax,
                     .block_product = BlockProduct::scale_times_amax,
                     .block_factor = factor});
}

Recipe torchao_mx_blocks(MxRule rule, E8m0Edges edges = E8m0Edges::specified) {
  return MxBlock{.format = e2m1, .rule = rule, .nan = NanInAmax::counted, .edges = edges};
}

std::vector<NamedRecipe> nvfp4_recipes() {
  return {
      {"vllm_nvfp4",
       nvfp4_tile({.quotient = Quotient::amax_times_inverse,
                   .tensor_scale = TensorScaleRule::largest_over_amax,
                   .block_product = BlockProduct::scale_times_amax,
                   .block_factor = BlockFactor::inverse_of_product_or_zero}),
       vllm_fp4},
      {"torchao_nvfp4",
       of_torch(nvfp4_tile({.quotient = Quotient::amax_over_largest,
                            .least_scale_inv = 0x1p-6F,
                            .tensor_scale = TensorScaleRule::amax_over_largest,
                            .block_product = BlockProduct::quotient_over_inverse,
                            .block_factor = BlockFactor::scale_over_block})),
       torchao_fp4},
      {"torchao_nvfp4_one_level",
       of_torch(nvfp4_tile({.quotient = Quotient::amax_over_largest, .least_scale_inv = 0x1p-6F})), torchao_fp4},
      {"flashinfer_nvfp4", fast_nvfp4(BlockFactor::inverse_of_product_by_amax), flashinfer},
      {"flashinfer_nvfp4_exact", NvFp4{},
       "flashinfer 0.7.2.post1 and fb28d72, quantization_utils.cuh with FLASHINFER_DISABLE_FP4_QUANT_FAST_MATH=1"},
      {"flashinfer_nvfp4_cute", fast_nvfp4(BlockFactor::inverse_of_product_or_zero), flashinfer},
      {"trtllm_nvfp4", fast_nvfp4(BlockFactor::inverse_of_product_by_product),
       "TensorRT-LLM 0193dbd, cpp/tensorrt_llm/kernels/quantization.cuh:cvt_warp_fp16_to_fp4"},
      {"flashinfer_fp8_to_nvfp4", fast_nvfp4(BlockFactor::scale_times_inverse_or_zero),
       "flashinfer 0.7.2.post1 and fb28d72, quantization_utils.cuh:cvt_warp_fp8_to_fp4, of what it makes of E4M3: "
       "float16(code * fl(6 * fl(1 / E)))"},
      {"trtllm_fp8_to_nvfp4", fast_nvfp4(BlockFactor::scale_times_inverse_or_zero),
       "TensorRT-LLM 0193dbd, kernels/quantization.cuh:cvt_warp_fp8_to_fp4, of what it makes of E4M3: "
       "float16(code * fl(6 * fl(1 / E)))"},
      {"compressed_tensors_nvfp4",
       of_torch(nvfp4_tile({.quotient = Quotient::amax_over_largest,
                            .arithmetic = ScaleArithmetic::input_type,
                            .zero_amax = SpecialScale::type_epsilon,
                            .tensor_scale = TensorScaleRule::largest_times_inverse,
                            .block_product = BlockProduct::scale_times_quotient,
                            .block_factor = BlockFactor::block_over_scale,
                            .operation = TileOperation::divide_then_add_zero})),
       "compressed-tensors 0.20.0, quantization/utils/helpers.py:calculate_qparams and generate_gparam"},
      {"modelopt_nvfp4",
       of_torch(filled_up(nvfp4_tile({.quotient = Quotient::amax_over_largest,
                                      .least_scale_inv = 0x1p-9F,
                                      .zero_amax = SpecialScale::one,
                                      .tensor_scale = TensorScaleRule::amax_over_largest,
                                      .block_product = BlockProduct::amax_over_inverse,
                                      .block_factor = BlockFactor::product,
                                      .operation = TileOperation::divide_then_add_zero}))),
       modelopt_nvfp4},
      {"modelopt_nvfp4_static",
       of_torch(nvfp4_tile({.quotient = Quotient::amax_over_largest,
                            .least_scale_inv = 0x1p-9F,
                            .zero_amax = SpecialScale::one,
                            .tensor_scale = TensorScaleRule::amax_over_largest,
                            .block_product = BlockProduct::quotient_over_quotient,
                            .block_factor = BlockFactor::product,
                            .operation = TileOperation::divide_then_add_zero})),
       "nvidia-modelopt 0.47.0, nvfp4_tensor.py:get_weights_scaling_factor_from_quantizer with amaxes that a "
       "calibration gave"},
      {"quark_nvfp4",
       of_torch(nvfp4_tile({.quotient = Quotient::amax_over_largest,
                            .tensor_scale = TensorScaleRule::two_products,
                            .block_product = BlockProduct::scale_times_quotient,
                            .block_factor = BlockFactor::block_over_scale,
                            .operation = TileOperation::divide})),
       quark_blocks},
  };
}

std::vector<NamedRecipe> mx_recipes() {
  return {
      {"vllm_mxfp4",
       mx_tile({.quotient = Quotient::amax_over_power,
                .rounding = ScaleRounding::even,
                .even_mantissa_bits = 1,
                .edges = E8m0Edges::zero_at_ends,
                .format = e2m1}),
       "vllm 0.33.0, csrc/quantization/fp4/nvfp4_utils.cuh with UE8M0_SF, for experts"},
      {"flashinfer_mxfp8",
       mx_tile({.quotient = Quotient::amax_times_inverse,
                .rounding = ScaleRounding::up,
                .edges = E8m0Edges::zero_at_ends,
                .cast = nan_is_largest}),
       flashinfer},
      {"flashinfer_mxfp4",
       mx_tile({.quotient = Quotient::amax_times_inverse,
                .rounding = ScaleRounding::up,
                .edges = E8m0Edges::zero_at_ends,
                .format = e2m1}),
       flashinfer},
      {"transformers_mxfp8",
       mx_tile({.quotient = Quotient::amax_over_largest,
                .least_scale_inv = 0x1p-126F,
                .rounding = ScaleRounding::up,
                .least_divisor = 1e-12F}),
       "kernels-community finegrained-fp8 (017b01b), mx_act_quant_inline, which transformers 5.23.0 loads"},
      {"microxcaling_mxfp8", microxcaling(e4m3), microxcaling_source},
      {"microxcaling_mxfp8_flush", microxcaling(e4m3, Rounding::nearest_away, true), microxcaling_source},
      {"microxcaling_mxfp8_even", microxcaling(e4m3, Rounding::nearest_even), microxcaling_source},
      {"microxcaling_mxfp8_e5m2", microxcaling(e5m2), microxcaling_source},
      {"microxcaling_mxfp6_e2m3", microxcaling(e2m3), microxcaling_source},
      {"microxcaling_mxfp6_e3m2", microxcaling(e3m2), microxcaling_source},
      {"microxcaling_mxfp4", microxcaling(e2m1), microxcaling_source},
      {"microxcaling_mxfp4_flush", microxcaling(e2m1, Rounding::nearest_away, true), microxcaling_source},
      {"microxcaling_mxfp8_floor", microxcaling(e4m3, Rounding::toward_zero), microxcaling_source},
      {"microxcaling_mxfp4_even", microxcaling(e2m1, Rounding::nearest_even), microxcaling_source},
      {"microxcaling_mxfp4_floor", microxcaling(e2m1, Rounding::toward_zero), microxcaling_source},
      {"flashinfer_mxfp4_cuda",
       mx_tile({.quotient = Quotient::amax_times_inverse,
                .rounding = ScaleRounding::up,
                .edges = E8m0Edges::torchao_0_18_rceil,
                .format = e2m1}),
       "flashinfer 0.7.2.post1 and fb28d72, quantization_utils.cuh, whose byte 0 multiplies by 1"},
      {"trtllm_mxfp8", mx_tile({.quotient = Quotient::amax_times_inverse, .rounding = ScaleRounding::up}),
       "TensorRT-LLM 0193dbd, cpp/tensorrt_llm/kernels/quantization.cuh, with the reciprocal of 2^-127 as IEEE has it"},
      {"trtllm_mxfp4",
       mx_tile({.quotient = Quotient::amax_times_inverse, .rounding = ScaleRounding::up, .format = e2m1}),
       "TensorRT-LLM 0193dbd, cpp/tensorrt_llm/kernels/quantization.cuh, with a global scale of 1"},
      {"deepgemm_fp4", deepgemm_fp4(128, ScaleRounding::none), deepgemm_blocks},
      {"deepgemm_fp4_cuda", deepgemm_fp4(128, ScaleRounding::none, Quotient::amax_times_inverse), deepgemm_blocks},
      {"deepgemm_fp4_ue8m0", deepgemm_fp4(32, ScaleRounding::up), deepgemm_blocks},
  };
}

/// MX by PyTorch on a CPU.
std::vector<NamedRecipe> torch_mx_recipes() {
  return {
      {"modelopt_mxfp8",
       of_torch(cut(mx_tile({.quotient = Quotient::amax_over_largest,
                             .rounding = ScaleRounding::up_by_log2,
                             .nan_amax = SpecialScale::smallest}))),
       modelopt_blocks},
      {"modelopt_mxfp4",
       mx_tile({.nan_in_amax = NanInAmax::counted,
                .quotient = Quotient::amax_over_largest,
                .rounding = ScaleRounding::up_by_log2,
                .infinite_amax = SpecialScale::smallest_of_nan,
                .nan_amax = SpecialScale::smallest_of_nan,
                .operation = TileOperation::multiply_negative_zero,
                .format = e2m1,
                .cast = {.rounding = Rounding::nearest_toward_zero, .missing_nan = MissingNan::negative_zero}}),
       "nvidia-modelopt 0.47.0, modelopt/torch/quantization/qtensor/mxfp4_tensor.py"},
      {"vllm_mxfp8",
       of_torch(mx_tile({.least_amax = 0x1p-126,
                         .quotient = Quotient::amax_over_largest,
                         .rounding = ScaleRounding::up_by_log2,
                         .nan_amax = SpecialScale::smallest_of_nan})),
       "vllm 0.33.0, utils/mxfp8_utils.py"},
      {"sglang_mxfp8",
       mx_tile({.least_amax = static_cast<double>(1e-30F),
                .quotient = Quotient::amax_over_largest,
                .rounding = ScaleRounding::up_by_log2,
                .cast = nan_is_largest}),
       "sglang 0.5.23, kernels/ops/quantization/mxfp8_quant.py in Triton, on sm_90 and later, its divisions as IEEE "
       "has "
       "them"},
      {"compressed_tensors_mxfp8", compressed_tensors_mx(e4m3), compressed_mx},
      {"compressed_tensors_mxfp6", compressed_tensors_mx(e2m3), compressed_mx},
      {"compressed_tensors_mxfp4", compressed_tensors_mx(e2m1), compressed_mx},
      {"quark_mxfp8", quark_mx(e4m3), quark_blocks},
      {"quark_mxfp4", quark_mx(e2m1), quark_blocks},
      {"torchao_mxfp4_floor", torchao_mx_blocks(MxRule::floor), torchao_mxfp4},
      {"torchao_mxfp4_ceil", torchao_mx_blocks(MxRule::ceil), torchao_mxfp4},
      {"torchao_mxfp4_even", torchao_mx_blocks(MxRule::even), torchao_mxfp4},
      {"torchao_mxfp4_rceil", torchao_mx_blocks(MxRule::rceil), torchao_mxfp4},
      {"torchao_0_18_mxfp4_floor", torchao_mx_blocks(MxRule::floor, E8m0Edges::torchao_0_18), torchao_0_18_mxfp4},
      {"torchao_0_18_mxfp4_ceil", torchao_mx_blocks(MxRule::ceil, E8m0Edges::torchao_0_18), torchao_0_18_mxfp4},
      {"torchao_0_18_mxfp4_even", torchao_mx_blocks(MxRule::even, E8m0Edges::torchao_0_18), torchao_0_18_mxfp4},
      {"torchao_0_18_mxfp4_rceil", torchao_mx_blocks(MxRule::rceil, E8m0Edges::torchao_0_18), torchao_0_18_mxfp4},
  };
}

}  // namespace

std::vector<NamedRecipe> block_recipes() {
  std::vector<NamedRecipe> list = nvfp4_recipes();
  for (const auto& others : {mx_recipes(), torch_mx_recipes()}) list.insert(list.end(), others.begin(), others.end());
  return list;
}

}  // namespace fp8lab
