// SPDX-License-Identifier: Apache-2.0
// The gradient of a bias that a GEMM writes beside its output.
#pragma once

#include <span>

#include "fp8lab/reference/tensor_core/operand.hpp"

namespace fp8lab {

/// Throws std::invalid_argument unless the elements are float32 or bfloat16.
void check_summed_operand(const Operand& a);

/// out = for each row of a checked operand the sum of its elements along K, as cublaslt_row_sums() adds them; zeros
/// where K is 0.
void write_sums_along_k(const Operand& a, std::span<float> out);

}  // namespace fp8lab
