// SPDX-License-Identifier: Apache-2.0
// Kernels of tiles in shared memory, for the recipes that are used most.
#include "fp8lab/gpu/kernels/quantize_tile.hpp"
#include "quantize_start.cuh"

namespace fp8lab::gpu {

template void start_kernel(const QuantizeTile<float, TeMxRecipe>&, void*);
template void start_kernel(const QuantizeTile<Half, TeMxRecipe>&, void*);
template void start_kernel(const QuantizeTile<BFloat16, TeMxRecipe>&, void*);
template void start_kernel(const QuantizeTile<float, TeNvFp4Recipe>&, void*);
template void start_kernel(const QuantizeTile<Half, TeNvFp4Recipe>&, void*);
template void start_kernel(const QuantizeTile<BFloat16, TeNvFp4Recipe>&, void*);
template void start_kernel(const QuantizeTile<BFloat16, TeBlockRecipe>&, void*);
template void start_kernel(const QuantizeTile<float, GivenRecipe, true>&, void*);
template void start_kernel(const QuantizeTile<BFloat16, GivenRecipe, true>&, void*);

}  // namespace fp8lab::gpu
