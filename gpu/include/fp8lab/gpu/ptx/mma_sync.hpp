// SPDX-License-Identifier: Apache-2.0
// mma.sync: a warp multiplies tiles that lie in its registers. The host runs the model of the chip's instruction.
#pragma once

#include <type_traits>

#include "fp8lab/gpu/fragments.hpp"
#include "fp8lab/gpu/ptx/mma_names.hpp"
#include "fp8lab/gpu/team.hpp"
#ifndef __CUDACC__
#include "fp8lab/gpu/ptx/host_mma.hpp"
#endif

namespace fp8lab::gpu {

/// The factors and accumulators that a lane holds of its warp's tile of kM * kN instructions.
template <typename Mma, unsigned kM = 1, unsigned kN = 1>
struct WarpTile {
  using Instruction = Mma;
  static constexpr unsigned count_m = kM, count_n = kN;
  Mma::A a[kM];      // NOLINT(modernize-avoid-c-arrays)
  Mma::B b[kN];      // NOLINT(modernize-avoid-c-arrays)
  Mma::D d[kM][kN];  // NOLINT(modernize-avoid-c-arrays)
};

#ifdef __CUDACC__
/// Whether the chip that this pass of the compiler is for has the instruction.
template <typename Mma>
[[nodiscard]] FP8LAB_HD constexpr bool has_mma_sync() {
#ifdef __CUDA_ARCH__
  return __CUDA_ARCH__ >= Mma::capability * 10;
#else
  return true;
#endif
}
/// d += a * b of one instruction of f64; shapes with 16 rows are for sm_90 and up.
template <typename Mma>
__device__ void mma_sync_f64_ptx(typename Mma::D& d, const typename Mma::A& a, const typename Mma::B& b) {
  if constexpr (Mma::m == 8) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(d.values[0]), "+d"(d.values[1])
                 : "d"(a.words[0]), "d"(b.words[0]));
  } else if constexpr (Mma::k == 4) {
    asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+d"(d.values[0]), "+d"(d.values[1]), "+d"(d.values[2]), "+d"(d.values[3])
                 : "d"(a.words[0]), "d"(a.words[1]), "d"(b.words[0]));
  } else if constexpr (Mma::k == 8) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+d"(d.values[0]), "+d"(d.values[1]), "+d"(d.values[2]), "+d"(d.values[3])
        : "d"(a.words[0]), "d"(a.words[1]), "d"(a.words[2]), "d"(a.words[3]), "d"(b.words[0]), "d"(b.words[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
        "{%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(d.values[0]), "+d"(d.values[1]), "+d"(d.values[2]), "+d"(d.values[3])
        : "d"(a.words[0]), "d"(a.words[1]), "d"(a.words[2]), "d"(a.words[3]), "d"(a.words[4]), "d"(a.words[5]),
          "d"(a.words[6]), "d"(a.words[7]), "d"(b.words[0]), "d"(b.words[1]), "d"(b.words[2]), "d"(b.words[3]));
  }
}
/// d += a * b of one instruction.
template <typename Mma>
__device__ void mma_sync_ptx(typename Mma::D& d, const typename Mma::A& a, const typename Mma::B& b) {
  using NameA = MmaTypeName<Mma::type_a>;
  using NameB = MmaTypeName<Mma::type_b>;
  if constexpr (!has_mma_sync<Mma>()) {
    __trap();
  } else if constexpr (Mma::is_f64) {
    mma_sync_f64_ptx<Mma>(d, a, b);
  } else if constexpr (Mma::accumulator == MmaAccumulator::float32 && Mma::registers_a == 4) {
    asm volatile(
        "mma.sync.aligned.m16n8k%10.row.col.f32.%11.%12.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d.values[0]), "+f"(d.values[1]), "+f"(d.values[2]), "+f"(d.values[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]), "r"(b.words[1]),
          "n"(Mma::k), "C"(NameA::text), "C"(NameB::text));
  } else if constexpr (Mma::accumulator == MmaAccumulator::float32) {
    asm volatile("mma.sync.aligned.m16n8k%7.row.col.f32.%8.%9.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d.values[0]), "+f"(d.values[1]), "+f"(d.values[2]), "+f"(d.values[3])
                 : "r"(a.words[0]), "r"(a.words[1]), "r"(b.words[0]), "n"(Mma::k), "C"(NameA::text), "C"(NameB::text));
  } else if constexpr (Mma::registers_a == 4) {
    asm volatile("mma.sync.aligned.m16n8k%8.row.col.f16.%9.%10.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                 : "+r"(d.words[0]), "+r"(d.words[1])
                 : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]), "r"(b.words[1]),
                   "n"(Mma::k), "C"(NameA::text), "C"(NameB::text));
  } else {
    asm volatile("mma.sync.aligned.m16n8k%5.row.col.f16.%6.%7.f16 {%0, %1}, {%2, %3}, {%4}, {%0, %1};"
                 : "+r"(d.words[0]), "+r"(d.words[1])
                 : "r"(a.words[0]), "r"(a.words[1]), "r"(b.words[0]), "n"(Mma::k), "C"(NameA::text), "C"(NameB::text));
  }
}
#endif

/// d[i][j] += a[i] * b[j] in the tile of every warp of the team; all threads of it call this. `tiles` is an Each of
/// WarpTile. Code for chips without the instruction ends the kernel with an error.
template <typename Team, typename Tiles>
FP8LAB_HD void mma_sync([[maybe_unused]] const Team& team, Tiles& tiles) {
#ifdef __CUDACC__
  auto& tile = tiles[0];
  using Tile = std::remove_reference_t<decltype(tile)>;
  unrolled<Tile::count_m * Tile::count_n>([&](unsigned i) {
    const unsigned row = i / Tile::count_n;
    const unsigned column = i % Tile::count_n;
    mma_sync_ptx<typename Tile::Instruction>(tile.d[row][column], tile.a[row], tile.b[column]);
  });
#else
  host_mma_sync(team, tiles);
#endif
}

}  // namespace fp8lab::gpu
