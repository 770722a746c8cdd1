// SPDX-License-Identifier: Apache-2.0
// Dropout as Transformer Engine's kernels have it: 8 random bits for each element. Every bit is the kernels'.
//
// Source: Transformer Engine 2.20, common/dropout/dropout.cu; curand's Philox4x32-10 of the CUDA toolkit.
#pragma once

#include <cstdint>
#include <span>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/operators/float_output.hpp"

namespace fp8lab {

/// The state of PyTorch's CUDA generator; a call moves the offset on by dropout_offset.
struct DropoutState {
  std::uint64_t seed;
  std::uint64_t offset;  ///< a multiple of 4
};
inline constexpr std::uint64_t dropout_offset = 4;

/// out = x (1 / (1 - probability)) where an element is kept, else 0. Bit j of byte i of the mask belongs to element 8 i
/// + j, 1 where it is kept: where its byte of random bits is at least floor(256 probability). Elements 16 c to 16 c +
/// 15 have the words of counter (offset / 4, c): pairs of elements, and of those 8 elements behind, share a word; the
/// second one of a pair has byte 0, the first one byte 2, those 8 elements behind bytes 1 and 3.
///
/// Throws std::invalid_argument for float64, a number of elements that 16 does not divide, sizes that differ, a
/// probability that is not from 0 to below 1, and an offset that 4 does not divide.
void dropout(float probability, DropoutState state, FloatSpan x, FloatOutput out, std::span<std::uint8_t> mask,
             int threads = 1);

/// dx = grad (1 / (1 - probability)) where the mask says so, else 0.
///
/// Throws likewise.
void dropout_backward(float probability, FloatSpan grad, std::span<const std::uint8_t> mask, FloatOutput dx,
                      int threads = 1);

}  // namespace fp8lab
