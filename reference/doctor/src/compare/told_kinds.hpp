// SPDX-License-Identifier: Apache-2.0
// Says of which kinds all differences of two arrays are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp8lab::doctor {

/// A kind of elements.
struct KindWords {
  std::uint32_t kind;      ///< a bit
  std::string_view words;  ///< behind "Every one"
  std::uint32_t instead;   ///< kinds that say all that it says: where one of them is told, it is not
  bool is_half = false;    ///< every second difference is of it, and elements that are equal cannot be
};

/// How many elements there are.
struct KindCounts {
  std::uint64_t elements, differing;
  std::span<const std::uint64_t> others;  ///< of each kind, by the number of its bit: those that do not differ
};

/// A sentence for each of the `shared` kinds, those of all differing elements, that so many drawn elements would seldom
/// share, and whether other elements are of it.
[[nodiscard]] std::vector<std::string> told_kinds(std::span<const KindWords> all, std::uint32_t shared,
                                                  const KindCounts& counts);

}  // namespace fp8lab::doctor
