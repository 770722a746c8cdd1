// SPDX-License-Identifier: Apache-2.0
// Blackwell's kernels where the CUDA compiler does not know Blackwell.
#include "fp8lab/gpu/cuda_error.hpp"
#include "gemm_kernels.hpp"

namespace fp8lab::gpu {
namespace {

[[noreturn]] void refuse_blackwell() {
  throw NoDeviceError("fp8lab was built with a CUDA that does not know sm_100a and sm_120a; CUDA 12.8 does");
}

}  // namespace

void start_tcgen05_gemm(MmaKind /*kind*/, const GemmArguments& /*arguments*/, void* /*stream*/) { refuse_blackwell(); }
void start_scaled_mma_sync_gemm(MmaKind /*kind*/, const GemmArguments& /*arguments*/, void* /*stream*/) {
  refuse_blackwell();
}

}  // namespace fp8lab::gpu
