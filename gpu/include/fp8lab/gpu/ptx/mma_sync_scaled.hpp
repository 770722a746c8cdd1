// SPDX-License-Identifier: Apache-2.0
// mma.sync with block scales (sm_120a): a warp multiplies tiles that lie in its registers. The host runs the model.
#pragma once

#include <cstdint>
#include <type_traits>

#include "fp8lab/gpu/block_scaled.hpp"
#include "fp8lab/gpu/ptx/mma_sync.hpp"
#ifndef __CUDACC__
#include "fp8lab/gpu/ptx/host_mma_scaled.hpp"
#endif

namespace fp8lab::gpu {

#ifdef __CUDACC__
/// d += a * b of one instruction, its scales being those from byte kByte on of each word.
template <typename Mma, unsigned kByte>
__device__ void mma_sync_scaled_ptx(typename Mma::D& d, const typename Mma::A& a, const typename Mma::B& b,
                                    std::uint32_t scale_a, std::uint32_t scale_b) {
  constexpr MmaKind kind = Mma::kind;
  if constexpr (kind == MmaKind::mxf8f6f4) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.%13.%14.f32.ue8m0 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, 0}, {%11}, {%12, 0};"
        : "+f"(d.values[0]), "+f"(d.values[1]), "+f"(d.values[2]), "+f"(d.values[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]), "r"(b.words[1]),
          "r"(scale_a), "r"(scale_b), "n"(kByte), "C"(MmaTypeName<Mma::type_a>::text),
          "C"(MmaTypeName<Mma::type_b>::text));
  } else if constexpr (kind == MmaKind::mxf4) {
    asm volatile(
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, 0}, {%11}, {%12, 0};"
        : "+f"(d.values[0]), "+f"(d.values[1]), "+f"(d.values[2]), "+f"(d.values[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]), "r"(b.words[1]),
          "r"(scale_a), "r"(scale_b), "n"(kByte));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, 0}, {%11}, {%12, 0};"
        : "+f"(d.values[0]), "+f"(d.values[1]), "+f"(d.values[2]), "+f"(d.values[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]), "r"(b.words[1]),
          "r"(scale_a), "r"(scale_b), "n"(kByte));
  }
}
#endif

/// d[i][j] += a[i] * b[j] in the tile of every warp of the team, with the scales from byte kByte on of the words
/// scale_a[i] and scale_b[j]; all threads of the team call this. `tiles` is an Each of ScaledWarpTile.
template <unsigned kByte, typename Team, typename Tiles>
FP8LAB_HD void mma_sync_scaled([[maybe_unused]] const Team& team, Tiles& tiles) {
#ifdef __CUDACC__
  auto& tile = tiles[0];
  using Tile = std::remove_reference_t<decltype(tile)>;
  static_assert(kByte + scales_of(Tile::Instruction::kind) <= 4);
#pragma unroll
  for (unsigned i = 0; i < Tile::count_m; ++i) {
#pragma unroll
    for (unsigned j = 0; j < Tile::count_n; ++j) {
      mma_sync_scaled_ptx<typename Tile::Instruction, kByte>(tile.d[i][j], tile.a[i], tile.b[j], tile.scale_a[i],
                                                             tile.scale_b[j]);
    }
  }
#else
  host_mma_sync_scaled<kByte>(team, tiles);
#endif
}

}  // namespace fp8lab::gpu
