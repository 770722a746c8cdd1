// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/families.hpp"

namespace fp8lab::experiments {

std::vector<Layout> gpt_oss_layouts() {
  constexpr std::string_view hf = "transformers 5.24.0, integrations/mxfp4.py:convert_moe_packed_tensors";
  return {{.name = "gpt_oss_mxfp4",
           .family = Family::gpt_oss,
           .words =
               "stacks of experts in E2M1, groups of 32 as _blocks of 16 bytes, _scales in E8M0; rows of gate and up "
               "alternate, and the weight before is transposed",
           .source = hf,
           .codes = "_blocks",
           .scale = "_scales",
           .companions = {{"_bias", Role::bias}},
           .restored = "",
           .code_dtypes = {"U8"},
           .scale_dtypes = {"U8"},
           .format = e2m1,
           .packing = Packing::gpt_oss_blocks,
           .scale_type = ScaleType::e8m0,
           .scale_shape = ScaleShape::groups,
           .grouping = Grouping::group,
           .transposed = true,
           .group = 32,
           .methods = {"mxfp4"},
           .exclusion = Exclusion::dotted,
           .exclusion_keys = {"modules_to_not_convert"},
           .writer = "ocp_mxfp4",
           .loaders = {{Loader::format, Product::scale, false, false, hf},
                       {Loader::transformers, Product::scale, false, false, hf}}}};
}

}  // namespace fp8lab::experiments
