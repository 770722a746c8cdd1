// SPDX-License-Identifier: Apache-2.0
// Bulk copies of boxes of a matrix from global to shared memory, by the tensor memory accelerator (sm_90).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fp8lab/gpu/fragments.hpp"
#include "fp8lab/gpu/ptx/mbarrier.hpp"
#ifndef __CUDACC__
#include "fp8lab/gpu/host_races.hpp"
#endif

namespace fp8lab::gpu {

/// CUDA's description of a matrix (CUtensorMap), a part of a kernel's arguments; encode_tensor_map() of src makes it.
struct alignas(64) DeviceTensorMap {
  std::uint64_t words[16];  // NOLINT(modernize-avoid-c-arrays)
};
/// The same on the host: a matrix of bytes, row-major, that is copied in boxes of 128 bytes of box_rows rows. Bytes
/// outside of the matrix are zero.
struct HostTensorMap {
  const std::uint8_t* data;
  std::size_t rows, columns;
  unsigned box_rows;
};

/// Bytes of a box.
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t box_bytes(unsigned rows) { return rows * 128; }

#ifdef __CUDACC__
/// One thread begins to copy the box at (row, column) to `to`, a multiple of 1024, with the 128-byte swizzle. The copy
/// ends at the barrier, which counts its bytes.
template <typename Role>
__device__ void copy_box(const Role& role, const DeviceTensorMap& map, Mbarrier& barrier, void* to, std::size_t row,
                         std::size_t column) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
          "r"(shared_address(role, to)),
      "l"(&map), "r"(static_cast<std::int32_t>(column)), "r"(static_cast<std::int32_t>(row)),
      "r"(shared_address(role, &barrier))
      : "memory");
}
/// One thread begins to copy bytes, a multiple of 16 from one place aligned to 16 to another. The copy ends at the
/// barrier, which counts them.
template <typename Role>
__device__ void copy_bytes(const Role& role, const void* from, Mbarrier& barrier, void* to, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(role, to)),
               "l"(from), "r"(bytes), "r"(shared_address(role, &barrier))
               : "memory");
}
#else
/// Begins to write shared memory, and gives what its end tells.
template <typename Role>
HostRaces::Clock begin_bulk_copy(const Role& role, const void* to, std::uint32_t bytes) {
  HostRaces& races = role.team().races();
  const HostRaces::Part part = role.team().part();
  races.access(HostRaces::Access::write, to, bytes, {HostRaces::Part::bulk_copies}, races.known(part));
  races.check();
  return races.told(part, HostRaces::Part::bulk_copies);
}
template <typename Role>
void copy_box(const Role& role, const HostTensorMap& map, Mbarrier& barrier, void* to, std::size_t row,
              std::size_t column) {
  role.fences().start_async_arrival();
  auto* const shared = const_cast<std::byte*>(role.team().shared());
  auto* const seen = const_cast<std::byte*>(role.team().async_shared());
  auto& races = role.team().races();
  const auto told = begin_bulk_copy(role, to, box_bytes(map.box_rows));
  role.copy([=, &barrier, &races, address = shared_address(role, to)] {
    for (std::uint32_t i = 0; i < box_bytes(map.box_rows); ++i) {
      const std::size_t y = row + i / 128;
      const std::size_t x = column + i % 128;
      const bool inside = y < map.rows && x < map.columns;
      const auto byte = static_cast<std::byte>(inside ? map.data[y * map.columns + x] : 0);
      shared[swizzle_128b(address + i)] = seen[swizzle_128b(address + i)] = byte;
    }
    races.arrive(&barrier, told);
    change(barrier, 0, -static_cast<std::int64_t>(box_bytes(map.box_rows)));
  });
  role.pass();
}
template <typename Role>
void copy_bytes(const Role& role, const void* from, Mbarrier& barrier, void* to, std::uint32_t bytes) {
  role.fences().start_async_arrival();
  auto* const seen = const_cast<std::byte*>(role.team().async_shared()) + shared_address(role, to);
  auto& races = role.team().races();
  const auto told = begin_bulk_copy(role, to, bytes);
  role.copy([=, &barrier, &races] {
    std::memcpy(to, from, bytes);
    if (seen != to) std::memcpy(seen, from, bytes);
    races.arrive(&barrier, told);
    change(barrier, 0, -static_cast<std::int64_t>(bytes));
  });
  role.pass();
}
#endif

}  // namespace fp8lab::gpu
