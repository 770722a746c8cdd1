// SPDX-License-Identifier: Apache-2.0
// DeepSeek V3, V3.1 and V4, and what has their form: Qwen3-FP8, Kimi-K2, GLM.
#include "checkpoints/families.hpp"

namespace fp8lab::experiments {

std::vector<Layout> deepseek_layouts() {
  constexpr std::string_view v3 =
      "deepseek-ai/DeepSeek-V3 (9b4e978), README_WEIGHTS.md and inference/kernel.py:weight_dequant";
  constexpr std::string_view hf = "transformers 5.24.0, integrations/finegrained_fp8.py:Fp8Dequantize";
  const std::vector<Dequantization> block_loaders{
      {Loader::format, Product::scale, false, false, v3},
      {Loader::deepseek, Product::scale, false, false, v3},
      {Loader::transformers, Product::scale, true, false, hf},
      {Loader::compressed_tensors, Product::scale, false, false,
       "compressed-tensors 0.20.0, entrypoints/convert/converters: FP8BlockDequantizer"},
      {Loader::modelopt, Product::rounded_scale, false, false,
       "nvidia-modelopt 0.47.0, export/plugins/mcore_custom.py"},
      {Loader::quark, Product::scale, true, false, "amd-quark 0.13"}};
  const std::vector<Dequantization> v4_loaders{{Loader::format, Product::scale, false, false, hf},
                                               {Loader::transformers, Product::scale, true, false, hf}};
  const std::vector<std::string_view> keys{"modules_to_not_convert", "ignored_layers"};
  return {
      {.name = "deepseek_fp8_block",
       .family = Family::deepseek,
       .words =
           "E4M3 in blocks of 128x128, weight_scale_inv in float32, which multiplies; with scale_fmt ue8m0 the scales "
           "are powers of two",
       .source = v3,
       .scale = ".weight_scale_inv",
       .scale_dtypes = {"F32", "BF16"},
       .scale_shape = ScaleShape::grid,
       .grouping = Grouping::block,
       .group = 128,
       .block_rows = 128,
       .methods = {"fp8"},
       .exclusion = Exclusion::dotted,
       .exclusion_keys = keys,
       .recipes = {"transformers_fp8_weight", "deepgemm_weight_ue8m0"},
       .writer = "transformers_fp8_weight",
       .loaders = block_loaders},
      {.name = "fnuz_fp8_block",
       .family = Family::deepseek,
       .words = "E4M3 FNUZ in blocks of 128x128, weight_scale_inv in float32, as engines keep it on AMD's MI300",
       .source = "vllm 0.33.0, quantization/utils/w8a8_utils.py:normalize_e4m3fn_to_e4m3fnuz",
       .scale = ".weight_scale_inv",
       .code_dtypes = {"F8_E4M3FNUZ"},
       .scale_dtypes = {"F32", "BF16"},
       .format = e4m3fnuz,
       .scale_shape = ScaleShape::grid,
       .grouping = Grouping::block,
       .group = 128,
       .block_rows = 128,
       .methods = {"fp8"},
       .exclusion = Exclusion::dotted,
       .exclusion_keys = keys,
       .writer = "converted_fnuz",
       .loaders = {{Loader::format, Product::scale, false, false, v3}}},
      {.name = "deepseek_v4_dense",
       .family = Family::deepseek,
       .words = "E4M3 in blocks of 128x128, .scale in E8M0",
       .source = hf,
       .scale = ".scale",
       .scale_dtypes = {"F8_E8M0"},
       .scale_type = ScaleType::e8m0,
       .scale_shape = ScaleShape::grid,
       .grouping = Grouping::block,
       .group = 128,
       .block_rows = 128,
       .methods = {"fp8"},
       .exclusion = Exclusion::dotted,
       .exclusion_keys = keys,
       .recipes = {"transformers_fp8_weight_ue8m0"},
       .writer = "transformers_fp8_weight_ue8m0",
       .loaders = v4_loaders},
      {.name = "deepseek_v4_experts",
       .family = Family::deepseek,
       .words = "E2M1 in groups of 32, two codes in a byte of dtype I8, .scale in E8M0",
       .source = hf,
       .scale = ".scale",
       .code_dtypes = {"I8"},
       .scale_dtypes = {"F8_E8M0"},
       .format = e2m1,
       .packing = Packing::pairs_low_first,
       .scale_type = ScaleType::e8m0,
       .scale_shape = ScaleShape::groups,
       .grouping = Grouping::group,
       .group = 32,
       .methods = {"fp8"},
       .exclusion = Exclusion::dotted,
       .exclusion_keys = keys,
       .writer = "power_of_two",
       .loaders = {{Loader::format, Product::scale, false, false, hf},
                   {Loader::transformers, Product::scale, false, false, hf}}},
      {.name = "deepseek_converted",
       .family = Family::deepseek,
       .words = "E4M3 in blocks of 128x128, .scale in float32: the files that inference/convert.py makes",
       .source = "deepseek-ai/DeepSeek-V3 (9b4e978), inference/convert.py",
       .scale = ".scale",
       .scale_shape = ScaleShape::grid,
       .grouping = Grouping::block,
       .group = 128,
       .block_rows = 128,
       .loaders = {{Loader::format, Product::scale, false, false, v3},
                   {Loader::deepseek, Product::scale, false, false, v3}}},
  };
}

}  // namespace fp8lab::experiments
