// SPDX-License-Identifier: Apache-2.0
// The records of each family, which all_layouts() lists.
#pragma once

#include <vector>

#include "checkpoints/layout.hpp"

namespace fp8lab::experiments {

[[nodiscard]] std::vector<Layout> deepseek_layouts();
[[nodiscard]] std::vector<Layout> transformers_layouts();
[[nodiscard]] std::vector<Layout> mistral_layouts();
[[nodiscard]] std::vector<Layout> gpt_oss_layouts();
[[nodiscard]] std::vector<Layout> compressed_tensors_layouts();
[[nodiscard]] std::vector<Layout> modelopt_layouts();
[[nodiscard]] std::vector<Layout> fbgemm_layouts();
[[nodiscard]] std::vector<Layout> quark_layouts();
[[nodiscard]] std::vector<Layout> torchao_layouts();
[[nodiscard]] std::vector<Layout> comfy_layouts();
[[nodiscard]] std::vector<Layout> gguf_layouts();

}  // namespace fp8lab::experiments
