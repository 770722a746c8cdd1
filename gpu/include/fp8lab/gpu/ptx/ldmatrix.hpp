// SPDX-License-Identifier: Apache-2.0
// Loads of warps from shared memory into registers. They have no barrier: what they read, others wrote before the last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fp8lab/formats/host_device.hpp"
#ifndef __CUDACC__
#include "fp8lab/gpu/host_races.hpp"
#endif

namespace fp8lab::gpu {

/// ldmatrix of four matrices of 8 rows of 16 bytes (sm_75 and up), by every warp of the team: lane 8 * i + r names row
/// r of matrix i, and lane l gets of each matrix bytes [l % 4 * 4, ...) of row l / 4.
///
/// @param from  from(thread): the 16 bytes that its lane names, aligned
/// @param to    to(thread, i): the thread's word of matrix i, a reference
template <typename Team, typename From, typename To>
FP8LAB_HD void ldmatrix_x4([[maybe_unused]] const Team& team, const From& from, const To& to) {
#ifdef __CUDA_ARCH__
  const std::size_t thread = threadIdx.x;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to(thread, 0)), "=r"(to(thread, 1)), "=r"(to(thread, 2)), "=r"(to(thread, 3))
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(from(thread))))
               : "memory");
#elif !defined(__CUDACC__)
  team.go_on_each_thread([&](std::size_t thread) {
    const std::size_t lane = thread % 32;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto* const row = static_cast<const std::uint8_t*>(from(thread - lane + 8 * i + lane / 4));
      HostRaces::access_of_thread(HostRaces::Access::read, row + lane % 4 * 4, 4);
      std::memcpy(&to(thread, static_cast<unsigned>(i)), row + lane % 4 * 4, 4);
    }
  });
#endif
}

/// body(thread) for every thread, which reads shared memory and writes values of its own.
template <typename Team, typename Body>
FP8LAB_HD void load_own([[maybe_unused]] const Team& team, const Body& body) {
#ifdef __CUDA_ARCH__
  body(std::size_t{threadIdx.x});
#elif !defined(__CUDACC__)
  team.go_on_each_thread(body);
#endif
}

}  // namespace fp8lab::gpu
