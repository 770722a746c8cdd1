// SPDX-License-Identifier: Apache-2.0
// Compiled under the options of this variant (gpu/CMakeLists.txt).
#include "cuda.cuh"
#include "function_kernels.hpp"

namespace fp8lab::gpu {

template <>
void sweep_on_device<FunctionVariant::units>(const FunctionSweep& sweep) {
  run_on_device(SweepFunctions<FunctionVariant::units>{sweep});
}

}  // namespace fp8lab::gpu
