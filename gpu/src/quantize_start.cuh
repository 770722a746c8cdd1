// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda.cuh"
#include "quantize_start.hpp"

namespace fp8lab::gpu {

template <typename Kernel>
void start_kernel(const Kernel& kernel, void* stream) {
  start_on_device(kernel, static_cast<cudaStream_t>(stream));
}

}  // namespace fp8lab::gpu
