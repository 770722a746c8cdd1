// SPDX-License-Identifier: Apache-2.0
// Hypotheses about a GEMM while they are looked at, and what is said of them in the end.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gemm/hypotheses.hpp"

namespace fp8lab::doctor {

struct GemmCandidate {
  GemmHypothesis hypothesis;
  const MmaModel* model;
  std::size_t matches = 0;  ///< elements that it explains
};

/// Fills in the explanations and how many are tied. Hypotheses that differ in the model alone become one.
void explain_gemm(GemmDiagnosis& result, const std::vector<GemmCandidate>& candidates, std::size_t checked);

/// A sentence or two of what a diagnosis comes to.
[[nodiscard]] std::string gemm_verdict(const GemmDiagnosis& result);

}  // namespace fp8lab::doctor
