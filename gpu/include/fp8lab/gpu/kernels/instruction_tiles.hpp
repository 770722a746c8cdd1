// SPDX-License-Identifier: Apache-2.0
// Single matrix instructions on tiles in memory: what a recorder asks a device, and a host.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp8lab/gpu/ptx/mma_sync.hpp"
#include "fp8lab/gpu/ptx/wgmma.hpp"
#include "fp8lab/gpu/team.hpp"

namespace fp8lab::gpu {

/// d = c + a * b^T of one mma.sync instruction for each of `tiles` tiles, one after the other in memory: a has (M, K)
/// elements a tile, b (8, K), c and d (M, 8), all row-major; a and b are aligned to registers, of 4 bytes, and of 8 for
/// f64. Words of c and d are those of the accumulator. So element (m, n) of a tile's d is mma(model, row m of a, row n
/// of b, c(m, n)).
///
///   using Mma = MmaSync<MmaType::e4m3, MmaType::e5m2, MmaAccumulator::float32, 32>;
///   run_on_host(MmaSyncTiles<Mma>{a, b, c, d, tiles}, order, HostChip::ada);  // run_on_device(kernel) on a device
///
/// Instructions: e4m3 and e5m2 in any mix with K = 32 or 16, f16 and bf16 with 16 or 8, tf32 with 8 or 4; accumulators
/// float32, and float16 for FP8 and f16. f64 with float64: M = 8 with K = 4; on sm_90 M = 16 with 4, 8 or 16, too.
template <typename Mma>
struct MmaSyncTiles {
  static constexpr unsigned threads = 128;
  struct Shared {};
  using Word = AccumulatorWord<Mma::accumulator>;
  static constexpr std::size_t bytes_a = std::size_t{Mma::m} * Mma::k * Mma::element_bytes;  ///< of a tile of a
  static constexpr std::size_t bytes_b = std::size_t{Mma::n} * Mma::k * Mma::element_bytes;
  static constexpr std::size_t words_d = std::size_t{Mma::m} * Mma::n;

  const void* a;
  const void* b;
  const Word* c;
  Word* d;
  std::size_t tiles;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return ceil_div(tiles, threads / 32); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& /*shared*/) const {
    using D = Mma::D;
    using Value = D::Value;
    auto own = team.template each<WarpTile<Mma>>();
    team.for_each_thread([&](std::size_t thread) {
      const std::size_t tile = block * (threads / 32) + thread / 32;
      if (tile >= tiles) return;
      const auto lane = static_cast<unsigned>(thread % 32);
      auto& mine = own[thread];
      for (unsigned reg = 0; reg < Mma::registers_a; ++reg) {
        mine.a[0].words[reg] = word_at(a, tile * bytes_a, mma_sync_a(Mma::elements, lane, reg, 0));
      }
      for (unsigned reg = 0; reg < Mma::registers_b; ++reg) {
        mine.b[0].words[reg] = word_at(b, tile * bytes_b, mma_sync_b(Mma::elements, lane, reg, 0));
      }
      for (unsigned i = 0; i < Mma::values_d; ++i) {
        mine.d[0][0].set(i, std::bit_cast<Value>(c[tile * words_d + index(mma_sync_d(lane, i))]));
      }
    });
    mma_sync(team, own);
    team.for_each_thread([&](std::size_t thread) {
      const std::size_t tile = block * (threads / 32) + thread / 32;
      if (tile >= tiles) return;
      for (unsigned i = 0; i < Mma::values_d; ++i) {
        const Place place = mma_sync_d(static_cast<unsigned>(thread % 32), i);
        d[tile * words_d + index(place)] = std::bit_cast<Word>(own[thread].d[0][0].get(i));
      }
    });
  }

 private:
  static FP8LAB_HD std::size_t index(Place place) { return std::size_t{place.row} * Mma::n + place.column; }
  /// The register that begins with an element of a tile.
  static FP8LAB_HD Mma::Register word_at(const void* from, std::size_t tile, Place place) {
    using Register = Mma::Register;
    const std::size_t byte = tile + (std::size_t{place.row} * Mma::k + place.column) * Mma::element_bytes;
    return static_cast<const Register*>(from)[byte / sizeof(Register)];
  }
};

/// The same of one wgmma instruction: a has (64, K) elements a tile, b (N, K), c and d (64, N), and K is 32 bytes; a
/// and b are aligned to 4 bytes.
///
///   using Instruction = Wgmma<MmaType::e4m3, MmaType::e5m2, MmaAccumulator::float32, 64>;
///   run_on_host(WgmmaTiles<Instruction>{a, b, c, d, tiles}, order);  // the device: sm_90a
///
/// Instructions: N = 64 of all types and accumulators; with a float32 accumulator N = 128 and 256, too.
template <typename Instruction>
struct WgmmaTiles {
  static constexpr unsigned threads = 128;
  struct alignas(1024) Shared {
    std::uint8_t a[Instruction::m * 128];  // NOLINT(modernize-avoid-c-arrays): rows of which 32 bytes are used
    std::uint8_t b[Instruction::n * 128];  // NOLINT(modernize-avoid-c-arrays)
  };
  using Word = AccumulatorWord<Instruction::accumulator>;
  static constexpr std::size_t bytes_a = std::size_t{Instruction::m} * 32;  ///< of a tile of a
  static constexpr std::size_t bytes_b = std::size_t{Instruction::n} * 32;
  static constexpr std::size_t words_d = std::size_t{Instruction::m} * Instruction::n;

  const void* a;
  const void* b;
  const Word* c;
  Word* d;
  std::size_t tiles;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return tiles; }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& shared) const {
    load_tile(team, a, block * bytes_a, Instruction::m, shared.a);
    load_tile(team, b, block * bytes_b, Instruction::n, shared.b);
    fence_shared(team);
    team.template roles<1>([&](const auto& group, unsigned) { multiply(group, block, shared); });
  }

 private:
  /// Stores a tile to shared memory as wgmma_descriptor() describes it.
  template <typename Team>
  static FP8LAB_HD void load_tile(const Team& team, const void* from, std::size_t first, unsigned rows,
                                  std::uint8_t* to) {
    team.for_each(std::size_t{rows} * 8, [&](std::size_t i) {
      const auto place = swizzle_128b(static_cast<std::uint32_t>(i / 8 * 128 + i % 8 * 4));
      *reinterpret_cast<std::uint32_t*>(to + place) = static_cast<const std::uint32_t*>(from)[first / 4 + i];
    });
  }
  template <typename Group>
  FP8LAB_HD void multiply(const Group& group, std::size_t block, Shared& shared) const {
    using D = Instruction::D;
    constexpr unsigned count = Instruction::n / 2;
    auto own = group.template each<D>();
    const auto index = [&](std::size_t thread, unsigned i) {
      const Place place = wgmma_d(static_cast<unsigned>(thread), i);
      return block * words_d + std::size_t{place.row} * Instruction::n + place.column;
    };
    group.for_each_thread([&](std::size_t thread) {
      unrolled<count>([&](unsigned i) { own[thread].set(i, std::bit_cast<typename D::Value>(c[index(thread, i)])); });
    });
    wgmma_fence(group);
    wgmma<Instruction>(group, own, wgmma_descriptor(shared_address(group, shared.a)),
                       wgmma_descriptor(shared_address(group, shared.b)), true);
    wgmma_commit(group);
    wgmma_wait_all(group, own);
    group.for_each_thread([&](std::size_t thread) {
      unrolled<count>([&](unsigned i) { d[index(thread, i)] = std::bit_cast<Word>(own[thread].get(i)); });
    });
  }
};

}  // namespace fp8lab::gpu
