// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fp8lab/formats/bits.hpp"
#include "fp8lab/formats/host_device.hpp"
#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/formats/memory.hpp"

namespace fp8lab {

/// The sign of element (j, i) of that matrix: Sylvester's construction, each column times a random sign.
[[nodiscard]] FP8LAB_HD constexpr int hadamard_sign(unsigned j, unsigned i) {
  constexpr std::uint32_t negative_columns = 0xD7E8;
  return (static_cast<unsigned>(count_ones(i & j)) + (negative_columns >> i)) % 2 == 0 ? 1 : -1;
}

/// Every 16 elements of a column of x, (rows, columns), times a Hadamard matrix of 16 x 16 whose rows have random
/// signs, over 4, which leaves lengths as they are: out(j) = 1/4 sum of i of sign(i) (-1)^(bits that i and j share)
/// x(i). Where `rounds`, to bfloat16. It is what a recipe's Transform does to a tensor that it quantizes columnwise.
///
/// Source: NVIDIA/TransformerEngine, NVFP4Quantizer, whose signs these are. The order of its sums is not documented;
/// here they are rounded once. Throws std::invalid_argument where x is empty or rows is no multiple of 16, and as
/// parallel_for() does.
[[nodiscard]] Buffer<float> hadamard_columns(const MatrixView& x, bool rounds, int threads);

}  // namespace fp8lab
