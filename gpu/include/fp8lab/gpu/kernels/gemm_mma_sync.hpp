// SPDX-License-Identifier: Apache-2.0
// FP8 GEMM of Ada and later (sm_89), by the instruction of a warp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8lab/formats/widen.hpp"
#include "fp8lab/gpu/kernels/gemm_epilogue.hpp"
#include "fp8lab/gpu/ptx/mma_sync.hpp"
#include "fp8lab/gpu/team.hpp"

namespace fp8lab::gpu {

/// out = a * b^T of codes a (M, K) and b (N, K), K a multiple of 16 and both aligned to 16 bytes, by mma.sync m16n8k32.
/// It equals gemm() of the reference with the chip's model of that instruction; Hopper and the data-centre Blackwell
/// have none, so the compiler makes FP16 instructions of it.
///
/// A block makes a tile of 128 x 128 from stages of 64 of K: while a stage is multiplied, every thread has the next one
/// in registers. Eight warps, two by four, make 64 x 32 each.
template <MmaType kA, MmaType kB, MmaAccumulator kAccumulator>
struct MmaSyncGemm {
  static constexpr unsigned threads = 256;
  static constexpr unsigned tile_m = 128, tile_n = 128, tile_k = 64;
  static constexpr unsigned row_bytes = tile_k + 16;  // so that the rows of a fragment lie in different banks
  using Instruction = MmaSync<kA, kB, kAccumulator, 32>;
  using Tile = WarpTile<Instruction, 4, 4>;

  struct alignas(16) Shared {
    std::uint8_t a[2][tile_m * row_bytes];  // NOLINT(modernize-avoid-c-arrays)
    std::uint8_t b[2][tile_n * row_bytes];  // NOLINT(modernize-avoid-c-arrays)
  };
  /// The part of a stage that a thread copies: half of a row of a and of b.
  struct Ahead {
    Vector<std::uint8_t, 16> a[2], b[2];  // NOLINT(modernize-avoid-c-arrays)
  };

  const std::uint8_t* a;
  const std::uint8_t* b;
  std::size_t k;
  GemmEpilogue out;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return ceil_div(out.m, tile_m) * ceil_div(out.n, tile_n); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& shared) const {
    const Place number = tile_of(block, ceil_div(out.m, tile_m), ceil_div(out.n, tile_n));
    const Place place{number.row * tile_m, number.column * tile_n};
    auto ahead = team.template each<Ahead>();
    auto tiles = team.template each<Tile>();
    team.for_each_thread([&](std::size_t thread) { load_ahead(ahead[thread], thread, place, 0); });
    unsigned stage = 0;
    for (std::size_t first = 0; first < k; first += tile_k, stage ^= 1U) {
      team.for_each_thread([&](std::size_t thread) {
        store_ahead(ahead[thread], thread, shared, stage);
        load_ahead(ahead[thread], thread, place, first + tile_k);
      });
      unrolled<tile_k / 32>([&](unsigned step) {
        team.for_each_thread([&](std::size_t thread) {
          load_fragments(tiles[thread], static_cast<unsigned>(thread), shared, stage, step);
        });
        mma_sync(team, tiles);
      });
    }
    const float alpha = out.alpha();
    team.for_each_thread(
        [&](std::size_t thread) { store_tile(tiles[thread], static_cast<unsigned>(thread), place, alpha); });
  }

 private:
  /// The warp's part of the tile.
  static FP8LAB_HD Place warp_place(unsigned thread) { return {thread / 32 / 4 * 64, thread / 32 % 4 * 32}; }

  /// Sixteen codes of K of a row; zeros outside of the matrix.
  FP8LAB_HD Vector<std::uint8_t, 16> load_codes(const std::uint8_t* codes, std::size_t rows, std::size_t row,
                                                std::size_t column) const {
    if (row < rows && column < k) return load<16>(codes + row * k + column);
    return {};
  }
  FP8LAB_HD void load_ahead(Ahead& ahead, std::size_t thread, Place place, std::size_t first) const {
    unrolled<2>([&](unsigned i) {
      const std::size_t column = first + (thread % 2 * 2 + i) * 16;
      ahead.a[i] = load_codes(a, out.m, place.row + thread / 2, column);
      ahead.b[i] = load_codes(b, out.n, place.column + thread / 2, column);
    });
  }
  static FP8LAB_HD void store_ahead(const Ahead& ahead, std::size_t thread, Shared& shared, unsigned stage) {
    unrolled<2>([&](unsigned i) {
      const std::size_t to = thread / 2 * row_bytes + (thread % 2 * 2 + i) * 16;
      store(ahead.a[i], &shared.a[stage][to]);
      store(ahead.b[i], &shared.b[stage][to]);
    });
  }
  static FP8LAB_HD std::uint32_t word_at(const std::uint8_t* tile, unsigned row, unsigned column) {
    return *reinterpret_cast<const std::uint32_t*>(tile + std::size_t{row} * row_bytes + column);
  }
  static FP8LAB_HD void load_fragments(Tile& tile, unsigned thread, const Shared& shared, unsigned stage,
                                       unsigned step) {
    const Place warp = warp_place(thread);
    unrolled<Tile::count_m * Instruction::registers_a>([&](unsigned i) {
      const unsigned reg = i % Instruction::registers_a;
      const unsigned number = i / Instruction::registers_a;
      const Place place = mma_sync_a(Instruction::elements, thread % 32, reg, 0);
      tile.a[number].words[reg] =
          word_at(shared.a[stage], warp.row + number * Instruction::m + place.row, step * 32 + place.column);
    });
    unrolled<Tile::count_n * Instruction::registers_b>([&](unsigned i) {
      const unsigned reg = i % Instruction::registers_b;
      const unsigned number = i / Instruction::registers_b;
      const Place place = mma_sync_b(Instruction::elements, thread % 32, reg, 0);
      tile.b[number].words[reg] =
          word_at(shared.b[stage], warp.column + number * Instruction::n + place.row, step * 32 + place.column);
    });
  }
  FP8LAB_HD void store_tile(const Tile& tile, unsigned thread, Place place, float alpha) const {
    const Place warp = warp_place(thread);
    unrolled<Tile::count_m * Tile::count_n * 2>([&](unsigned i) {
      const unsigned row = i / 2 / Tile::count_n;
      const unsigned column = i / 2 % Tile::count_n;
      const Place own = mma_sync_d(thread % 32, i % 2 * 2);
      const auto& d = tile.d[row][column];
      out.store(place.row + warp.row + row * Instruction::m + own.row,
                place.column + warp.column + column * Instruction::n + own.column, widened(d.get(i % 2 * 2)),
                widened(d.get(i % 2 * 2 + 1)), alpha);
    });
  }
};

}  // namespace fp8lab::gpu
