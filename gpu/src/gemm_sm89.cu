// SPDX-License-Identifier: Apache-2.0
#include "cuda.cuh"
#include "gemm_kernels.hpp"

namespace fp8lab::gpu {

void start_mma_sync_gemm(GemmKernel kernel, const GemmArguments& arguments, void* stream) {
  const auto [device, capability] = current_capability();
  if (capability < 89) {
    throw NoDeviceError(std::string(name_of(kernel)) + " needs a device of compute capability 8.9 or later; device " +
                        std::to_string(device) + " has " + capability_text(capability));
  }
  with_mma_sync_kernel(kernel, arguments,
                       [&](const auto& one) { start_on_device(one, static_cast<cudaStream_t>(stream)); });
}

}  // namespace fp8lab::gpu
