// SPDX-License-Identifier: Apache-2.0
// The kernels of gemm_sm120.hpp, compiled for sm_120a alone.
#include "cuda.cuh"
#include "fp8lab/gpu/kernels/gemm_sm120.hpp"

namespace fp8lab::gpu {

using enum MmaType;
template void start_on_device(const GemmSm120<MmaSyncScaled<MmaKind::mxf8f6f4, e4m3, e4m3>>&, cudaStream_t);
template void start_on_device(const GemmSm120<MmaSyncScaled<MmaKind::mxf8f6f4, e4m3, e5m2>>&, cudaStream_t);
template void start_on_device(const GemmSm120<MmaSyncScaled<MmaKind::mxf8f6f4, e5m2, e4m3>>&, cudaStream_t);
template void start_on_device(const GemmSm120<MmaSyncScaled<MmaKind::mxf4>>&, cudaStream_t);
template void start_on_device(const GemmSm120<MmaSyncScaled<MmaKind::mxf4nvf4>>&, cudaStream_t);

}  // namespace fp8lab::gpu
