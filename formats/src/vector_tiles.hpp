// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fp8lab/formats/tiles.hpp"

namespace fp8lab {

// The functions of tiles.hpp in vector code.
bool add_amax_vector(const float* row, std::size_t count, std::size_t tile, NanInAmax nan, std::uint32_t* amax);
bool add_amax_vector(const BFloat16* row, std::size_t count, std::size_t tile, NanInAmax nan, std::uint32_t* amax);
bool add_amax_of_columns_vector(const float* values, std::size_t rows, std::size_t stride, std::size_t width,
                                NanInAmax nan, std::uint32_t* amax);
bool add_amax_of_columns_vector(const BFloat16* values, std::size_t rows, std::size_t stride, std::size_t width,
                                NanInAmax nan, std::uint32_t* amax);
void scale_tiles_vector(const float* row, std::size_t count, std::size_t tile, TileOperation operation,
                        const float* factors, float* out);
void scale_tiles_vector(const BFloat16* row, std::size_t count, std::size_t tile, TileOperation operation,
                        const float* factors, float* out);

}  // namespace fp8lab
