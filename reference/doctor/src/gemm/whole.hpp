// SPDX-License-Identifier: Apache-2.0
// All elements of a GEMM at once, by gemm(), which is much faster than one element after the other.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gemm/candidates.hpp"
#include "gemm/problem.hpp"

namespace fp8lab::doctor {

/// The words of all elements, row-major, by a candidate that is composed as gemm() composes; nothing where it is not.
[[nodiscard]] std::optional<std::vector<std::uint64_t>> whole_output(const GemmCandidate& candidate,
                                                                     const GemmProblem& problem, int threads);

}  // namespace fp8lab::doctor
