// SPDX-License-Identifier: Apache-2.0
// Single matrix instructions on tiles in memory: what a recorder asks a device, and a host.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fp8lab/gpu/ptx/mma_sync.hpp"
#include "fp8lab/gpu/team.hpp"

namespace fp8lab::gpu {

/// d = c + a * b^T of one mma.sync instruction for each of `tiles` tiles, one after the other in memory: a has (16, K)
/// elements a tile, b (8, K), c and d (16, 8), all row-major; a and b are aligned to 4 bytes. Words of c and d are
/// those of the accumulator. So element (m, n) of a tile's d is mma(model, row m of a, row n of b, c(m, n)).
///
///   using Mma = MmaSync<MmaType::e4m3, MmaType::e5m2, MmaAccumulator::float32, 32>;
///   run_on_host(MmaSyncTiles<Mma>{a, b, c, d, tiles}, order, HostChip::ada);  // run_on_device(kernel) on a device
///
/// Instructions: e4m3 and e5m2 in any mix with K = 32 or 16, f16 and bf16 with 16 or 8, tf32 with 8 or 4; accumulators
/// float32, and float16 for FP8 and f16.
template <typename Mma>
struct MmaSyncTiles {
  static constexpr unsigned threads = 128;
  struct Shared {};
  using Word = std::conditional_t<Mma::accumulator == MmaAccumulator::float32, std::uint32_t, std::uint16_t>;
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
      for (unsigned i = 0; i < 4; ++i) {
        mine.d[0][0].set(i, std::bit_cast<Value>(c[tile * words_d + index(mma_sync_d(lane, i))]));
      }
    });
    mma_sync(team, own);
    team.for_each_thread([&](std::size_t thread) {
      const std::size_t tile = block * (threads / 32) + thread / 32;
      if (tile >= tiles) return;
      for (unsigned i = 0; i < 4; ++i) {
        const Place place = mma_sync_d(static_cast<unsigned>(thread % 32), i);
        d[tile * words_d + index(place)] = std::bit_cast<Word>(own[thread].d[0][0].get(i));
      }
    });
  }

 private:
  static FP8LAB_HD std::size_t index(Place place) { return std::size_t{place.row} * Mma::n + place.column; }
  /// The register that begins with an element of a tile.
  static FP8LAB_HD std::uint32_t word_at(const void* from, std::size_t tile, Place place) {
    const std::size_t byte = tile + (std::size_t{place.row} * Mma::k + place.column) * Mma::element_bytes;
    return static_cast<const std::uint32_t*>(from)[byte / 4];
  }
};

}  // namespace fp8lab::gpu
