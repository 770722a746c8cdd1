// SPDX-License-Identifier: Apache-2.0
// The block-scaled GEMM of RTX Blackwell (sm_120a): MXFP8, MXFP4 and NVFP4 by mma.sync.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8lab/gpu/kernels/gemm_epilogue.hpp"
#include "fp8lab/gpu/ptx/async_copy.hpp"
#include "fp8lab/gpu/ptx/ldmatrix.hpp"
#include "fp8lab/gpu/ptx/mma_sync_scaled.hpp"
#include "fp8lab/gpu/team.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"

namespace fp8lab::gpu {

/// An operand of a block-scaled GEMM: rows of K elements, aligned to 16 bytes, and scales that swizzle_scales() has
/// swizzled. What stands in the scales' padding counts for nothing.
struct ScaledMatrix {
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  std::size_t rows;
};

/// out = a * b^T, K being a multiple of 16 bytes of codes. It equals gemm() of the reference with the instruction's
/// model, model_of(kind), whose alpha the epilogue's two scales make.
///
/// A team makes a tile of 128 x 128 of d, a warp 64 x 32 of it. Along K it goes in stages of 128 bytes of a row, which
/// are four instructions; while one stage is multiplied, the next one is copied.
template <typename Mma>
struct GemmSm120 {
  static constexpr unsigned threads = 256;
  static constexpr unsigned tile = 128;                          ///< rows of a, and of b
  static constexpr unsigned stage_bytes = 128;                   ///< of a row
  static constexpr unsigned scale_tiles = scales_of(Mma::kind);  ///< of 128 x 4 scales, of a stage
  static constexpr unsigned warps_n = 4;                         ///< warps side by side
  using WarpTile = ScaledWarpTile<Mma, 4, 4>;

  struct Side {
    alignas(16) std::uint8_t codes[tile * stage_bytes];  // NOLINT(modernize-avoid-c-arrays)
    alignas(16) std::uint8_t scales[scale_tiles * 512];  // NOLINT(modernize-avoid-c-arrays)
  };
  struct Stage {
    Side a, b;
  };
  struct Shared {
    Stage stages[2];  // NOLINT(modernize-avoid-c-arrays)
  };

  ScaledMatrix a, b;
  std::size_t k;
  GemmEpilogue out;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return tiles(a) * tiles(b); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& shared) const {
    const Place number = tile_of(block, tiles(a), tiles(b));
    AsyncCopies copies(team);
    auto own = team.template each<WarpTile>();
    const auto start = [&](std::size_t thread, std::size_t stage) {
      copy(copies, thread, a, number.row, stage, shared.stages[stage % 2].a);
      copy(copies, thread, b, number.column, stage, shared.stages[stage % 2].b);
      copies.commit(thread);
    };
    // 1. The first stage is on its way.
    team.for_each_thread([&](std::size_t thread) { start(thread, 0); });
    for (std::size_t stage = 0; stage < stages(); ++stage) {
      // 2. Behind the barrier the stage is there, and nobody reads the one before, which the next one replaces.
      team.for_each_thread([&](std::size_t thread) { copies.wait<0>(thread); });
      load_own(team, [&](std::size_t thread) {
        if (stage + 1 < stages()) start(thread, stage + 1);
      });
      // 3. Four instructions along K.
      multiply<0>(team, shared.stages[stage % 2], stage, own);
      multiply<1>(team, shared.stages[stage % 2], stage, own);
      multiply<2>(team, shared.stages[stage % 2], stage, own);
      multiply<3>(team, shared.stages[stage % 2], stage, own);
    }
    // 4. The epilogue.
    const float alpha = out.alpha();
    team.for_each_thread([&](std::size_t thread) { write(thread, number, alpha, own[thread]); });
  }

 private:
  [[nodiscard]] static FP8LAB_HD std::size_t tiles(const ScaledMatrix& side) { return ceil_div(side.rows, tile); }
  [[nodiscard]] FP8LAB_HD std::size_t row_bytes() const { return is_packed(Mma::kind) ? k / 2 : k; }
  [[nodiscard]] FP8LAB_HD std::size_t stages() const { return ceil_div(row_bytes(), stage_bytes); }
  /// Scales of a row.
  [[nodiscard]] FP8LAB_HD std::size_t columns() const { return k / block_of(Mma::kind); }

  /// Where a piece of 16 bytes of a row lies in a stage: the 128-byte swizzle, so that eight rows of one piece lie in
  /// eight banks.
  [[nodiscard]] static FP8LAB_HD constexpr unsigned place(unsigned row, unsigned piece) {
    return row * stage_bytes + (piece ^ row % 8) * 16;
  }

  /// Begins to copy a tile's stage: zeros beyond the last row and beyond K.
  FP8LAB_HD void copy(AsyncCopies& copies, std::size_t thread, const ScaledMatrix& from, std::size_t tile_row,
                      std::size_t stage, Side& to) const {
    constexpr unsigned pieces = stage_bytes / 16;
    for (std::size_t i = thread; i < std::size_t{tile} * pieces; i += threads) {
      const std::size_t row = tile_row * tile + i / pieces;
      const std::size_t byte = stage * stage_bytes + i % pieces * 16;
      const bool is_there = row < from.rows && byte < row_bytes();
      copies.start(thread, to.codes + place(static_cast<unsigned>(i / pieces), static_cast<unsigned>(i % pieces)),
                   from.codes + (is_there ? row * row_bytes() + byte : 0), is_there);
    }
    const std::size_t tiles_k = ceil_div(columns(), 4);
    for (std::size_t i = thread; i < std::size_t{scale_tiles} * 32; i += threads) {
      const std::size_t tile_k = stage * scale_tiles + i / 32;
      const bool is_there = tile_k < tiles_k;
      copies.start(thread, to.scales + i * 16,
                   from.scales + (is_there ? (tile_row * tiles_k + tile_k) * 512 + i % 32 * 16 : 0), is_there);
    }
  }

  /// Loads instruction kSlice of a stage for every warp, and runs it.
  template <unsigned kSlice, typename Team, typename Tiles>
  FP8LAB_HD void multiply(const Team& team, const Stage& stage, std::size_t number, Tiles& tiles) const {
    constexpr unsigned first_scale = kSlice * scales_of(Mma::kind);
    for (unsigned i = 0; i < WarpTile::count_m; ++i) {
      ldmatrix_x4(
          team,
          [&](std::size_t thread) {
            const unsigned lane = thread % 32;
            return stage.a.codes + place(row_m(thread) + i * 16 + lane % 16, kSlice * 2 + lane / 16);
          },
          [&](std::size_t thread, unsigned matrix) -> std::uint32_t& { return tiles[thread].a[i].words[matrix]; });
    }
    for (unsigned j = 0; j < WarpTile::count_n; j += 2) {
      ldmatrix_x4(
          team,
          [&](std::size_t thread) {
            const unsigned lane = thread % 32;
            return stage.b.codes + place(row_n(thread) + j * 8 + lane / 16 * 8 + lane % 8, kSlice * 2 + lane / 8 % 2);
          },
          [&](std::size_t thread, unsigned matrix) -> std::uint32_t& {
            return tiles[thread].b[j + matrix / 2].words[matrix % 2];
          });
    }
    const std::uint32_t mask = valid_scales(number * scale_tiles + first_scale / 4);
    load_own(team, [&](std::size_t thread) {
      const unsigned lane = thread % 32;
      auto& own = tiles[thread];
      for (unsigned i = 0; i < WarpTile::count_m; ++i) {
        own.scale_a[i] = mask & scales(stage.a, row_m(thread) + i * 16 + mma_sync_scale_row_a(lane), first_scale / 4);
      }
      for (unsigned j = 0; j < WarpTile::count_n; ++j) {
        own.scale_b[j] = mask & scales(stage.b, row_n(thread) + j * 8 + mma_sync_scale_row_b(lane), first_scale / 4);
      }
    });
    mma_sync_scaled<first_scale % 4>(team, tiles);
  }

  /// The first row of a warp's tile, of a and of b.
  [[nodiscard]] static FP8LAB_HD constexpr unsigned row_m(std::size_t thread) {
    return static_cast<unsigned>(thread) / 32 / warps_n * (tile / 2);
  }
  [[nodiscard]] static FP8LAB_HD constexpr unsigned row_n(std::size_t thread) {
    return static_cast<unsigned>(thread) / 32 % warps_n * (tile / warps_n);
  }
  /// Four scales of a row.
  [[nodiscard]] static FP8LAB_HD std::uint32_t scales(const Side& side, unsigned row, unsigned scale_tile) {
    return *reinterpret_cast<const std::uint32_t*>(side.scales + scale_tile * 512 + swizzled_place(row, 0, 4));
  }
  /// The bytes of a word of scales that are not beyond K.
  [[nodiscard]] FP8LAB_HD std::uint32_t valid_scales(std::size_t tile_k) const {
    const std::size_t count = tile_k * 4 < columns() ? columns() - tile_k * 4 : 0;
    return count >= 4 ? 0xFFFFFFFFU : (1U << (8 * count)) - 1;
  }

  FP8LAB_HD void write(std::size_t thread, Place number, float alpha, const WarpTile& own) const {
    const std::size_t first_row = std::size_t{number.row} * tile + row_m(thread);
    const std::size_t first_column = std::size_t{number.column} * tile + row_n(thread);
    unrolled<WarpTile::count_m * WarpTile::count_n * 2>([&](unsigned pair) {
      const std::size_t i = pair / 2 / WarpTile::count_n;
      const std::size_t j = pair / 2 % WarpTile::count_n;
      const unsigned r = pair % 2 * 2;
      const Place in_tile = mma_sync_d(thread % 32, r);
      const auto& d = own.d[i][j].values;
      out.store(first_row + i * 16 + in_tile.row, first_column + j * 8 + in_tile.column, d[r], d[r + 1], alpha);
    });
  }
};

}  // namespace fp8lab::gpu
