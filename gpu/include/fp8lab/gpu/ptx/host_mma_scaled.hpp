// SPDX-License-Identifier: Apache-2.0
// Block-scaled matrix instructions on the host: fp8lab's models of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "fp8lab/gpu/block_scaled.hpp"
#include "fp8lab/gpu/host_team.hpp"
#include "fp8lab/reference/tensor_core/mma.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace fp8lab::gpu {

/// The model of a kind, of mma.sync and tcgen05.mma alike. Kinds with block scales accumulate in float32.
[[nodiscard]] inline const MmaModel& model_of(MmaKind kind, MmaAccumulator accumulator = MmaAccumulator::float32) {
  switch (kind) {
    case MmaKind::f8f6f4:
      return accumulator == MmaAccumulator::float32 ? blackwell_tcgen05_fp8 : blackwell_tcgen05_fp8_f16;
    case MmaKind::mxf8f6f4: return blackwell_mxf8;
    case MmaKind::mxf4: return blackwell_mxf4;
    case MmaKind::mxf4nvf4_ue8m0: return blackwell_mxf4_block16;
    case MmaKind::mxf4nvf4: return blackwell_nvf4;
  }
  throw std::invalid_argument("unknown kind of instructions");
}

/// Rows of 32 bytes with their scales, as an instruction takes them: a batch of its dot products.
template <typename Value = float>
struct ScaledDots {
  std::vector<std::uint8_t> a, b, scale_a, scale_b;
  std::vector<Value> d;

  ScaledDots(MmaKind kind, std::size_t count)
      : a(count * 32), b(count * 32), scale_a(count * scales_of(kind)), scale_b(count * scales_of(kind)), d(count) {}

  /// d += a * b^T, row by row.
  void run(MmaKind kind, const Format& format_a, const Format& format_b) {
    const auto operand = [&](std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales,
                             const Format& format) {
      return Operand{.elements = codes,
                     .format = is_packed(kind) ? e2m1 : format,
                     .rows = d.size(),
                     .depth = k_of(kind),
                     .packed = is_packed(kind),
                     .scales = {.codes = scales}};
    };
    constexpr auto accumulator = std::is_same_v<Value, float> ? MmaAccumulator::float32 : MmaAccumulator::float16;
    mma(model_of(kind, accumulator), operand(a, scale_a, format_a), operand(b, scale_b, format_b),
        std::span<const Value>(d), std::span<Value>(d));
  }
};

/// mma_sync_scaled() of mma_sync_scaled.hpp: what lanes hold is gathered by the fragment layout, the scales from the
/// lanes and bytes that the instruction takes them from.
template <unsigned kByte, typename Tiles>
void host_mma_sync_scaled(const HostTeam& team, Tiles& tiles) {
  using Tile = std::remove_reference_t<decltype(tiles[0])>;
  using Mma = Tile::Instruction;
  constexpr std::size_t of_warp = Tile::count_m * Tile::count_n;
  constexpr std::size_t scales = scales_of(Mma::kind);
  ScaledDots<> dots(Mma::kind, team.threads() / 32 * of_warp * Mma::m * Mma::n);
  const auto for_each = [&](const auto& body) {  // body(first thread of the warp, i, j, row, column, dot product)
    std::size_t dot = 0;
    for (std::size_t warp = 0; warp < team.threads() / 32 * of_warp; ++warp) {
      const auto tile = static_cast<unsigned>(warp % of_warp);
      for (unsigned place = 0; place < Mma::m * Mma::n; ++place, ++dot) {
        body(warp / of_warp * 32, tile / Tile::count_n, tile % Tile::count_n, place / Mma::n, place % Mma::n, dot);
      }
    }
  };
  const auto byte_of = [](std::uint32_t word, unsigned byte) { return static_cast<std::uint8_t>(word >> (8 * byte)); };
  // 1. Which lane and register have a byte of a row: the layouts' inverse.
  std::uint16_t places_a[Mma::m][32];      // NOLINT(modernize-avoid-c-arrays)
  std::uint16_t places_b[Mma::n][32];      // NOLINT(modernize-avoid-c-arrays)
  std::uint16_t places_d[Mma::m][Mma::n];  // NOLINT(modernize-avoid-c-arrays)
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned i = 0; i < 16; ++i) {
      const auto coded = static_cast<std::uint16_t>(lane * 16 + i);
      const Place a = mma_sync_a(4, lane, i / 4, i % 4);
      places_a[a.row][a.column] = coded;
      if (i < 8) {
        const Place b = mma_sync_b(4, lane, i / 4, i % 4);
        places_b[b.row][b.column] = coded;
      }
      if (i < 4) {
        const Place d = mma_sync_d(lane, i);
        places_d[d.row][d.column] = coded;
      }
    }
  }
  // 2. The operands.
  for_each([&](std::size_t warp, unsigned i, unsigned j, unsigned row, unsigned column, std::size_t dot) {
    for (unsigned byte = 0; byte < 32; ++byte) {
      const unsigned a = places_a[row][byte];
      const unsigned b = places_b[column][byte];
      dots.a[dot * 32 + byte] = byte_of(tiles[warp + a / 16].a[i].words[a % 16 / 4], a % 4);
      dots.b[dot * 32 + byte] = byte_of(tiles[warp + b / 16].b[j].words[b % 16 / 4], b % 4);
    }
    for (unsigned s = 0; s < scales; ++s) {
      dots.scale_a[dot * scales + s] = byte_of(tiles[warp + mma_sync_scale_lane_a(row)].scale_a[i], kByte + s);
      dots.scale_b[dot * scales + s] = byte_of(tiles[warp + mma_sync_scale_lane_b(column)].scale_b[j], kByte + s);
    }
    const unsigned d = places_d[row][column];
    dots.d[dot] = tiles[warp + d / 16].d[i][j].values[d % 16];
  });
  // 3. The instructions.
  dots.run(Mma::kind, format_of(Mma::type_a), format_of(Mma::type_b));
  for_each([&](std::size_t warp, unsigned i, unsigned j, unsigned row, unsigned column, std::size_t dot) {
    const unsigned d = places_d[row][column];
    tiles[warp + d / 16].d[i][j].values[d % 16] = dots.d[dot];
  });
}

}  // namespace fp8lab::gpu
