// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fp8lab/formats/tiles.hpp"

namespace fp8lab {

// The functions of tiles.hpp in vector code.
void add_amax_vector(const float* row, std::size_t count, std::size_t tile, NanInAmax nan, std::uint32_t* amax);
void add_amax_vector(const BFloat16* row, std::size_t count, std::size_t tile, NanInAmax nan, std::uint32_t* amax);
void scale_tiles_vector(const float* row, std::size_t count, std::size_t tile, TileOperation operation,
                        const float* factors, float* out);
void scale_tiles_vector(const BFloat16* row, std::size_t count, std::size_t tile, TileOperation operation,
                        const float* factors, float* out);

}  // namespace fp8lab
