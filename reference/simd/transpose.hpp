// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace fp8lab {

/// out(column, row) = in(row, column) of bytes; strides are those from row to row, and from column to column of out.
/// With `stream`, columns go past the caches where they begin with cache lines; TileEncoder::flush() flushes these,
/// too.
void transpose_bytes(const std::uint8_t* in, std::size_t rows, std::size_t columns, std::size_t in_stride,
                     std::uint8_t* out, std::size_t out_stride, bool stream = false);

}  // namespace fp8lab
