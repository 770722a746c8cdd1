// SPDX-License-Identifier: Apache-2.0
// The names and words of a recipe's fields.
#pragma once

#include <span>
#include <string_view>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"

namespace fp8lab {

/// The values of a field, with their names, and words where they have some: see fp8lab/formats/named.hpp.
[[nodiscard]] std::span<const Named<Transform>> named_values(Transform of_type);
[[nodiscard]] std::span<const Named<NanInAmax>> named_values(NanInAmax of_type);
[[nodiscard]] std::span<const Named<Quotient>> named_values(Quotient of_type);
[[nodiscard]] std::span<const Named<ScaleArithmetic>> named_values(ScaleArithmetic of_type);
[[nodiscard]] std::span<const Named<ScaleRounding>> named_values(ScaleRounding of_type);
[[nodiscard]] std::span<const Named<ScaleLimit>> named_values(ScaleLimit of_type);
[[nodiscard]] std::span<const Named<SpecialScale>> named_values(SpecialScale of_type);
[[nodiscard]] std::span<const Named<ScaleType>> named_values(ScaleType of_type);
[[nodiscard]] std::span<const Named<E8m0Edges>> named_values(E8m0Edges of_type);
[[nodiscard]] std::span<const Named<TensorScaleRule>> named_values(TensorScaleRule of_type);
[[nodiscard]] std::span<const Named<BlockProduct>> named_values(BlockProduct of_type);
[[nodiscard]] std::span<const Named<BlockFactor>> named_values(BlockFactor of_type);
[[nodiscard]] std::span<const Named<BlockChoice>> named_values(BlockChoice of_type);
[[nodiscard]] std::span<const Named<FactorRule>> named_values(FactorRule of_type);
[[nodiscard]] std::span<const Named<TileOperation>> named_values(TileOperation of_type);

}  // namespace fp8lab
