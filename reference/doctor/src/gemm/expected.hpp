// SPDX-License-Identifier: Apache-2.0
// The GEMM that was meant, as a hypothesis.
#pragma once

#include "gemm/candidates.hpp"
#include "gemm/problem.hpp"

namespace fp8lab::doctor {

/// The expected recipe for these operands: what it leaves out is written as hypotheses have it. Throws
/// std::invalid_argument as diagnose_gemm() does. `expected` must outlive what is returned.
[[nodiscard]] GemmCandidate expected_candidate(const GemmRecipe& expected, const GemmProblem& problem);

/// Whether both are the same arithmetic: ranges that are added one by one are promotions of their length.
[[nodiscard]] bool is_same(const GemmCandidate& x, const GemmCandidate& y);

}  // namespace fp8lab::doctor
