// SPDX-License-Identifier: Apache-2.0
// Finds the entry of a table by its name or its value, and refuses a name that no entry has.
#pragma once

#include <cstddef>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "fp8lab/formats/text.hpp"

namespace fp8lab {

/// A value, what it is called, and words about it.
template <typename Value>
struct Named {
  std::string_view name;
  Value value;
  std::string_view words = {};
};
// Clang before 17 deduces no arguments of an aggregate by itself.
template <typename Value>
Named(std::string_view, Value) -> Named<Value>;
template <typename Value>
Named(std::string_view, Value, std::string_view) -> Named<Value>;

/// The entry of `entries` whose `name` member is `name`. Throws as refuse_name() does.
template <typename Entries>
[[nodiscard]] const auto& find_named(const Entries& entries, std::string_view kind, std::string_view name) {
  for (const auto& entry : entries) {
    if (entry.name == name) return entry;
  }
  std::vector<std::string_view> known;
  known.reserve(std::size(entries));
  for (const auto& entry : entries) known.push_back(entry.name);
  refuse_name(kind, name, known);
}

/// The entry of `entries` whose `value` member is `value`. Throws std::logic_error where none is.
template <typename Entries, typename Value>
[[nodiscard]] const auto& entry_of(const Entries& entries, Value value) {
  for (const auto& entry : entries) {
    if (entry.value == value) return entry;
  }
  throw std::logic_error("an enumerator without a name");
}

/// The next entry of a table: `entry` under another name, with other words about it and with what `change` does to it.
template <typename Entry, typename Change>
[[nodiscard]] constexpr Entry changed(Entry entry, std::string_view name, std::string_view description,
                                      const Change& change) {
  entry.name = name;
  entry.description = description;
  change(entry);
  return entry;
}

// An enumeration whose enumerators have names declares `named_values(E of_type)`, a span of Named<E> in the order of
// the enumerators. From it follow:

/// Whether entries stand in the order of the enumerators, for a static_assert beside them.
template <typename Entries>
[[nodiscard]] constexpr bool is_in_order(const Entries& entries) {
  for (std::size_t i = 0; i < std::size(entries); ++i) {
    if (static_cast<std::size_t>(entries[i].value) != i) return false;
  }
  return true;
}
template <typename Value>
concept NamedEnum = requires(Value value) { named_values(value); };

/// The entry of an enumerator.
template <NamedEnum Value>
[[nodiscard]] const Named<Value>& entry_of(Value value) {
  return named_values(value)[static_cast<std::size_t>(value)];
}
/// The name of an enumerator.
template <NamedEnum Value>
[[nodiscard]] std::string_view name_of(Value value) {
  return entry_of(value).name;
}
/// The enumerator called `name` of a field. Throws std::invalid_argument that names the field and lists what is known.
template <NamedEnum Value>
[[nodiscard]] Value find_value(std::string_view field, std::string_view name) {
  return find_named(named_values(Value{}), field, name).value;
}

}  // namespace fp8lab
