// SPDX-License-Identifier: Apache-2.0
// NVIDIA ModelOpt.
#include "checkpoints/families.hpp"

namespace fp8lab::experiments {

std::vector<Layout> modelopt_layouts() {
  constexpr std::string_view mo =
      "nvidia-modelopt 0.47.0, torch/export/unified_export_hf.py and torch/quantization/qtensor";
  const std::vector<std::vector<std::string_view>> fused{
      {"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"}, {"w1", "w3"}};
  const auto base = [&](Layout own, Product product, bool positive_zero = false) {
    own.family = Family::modelopt;
    own.source = mo;
    own.scale = ".weight_scale";
    own.methods = {"modelopt", "modelopt_fp4", "modelopt_mxfp8"};
    own.exclusion = Exclusion::wildcard;
    own.exclusion_keys = {"ignore", "exclude_modules"};
    if (own.recipes.empty()) {
      own.writer = own.grouping == Grouping::tensor ? "float32_scale" : "float32";
    } else {
      own.writer = own.recipes.front();
    }
    own.companions.insert(own.companions.end(), {{".input_scale", Role::input_scale},
                                                 {".pre_quant_scale", Role::pre_quant_scale},
                                                 {".svdquant_lora_a", Role::other},
                                                 {".svdquant_lora_b", Role::other}});
    own.loaders = {{Loader::format, product, false, positive_zero, mo},
                   {Loader::modelopt, product, false, positive_zero, mo}};
    return own;
  };
  Layout nvfp4 = base({.name = "modelopt_nvfp4",
                       .family = {},
                       .words = "E2M1 in groups of 16 with scales in E4M3; weight_scale_2 in float32 multiplies",
                       .source = {},
                       .global_scale = ".weight_scale_2",
                       .code_dtypes = {"U8"},
                       .scale_dtypes = {"F8_E4M3"},
                       .format = e2m1,
                       .packing = Packing::pairs_low_first,
                       .scale_type = ScaleType::e4m3,
                       .scale_shape = ScaleShape::groups,
                       .grouping = Grouping::group,
                       .global = GlobalScale::multiplier,
                       .group = 16,
                       .fused = fused,
                       .recipes = {"modelopt_nvfp4", "modelopt_nvfp4_static"}},
                      Product::multiplied, true);
  nvfp4.loaders.push_back({Loader::vllm, Product::multiplied, false, true, "vllm 0.33.0, nvfp4_emulation_utils.py"});
  return {
      base({.name = "modelopt_fp8",
            .family = {},
            .words = "E4M3 with one scale of shape () in float32, which multiplies; layers that are fused share it",
            .source = {},
            .scale_dtypes = {"F32"},
            .fused = fused},
           Product::rounded_scale),
      base({.name = "modelopt_fp8_channel",
            .family = {},
            .words = "E4M3 with a scale a row in float32, of shape (N,)",
            .source = {},
            .scale_dtypes = {"F32"},
            .scale_shape = ScaleShape::vector,
            .grouping = Grouping::row},
           Product::rounded_scale),
      base({.name = "modelopt_fp8_block",
            .family = {},
            .words = "E4M3 in blocks of 128x128, scales in float32 of shape (N / 128, 1, K / 128, 1)",
            .source = {},
            .scale_dtypes = {"F32"},
            .scale_shape = ScaleShape::grid_4d,
            .grouping = Grouping::block,
            .group = 128,
            .block_rows = 128},
           Product::rounded_scale),
      nvfp4,
      base({.name = "modelopt_mxfp8",
            .family = {},
            .words = "E4M3 in groups of 32 with scales in E8M0",
            .source = {},
            .scale_dtypes = {"U8"},
            .scale_type = ScaleType::e8m0,
            .scale_shape = ScaleShape::groups,
            .grouping = Grouping::group,
            .group = 32,
            .recipes = {"modelopt_mxfp8"}},
           Product::scale),
      base({.name = "modelopt_mxfp4",
            .family = {},
            .words = "E2M1 in groups of 32 with scales in E8M0",
            .source = {},
            .code_dtypes = {"U8"},
            .scale_dtypes = {"U8"},
            .format = e2m1,
            .packing = Packing::pairs_low_first,
            .scale_type = ScaleType::e8m0,
            .scale_shape = ScaleShape::groups,
            .grouping = Grouping::group,
            .group = 32,
            .recipes = {"modelopt_mxfp4"}},
           Product::scale),
  };
}

}  // namespace fp8lab::experiments
