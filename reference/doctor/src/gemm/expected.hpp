// SPDX-License-Identifier: Apache-2.0
// The GEMM that was meant, as a hypothesis.
#pragma once

#include "gemm/candidates.hpp"
#include "gemm/problem.hpp"

namespace fp8lab::doctor {

/// What is expected of these operands. Throws std::invalid_argument as diagnose_gemm() does.
[[nodiscard]] GemmCandidate expected_candidate(const ExpectedGemm& expected, const GemmProblem& problem,
                                               const Operand& a, const Operand& b);

/// Whether both are the same arithmetic: ranges that are added one by one are promotions of their length.
[[nodiscard]] bool is_same(const GemmHypothesis& x, const GemmHypothesis& y);

}  // namespace fp8lab::doctor
