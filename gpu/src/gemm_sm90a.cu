// SPDX-License-Identifier: Apache-2.0
#include "gemm_kernels.hpp"
#include "tensor_map.cuh"

namespace fp8lab::gpu {

void start_wgmma_gemm(GemmKernel kernel, const GemmArguments& arguments, void* stream) {
  // sm_90a is not for later chips.
  require_capability(name_of(kernel), [](int capability) { return capability == 90; }, "9.0 (Hopper)");
  with_wgmma_kernel(kernel, arguments, encode_tensor_map,
                    [&](const auto& one) { start_on_device(one, static_cast<cudaStream_t>(stream)); });
}

}  // namespace fp8lab::gpu
