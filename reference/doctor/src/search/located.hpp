// SPDX-License-Identifier: Apache-2.0
// Where the words lie that an explanation leaves unexplained, and what they have in common.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/doctor/compare.hpp"

namespace fp8lab::doctor {

/// Predicted words of an array and those that are there, in rows of `columns`.
struct WordPair {
  ElementType type;
  std::span<const std::byte> predicted, written;
  std::size_t columns;
  int threads = 1;  ///< changes nothing but the time
};

[[nodiscard]] Comparison comparison_of(const WordPair& pair);

/// What differences have in common: a sentence or a few for each kind and place. `noun` is what an element is called.
/// Empty where there are none.
[[nodiscard]] std::vector<std::string> located(const WordPair& pair, std::string_view noun);

}  // namespace fp8lab::doctor
