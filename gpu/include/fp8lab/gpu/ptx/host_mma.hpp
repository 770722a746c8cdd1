// SPDX-License-Identifier: Apache-2.0
// Matrix instructions on the host: fp8lab's models of them, with the elements where the instruction has them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fp8lab/gpu/fragments.hpp"
#include "fp8lab/gpu/host_team.hpp"
#include "fp8lab/reference/tensor_core/mma.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace fp8lab::gpu {

/// Dot products of one instruction, to be computed at once: each has a row of a, a row of b and an accumulator.
template <typename Element, typename Value>
struct HostDots {
  std::vector<Element> a, b;
  std::vector<Value> d;

  /// d += a * b^T, row by row, as `model` computes it.
  void run(const MmaModel& model, const Format& format_a, const Format& format_b) {
    const std::size_t depth = a.size() / d.size();
    const Operand left{.elements = std::span<const Element>(a), .format = format_a, .rows = d.size(), .depth = depth};
    const Operand right{.elements = std::span<const Element>(b), .format = format_b, .rows = d.size(), .depth = depth};
    mma(model, left, right, std::span<const Value>(d), std::span<Value>(d));
  }
};

/// The model of mma.sync m16n8kK on a chip, of f64 with K = 4 of m8n8k4 too. Throws std::invalid_argument where the
/// chip has no such instruction.
[[nodiscard]] inline const MmaModel& mma_sync_model(HostChip chip, MmaType type, MmaAccumulator accumulator,
                                                    unsigned k) {
  static constexpr std::array<std::string_view, 5> names{"ampere", "ada", "hopper", "blackwell", "blackwell"};
  static constexpr std::array<std::string_view, 5> names_fp8{"", "ada_mma_fp8", "hopper_mma_sync_fp8",
                                                             "hopper_mma_sync_fp8", "rtx_blackwell_mma_fp8"};
  const bool is_fp8 = bytes_of(type) == 1;
  if (is_fp8 && chip == HostChip::ampere) throw std::invalid_argument("mma.sync of FP8 is for sm_89 and later");
  std::string name((is_fp8 ? names_fp8 : names)[static_cast<std::size_t>(chip)]);
  if (type == MmaType::f64) {
    if (chip != HostChip::hopper && k != 4) throw std::invalid_argument("mma.sync m16n8kK of f64 is for sm_90");
    return find_model(name + "_fp64" + (chip == HostChip::hopper && k < 16 ? "_k" + std::to_string(k) : ""));
  }
  if (type == MmaType::f16) name += "_fp16";
  if (type == MmaType::bf16) name += "_bf16";
  if (type == MmaType::tf32) name += "_tf32";
  if (k * bytes_of(type) == 16) name += "_k" + std::to_string(k);  // the smaller of two shapes
  if (accumulator == MmaAccumulator::float16) name += "_f16";
  return find_model(name);
}

/// The `index`-th element of a register.
template <typename Element>
[[nodiscard]] Element element_of(std::uint32_t word, unsigned index) {
  if constexpr (sizeof(Element) == 4)
    return std::bit_cast<float>(word);
  else
    return static_cast<Element>(word >> (8 * sizeof(Element) * index));
}
template <typename Element>
[[nodiscard]] Element element_of(double word, unsigned /*index*/) {
  return word;
}

/// The type of a factor in memory, and a batch of the instruction's dot products.
template <typename Mma>
using MmaElement =
    std::conditional_t<bytes_of(Mma::type_a) == 1, std::uint8_t,
                       std::conditional_t<bytes_of(Mma::type_a) == 2, std::uint16_t,
                                          std::conditional_t<bytes_of(Mma::type_a) == 4, float, double>>>;
template <typename Mma>
using MmaDots = HostDots<MmaElement<Mma>, typename Mma::D::Value>;

/// Puts what a lane holds of an instruction's a, b and d into the batch, whose dot products [first, first + M * 8) are
/// the instruction's.
template <typename Mma>
void gather(MmaDots<Mma>& dots, std::size_t first, unsigned lane, const typename Mma::A& a, const typename Mma::B& b,
            const typename Mma::D& d) {
  for (unsigned i = 0; i < Mma::registers_a * Mma::elements; ++i) {
    const Place place = mma_sync_a(Mma::elements, lane, i / Mma::elements, i % Mma::elements);
    const auto element = element_of<MmaElement<Mma>>(a.words[i / Mma::elements], i % Mma::elements);
    for (unsigned n = 0; n < Mma::n; ++n) dots.a[(first + place.row * Mma::n + n) * Mma::k + place.column] = element;
  }
  for (unsigned i = 0; i < Mma::registers_b * Mma::elements; ++i) {
    const Place place = mma_sync_b(Mma::elements, lane, i / Mma::elements, i % Mma::elements);
    const auto element = element_of<MmaElement<Mma>>(b.words[i / Mma::elements], i % Mma::elements);
    for (unsigned m = 0; m < Mma::m; ++m) dots.b[(first + m * Mma::n + place.row) * Mma::k + place.column] = element;
  }
  for (unsigned i = 0; i < Mma::values_d; ++i) {
    const Place place = mma_sync_d(lane, i);
    dots.d[first + place.row * Mma::n + place.column] = d.get(i);
  }
}

/// mma_sync() of mma_sync.hpp: tiles of all warps are gathered, by the fragment layout, into one batch of dot products.
template <typename Tiles>
void host_mma_sync(const HostTeam& team, Tiles& tiles) {
  using Tile = std::remove_reference_t<decltype(tiles[0])>;
  using Mma = Tile::Instruction;
  constexpr std::size_t instruction = std::size_t{Mma::m} * Mma::n;
  constexpr std::size_t of_warp = Tile::count_m * Tile::count_n;
  const std::size_t count = team.threads() / 32 * of_warp * instruction;
  MmaDots<Mma> dots{.a = std::vector<MmaElement<Mma>>(count * Mma::k),
                    .b = std::vector<MmaElement<Mma>>(count * Mma::k),
                    .d = std::vector<typename Mma::D::Value>(count)};
  const auto for_each_lane = [&](const auto& body) {  // body(tile, lane, i, j, first dot product)
    for (unsigned i = 0; i < team.threads() * of_warp; ++i) {
      const unsigned thread = i / of_warp;
      body(tiles[thread], thread % 32, i / Tile::count_n % Tile::count_m, i % Tile::count_n,
           (thread / 32 * of_warp + i % of_warp) * instruction);
    }
  };
  for_each_lane([&](const Tile& tile, unsigned lane, unsigned i, unsigned j, std::size_t first) {
    gather<Mma>(dots, first, lane, tile.a[i], tile.b[j], tile.d[i][j]);
  });
  dots.run(mma_sync_model(team.chip(), Mma::type_a, Mma::accumulator, Mma::k), format_of(Mma::type_a),
           format_of(Mma::type_b));
  for_each_lane([&](Tile& tile, unsigned lane, unsigned i, unsigned j, std::size_t first) {
    for (unsigned r = 0; r < Mma::values_d; ++r) {
      const Place place = mma_sync_d(lane, r);
      tile.d[i][j].set(r, dots.d[first + place.row * Mma::n + place.column]);
    }
  });
}

/// The model of wgmma.
[[nodiscard]] inline const MmaModel& wgmma_model(MmaType type, MmaAccumulator accumulator) {
  const bool is_float = accumulator == MmaAccumulator::float32;
  switch (type) {
    case MmaType::e4m3:
    case MmaType::e5m2: return is_float ? hopper_wgmma_fp8 : hopper_wgmma_fp8_f16;
    case MmaType::f16: return is_float ? hopper_fp16 : hopper_fp16_f16;
    case MmaType::bf16: return hopper_bf16;
    case MmaType::tf32: return hopper_tf32;
    case MmaType::f64: break;
  }
  throw std::invalid_argument("wgmma: no such type");
}

/// wgmma() of wgmma.hpp, on tiles in the team's shared memory.
template <typename Instruction, typename Each>
void host_wgmma(const HostTeam& team, Each& d, std::uint64_t a, std::uint64_t b, bool add) {
  using Element = MmaElement<Instruction>;
  constexpr std::size_t k = Instruction::k;
  constexpr std::size_t count = std::size_t{Instruction::m} * Instruction::n;
  MmaDots<Instruction> dots{.a = std::vector<Element>(count * k),
                            .b = std::vector<Element>(count * k),
                            .d = std::vector<typename Instruction::D::Value>(count)};
  const auto read = [&](std::uint64_t descriptor, unsigned row, Element* to) {
    for (unsigned byte = 0; byte < 32; byte += 16) {  // pieces stay together in every swizzle
      std::copy_n(team.read_async(wgmma_address(descriptor, row, byte), 16, team.part()), 16,
                  reinterpret_cast<std::byte*>(to) + byte);
    }
  };
  for (unsigned m = 0; m < Instruction::m; ++m) {
    read(a, m, &dots.a[m * Instruction::n * k]);
    for (unsigned n = 1; n < Instruction::n; ++n) {
      std::copy_n(&dots.a[m * Instruction::n * k], k, &dots.a[(m * Instruction::n + n) * k]);
    }
  }
  for (unsigned n = 0; n < Instruction::n; ++n) read(b, n, &dots.b[n * k]);
  for (unsigned m = 1; m < Instruction::m; ++m) {
    std::copy_n(dots.b.data(), Instruction::n * k, &dots.b[m * Instruction::n * k]);
  }
  const auto for_each_value = [&](const auto& body) {
    for (unsigned i = 0; i < count; ++i) {
      const Place place = wgmma_d(i / (Instruction::n / 2), i % (Instruction::n / 2));
      body(d[i / (Instruction::n / 2)], i % (Instruction::n / 2), dots.d[place.row * Instruction::n + place.column]);
    }
  };
  if (add) for_each_value([](const auto& own, unsigned i, auto& value) { value = own.get(i); });
  dots.run(wgmma_model(Instruction::type_a, Instruction::accumulator), format_of(Instruction::type_a),
           format_of(Instruction::type_b));
  for_each_value([](auto& own, unsigned i, const auto& value) { own.set(i, value); });
}

}  // namespace fp8lab::gpu
