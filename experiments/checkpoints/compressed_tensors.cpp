// SPDX-License-Identifier: Apache-2.0
// compressed-tensors, which llm-compressor writes.
#include "checkpoints/families.hpp"

namespace fp8lab::experiments {

std::vector<Layout> compressed_tensors_layouts() {
  constexpr std::string_view ct =
      "compressed-tensors 0.20.0, compressors/ and quantization/lifecycle/forward_helpers.py:_dequantize";
  const std::vector<std::vector<std::string_view>> fused{
      {"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"}, {"w1", "w3"}, {"wq_a", "wkv_a_with_mqa"}};
  const auto base = [&](Layout own, Product product) {
    own.family = Family::compressed_tensors;
    own.source = ct;
    own.scale = ".weight_scale";
    own.methods = {"compressed-tensors"};
    own.exclusion = Exclusion::module;
    own.exclusion_keys = {"ignore"};
    own.writer = own.format == e4m3 ? "no_zero_point" : own.recipes.front();
    own.companions.push_back({".weight_zero_point", Role::other});
    own.companions.push_back({".weight_shape", Role::other});
    own.loaders = {{Loader::format, product, false, false, ct},
                   {Loader::compressed_tensors, product, false, false, ct}};
    return own;
  };
  const std::vector<CompanionName> input{{".input_scale", Role::input_scale}};
  return {
      base({.name = "ct_fp8_tensor",
            .family = {},
            .words = "E4M3 with one scale of shape (1,), in bfloat16 for most models, which multiplies",
            .source = {},
            .companions = input,
            .scale_dtypes = {"BF16", "F32", "F16"},
            .recipes = {"compressed_tensors_tensor"}},
           Product::scale),
      base({.name = "ct_fp8_channel",
            .family = {},
            .words = "E4M3 with a scale a row, of shape (N, 1)",
            .source = {},
            .companions = input,
            .scale_dtypes = {"BF16", "F32", "F16"},
            .scale_shape = ScaleShape::column,
            .grouping = Grouping::row,
            .recipes = {"compressed_tensors_channel"}},
           Product::scale),
      base({.name = "ct_fp8_block",
            .family = {},
            .words = "E4M3 in blocks of 128x128",
            .source = {},
            .companions = input,
            .scale_dtypes = {"BF16", "F32", "F16"},
            .scale_shape = ScaleShape::grid,
            .grouping = Grouping::block,
            .group = 128,
            .block_rows = 128,
            .recipes = {"compressed_tensors_block"}},
           Product::scale),
      base({.name = "ct_nvfp4",
            .family = {},
            .words = "E2M1 in groups of 16 with scales in E4M3; weight_global_scale of shape (1,) divides",
            .source = {},
            .codes = ".weight_packed",
            .global_scale = ".weight_global_scale",
            .companions = {{".input_global_scale", Role::input_global_scale}, {".input_scale", Role::input_scale}},
            .code_dtypes = {"U8"},
            .scale_dtypes = {"F8_E4M3"},
            .format = e2m1,
            .packing = Packing::pairs_low_first,
            .scale_type = ScaleType::e4m3,
            .scale_shape = ScaleShape::groups,
            .grouping = Grouping::group,
            .global = GlobalScale::divisor,
            .group = 16,
            .fused = fused,
            .recipes = {"compressed_tensors_nvfp4"}},
           Product::divided),
      base({.name = "ct_mxfp4",
            .family = {},
            .words = "E2M1 in groups of 32 with scales in E8M0",
            .source = {},
            .codes = ".weight_packed",
            .code_dtypes = {"U8"},
            .scale_dtypes = {"U8", "F8_E8M0"},
            .format = e2m1,
            .packing = Packing::pairs_low_first,
            .scale_type = ScaleType::e8m0,
            .scale_shape = ScaleShape::groups,
            .grouping = Grouping::group,
            .group = 32,
            .recipes = {"compressed_tensors_mxfp4"}},
           Product::scale),
      base({.name = "ct_mxfp6",
            .family = {},
            .words = "E2M3 in groups of 32 with scales in E8M0, four codes in three bytes",
            .source = {},
            .codes = ".weight_packed",
            .code_dtypes = {"U8"},
            .scale_dtypes = {"U8", "F8_E8M0"},
            .format = e2m3,
            .packing = Packing::fours,
            .scale_type = ScaleType::e8m0,
            .scale_shape = ScaleShape::groups,
            .grouping = Grouping::group,
            .group = 32,
            .recipes = {"compressed_tensors_mxfp6"}},
           Product::scale),
      base({.name = "ct_mxfp8",
            .family = {},
            .words = "E4M3 in groups of 32 with scales in E8M0",
            .source = {},
            .scale_dtypes = {"U8", "F8_E8M0"},
            .scale_type = ScaleType::e8m0,
            .scale_shape = ScaleShape::groups,
            .grouping = Grouping::group,
            .group = 32,
            .recipes = {"compressed_tensors_mxfp8"}},
           Product::scale),
  };
}

}  // namespace fp8lab::experiments
