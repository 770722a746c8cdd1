// SPDX-License-Identifier: Apache-2.0
// Tables of what a wrong kernel does: each row has at least a name, words, a cost and the stage where it acts.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace fp8lab::doctor {

/// Rows that act in one stage.
template <typename Row, typename Stage, std::size_t count>
consteval std::array<Row, count> of_stage(Stage stage, std::array<Row, count> rows) {
  for (Row& one : rows) one.stage = stage;
  return rows;
}

/// The row of that name: for searches that refer to one.
template <typename Row, std::size_t count>
consteval const Row& row_named(const std::array<Row, count>& rows, std::string_view name) {
  for (const Row& one : rows) {
    if (one.name == name) return one;
  }
  throw "no such row";  // NOLINT(bugprone-std-exception-baseclass): it stops the compiler
}

}  // namespace fp8lab::doctor
