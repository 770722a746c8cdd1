// SPDX-License-Identifier: Apache-2.0
// Which pairs of hypotheses an input tells apart.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace fp8lab::doctor {

/// The pairs of some hypotheses, and those that give the same for an input.
struct ProbedPairs {
  std::size_t pairs = 0;  ///< of hypotheses
  /// Pairs that do not differ on it, by their numbers. What differs on none of many inputs seldom differs at all.
  std::vector<std::pair<std::size_t, std::size_t>> alike = {};

  /// Pairs that differ on it.
  [[nodiscard]] std::size_t parted() const { return pairs - alike.size(); }
};

}  // namespace fp8lab::doctor
