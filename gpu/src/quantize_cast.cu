// SPDX-License-Identifier: Apache-2.0
// Kernels with one scale for the tensor, and what belongs to all.
#include "fp8lab/gpu/kernels/cast.hpp"
#include "fp8lab/gpu/kernels/delayed.hpp"
#include "fp8lab/gpu/kernels/dequantize.hpp"
#include "fp8lab/gpu/kernels/fill.hpp"
#include "gemm_kernels.hpp"
#include "quantize_start.cuh"

namespace fp8lab::gpu {

void start_swizzle(const SwizzleScales& kernel, void* stream) { start_kernel(kernel, stream); }

template void start_kernel(const FillZero&, void*);
template void start_kernel(const UpdateScales&, void*);
template void start_kernel(const Dequantize&, void*);
template void start_kernel(const Amax<float>&, void*);
template void start_kernel(const Amax<Half>&, void*);
template void start_kernel(const Amax<BFloat16>&, void*);
template void start_kernel(const Cast<float, GivenRecipe>&, void*);
template void start_kernel(const Cast<float, AnyRecipe>&, void*);
template void start_kernel(const Cast<Half, AnyRecipe>&, void*);
template void start_kernel(const Cast<BFloat16, GivenRecipe>&, void*);
template void start_kernel(const Cast<BFloat16, AnyRecipe>&, void*);

}  // namespace fp8lab::gpu
