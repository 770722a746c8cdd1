// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>

namespace fp8lab::gpu {

/// Throws std::runtime_error with CUDA's reason and the place of the call.
inline void check(cudaError_t error, const std::source_location& where = std::source_location::current()) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(where.function_name()) + ": CUDA: " + cudaGetErrorString(error));
}

/// Device memory for `count` elements, freed at the end of its life.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    T* data = nullptr;
    check(cudaMalloc(&data, count * sizeof(T)));
    data_.reset(data);
  }
  explicit DeviceArray(std::span<const T> values) : DeviceArray(values.size()) {
    check(cudaMemcpy(get(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice));
  }
  [[nodiscard]] T* get() const { return data_.get(); }
  void copy_to(std::span<T> values) const {
    check(cudaMemcpy(values.data(), get(), count_ * sizeof(T), cudaMemcpyDeviceToHost));
  }

 private:
  struct Free {
    void operator()(T* data) const { cudaFree(data); }
  };
  std::size_t count_;
  std::unique_ptr<T, Free> data_;
};

/// One thread block.
struct DeviceTeam {
  template <typename Body>
  __device__ void for_each(std::size_t count, const Body& body) const {
    for (std::size_t i = threadIdx.x; i < count; i += blockDim.x) body(i);
    __syncthreads();
  }
};

template <typename Kernel>
__global__ void run(Kernel kernel) {
  kernel(DeviceTeam{}, blockIdx.x);
}

/// Runs `kernel` on the current device and waits for it.
template <typename Kernel>
void run_on_device(const Kernel& kernel, std::size_t blocks, unsigned threads = 256) {
  run<<<static_cast<unsigned>(blocks), threads>>>(kernel);
  check(cudaGetLastError());
  check(cudaDeviceSynchronize());
}

}  // namespace fp8lab::gpu
