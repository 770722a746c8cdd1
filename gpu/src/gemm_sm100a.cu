// SPDX-License-Identifier: Apache-2.0
// The kernels of gemm_sm100.hpp, compiled for sm_100a alone.
#include "cuda.cuh"
#include "fp8lab/gpu/kernels/gemm_sm100.hpp"

namespace fp8lab::gpu {

template <MmaKind kKind, MmaType kA = MmaType::e4m3, MmaType kB = MmaType::e4m3>
using Gemm = GemmSm100<Tcgen05Mma<kKind, kA, kB>, DeviceTensorMap>;

using enum MmaType;
template void start_on_device(const Gemm<MmaKind::f8f6f4, e4m3, e4m3>&, cudaStream_t);
template void start_on_device(const Gemm<MmaKind::f8f6f4, e4m3, e5m2>&, cudaStream_t);
template void start_on_device(const Gemm<MmaKind::f8f6f4, e5m2, e4m3>&, cudaStream_t);
template void start_on_device(const Gemm<MmaKind::mxf8f6f4, e4m3, e4m3>&, cudaStream_t);
template void start_on_device(const Gemm<MmaKind::mxf8f6f4, e4m3, e5m2>&, cudaStream_t);
template void start_on_device(const Gemm<MmaKind::mxf8f6f4, e5m2, e4m3>&, cudaStream_t);
template void start_on_device(const Gemm<MmaKind::mxf4>&, cudaStream_t);
template void start_on_device(const Gemm<MmaKind::mxf4nvf4_ue8m0>&, cudaStream_t);
template void start_on_device(const Gemm<MmaKind::mxf4nvf4>&, cudaStream_t);

}  // namespace fp8lab::gpu
