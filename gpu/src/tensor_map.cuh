// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <array>
#include <bit>

#include "cuda.cuh"
#include "fp8lab/gpu/ptx/bulk_copy.hpp"

namespace fp8lab::gpu {

/// Describes a matrix of bytes to bulk copies, which take boxes of 128 bytes of box_rows rows from it.
inline DeviceTensorMap encode_tensor_map(const std::uint8_t* data, std::size_t rows, std::size_t columns,
                                         unsigned box_rows) {
  int device = 0;
  check(cudaGetDevice(&device));
  check(cudaSetDevice(device));  // the driver wants a context in this thread; since CUDA 12 this makes it
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || entry == nullptr) {
    throw NoDeviceError("the driver has no cuTensorMapEncodeTiled: CUDA 12.0 or later is needed");
  }
  const std::array<cuuint64_t, 2> sizes{columns, rows};
  const std::array<cuuint64_t, 1> strides{columns};
  const std::array<cuuint32_t, 2> box{128, box_rows};
  const std::array<cuuint32_t, 2> steps{1, 1};
  CUtensorMap map{};
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<std::uint8_t*>(data), sizes.data(), strides.data(),
             box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw std::runtime_error("cuTensorMapEncodeTiled of " + std::to_string(rows) + " * " + std::to_string(columns) +
                             " bytes: CUDA's driver: error " + std::to_string(static_cast<int>(result)));
  }
  return std::bit_cast<DeviceTensorMap>(map);
}

}  // namespace fp8lab::gpu
