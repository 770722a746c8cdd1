// SPDX-License-Identifier: Apache-2.0
// ComfyUI's single files.
#include "checkpoints/families.hpp"

namespace fp8lab::experiments {

std::vector<Layout> comfy_layouts() {
  constexpr std::string_view ck = "comfy-kitchen 0.2.40, tensor/; ComfyUI comfy/quant_ops.py (0271a46)";
  constexpr std::string_view old = "ComfyUI comfy/utils.py (09708ea); comfy-kitchen 0.2.40, tensor/";
  const auto base = [&](Layout own, Product product) {
    own.family = Family::comfyui;
    own.source = own.scale == ".scale_weight" ? old : ck;
    if (own.scale.empty()) own.scale = ".weight_scale";
    if (own.scale != ".scale_weight") {
      own.companions = {{".comfy_quant", Role::marker},
                        {".input_scale", Role::input_scale},
                        {".pre_quant_scale", Role::pre_quant_scale}};
    }
    if (own.format != e5m2 && own.scale_type != ScaleType::e8m0) own.writer = "comfy_kitchen";
    own.loaders = {{Loader::format, product, false, false, own.source}};
    return own;
  };
  return {
      base({.name = "comfy_scaled_fp8",
            .family = {},
            .words = "E4M3 with one scale, scale_weight in float32, which multiplies; the file has a tensor scaled_fp8",
            .source = {},
            .scale = ".scale_weight",
            .companions = {{".scale_input", Role::input_scale}},
            .scale_dtypes = {"F32", "BF16", "F16"}},
           Product::rounded_scale),
      base({.name = "comfy_scaled_fp8_e5m2",
            .family = {},
            .words = "the same in E5M2",
            .source = {},
            .scale = ".scale_weight",
            .companions = {{".scale_input", Role::input_scale}},
            .code_dtypes = {"F8_E5M2"},
            .scale_dtypes = {"F32", "BF16", "F16"},
            .format = e5m2},
           Product::rounded_scale),
      base({.name = "comfy_fp8",
            .family = {},
            .words = "E4M3 with one scale in float32, which multiplies; comfy_quant or the metadata name the format",
            .source = {},
            .scale_dtypes = {"F32", "BF16", "F16"}},
           Product::rounded_scale),
      base({.name = "comfy_fp8_e5m2",
            .family = {},
            .words = "the same in E5M2",
            .source = {},
            .code_dtypes = {"F8_E5M2"},
            .scale_dtypes = {"F32", "BF16", "F16"},
            .format = e5m2},
           Product::rounded_scale),
      base({.name = "comfy_nvfp4",
            .family = {},
            .words =
                "E2M1 in groups of 16, the even element in the high nibble; scales in E4M3 in the order of cuBLAS's "
                "tiles; weight_scale_2 in float32 multiplies",
            .source = {},
            .global_scale = ".weight_scale_2",
            .code_dtypes = {"U8"},
            .scale_dtypes = {"F8_E4M3"},
            .format = e2m1,
            .packing = Packing::pairs_high_first,
            .scale_type = ScaleType::e4m3,
            .scale_shape = ScaleShape::tile_order,
            .grouping = Grouping::group,
            .global = GlobalScale::multiplier,
            .group = 16},
           Product::rounded_multiplied),
      base({.name = "comfy_mxfp8",
            .family = {},
            .words = "E4M3 in groups of 32 with scales in E8M0 in the order of cuBLAS's tiles",
            .source = {},
            .scale_dtypes = {"F8_E8M0", "U8"},
            .scale_type = ScaleType::e8m0,
            .scale_shape = ScaleShape::tile_order,
            .grouping = Grouping::group,
            .group = 32},
           Product::scale),
  };
}

}  // namespace fp8lab::experiments
