// SPDX-License-Identifier: Apache-2.0
// AMD Quark.
#include <utility>

#include "checkpoints/families.hpp"

namespace fp8lab::experiments {

std::vector<Layout> quark_layouts() {
  constexpr std::string_view qk = "amd-quark 0.13, torch/kernel/hw_emulation and torch/utils/pack.py";
  const auto base = [&](Layout own) {
    own.family = Family::quark;
    own.source = qk;
    own.scale = ".weight_scale";
    own.methods = {"quark"};
    own.exclusion = Exclusion::wildcard;
    own.exclusion_keys = {"exclude"};
    own.writer = own.recipes.empty() ? "quark" : own.recipes.front();
    own.companions.push_back({".input_scale", Role::input_scale});
    own.companions.push_back({".weight_zero_point", Role::other});
    own.loaders = {{Loader::format, Product::scale, false, false, qk},
                   {Loader::quark, Product::scale, false, false, qk}};
    return own;
  };
  const auto fnuz = [&](Layout own) {
    own.code_dtypes = {"F8_E4M3FNUZ"};
    own.format = e4m3fnuz;
    own = base(std::move(own));
    own.writer = "converted_fnuz";
    return own;
  };
  return {
      base({.name = "quark_fp8",
            .family = {},
            .words = "E4M3 with one scale, which multiplies",
            .source = {},
            .scale_dtypes = {"F32", "BF16"}}),
      base({.name = "quark_fp8_channel",
            .family = {},
            .words = "E4M3 with a scale a row, of shape (N,)",
            .source = {},
            .scale_dtypes = {"F32", "BF16"},
            .scale_shape = ScaleShape::vector,
            .grouping = Grouping::row}),
      fnuz({.name = "quark_fp8_fnuz",
            .family = {},
            .words = "E4M3 FNUZ with one scale, which multiplies",
            .source = {},
            .scale_dtypes = {"F32", "BF16"}}),
      fnuz({.name = "quark_fp8_fnuz_channel",
            .family = {},
            .words = "E4M3 FNUZ with a scale a row, of shape (N,)",
            .source = {},
            .scale_dtypes = {"F32", "BF16"},
            .scale_shape = ScaleShape::vector,
            .grouping = Grouping::row}),
      base({.name = "quark_mxfp4",
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
            .recipes = {"quark_mxfp4"}}),
  };
}

}  // namespace fp8lab::experiments
