// SPDX-License-Identifier: Apache-2.0
// Turns hypotheses into the explanations and the verdict of a diagnosis.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gemm/hypotheses.hpp"

namespace fp8lab::doctor {

/// The explanation by that hypothesis.
[[nodiscard]] GemmExplanation explanation_of(const GemmCandidate& candidate);

/// Fills in the explanations and how many are tied. Hypotheses that differ in the model alone become one.
void explain_gemm(GemmDiagnosis& result, const std::vector<GemmCandidate>& candidates, std::size_t checked);

/// A sentence or two of what a diagnosis comes to.
[[nodiscard]] std::string gemm_verdict(const GemmDiagnosis& result);

}  // namespace fp8lab::doctor
