// SPDX-License-Identifier: Apache-2.0
// The team that kernels are written over: one thread block on the device, a loop on the host.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fp8lab/formats/host_device.hpp"

namespace fp8lab::gpu {

// A kernel is a functor:
//
//   struct Kernel {
//     static constexpr unsigned threads = 256;  // of its team
//     struct Shared { ... };                    // memory that the threads of a team share, trivially constructible
//     std::size_t blocks() const;               // teams of a launch
//     template <typename Team>
//     FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& shared) const;
//   };
//
// A team offers collectives. All threads of the block call them; each ends in the barrier of the block, so that what
// one collective writes to shared memory the next one reads. Between collectives a kernel computes only what is the
// same in all threads, and writes to no memory: the host computes it once.
//
//   team.for_each(count, body)        body(i) for every i in [0, count), thread t takes i = t, t + threads, ...
//   team.for_each_thread(body)        body(thread) for every thread, once
//   team.each<T>()                    a T of each thread, zero at first: values[thread], within for_each_thread. It
//                                     lives in registers: indices into it must be known to the compiler.
//   team.max(values), team.sum(...)   of the integers of all threads, known to all
//   team.max_of_lanes<N>(values)      each thread's value becomes the largest of its N neighbours [t / N * N, ...);
//                                     of a Vector of integers, each of them by itself. It ends in no barrier
//
//   team.roles<N>(consume, produce)   consume(group, i) by N groups of 128 threads, and produce(group) by the 128
//                                     after them, all at the same time; produce may be left out
//
// A role has each<T>() and for_each_thread(body), which ends in no barrier: role.sync() is that of its threads.
// role.once(body) is by one thread. Roles meet at the barriers of ptx/mbarrier.hpp alone.
//
// Integers only are reduced: the result depends on no order. The bits of floats >= 0 are ordered as these are, and a
// NaN's are above infinity's, so amax_of_run() of kernels/run.hpp makes one integer of an amax.
//
// DeviceTeam (src/cuda.cuh) and HostTeam (host_team.hpp) are the two teams.

/// Elements that are loaded or stored at once, aligned to their size: 16 bytes are one instruction of the device.
template <typename T, unsigned kCount>
struct alignas(sizeof(T) * kCount) Vector {
  T values[kCount];  // NOLINT(modernize-avoid-c-arrays): std::array's functions are not for devices

  [[nodiscard]] FP8LAB_HD T& operator[](unsigned i) { return values[i]; }
  [[nodiscard]] FP8LAB_HD const T& operator[](unsigned i) const { return values[i]; }
};

/// Loads kCount elements from a place aligned to their size.
template <unsigned kCount, typename T>
[[nodiscard]] FP8LAB_HD Vector<T, kCount> load(const T* from) {
  return *reinterpret_cast<const Vector<T, kCount>*>(from);
}
/// Stores kCount elements to a place aligned to their size.
template <typename T, unsigned kCount>
FP8LAB_HD void store(const Vector<T, kCount>& values, T* to) {
  *reinterpret_cast<Vector<T, kCount>*>(to) = values;
}
/// Whether load() and store() of kCount elements are allowed there.
template <unsigned kCount, typename T>
[[nodiscard]] FP8LAB_HD bool is_aligned(const T* place) {
  return reinterpret_cast<std::uintptr_t>(place) % (sizeof(T) * kCount) == 0;
}

/// place = max(place, value), where other threads and teams do the same.
FP8LAB_HD inline void atomic_max(std::uint32_t* place, std::uint32_t value) {
#ifdef __CUDA_ARCH__
  atomicMax(place, value);
#else
  const std::atomic_ref<std::uint32_t> target(*place);
  std::uint32_t old = target.load(std::memory_order_relaxed);
  while (old < value && !target.compare_exchange_weak(old, value, std::memory_order_relaxed)) continue;
#endif
}
/// place = place + value modulo 2^64, where other threads and teams do the same.
FP8LAB_HD inline void atomic_add(std::uint64_t* place, std::uint64_t value) {
#ifdef __CUDA_ARCH__
  atomicAdd(reinterpret_cast<unsigned long long*>(place), static_cast<unsigned long long>(value));
#else
  std::atomic_ref<std::uint64_t>(*place).fetch_add(value, std::memory_order_relaxed);
#endif
}

/// body(i) for every i in [0, kCount), without a loop on the device: so i may index registers.
template <unsigned kCount, typename Body>
FP8LAB_HD constexpr void unrolled(const Body& body) {
#ifdef __CUDACC__
#pragma unroll
#endif
  for (unsigned i = 0; i < kCount; ++i) body(i);
}

/// a / b, rounded up.
[[nodiscard]] FP8LAB_HD constexpr std::size_t ceil_div(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

}  // namespace fp8lab::gpu
