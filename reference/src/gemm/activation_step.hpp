// SPDX-License-Identifier: Apache-2.0
// The activation of one element, for callers that already have the default arithmetic.
#pragma once

#include "fp8lab/reference/gemm/gemm_activation.hpp"

namespace fp8lab {

/// As apply_gemm_activation(), but that NaNs have any word; dgelu alone reads the input.
[[nodiscard]] float activated(GemmActivation activation, float x, float input);

}  // namespace fp8lab
