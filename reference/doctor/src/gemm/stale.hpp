// SPDX-License-Identifier: Apache-2.0
// A tile of an output that goes on from the accumulators of another tile.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "gemm/scorer.hpp"

namespace fp8lab::doctor {

/// The candidate with a tile that goes on from another one, where elements of a whole output that contradict it lie in
/// a rectangle and say so by their bits. `wrong` are those elements.
[[nodiscard]] std::optional<GemmCandidate> with_stale_tile(const GemmProblem& problem, const GemmScorer& scorer,
                                                           const GemmCandidate& candidate,
                                                           std::span<const std::size_t> wrong);

}  // namespace fp8lab::doctor
