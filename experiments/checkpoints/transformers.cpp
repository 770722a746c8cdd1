// SPDX-License-Identifier: Apache-2.0
// What transformers writes and reads under quant_method fp8 and mxfp8, but for DeepSeek's blocks.
#include "checkpoints/families.hpp"

namespace fp8lab::experiments {

std::vector<Layout> transformers_layouts() {
  constexpr std::string_view hf = "transformers 5.24.0, integrations/finegrained_fp8.py";
  const std::vector<std::string_view> keys{"modules_to_not_convert", "ignored_layers"};
  const std::vector<Dequantization> loaders{{Loader::format, Product::scale, false, false, hf},
                                            {Loader::transformers, Product::scale, false, false, hf}};
  const std::vector<CompanionName> inputs{{".activation_scale", Role::input_scale}};
  return {
      {.name = "transformers_mxfp8",
       .family = Family::transformers,
       .words = "E4M3 in groups of 32, weight_scale_inv in E8M0",
       .source = hf,
       .scale = ".weight_scale_inv",
       .scale_dtypes = {"U8", "F8_E8M0"},
       .scale_type = ScaleType::e8m0,
       .scale_shape = ScaleShape::groups,
       .grouping = Grouping::group,
       .group = 32,
       .methods = {"mxfp8", "fp8"},
       .exclusion = Exclusion::dotted,
       .exclusion_keys = keys,
       .recipes = {"modelopt_mxfp8", "transformers_mxfp8"},
       .writer = "modelopt_mxfp8",
       .loaders = loaders},
      {.name = "transformers_fp8_block_ue8m0",
       .family = Family::transformers,
       .words = "E4M3 in blocks of 128x128, weight_scale_inv in E8M0",
       .source = hf,
       .scale = ".weight_scale_inv",
       .scale_dtypes = {"F8_E8M0", "U8"},
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
       .loaders = {{Loader::format, Product::scale, false, false, hf},
                   {Loader::transformers, Product::scale, true, false, hf}}},
      {.name = "transformers_fp8_tensor",
       .family = Family::transformers,
       .words = "E4M3 with one scale, weight_scale_inv in float32, which multiplies",
       .source = hf,
       .scale = ".weight_scale_inv",
       .companions = inputs,
       .scale_dtypes = {"F32", "BF16"},
       .methods = {"fp8"},
       .exclusion = Exclusion::dotted,
       .exclusion_keys = keys,
       .writer = "float32",
       .loaders = loaders},
  };
}

}  // namespace fp8lab::experiments
