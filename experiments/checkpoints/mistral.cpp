// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/families.hpp"

namespace fp8lab::experiments {

std::vector<Layout> mistral_layouts() {
  constexpr std::string_view source =
      "transformers 5.24.0, integrations/finegrained_fp8.py; vllm 0.33.0, qscale_weight";
  return {{.name = "mistral_fp8",
           .family = Family::mistral,
           .words = "E4M3 with one scale, qscale_weight in float32, which multiplies",
           .source = source,
           .scale = ".qscale_weight",
           .companions = {{".qscale_act", Role::input_scale}},
           .scale_dtypes = {"F32", "BF16"},
           .methods = {"fp8"},
           .exclusion = Exclusion::dotted,
           .exclusion_keys = {"modules_to_not_convert", "ignored_layers"},
           .writer = "float32",
           .loaders = {{Loader::format, Product::scale, false, false, source},
                       {Loader::transformers, Product::scale, false, false, source}}}};
}

}  // namespace fp8lab::experiments
