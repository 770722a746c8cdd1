// SPDX-License-Identifier: Apache-2.0
// torchao's tensor subclasses in .safetensors files.
#include "checkpoints/families.hpp"

namespace fp8lab::experiments {

std::vector<Layout> torchao_layouts() {
  constexpr std::string_view ao = "torchao 0.18.0, prototype/safetensors/safetensors_support.py and ";
  const auto base = [&](Layout own, Product product) {
    own.family = Family::torchao;
    own.source = ao.substr(0, ao.size() - 5);
    own.codes = "._weight_qdata";
    own.scale = "._weight_scale";
    own.companions = {{"._weight_act_per_tensor_scale", Role::input_scale}};
    own.methods = {"torchao"};
    own.exclusion = Exclusion::exact;
    own.exclusion_keys = {"modules_to_not_convert"};
    own.loaders = {{Loader::format, product, false, false, own.source}};
    return own;
  };
  const auto float8 = [&](std::string_view name, std::string_view words, ScaleShape shape, Grouping grouping) {
    return base({.name = name, .family = {}, .words = words, .source = {}, .scale_shape = shape, .grouping = grouping},
                Product::scale);
  };
  Layout row = float8("torchao_float8_row", "Float8Tensor: E4M3 with a scale a row in float32, of shape (N, 1)",
                      ScaleShape::column, Grouping::row);
  row.recipes = {"torchao_float8_row"};
  row.writer = "torchao_float8_row";
  Layout tensor = float8("torchao_float8_tensor", "Float8Tensor: E4M3 with one scale in float32", ScaleShape::scalar,
                         Grouping::tensor);
  tensor.recipes = {"torchao_float8_tensor"};
  tensor.writer = "torchao_float8_tensor";
  Layout block = float8("torchao_float8_block", "Float8Tensor: E4M3 in blocks, scales in float32", ScaleShape::grid,
                        Grouping::block);
  block.group = block.block_rows = 128;
  const auto nvfp4 = [&](std::string_view name, std::string_view words, ScaleShape shape) {
    return base({.name = name,
                 .family = {},
                 .words = words,
                 .source = {},
                 .global_scale = "._weight_per_tensor_scale",
                 .code_dtypes = {"U8"},
                 .scale_dtypes = {"F8_E4M3"},
                 .format = e2m1,
                 .packing = Packing::pairs_low_first,
                 .scale_type = ScaleType::e4m3,
                 .scale_shape = shape,
                 .grouping = Grouping::group,
                 .global = GlobalScale::multiplier,
                 .group = 16,
                 .recipes = {"torchao_nvfp4"},
                 .writer = "torchao_nvfp4"},
                Product::multiplied);
  };
  const auto mx = [&](std::string_view name, std::string_view words, Format format,
                      std::vector<std::string_view> dtypes, Packing packing, std::string_view recipe) {
    return base({.name = name,
                 .family = {},
                 .words = words,
                 .source = {},
                 .code_dtypes = std::move(dtypes),
                 .scale_dtypes = {"F8_E8M0"},
                 .format = format,
                 .packing = packing,
                 .scale_type = ScaleType::e8m0,
                 .scale_shape = ScaleShape::groups,
                 .grouping = Grouping::group,
                 .group = 32,
                 .recipes = {recipe},
                 .writer = recipe},
                Product::scale);
  };
  return {
      row,
      tensor,
      nvfp4("torchao_nvfp4",
            "NVFP4Tensor: E2M1 in groups of 16 with scales in E4M3; per_tensor_scale in float32 multiplies",
            ScaleShape::groups),
      nvfp4("torchao_nvfp4_swizzled", "NVFP4Tensor with scales in the order of cuBLAS's tiles", ScaleShape::tile_order),
      mx("torchao_mxfp8", "MXTensor: E4M3 in groups of 32 with scales in E8M0", e4m3, {"F8_E4M3"}, Packing::bytes,
         "modelopt_mxfp8"),
      mx("torchao_mxfp4", "MXTensor: E2M1 in groups of 32 with scales in E8M0", e2m1, {"U8"}, Packing::pairs_low_first,
         "torchao_0_18_mxfp4_floor"),
      block};
}

}  // namespace fp8lab::experiments
