// SPDX-License-Identifier: Apache-2.0
// tcgen05 (sm_100a): one thread has tiles of shared memory multiplied into tensor memory. The host runs the models.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp8lab/gpu/ptx/mbarrier.hpp"
#include "fp8lab/gpu/tcgen05_layout.hpp"
#ifndef __CUDACC__
#include "fp8lab/gpu/ptx/host_tcgen05.hpp"
#endif

namespace fp8lab::gpu {

/// Columns of tensor memory that a block has. All of its instructions but loads are asynchronous; a commit() tells when
/// those of one thread before it have ended.
class TensorMemory {
 public:
  /// The whole block allocates, a power of two from 32 on, and leaves the address in shared memory.
  template <typename Team>
  FP8LAB_HD TensorMemory([[maybe_unused]] const Team& team, [[maybe_unused]] std::uint32_t& address,
                         [[maybe_unused]] unsigned columns)
#ifdef __CUDACC__
  {
#ifdef __CUDA_ARCH__
    if (threadIdx.x < 32) {
      asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                       static_cast<std::uint32_t>(__cvta_generic_to_shared(&address))),
                   "r"(columns)
                   : "memory");
      asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
    }
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    address_ = address;
    columns_ = columns;
#endif
  }
#else
      : host_(columns) {
    team.meet();
  }
#endif

  /// The whole block gives it back, after a barrier.
  template <typename Team>
  FP8LAB_HD void free([[maybe_unused]] const Team& team) {
#ifdef __CUDA_ARCH__
    if (threadIdx.x < 32) {
      asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address_), "r"(columns_));
    }
#endif
  }

  /// One thread begins to copy a tile of 128 x 4 scales into four columns.
  template <typename Role>
  FP8LAB_HD void copy_scales(const Role& role, unsigned column, std::uint64_t descriptor) {
#ifdef __CUDA_ARCH__
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(address_ + column), "l"(descriptor)
                 : "memory");
#elif !defined(__CUDACC__)
    host_.start(role, [this, &role, column, descriptor] { host_tcgen05_copy(role.team(), host_, column, descriptor); });
#endif
  }

  /// One thread begins d = a * b^T, or d += a * b^T, of tiles that descriptors describe, with scales that copy_scales()
  /// copied before; `instruction` is tcgen05_instruction().
  template <typename Mma, typename Role>
  FP8LAB_HD void multiply(const Role& role, unsigned d, std::uint64_t a, std::uint64_t b, std::uint32_t instruction,
                          unsigned scale_a, unsigned scale_b, bool add) {
#ifdef __CUDA_ARCH__
    constexpr MmaKind kind = Mma::kind;
    if constexpr (kind == MmaKind::f8f6f4) {
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"
          "tcgen05.mma.cta_group::1.kind::f8f6f4 [%0], %1, %2, %3, p;\n}" ::"r"(address_ + d),
          "l"(a), "l"(b), "r"(instruction), "r"(add ? 1 : 0)
          : "memory");
    } else {
      constexpr bool is_mxf8 = kind == MmaKind::mxf8f6f4;
      constexpr bool is_mxf4 = kind == MmaKind::mxf4;
      if constexpr (is_mxf8) {
        asm volatile(
            "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"
            "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%0], %1, %2, %3, [%5], [%6], p;\n}" ::
                "r"(address_ + d),
            "l"(a), "l"(b), "r"(instruction), "r"(add ? 1 : 0), "r"(address_ + scale_a), "r"(address_ + scale_b)
            : "memory");
      } else if constexpr (is_mxf4) {
        asm volatile(
            "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"
            "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X [%0], %1, %2, %3, [%5], [%6], p;\n}" ::"r"(
                address_ + d),
            "l"(a), "l"(b), "r"(instruction), "r"(add ? 1 : 0), "r"(address_ + scale_a), "r"(address_ + scale_b)
            : "memory");
      } else {
        asm volatile(
            "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"
            "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X [%0], %1, %2, %3, [%5], [%6], p;\n}" ::
                "r"(address_ + d),
            "l"(a), "l"(b), "r"(instruction), "r"(add ? 1 : 0), "r"(address_ + scale_a), "r"(address_ + scale_b)
            : "memory");
      }
    }
#elif !defined(__CUDACC__)
    host_.start(role, [=, this, &role] {
      host_tcgen05_mma(role.team(), host_, Mma::kind, d, a, b, instruction, scale_a, scale_b, add);
    });
#endif
  }

  /// One thread has a barrier arrive when its instructions so far have ended.
  template <typename Role>
  FP8LAB_HD void commit(const Role& role, Mbarrier& barrier) {
#ifdef __CUDA_ARCH__
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                     shared_address(role, &barrier))
                 : "memory");
#elif !defined(__CUDACC__)
    role.fences().start_async_arrival();
    host_.start(role, [&barrier, &role] {
      HostRaces& races = role.team().races();
      races.arrive(&barrier, races.told(role.team().part(), HostRaces::Part::tcgen05));
      change(barrier, 1, 0);
    });
#endif
  }

  /// The 128 threads of a group load 32 columns of their lanes: values[thread].values[i] is that of column + i. A wait
  /// for a commit() comes before.
  template <typename Group, typename Each>
  FP8LAB_HD void load(const Group& group, unsigned column, Each& values) {
#ifdef __CUDA_ARCH__
    const std::uint32_t from = address_ + column + (threadIdx.x % 128 / 32 * 32 << 16);
    float (&to)[32] = values[0].values;
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];\n"
        "tcgen05.wait::ld.sync.aligned;"
        : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]), "=f"(to[4]), "=f"(to[5]), "=f"(to[6]), "=f"(to[7]),
          "=f"(to[8]), "=f"(to[9]), "=f"(to[10]), "=f"(to[11]), "=f"(to[12]), "=f"(to[13]), "=f"(to[14]), "=f"(to[15]),
          "=f"(to[16]), "=f"(to[17]), "=f"(to[18]), "=f"(to[19]), "=f"(to[20]), "=f"(to[21]), "=f"(to[22]),
          "=f"(to[23]), "=f"(to[24]), "=f"(to[25]), "=f"(to[26]), "=f"(to[27]), "=f"(to[28]), "=f"(to[29]),
          "=f"(to[30]), "=f"(to[31])
        : "r"(from)
        : "memory");
#elif !defined(__CUDACC__)
    group.fences().use_tensor_memory();
    for (unsigned thread = 0; thread < group.threads(); ++thread) {
      for (unsigned i = 0; i < 32; ++i) {
        values[thread].values[i] = std::bit_cast<float>(host_.at(thread, column + i));
      }
    }
#endif
  }

  /// The 128 threads of a group store 32 columns of their lanes, and wait until they are there.
  template <typename Group, typename Each>
  FP8LAB_HD void store(const Group& group, unsigned column, Each& values) {
#ifdef __CUDA_ARCH__
    const std::uint32_t to = address_ + column + (threadIdx.x % 128 / 32 * 32 << 16);
    const float (&from)[32] = values[0].values;
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x32.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32};\n"
        "tcgen05.wait::st.sync.aligned;" ::"r"(to),
        "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3]), "f"(from[4]), "f"(from[5]), "f"(from[6]), "f"(from[7]),
        "f"(from[8]), "f"(from[9]), "f"(from[10]), "f"(from[11]), "f"(from[12]), "f"(from[13]), "f"(from[14]),
        "f"(from[15]), "f"(from[16]), "f"(from[17]), "f"(from[18]), "f"(from[19]), "f"(from[20]), "f"(from[21]),
        "f"(from[22]), "f"(from[23]), "f"(from[24]), "f"(from[25]), "f"(from[26]), "f"(from[27]), "f"(from[28]),
        "f"(from[29]), "f"(from[30]), "f"(from[31])
        : "memory");
#elif !defined(__CUDACC__)
    group.fences().use_tensor_memory();
    for (unsigned thread = 0; thread < group.threads(); ++thread) {
      for (unsigned i = 0; i < 32; ++i) {
        host_.at(thread, column + i) = std::bit_cast<std::uint32_t>(values[thread].values[i]);
      }
    }
#endif
  }

 private:
#ifdef __CUDACC__
  std::uint32_t address_ = 0;
  unsigned columns_ = 0;
#else
  HostTensorMemory host_;
#endif
};

/// Orders instructions of tensor memory behind a barrier that the thread waited for.
template <typename Role>
FP8LAB_HD void tcgen05_fence_after([[maybe_unused]] const Role& role) {
#ifdef __CUDA_ARCH__
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
#elif !defined(__CUDACC__)
  role.fences().fence_behind_barrier();
#endif
}
/// Orders instructions of tensor memory before a barrier that the thread comes to.
template <typename Role>
FP8LAB_HD void tcgen05_fence_before([[maybe_unused]] const Role& role) {
#ifdef __CUDA_ARCH__
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
#elif !defined(__CUDACC__)
  role.fences().fence_before_barrier();
#endif
}

}  // namespace fp8lab::gpu
