// SPDX-License-Identifier: Apache-2.0
// What an output suggests that nothing explains: which departures, one or two, come near it before their bits are
// asked.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gemm/problem.hpp"

namespace fp8lab::doctor {

/// A departure that brings the exact sums near the output.
struct SuggestedDeparture {
  const GemmDeparture* departure = nullptr;  ///< none: nothing but what follows
  ScaledBy scaled_by = ScaledBy::nothing;    ///< multiplied with numbers beside it
  std::size_t number = 0;                    ///< elements of K in a block, where blocks of K are other ones
  std::vector<std::size_t> blocks = {};      ///< these, in their order
  bool is_relu = false;                      ///< nothing of the output is negative
  /// Nine tenths of the elements are as near as this: their distance over the root of the sum of squared products.
  double distance = 0;

  /// How many things it changes.
  [[nodiscard]] std::size_t parts() const;
  /// Whether it is one row of the table, or a number for all elements, alone.
  [[nodiscard]] bool is_single() const { return blocks.empty() && parts() <= 1; }
};

/// The nearest ones, those that change least first. `order` are elements in the order in which they are looked at.
[[nodiscard]] std::vector<SuggestedDeparture> suggested_departures(const GemmProblem& problem,
                                                                   std::span<const std::size_t> order);

/// The end of located_sums() where all elements are near exact sums.
inline constexpr std::string_view small_difference = "What differs is small: the accumulation, or a rounding.";
/// Which rows and columns of an output are near exact sums, which are a number times these, and how often blocks of K
/// count: a sentence, "Located: ...".
[[nodiscard]] std::string located_sums(const GemmProblem& problem, std::span<const std::size_t> order);

/// A suggestion in words.
[[nodiscard]] std::string describe(const SuggestedDeparture& one);

}  // namespace fp8lab::doctor
