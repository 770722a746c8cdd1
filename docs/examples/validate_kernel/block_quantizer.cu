// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "block_quantizer.cuh"
#include "on_device.hpp"

namespace {

/// A warp quantizes a block: each thread has four neighbours.
__global__ void quantize_blocks(const float4* x, uchar4* codes, float* scale_inv, long long blocks, bool too_late) {
  const long long block = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (block >= blocks) return;
  const long long at = block * 32 + threadIdx.x % 32;
  const float4 four = x[at];
  float amax = fmaxf(fmaxf(fabsf(four.x), fabsf(four.y)), fmaxf(fabsf(four.z), fabsf(four.w)));
  for (int distance = 16; distance > 0; distance /= 2) amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFF, amax, distance));
  const BlockScale scale = scale_of(amax, too_late);
  codes[at] = make_uchar4(to_e4m3(four.x * scale.multiplies), to_e4m3(four.y * scale.multiplies),
                          to_e4m3(four.z * scale.multiplies), to_e4m3(four.w * scale.multiplies));
  if (threadIdx.x % 32 == 0) scale_inv[block] = scale.stored_inverse;
}

bool failed(cudaError_t error, const char* what) {
  if (error != cudaSuccess) std::printf("device: %s: %s\n", what, cudaGetErrorString(error));
  return error != cudaSuccess;
}

}  // namespace

Outcome quantize_on_device(const std::vector<float>& x, bool too_late, std::vector<std::uint8_t>& codes,
                           std::vector<float>& scale_inv) {
  int devices = 0;
  if (failed(cudaGetDeviceCount(&devices), "skipped") || devices == 0) return Outcome::skipped;
  float4* in = nullptr;
  uchar4* out = nullptr;
  float* scales = nullptr;
  const auto blocks = static_cast<long long>(scale_inv.size());
  bool wrong = failed(cudaMalloc(&in, x.size() * sizeof(float)), "memory") ||
               failed(cudaMalloc(&out, codes.size()), "memory") ||
               failed(cudaMalloc(&scales, scale_inv.size() * sizeof(float)), "memory") ||
               failed(cudaMemset(out, 0xA5, codes.size()), "memory") ||  // what the kernel does not write shows
               failed(cudaMemset(scales, 0xA5, scale_inv.size() * sizeof(float)), "memory") ||
               failed(cudaMemcpy(in, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice), "copy");
  if (!wrong) {
    quantize_blocks<<<static_cast<unsigned>((blocks + 7) / 8), 256>>>(in, out, scales, blocks, too_late);
    wrong =
        failed(cudaGetLastError(), "start") || failed(cudaDeviceSynchronize(), "run") ||
        failed(cudaMemcpy(codes.data(), out, codes.size(), cudaMemcpyDeviceToHost), "copy") ||
        failed(cudaMemcpy(scale_inv.data(), scales, scale_inv.size() * sizeof(float), cudaMemcpyDeviceToHost), "copy");
  }
  cudaFree(in);
  cudaFree(out);
  cudaFree(scales);
  return wrong ? Outcome::failed : Outcome::ran;
}
