// SPDX-License-Identifier: Apache-2.0
// Where a GEMM's elements lie that a hypothesis leaves unexplained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/doctor/diagnose_gemm.hpp"
#include "gemm/problem.hpp"

namespace fp8lab::doctor {

/// What the elements of a whole output have in common that are not as predicted, a sentence or a few for each kind and
/// place; `words` are those of `elements`, and all others count as predicted.
[[nodiscard]] std::vector<std::string> gemm_rest(const GemmProblem& problem, std::span<const std::size_t> elements,
                                                 std::span<const std::uint64_t> words);

/// What an output of NaNs, of infinities or of zeros alone says, of which the first hypothesis leaves some elements
/// unexplained: sentences that end with a space. Empty for others.
[[nodiscard]] std::string output_of_one_kind(const GemmProblem& problem, const GemmExplanation& first);

}  // namespace fp8lab::doctor
