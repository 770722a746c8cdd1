// SPDX-License-Identifier: Apache-2.0
// The names and words of a recipe's fields.
#pragma once

#include <span>
#include <string_view>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"

namespace fp8lab {

/// The values of a field, with their names, and words where they have some.
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

/// The entry of a value.
template <typename Value>
[[nodiscard]] const Named<Value>& entry_of(Value value) {
  return named_values(value)[static_cast<std::size_t>(value)];
}
/// The name of a field's value.
template <typename Value>
  requires requires(Value value) { named_values(value); }
[[nodiscard]] std::string_view name_of(Value value) {
  return entry_of(value).name;
}
/// The value called `name` of a field. Throws std::invalid_argument that names the field and lists what is known.
template <typename Value>
[[nodiscard]] Value find_value(std::string_view field, std::string_view name) {
  return find_named(named_values(Value{}), field, name).value;
}

}  // namespace fp8lab
