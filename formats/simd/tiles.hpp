// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fp8lab/formats/tiles.hpp"

namespace fp8lab {

// The functions of tiles.hpp in vector code.
AmaxSeen add_amax_vector(const TileRows<float>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride);
AmaxSeen add_amax_vector(const TileRows<BFloat16>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride);
AmaxSeen add_amax_vector(const TileRows<Half>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride);
void scale_tiles_vector(const float* row, std::size_t count, std::size_t tile, TileOperation operation,
                        const float* factors, float* out);
void scale_tiles_vector(const BFloat16* row, std::size_t count, std::size_t tile, TileOperation operation,
                        const float* factors, float* out);
void scale_tiles_vector(const Half* row, std::size_t count, std::size_t tile, TileOperation operation,
                        const float* factors, float* out);

}  // namespace fp8lab
