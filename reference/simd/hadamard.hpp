// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

namespace fp8lab {

inline constexpr std::size_t hadamard_size = 16;
inline constexpr std::size_t hadamard_chunk = 64;  ///< columns that are turned together

/// Rows of doubles, a chunk of columns of each.
using HadamardRows = std::array<std::array<double, hadamard_chunk>, hadamard_size>;
/// The signs of the matrix, row by row.
using HadamardSigns = std::array<std::array<double, hadamard_size>, hadamard_size>;

/// out[j][c] = the sum of signs[j][i] * x[i][c] over i, ascending, in double, over 4, as float32.
void turn_rows(const HadamardSigns& signs, const HadamardRows& x,
               std::array<std::array<float, hadamard_chunk>, hadamard_size>& out);

}  // namespace fp8lab
