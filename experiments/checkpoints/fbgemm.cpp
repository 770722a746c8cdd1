// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/families.hpp"

namespace fp8lab::experiments {

std::vector<Layout> fbgemm_layouts() {
  constexpr std::string_view source =
      "transformers 5.24.0, integrations/fbgemm_fp8.py; it has no dequantizer, so that the product is inferred";
  return {{.name = "fbgemm_fp8",
           .family = Family::fbgemm,
           .words = "E4M3 with a scale a row in float32, of shape (N, 1), which multiplies",
           .source = source,
           .scale = ".weight_scale",
           .companions = {{".input_scale_ub", Role::other}},
           .scale_dtypes = {"F32"},
           .scale_shape = ScaleShape::column,
           .grouping = Grouping::row,
           .methods = {"fbgemm_fp8"},
           .exclusion = Exclusion::dotted,
           .exclusion_keys = {"modules_to_not_convert"},
           .writer = "fbgemm",
           .loaders = {{Loader::format, Product::scale, false, false, source}}}};
}

}  // namespace fp8lab::experiments
