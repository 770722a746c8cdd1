// SPDX-License-Identifier: Apache-2.0
// Single matrix instructions of Blackwell on tiles in memory: mma.sync with block scales, and tcgen05.mma.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp8lab/gpu/ptx/mma_sync_scaled.hpp"
#include "fp8lab/gpu/ptx/tcgen05.hpp"
#include "fp8lab/gpu/ptx/wgmma.hpp"
#include "fp8lab/gpu/team.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"

namespace fp8lab::gpu {

/// Rows of codes, one in a byte, and behind them their block scales, row by row: a tile of an operand.
struct ScaledTile {
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  unsigned depth;   ///< codes of a row
  unsigned blocks;  ///< scales of a row

  FP8LAB_HD ScaledTile(const void* tiles, std::size_t tile, unsigned rows, MmaKind kind)
      : codes(static_cast<const std::uint8_t*>(tiles) + tile * bytes(rows, kind)),
        scales(codes + std::size_t{rows} * k_of(kind)),
        depth(k_of(kind)),
        blocks(scales_of(kind)) {}
  [[nodiscard]] static FP8LAB_HD constexpr std::size_t bytes(unsigned rows, MmaKind kind) {
    return std::size_t{rows} * (k_of(kind) + scales_of(kind));
  }
  /// Four bytes of a row as instructions take them, from byte `first` on: E2M1 in pairs.
  [[nodiscard]] FP8LAB_HD std::uint32_t word(unsigned row, unsigned first) const {
    const bool is_packed = depth == 64;
    std::uint32_t word = 0;
    for (unsigned i = 0; i < 4; ++i) {
      const std::uint8_t* const at = codes + std::size_t{row} * depth + std::size_t{first + i} * (is_packed ? 2 : 1);
      const std::uint32_t byte = is_packed ? (at[0] & 15U) | (at[1] & 15U) << 4 : at[0];
      word |= byte << (8 * i);
    }
    return word;
  }
  /// The scales of a row, from the low byte on.
  [[nodiscard]] FP8LAB_HD std::uint32_t scale_word(unsigned row) const {
    std::uint32_t word = 0;
    for (unsigned i = 0; i < blocks; ++i) word |= std::uint32_t{scales[std::size_t{row} * blocks + i]} << (8 * i);
    return word;
  }
};

/// d = c + a * b^T of one mma.sync instruction with block scales for each of `tiles` tiles: a has 16 rows a tile, b 8,
/// each as ScaledTile says; c and d are (16, 8) words of float32. So element (m, n) of a tile's d is
/// mma(model_of(kind), row m of a, row n of b, c(m, n)).
template <typename Mma>
struct MmaSyncScaledTiles {
  static constexpr unsigned threads = 128;
  struct Shared {};
  using Word = std::uint32_t;
  static constexpr std::size_t words_d = std::size_t{Mma::m} * Mma::n;

  const void* a;
  const void* b;
  const Word* c;
  Word* d;
  std::size_t tiles;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return ceil_div(tiles, threads / 32); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& /*shared*/) const {
    auto own = team.template each<ScaledWarpTile<Mma, 1, 1>>();
    team.for_each_thread([&](std::size_t thread) {
      const std::size_t tile = block * (threads / 32) + thread / 32;
      if (tile >= tiles) return;
      const auto lane = static_cast<unsigned>(thread % 32);
      const ScaledTile left(a, tile, Mma::m, Mma::kind);
      const ScaledTile right(b, tile, Mma::n, Mma::kind);
      auto& mine = own[thread];
      for (unsigned reg = 0; reg < 4; ++reg) {
        const Place place = mma_sync_a(4, lane, reg, 0);
        mine.a[0].words[reg] = left.word(place.row, place.column);
        mine.d[0][0].values[reg] = std::bit_cast<float>(c[tile * words_d + index(mma_sync_d(lane, reg))]);
      }
      for (unsigned reg = 0; reg < 2; ++reg) {
        const Place place = mma_sync_b(4, lane, reg, 0);
        mine.b[0].words[reg] = right.word(place.row, place.column);
      }
      mine.scale_a[0] = left.scale_word(mma_sync_scale_row_a(lane));
      mine.scale_b[0] = right.scale_word(mma_sync_scale_row_b(lane));
    });
    mma_sync_scaled<0>(team, own);
    team.for_each_thread([&](std::size_t thread) {
      const std::size_t tile = block * (threads / 32) + thread / 32;
      if (tile >= tiles) return;
      for (unsigned i = 0; i < 4; ++i) {
        const Place place = mma_sync_d(static_cast<unsigned>(thread % 32), i);
        d[tile * words_d + index(place)] = std::bit_cast<Word>(own[thread].d[0][0].values[i]);
      }
    });
  }

 private:
  static FP8LAB_HD std::size_t index(Place place) { return std::size_t{place.row} * Mma::n + place.column; }
};

/// The same of one tcgen05.mma: a and b have 128 rows a tile, c and d are (128, 128), of float32 or float16.
template <typename Mma>
struct Tcgen05Tiles {
  static constexpr unsigned threads = 128;
  static constexpr unsigned scales_of_a = 128, scales_of_b = 132, columns = 256;  ///< of tensor memory
  struct alignas(1024) Shared {
    std::uint8_t a[Mma::m * 128];  // NOLINT(modernize-avoid-c-arrays): rows of which 32 bytes are used
    std::uint8_t b[Mma::n * 128];  // NOLINT(modernize-avoid-c-arrays)
    std::uint8_t scales[2][512];   // NOLINT(modernize-avoid-c-arrays): of a and b, swizzled
    Mbarrier done;
    std::uint32_t tensor_memory;
  };
  struct Values {
    float values[32];  // NOLINT(modernize-avoid-c-arrays)
  };
  using Word = AccumulatorWord<Mma::accumulator>;
  static constexpr std::size_t words_d = std::size_t{Mma::m} * Mma::n;

  const void* a;
  const void* b;
  const Word* c;
  Word* d;
  std::size_t tiles;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return tiles; }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& shared) const {
    load_tile(team, ScaledTile(a, block, Mma::m, Mma::kind), Mma::m, shared.a, shared.scales[0]);
    load_tile(team, ScaledTile(b, block, Mma::n, Mma::kind), Mma::n, shared.b, shared.scales[1]);
    team.for_each(1, [&](std::size_t) {
      init(shared.done, 1);
      fence_init(team);
    });
    fence_shared(team);
    TensorMemory memory(team, shared.tensor_memory, columns);
    team.template roles<1>([&](const auto& group, unsigned) { multiply(group, block, shared, memory); });
    memory.free(team);
  }

 private:
  /// Stores a tile to shared memory as tcgen05_descriptor() and tcgen05_scale_descriptor() describe it.
  template <typename Team>
  static FP8LAB_HD void load_tile(const Team& team, const ScaledTile& tile, unsigned rows, std::uint8_t* to,
                                  std::uint8_t* scales) {
    team.for_each(std::size_t{rows} * 8, [&](std::size_t i) {
      const auto row = static_cast<unsigned>(i / 8);
      const auto byte = static_cast<unsigned>(i % 8 * 4);
      *reinterpret_cast<std::uint32_t*>(to + swizzle_128b(row * 128 + byte)) = tile.word(row, byte);
    });
    team.for_each(rows, [&](std::size_t row) {
      *reinterpret_cast<std::uint32_t*>(scales + swizzled_place(row, 0, 4)) =
          tile.scale_word(static_cast<unsigned>(row));
    });
  }

  template <typename Group>
  FP8LAB_HD void multiply(const Group& group, std::size_t block, Shared& shared, TensorMemory& memory) const {
    auto own = group.template each<Values>();
    const auto place = [&](std::size_t thread, unsigned column) { return block * words_d + thread * Mma::n + column; };
    // 1. The accumulators, a row in each thread's lane.
    for (unsigned first = 0; first < Mma::n; first += 32) {
      group.for_each_thread([&](std::size_t thread) {
        unrolled<32>([&](unsigned i) {
          own[thread].values[i] = std::bit_cast<float>(std::uint32_t{c[place(thread, first + i)]});
        });
      });
      memory.store(group, first, own);
    }
    tcgen05_fence_before(group);
    group.sync();
    // 2. One thread begins the instruction.
    group.once([&] {
      tcgen05_fence_after(group);
      memory.copy_scales(group, scales_of_a, tcgen05_scale_descriptor(shared_address(group, shared.scales[0])));
      memory.copy_scales(group, scales_of_b, tcgen05_scale_descriptor(shared_address(group, shared.scales[1])));
      memory.template multiply<Mma>(group, 0, tcgen05_descriptor(shared_address(group, shared.a)),
                                    tcgen05_descriptor(shared_address(group, shared.b)), tcgen05_instruction<Mma>(),
                                    scales_of_a, scales_of_b, true);
      memory.commit(group, shared.done);
    });
    wait(group, shared.done, 0);
    tcgen05_fence_after(group);
    // 3. The result.
    for (unsigned first = 0; first < Mma::n; first += 32) {
      memory.load(group, first, own);
      group.for_each_thread([&](std::size_t thread) {
        unrolled<32>([&](unsigned i) {
          d[place(thread, first + i)] = static_cast<Word>(std::bit_cast<std::uint32_t>(own[thread].values[i]));
        });
      });
    }
    tcgen05_fence_before(group);
  }
};

}  // namespace fp8lab::gpu
