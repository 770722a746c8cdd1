// SPDX-License-Identifier: Apache-2.0
// cp.async: threads copy pieces of 16 bytes to shared memory, and wait for them later (sm_80 and up).
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8lab/formats/host_device.hpp"
#ifndef __CUDACC__
#include <cstring>
#include <utility>
#include <vector>

#include "fp8lab/gpu/host_races.hpp"
#endif

namespace fp8lab::gpu {

/// The copies that a team's threads have under way. A thread calls with its own number. On the host a piece is copied
/// where its thread waits for it, and is poison until then.
class AsyncCopies {
 public:
  static constexpr unsigned piece = 16;  ///< bytes

  template <typename Team>
  FP8LAB_HD explicit AsyncCopies([[maybe_unused]] const Team& team)
#ifdef __CUDACC__
      {}
#else
      : of_thread_(team.threads()) {
  }
#endif

  /// Begins to copy a piece, or to fill it with zeros. Both places are aligned to 16 bytes; `from` is read only where
  /// it is copied.
  FP8LAB_HD void start([[maybe_unused]] std::size_t thread, void* to, const void* from, bool is_copied) {
#ifdef __CUDA_ARCH__
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(to))),
        "l"(from), "r"(is_copied ? 16 : 0)
        : "memory");
#elif !defined(__CUDACC__)
    HostRaces::access_of_thread(HostRaces::Access::write, to, piece);
    std::memset(to, 0xA5, piece);
    of_thread_[thread].open.push_back({to, is_copied ? from : nullptr});
#endif
  }
  /// Ends a group of copies.
  FP8LAB_HD void commit([[maybe_unused]] std::size_t thread) {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" ::: "memory");
#elif !defined(__CUDACC__)
    of_thread_[thread].groups.push_back(std::move(of_thread_[thread].open));
    of_thread_[thread].open.clear();
#endif
  }
  /// Waits for the thread's groups but the latest kPending. A barrier makes them known to others.
  template <unsigned kPending>
  FP8LAB_HD void wait([[maybe_unused]] std::size_t thread) {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#elif !defined(__CUDACC__)
    auto& groups = of_thread_[thread].groups;
    while (groups.size() > kPending) {
      for (const Copy& copy : groups.front()) {
        HostRaces::access_of_thread(HostRaces::Access::write, copy.to, piece);
        if (copy.from == nullptr) {
          std::memset(copy.to, 0, piece);
        } else {
          std::memcpy(copy.to, copy.from, piece);
        }
      }
      groups.erase(groups.begin());
    }
#endif
  }

 private:
#ifndef __CUDACC__
  struct Copy {
    void* to;
    const void* from;
  };
  struct OfThread {
    std::vector<Copy> open;
    std::vector<std::vector<Copy>> groups;
  };
  std::vector<OfThread> of_thread_;
#endif
};

}  // namespace fp8lab::gpu
