// SPDX-License-Identifier: Apache-2.0
// Numbers that elements of an output are multiplied with: found by what each element allows.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "gemm/scorer.hpp"

namespace fp8lab::doctor {

/// Numbers f of which results times f may round to the elements that are there.
struct AllowedFactors {
  double low, high;

  [[nodiscard]] bool is_empty() const { return !(low <= high); }
};

/// The simplest float32 of the interval: a power of two, 1 / n, n, 1 / sqrt(n), or the one of the fewest digits. A
/// form counts where few numbers of it are as near. None where no float32 is in it.
[[nodiscard]] std::optional<float> simplest_factor(const AllowedFactors& interval);

/// Which of the hypotheses explain the output if each element, each row or each column is multiplied with a number:
/// those, with the numbers. `order` are elements in the order in which they are looked at; `sieve` of them, and
/// `most_products`, bound the time.
[[nodiscard]] std::vector<GemmCandidate> scaled_candidates(const GemmProblem& problem, const GemmScorer& scorer,
                                                           std::vector<GemmCandidate> bases,
                                                           std::span<const std::size_t> order, std::size_t sieve,
                                                           std::size_t most_products);

}  // namespace fp8lab::doctor
