// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "fp8lab/formats/memory.hpp"
#include "fp8lab/formats/unpack.hpp"

namespace fp8lab {

/// Every 16 elements of a column of x, (rows, columns), times a Hadamard matrix of 16 x 16 whose rows have random
/// signs, over 4, which leaves lengths as they are: out(j) = 1/4 sum of i of sign(i) (-1)^(bits that i and j share)
/// x(i). Where `rounds`, to bfloat16. Precondition: rows is a multiple of 16.
///
/// Source: NVIDIA/TransformerEngine, NVFP4Quantizer, whose signs these are. The order of its sums is not documented;
/// here they are rounded once.
[[nodiscard]] Room<float> hadamard_columns(std::span<const float> x, std::size_t rows, std::size_t columns, bool rounds,
                                           int threads);
[[nodiscard]] Room<float> hadamard_columns(std::span<const BFloat16> x, std::size_t rows, std::size_t columns,
                                           bool rounds, int threads);

}  // namespace fp8lab
