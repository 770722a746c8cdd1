// SPDX-License-Identifier: Apache-2.0
// Blackwell's GEMMs where they were not compiled: there is no CUDA compiler, or the build is a quick one
// (FP8LAB_QUICK).
#include <stdexcept>

#include "fp8lab/gpu/device.hpp"
#include "gemm_kernels.hpp"

namespace fp8lab::gpu {
namespace {

[[noreturn]] void refuse_without_blackwell() {
  require_device();
  throw std::runtime_error("this build left out the kernels of Blackwell: build it with -D FP8LAB_QUICK=OFF");
}

}  // namespace

void start_tcgen05_gemm(MmaKind /*kind*/, const GemmArguments& /*arguments*/, void* /*stream*/) {
  refuse_without_blackwell();
}
void start_scaled_mma_sync_gemm(MmaKind /*kind*/, const GemmArguments& /*arguments*/, void* /*stream*/) {
  refuse_without_blackwell();
}

}  // namespace fp8lab::gpu
