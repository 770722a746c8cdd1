// SPDX-License-Identifier: Apache-2.0
#include "cuda.cuh"
#include "gemm_kernels.hpp"

namespace fp8lab::gpu {

void start_mma_sync_gemm(GemmKernel kernel, const GemmArguments& arguments, void* stream) {
  require_capability(name_of(kernel), [](int capability) { return capability >= 89; }, "8.9 or later");
  with_mma_sync_kernel(kernel, arguments,
                       [&](const auto& one) { start_on_device(one, static_cast<cudaStream_t>(stream)); });
}

}  // namespace fp8lab::gpu
