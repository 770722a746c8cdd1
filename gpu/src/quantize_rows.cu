// SPDX-License-Identifier: Apache-2.0
// Kernels with blocks along rows.
#include "fp8lab/gpu/kernels/quantize_rows.hpp"
#include "quantize_start.cuh"

namespace fp8lab::gpu {

template void start_kernel(const QuantizeRows<float, TeMxRecipe>&, void*);
template void start_kernel(const QuantizeRows<Half, TeMxRecipe>&, void*);
template void start_kernel(const QuantizeRows<BFloat16, TeMxRecipe>&, void*);
template void start_kernel(const QuantizeRows<float, TeNvFp4Recipe>&, void*);
template void start_kernel(const QuantizeRows<Half, TeNvFp4Recipe>&, void*);
template void start_kernel(const QuantizeRows<BFloat16, TeNvFp4Recipe>&, void*);
template void start_kernel(const QuantizeRows<BFloat16, TeBlockRecipe>&, void*);
template void start_kernel(const QuantizeRows<float, AnyRecipe>&, void*);
template void start_kernel(const QuantizeRows<Half, AnyRecipe>&, void*);
template void start_kernel(const QuantizeRows<BFloat16, AnyRecipe>&, void*);

}  // namespace fp8lab::gpu
