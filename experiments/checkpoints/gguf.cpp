// SPDX-License-Identifier: Apache-2.0
// The FP4 types of GGUF.
#include "checkpoints/families.hpp"

namespace fp8lab::experiments {

std::vector<Layout> gguf_layouts() {
  constexpr std::string_view gg = "gguf 0.19.0, quants.py; llama.cpp, ggml-common.h";
  const auto base = [&](Layout own) {
    own.family = Family::gguf;
    own.source = gg;
    own.global_scale = ".scale";
    own.companions = {{".input_scale", Role::input_scale}};
    own.format = e2m1;
    own.scale_shape = ScaleShape::in_block;
    own.scale_dtypes = {};
    own.grouping = Grouping::group;
    own.global = GlobalScale::after;
    own.loaders = {{Loader::format, Product::codes_first, false, true, gg},
                   {Loader::gguf, Product::scale, false, true, gg}};
    return own;
  };
  return {
      base({.name = "gguf_mxfp4",
            .family = {},
            .words =
                "blocks of 17 bytes: an E8M0 scale and 32 codes of E2M1, the second 16 in the high nibbles; .scale of "
                "the tensor multiplies the layer's product",
            .source = {},
            .code_dtypes = {"MXFP4"},
            .packing = Packing::gguf_mxfp4,
            .scale_type = ScaleType::e8m0,
            .group = 32}),
      base({.name = "gguf_nvfp4",
            .family = {},
            .words = "blocks of 36 bytes: four UE4M3 scales and 64 codes of E2M1; .scale of the tensor multiplies the "
                     "layer's product",
            .source = {},
            .code_dtypes = {"NVFP4"},
            .packing = Packing::gguf_nvfp4,
            .scale_type = ScaleType::ue4m3,
            .group = 16})};
}

}  // namespace fp8lab::experiments
