// SPDX-License-Identifier: Apache-2.0
// Where the codes and scales lie that a hypothesis leaves unexplained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/doctor/compare.hpp"
#include "quantize/suspect.hpp"

namespace fp8lab::doctor {

/// What the differences have in common by their place alone: as findings(), without what they are.
[[nodiscard]] std::vector<std::string> places_of(const Comparison& comparison);

/// Predicted words of an array and those that are there, in rows of `columns`.
struct WordPair {
  ElementType type;
  std::span<const std::byte> predicted, written;
  std::size_t columns;
};

/// What differences have in common: a sentence or a few for each kind and place. `noun` is what an element is called.
/// Empty where there are none.
[[nodiscard]] std::vector<std::string> located(const WordPair& pair, std::string_view noun);

/// What the codes, and the scales, that the suspect leaves have in common: a sentence or a few for each kind and place.
/// Empty where it explains all.
[[nodiscard]] std::vector<std::string> rest_of(const Suspect& suspect, const MatrixView& x, const StoredDump& dump);

/// Where the stored scales lie that the suspect does not explain, by the rows and columns of scales.
[[nodiscard]] std::vector<std::string> rest_of_scales(const Suspect& suspect, const StoredDump& dump);

}  // namespace fp8lab::doctor
