// SPDX-License-Identifier: Apache-2.0
#include "blackwell_kernels.hpp"
#include "cuda.cuh"

namespace fp8lab::gpu {

void start_scaled_mma_sync_gemm(MmaKind kind, const GemmArguments& arguments, void* stream) {
  with_scaled_mma_sync_kernel(kind, arguments,
                              [&](const auto& one) { start_on_device(one, static_cast<cudaStream_t>(stream)); });
}

}  // namespace fp8lab::gpu
