// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace fp8lab::gpu {

/// start_on_device() for code that no CUDA compiler compiles: quantize_*.cu have the kernels that there are.
template <typename Kernel>
void start_kernel(const Kernel& kernel, void* stream);

}  // namespace fp8lab::gpu
