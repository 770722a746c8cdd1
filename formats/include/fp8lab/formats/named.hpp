// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

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

/// The entry of `entries` whose `name` member is `name`. Throws std::invalid_argument that says what kind of thing was
/// looked up and lists every known name.
template <typename Entries>
[[nodiscard]] const auto& find_named(const Entries& entries, std::string_view kind, std::string_view name) {
  std::string known;
  for (const auto& entry : entries) {
    if (entry.name == name) return entry;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw std::invalid_argument("unknown " + std::string(kind) + " '" + std::string(name) + "'; known: " + known);
}

}  // namespace fp8lab
