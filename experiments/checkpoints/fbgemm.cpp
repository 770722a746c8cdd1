// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/families.hpp"

namespace fp8lab::experiments {

std::vector<Layout> fbgemm_layouts() {
  constexpr std::string_view source =
      "transformers 5.24.0, integrations/fbgemm_fp8.py; it has no dequantizer, so that the product is inferred";
  const auto base = [&](Layout own) {
    own.family = Family::fbgemm;
    own.source = source;
    own.scale_dtypes = {"F32"};
    own.methods = {"fbgemm_fp8"};
    own.exclusion = Exclusion::dotted;
    own.exclusion_keys = {"modules_to_not_convert"};
    own.loaders = {{Loader::format, Product::scale, false, false, source}};
    return own;
  };
  // Llama 4's stacks of experts are (experts, K, N), and have a scale of each column, of shape (1, N) or (N, 1).
  const auto stack = [&](std::string_view name, std::string_view codes, std::string_view scale) {
    return base({.name = name,
                 .family = {},
                 .words = "Llama 4's stacks of experts: E4M3 of (K, N) with a scale a column in float32",
                 .source = {},
                 .codes = codes,
                 .scale = scale,
                 .restored = codes,
                 .scale_shape = ScaleShape::columns,
                 .grouping = Grouping::column,
                 .writer = "fbgemm"});
  };
  return {base({.name = "fbgemm_fp8",
                .family = {},
                .words = "E4M3 with a scale a row in float32, of shape (N, 1), which multiplies",
                .source = {},
                .scale = ".weight_scale",
                .companions = {{".input_scale_ub", Role::other}},
                .scale_shape = ScaleShape::column,
                .grouping = Grouping::row,
                .writer = "fbgemm"}),
          stack("fbgemm_llama4_gate_up", ".gate_up_proj", ".gate_up_proj_scale"),
          stack("fbgemm_llama4_down", ".down_proj", ".down_proj_scale")};
}

}  // namespace fp8lab::experiments
