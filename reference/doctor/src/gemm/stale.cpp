// SPDX-License-Identifier: Apache-2.0
#include "gemm/stale.hpp"

#include <algorithm>

#include "search/draw.hpp"

namespace fp8lab::doctor {
namespace {

/// Elements of the tile that tell where it goes on from.
constexpr std::size_t telling = 8;
/// Places that are tried.
constexpr std::size_t most_places = 1024;

struct Rectangle {
  std::size_t row, column, rows, columns;
};

Rectangle around(const GemmProblem& problem, std::span<const std::size_t> elements) {
  GemmPlace low{problem.facts().rows, problem.facts().columns};
  GemmPlace high{0, 0};
  for (const std::size_t i : elements) {
    const GemmPlace at = problem.element(i);
    low = {std::min(low.row, at.row), std::min(low.column, at.column)};
    high = {std::max(high.row, at.row), std::max(high.column, at.column)};
  }
  return {low.row, low.column, high.row - low.row + 1, high.column - low.column + 1};
}

/// Distances along one dimension from which a tile may go on: multiples of its length, or where several tiles follow
/// one another, of an equal part of it.
std::vector<std::ptrdiff_t> steps(std::size_t first, std::size_t length, std::size_t all) {
  std::vector<std::ptrdiff_t> found{0};
  for (const std::size_t parts : {1, 2, 3, 4, 8, 16}) {
    if (length % parts != 0) continue;
    const auto step = static_cast<std::ptrdiff_t>(length / parts);
    for (std::ptrdiff_t at = -step; at + static_cast<std::ptrdiff_t>(first) >= 0; at -= step) found.push_back(at);
    for (std::ptrdiff_t at = step; parts == 1 && first + length + static_cast<std::size_t>(at) <= all; at += step) {
      found.push_back(at);
    }
  }
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

}  // namespace

std::optional<GemmCandidate> with_stale_tile(const GemmProblem& problem, const GemmScorer& scorer,
                                             const GemmCandidate& candidate, std::span<const std::size_t> wrong) {
  const Rectangle at = around(problem, wrong);
  const bool is_dense = wrong.size() * 10 >= at.rows * at.columns * 8;
  if (wrong.size() < telling || !is_dense || candidate.departure != nullptr) return std::nullopt;
  std::vector<std::size_t> some;
  some.reserve(telling);
  for (std::size_t i = 0; i < telling; ++i) some.push_back(wrong[drawn_word(5, i) % wrong.size()]);
  const auto matches = [&](const GemmCandidate& one, std::span<const std::size_t> elements) {
    std::vector<GemmCandidate> single{one};
    single.front().matches = 0;
    scorer.score(single, elements);
    return single.front().matches;
  };
  std::size_t tried = 0;
  for (const std::ptrdiff_t down : steps(at.row, at.rows, problem.facts().rows)) {
    for (const std::ptrdiff_t along : steps(at.column, at.columns, problem.facts().columns)) {
      if ((down == 0 && along == 0) || ++tried > most_places) continue;
      GemmCandidate one = candidate;
      one.departure = &stale_tile();
      one.blocks = {at.row,
                    at.column,
                    at.rows,
                    at.columns,
                    at.row + static_cast<std::size_t>(down),
                    at.column + static_cast<std::size_t>(along)};
      if (matches(one, std::span(some).first(2)) != 2 || matches(one, some) != some.size()) continue;
      return one;
    }
  }
  return std::nullopt;
}

}  // namespace fp8lab::doctor
