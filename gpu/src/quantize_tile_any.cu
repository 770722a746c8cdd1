// SPDX-License-Identifier: Apache-2.0
// Kernels of tiles in shared memory, for all other recipes.
#include "fp8lab/gpu/kernels/quantize_tile.hpp"
#include "quantize_start.cuh"

namespace fp8lab::gpu {

template void start_kernel(const QuantizeTile<float, AnyRecipe>&, void*);
template void start_kernel(const QuantizeTile<Half, AnyRecipe>&, void*);
template void start_kernel(const QuantizeTile<BFloat16, AnyRecipe>&, void*);
template void start_kernel(const QuantizeTile<float, AnyRecipe, true>&, void*);
template void start_kernel(const QuantizeTile<Half, AnyRecipe, true>&, void*);
template void start_kernel(const QuantizeTile<BFloat16, AnyRecipe, true>&, void*);

}  // namespace fp8lab::gpu
