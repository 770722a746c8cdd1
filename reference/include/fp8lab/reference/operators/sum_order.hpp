// SPDX-License-Identifier: Apache-2.0
// The order in which operators add up, in float32. It has the form of the kernels' order: threads sum in turns, then
// pairs of them. Theirs depends on the tile, the device and the release; this one on the shape alone.
#pragma once

#include <cstddef>

namespace fp8lab {

/// A sum along a row: element j is added to lane j % 32, in ascending order, from +0 on; rows are filled up with +0 to
/// a multiple of 32. Then lane i + lane (i + 16), of these i + (i + 8), and so on, give the sum.
inline constexpr std::size_t sum_lanes = 32;

/// A sum over rows, for each column: rows are dealt out to 32 blocks, block b has rows [b n, (b + 1) n) with
/// n = ceil(rows / 32). Each block adds its rows in order, from +0 on. Then block i + block (i + 16), and so on, as
/// lanes.
inline constexpr std::size_t sum_blocks = 32;

}  // namespace fp8lab
