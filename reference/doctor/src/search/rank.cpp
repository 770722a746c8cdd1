// SPDX-License-Identifier: Apache-2.0
#include "search/rank.hpp"

#include <algorithm>

namespace fp8lab::doctor {

std::size_t count_tied(std::span<const Rank> ranks) {
  constexpr double less_plausible = 0.75;
  const auto is_tied = [&](const Rank& one) {
    return one.unexplained == 0 && one.cost < ranks.front().cost + less_plausible;
  };
  return std::max<std::size_t>(1, static_cast<std::size_t>(std::ranges::count_if(ranks, is_tied)));
}

}  // namespace fp8lab::doctor
