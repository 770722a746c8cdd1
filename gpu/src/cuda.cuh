// SPDX-License-Identifier: Apache-2.0
// Kernels on the device.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "fp8lab/gpu/cuda_error.hpp"
#include "fp8lab/gpu/team.hpp"

namespace fp8lab::gpu {

/// An error as CUDA names it.
[[nodiscard]] inline CudaResult result_of(cudaError_t error) {
  return {static_cast<int>(error), cudaGetErrorName(error), cudaGetErrorString(error)};
}
/// Throws CudaError with CUDA's reason and the place of the call. The error is taken from the context, so that a later
/// call does not report it again, unless CUDA itself does.
inline void check(cudaError_t error, const std::source_location& where = std::source_location::current()) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw CudaError(failure_message(where.function_name(), result_of(error)), static_cast<int>(error));
}
/// The current device and its compute capability: 90 is 9.0.
[[nodiscard]] inline std::pair<int, int> current_capability() {
  int device = 0;
  int major = 0;
  int minor = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return {device, major * 10 + minor};
}
/// "9.0" for 90.
[[nodiscard]] inline std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}
/// Throws NoDeviceError where the current device's capability is not enough for `what`, which needs `needs`.
inline void require_capability(std::string_view what, bool (*is_enough)(int), const char* needs) {
  const auto [device, capability] = current_capability();
  if (is_enough(capability)) return;
  throw NoDeviceError(std::string(what) + " needs a device of compute capability " + needs + "; device " +
                      std::to_string(device) + " has " + capability_text(capability));
}
/// Throws DeviceMemoryError where `bytes` were asked for and there was too little memory, and what check() throws.
inline void check_allocation(cudaError_t error, std::size_t bytes,
                             const std::source_location& where = std::source_location::current()) {
  if (error != cudaErrorMemoryAllocation) return check(error, where);
  static_cast<void>(cudaGetLastError());
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total));
  throw DeviceMemoryError(out_of_memory_message(bytes, {free, total}), static_cast<int>(error));
}
/// Device memory, which cudaFree() frees. Throws DeviceMemoryError where there is too little.
[[nodiscard]] inline void* allocate_on_device(std::size_t bytes) {
  void* data = nullptr;
  check_allocation(cudaMalloc(&data, bytes), bytes);
  return data;
}

/// Device memory for `count` elements, freed at the end of its life.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count)
      : count_(count), data_(static_cast<T*>(allocate_on_device(count * sizeof(T)))) {}
  explicit DeviceArray(std::span<const T> values) : DeviceArray(values.size()) {
    check(cudaMemcpy(get(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice));
  }
  [[nodiscard]] T* get() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return count_; }
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

/// A value of each thread, in its registers.
template <typename T>
class DeviceEach {
 public:
  [[nodiscard]] __device__ T& operator[](std::size_t /*thread*/) { return value_; }
  [[nodiscard]] __device__ const T& operator[](std::size_t /*thread*/) const { return value_; }

 private:
  T value_{};
};

/// A part of a thread block that runs at the same time as others.
template <unsigned kThreads>
class DeviceRole {
 public:
  static constexpr bool on_device = true;
  template <typename T>
  using Each = DeviceEach<T>;

  explicit __device__ DeviceRole(unsigned number) : number_(number) {}
  [[nodiscard]] static constexpr __device__ unsigned threads() { return kThreads; }
  template <typename T>
  [[nodiscard]] __device__ Each<T> each() const {
    return {};
  }
  template <typename Body>
  __device__ void for_each_thread(const Body& body) const {
    body(std::size_t{threadIdx.x % kThreads});
  }
  __device__ void sync() const {
    asm volatile("barrier.sync %0, %1;" ::"r"(number_ + 1), "n"(kThreads) : "memory");  // barrier 0 is the block's
  }
  template <typename Body>
  __device__ void once(const Body& body) const {
    if (threadIdx.x % kThreads == 0) body();
  }

 private:
  unsigned number_;
};

/// The team of a thread block.
template <unsigned kThreads>
class DeviceTeam {
 public:
  static constexpr bool on_device = true;
  static_assert(kThreads % 32 == 0 && kThreads <= 1024);

  template <typename T>
  using Each = DeviceEach<T>;

  [[nodiscard]] static constexpr __device__ unsigned threads() { return kThreads; }

  template <typename Body>
  __device__ void for_each(std::size_t count, const Body& body) const {
    for (std::size_t i = threadIdx.x; i < count; i += kThreads) body(i);
    __syncthreads();
  }
  template <typename Body>
  __device__ void for_each_thread(const Body& body) const {
    body(std::size_t{threadIdx.x});
    __syncthreads();
  }
  template <typename T>
  [[nodiscard]] __device__ Each<T> each() const {
    return {};
  }
  template <typename Integer>
  [[nodiscard]] __device__ Integer max(const Each<Integer>& values) const {
    return reduce<Integer>(values[0], [](Integer a, Integer b) { return a < b ? b : a; });
  }
  template <typename Integer>
  [[nodiscard]] __device__ Integer sum(const Each<Integer>& values) const {
    return reduce<Integer>(values[0], [](Integer a, Integer b) { return a + b; });
  }
  template <unsigned kLanes, typename Integer>
  __device__ void max_of_lanes(Each<Integer>& values) const {
    static_assert(std::is_unsigned_v<Integer> && kLanes <= 32 && (kLanes & (kLanes - 1)) == 0);
    Integer value = values[0];
    for (unsigned distance = kLanes / 2; distance > 0; distance /= 2) {
      const Integer other = __shfl_xor_sync(0xFFFFFFFFU, value, static_cast<int>(distance));
      value = value < other ? other : value;
    }
    values[0] = value;
  }
  template <unsigned kGroups, typename Consume>
  __device__ void roles(const Consume& consume) const {
    static_assert(kThreads == kGroups * 128);
    consume(DeviceRole<128>(group()), group());
    __syncthreads();
  }
  template <unsigned kGroups, typename Consume, typename Produce>
  __device__ void roles(const Consume& consume, const Produce& produce) const {
    static_assert(kThreads == kGroups * 128 + 128);
    if (const unsigned own = group(); own < kGroups) {
      consume(DeviceRole<128>(own), own);
    } else {
      produce(DeviceRole<128>(own));
    }
    __syncthreads();
  }
  template <unsigned kLanes, typename Integer, unsigned kCount>
  __device__ void max_of_lanes(Each<Vector<Integer, kCount>>& values) const {
    for (unsigned i = 0; i < kCount; ++i) {
      Each<Integer> own;
      own[0] = values[0][i];
      max_of_lanes<kLanes>(own);
      values[0][i] = own[0];
    }
  }

 private:
  /// The group of 128 threads, in a way that the compiler sees to be the same in all threads of a warp.
  static __device__ unsigned group() { return __shfl_sync(0xFFFFFFFFU, threadIdx.x / 128, 0); }

  /// Reduces the values of all threads by an operation that gives the same in every order.
  template <typename Integer, typename Operation>
  static __device__ Integer reduce(Integer value, const Operation& operation) {
    static_assert(std::is_unsigned_v<Integer>);
    __shared__ Integer of_warp[kThreads / 32];
    for (int distance = 16; distance > 0; distance /= 2) {
      value = operation(value, __shfl_xor_sync(0xFFFFFFFFU, value, distance));
    }
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
    for (unsigned warp = 1; warp < kThreads / 32; ++warp) value = operation(value, of_warp[warp]);
    __syncthreads();
    return value;
  }
};

/// The blocks of a multiprocessor that a kernel asks for; 0: ptxas chooses, and may spill registers for its choice.
template <typename Kernel>
inline constexpr unsigned least_blocks = 0;
template <typename Kernel>
  requires requires { Kernel::least_blocks; }
inline constexpr unsigned least_blocks<Kernel> = Kernel::least_blocks;

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::threads, least_blocks<Kernel>) run(const __grid_constant__ Kernel kernel) {
  extern __shared__ __align__(1024) unsigned char memory[];
  kernel(DeviceTeam<Kernel::threads>{}, blockIdx.x, *reinterpret_cast<typename Kernel::Shared*>(memory));
}

/// Starts `kernel` on the current device and does not wait for it.
///
/// Throws std::runtime_error where the device does not take it: more blocks than a launch has, or more shared memory
/// than the chip has.
template <typename Kernel>
void start_on_device(const Kernel& kernel, cudaStream_t stream = nullptr) {
  const std::size_t blocks = kernel.blocks();
  if (blocks == 0) return;
  if (blocks > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw std::runtime_error("a launch of " + std::to_string(blocks) + " blocks: CUDA allows 2^31 - 1");
  }
  constexpr std::size_t shared = std::is_empty_v<typename Kernel::Shared> ? 0 : sizeof(typename Kernel::Shared);
  if constexpr (shared > 48U * 1024U) {
    check(cudaFuncSetAttribute(run<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
  }
  run<<<static_cast<unsigned>(blocks), Kernel::threads, shared, stream>>>(kernel);
  check(cudaGetLastError());
}

/// Runs `kernel` on the current device and waits for it.
template <typename Kernel>
void run_on_device(const Kernel& kernel) {
  start_on_device(kernel);
  check(cudaDeviceSynchronize());
}

}  // namespace fp8lab::gpu
