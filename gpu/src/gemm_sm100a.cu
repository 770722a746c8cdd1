// SPDX-License-Identifier: Apache-2.0
#include "blackwell_kernels.hpp"
#include "tensor_map.cuh"

namespace fp8lab::gpu {

void start_tcgen05_gemm(MmaKind kind, const GemmArguments& arguments, void* stream) {
  with_tcgen05_kernel(kind, arguments, encode_tensor_map,
                      [&](const auto& one) { start_on_device(one, static_cast<cudaStream_t>(stream)); });
}

}  // namespace fp8lab::gpu
