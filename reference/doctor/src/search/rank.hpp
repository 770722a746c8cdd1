// SPDX-License-Identifier: Apache-2.0
// Which of several explanations is told first, and which others as well.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace fp8lab::doctor {

/// What an explanation leaves unexplained, and how implausible it is. The least is the best.
struct Rank {
  std::uint64_t unexplained;
  double cost;

  friend auto operator<=>(const Rank&, const Rank&) = default;
};

/// Sorts by rank, which is asked for once of each. What ranks equal stays in its order.
template <typename One, typename RankOf>
void sort_by_rank(std::vector<One>& all, const RankOf& rank_of) {
  std::vector<std::pair<Rank, std::size_t>> places;
  places.reserve(all.size());
  for (const One& one : all) places.emplace_back(rank_of(one), places.size());
  std::ranges::sort(places);
  std::vector<One> sorted;
  sorted.reserve(all.size());
  for (const auto& [rank, place] : places) sorted.push_back(std::move(all[place]));
  all = std::move(sorted);
}

/// How many explain everything and are about as plausible as the first: the data cannot tell them apart. At least the
/// first.
[[nodiscard]] std::size_t count_tied(std::span<const Rank> ranks);

}  // namespace fp8lab::doctor
