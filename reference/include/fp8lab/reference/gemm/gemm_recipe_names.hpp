// SPDX-License-Identifier: Apache-2.0
// The names and words of a GEMM recipe's fields.
#pragma once

#include <span>
#include <string_view>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/gemm/gemm_recipe.hpp"

namespace fp8lab {

/// The values of a field, with their names, and words where they have some, in the order of the enumerators.
[[nodiscard]] std::span<const Named<StepType>> named_values(StepType of_type);
[[nodiscard]] std::span<const Named<PartialOrder>> named_values(PartialOrder of_type);
[[nodiscard]] std::span<const Named<ScaleOrder>> named_values(ScaleOrder of_type);
[[nodiscard]] std::span<const Named<TensorScaleUse>> named_values(TensorScaleUse of_type);
[[nodiscard]] std::span<const Named<CEntry>> named_values(CEntry of_type);
[[nodiscard]] std::span<const Named<Addition>> named_values(Addition of_type);
[[nodiscard]] std::span<const Named<GemmActivation>> named_values(GemmActivation of_type);
[[nodiscard]] std::span<const Named<BiasGradient>> named_values(BiasGradient of_type);

}  // namespace fp8lab
