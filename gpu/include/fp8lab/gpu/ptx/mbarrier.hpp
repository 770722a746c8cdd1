// SPDX-License-Identifier: Apache-2.0
// mbarrier: barriers in shared memory, at which threads arrive and bulk copies end (sm_90).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp8lab/formats/host_device.hpp"
#ifndef __CUDACC__
#include "fp8lab/gpu/host_races.hpp"
#endif

namespace fp8lab::gpu {

/// A barrier. Its phases are numbered 0, 1, ...; a phase ends when all arrivals came and all expected bytes were
/// copied.
struct alignas(8) Mbarrier {
  std::uint64_t word;
};

/// The address that instructions take. On the host it counts from the beginning of the block's shared memory.
template <typename Role>
[[nodiscard]] FP8LAB_HD std::uint32_t shared_address([[maybe_unused]] const Role& role, const void* place) {
#ifdef __CUDA_ARCH__
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(place));
#elif defined(__CUDACC__)  // nvcc's own compilation for the host, which nobody calls
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(place));
#else
  return static_cast<std::uint32_t>(static_cast<const std::byte*>(place) - role.team().shared());
#endif
}

#ifndef __CUDACC__
/// The state of a barrier on the host, which the device keeps in one word.
struct HostMbarrier {
  std::int32_t bytes;        ///< expected and not yet copied
  std::uint8_t phase;        ///< its parity
  std::uint8_t arrivals;     ///< of a phase
  std::int16_t outstanding;  ///< arrivals
};
/// Changes the barrier, and ends the phase where nothing is outstanding.
inline void change(Mbarrier& barrier, int arrivals, std::int64_t bytes) {
  const HostRaces::Running nobody;  // barriers are there to be changed by all
  auto state = std::bit_cast<HostMbarrier>(barrier);
  state.outstanding = static_cast<std::int16_t>(state.outstanding - arrivals);
  state.bytes = static_cast<std::int32_t>(state.bytes + bytes);
  if (state.outstanding == 0 && state.bytes == 0) {
    state.phase ^= 1U;
    state.outstanding = state.arrivals;
  }
  barrier = std::bit_cast<Mbarrier>(state);
}
#endif

/// Makes a barrier of which every phase has `arrivals`. One thread does; after the last of all, fence_init() and a
/// barrier of the block make them known.
FP8LAB_HD inline void init(Mbarrier& barrier, unsigned arrivals) {
#ifdef __CUDACC__
#ifdef __CUDA_ARCH__
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(&barrier))),
      "r"(arrivals)
      : "memory");
#endif
#else
  const HostRaces::Running nobody;
  barrier = std::bit_cast<Mbarrier>(HostMbarrier{.bytes = 0,
                                                 .phase = 0,
                                                 .arrivals = static_cast<std::uint8_t>(arrivals),
                                                 .outstanding = static_cast<std::int16_t>(arrivals)});
#endif
}
/// Makes new barriers known to bulk copies and tcgen05.
template <typename Team>
FP8LAB_HD void fence_init([[maybe_unused]] const Team& team) {
#ifdef __CUDA_ARCH__
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#elif !defined(__CUDACC__)
  team.publish_barriers();
#endif
}

/// One thread arrives and adds bytes that the phase waits for.
template <typename Role>
FP8LAB_HD void arrive_expecting(const Role& role, Mbarrier& barrier, std::uint32_t bytes) {
#ifdef __CUDACC__
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(role, &barrier)),
               "r"(bytes)
               : "memory");
#else
  role.arrive(&barrier);
  change(barrier, 1, bytes);
  role.pass();
#endif
}
/// One thread of every warp of the role arrives.
template <typename Role>
FP8LAB_HD void arrive_by_warps(const Role& role, Mbarrier& barrier) {
#ifdef __CUDACC__
  if (threadIdx.x % 32 == 0) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(role, &barrier)) : "memory");
  }
#else
  role.arrive(&barrier);
  change(barrier, static_cast<int>(role.threads() / 32), 0);
  role.pass();
#endif
}
/// All threads wait for the end of the phase of that parity; of a barrier that is new, parity 1 has ended.
template <typename Role>
FP8LAB_HD void wait(const Role& role, Mbarrier& barrier, std::uint32_t parity) {
#ifdef __CUDACC__
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(shared_address(role, &barrier)),
      "r"(parity)
      : "memory");
#else
  role.wait_until(&barrier, [&barrier, parity] { return std::bit_cast<HostMbarrier>(barrier).phase != parity; });
#endif
}

}  // namespace fp8lab::gpu
