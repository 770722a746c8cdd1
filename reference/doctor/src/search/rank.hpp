// SPDX-License-Identifier: Apache-2.0
// Which of several explanations is told first, and which others as well.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

namespace fp8lab::doctor {

/// What an explanation leaves unexplained, and how implausible it is. The least is the best.
struct Rank {
  std::uint64_t unexplained;
  double cost;

  friend auto operator<=>(const Rank&, const Rank&) = default;
};

/// How many explain everything and are about as plausible as the first: the data cannot tell them apart. At least the
/// first.
[[nodiscard]] std::size_t count_tied(std::span<const Rank> ranks);

}  // namespace fp8lab::doctor
