// SPDX-License-Identifier: Apache-2.0
// tcgen05 instructions on the host: fp8lab's models of them, on shared and tensor memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <utility>
#include <vector>

#include "fp8lab/gpu/host_team.hpp"
#include "fp8lab/gpu/ptx/host_mma_scaled.hpp"
#include "fp8lab/gpu/tcgen05_layout.hpp"

namespace fp8lab::gpu {

/// The tensor memory of a block, full of NaNs at first, and its instructions that have not ended: they end in order, at
/// times that the host team's order chooses.
class HostTensorMemory {
 public:
  explicit HostTensorMemory(unsigned columns)
      : columns_(columns), words_(std::size_t{tensor_memory_lanes} * columns, 0xFFFFFFFFU) {
    if (columns < 32 || columns > tensor_memory_columns || (columns & (columns - 1)) != 0) {
      throw std::logic_error("tensor memory is given in powers of two from 32 to 512 columns");
    }
  }

  [[nodiscard]] std::uint32_t& at(unsigned lane, unsigned column) {
    if (lane >= tensor_memory_lanes || column >= columns_) throw std::logic_error("no such place in tensor memory");
    return words_[std::size_t{lane} * columns_ + column];
  }
  /// Begins an instruction.
  template <typename Role>
  void start(const Role& role, std::function<void()> work) {
    role.fences().start_tensor_memory();
    role.fences().start_for_all();
    started_.push_back(std::move(work));
    role.copy([this] {
      const auto first = std::move(started_.front());
      started_.pop_front();
      first();
    });
    role.pass();
  }

 private:
  unsigned columns_;
  std::vector<std::uint32_t> words_;
  std::deque<std::function<void()>> started_;
};

/// The fields of an instruction descriptor, read back from its bits.
struct HostTcgen05Instruction {
  std::uint32_t word;
  [[nodiscard]] std::uint32_t bits(unsigned first, unsigned count) const { return word >> first & ((1U << count) - 1); }
  [[nodiscard]] unsigned m() const { return bits(24, 5) * 16; }
  [[nodiscard]] unsigned n() const { return bits(17, 6) * 8; }
  [[nodiscard]] Format format_a() const { return bits(7, 3) == 0 ? e4m3 : e5m2; }
  [[nodiscard]] Format format_b() const { return bits(10, 3) == 0 ? e4m3 : e5m2; }
  [[nodiscard]] bool is_half() const { return bits(4, 2) == 0; }  ///< of kind::f8f6f4: float16 accumulators
  [[nodiscard]] unsigned scale_a() const { return bits(29, 2); }
  [[nodiscard]] unsigned scale_b() const { return bits(4, 2); }
};

/// An operand of one tcgen05.mma: 32 bytes of each row, and the scales of these.
struct HostTcgen05Operand {
  std::vector<std::uint8_t> bytes, scales;

  HostTcgen05Operand(const HostTeam& team, HostTensorMemory& memory, MmaKind kind, unsigned rows,
                     std::uint64_t descriptor, unsigned scale_column, unsigned first_scale) {
    if (descriptor >> 61 != 2) throw std::logic_error("tcgen05.mma: not the 128-byte swizzle");
    for (unsigned row = 0; row < rows; ++row) {
      for (unsigned byte = 0; byte < 32; byte += 16) {  // pieces stay together in every swizzle
        const auto* const piece = team.read_async(wgmma_address(descriptor, row, byte), 16, HostRaces::Part::tcgen05);
        std::transform(piece, piece + 16, std::back_inserter(bytes),
                       [](std::byte value) { return std::to_integer<std::uint8_t>(value); });
      }
      if (scales_of(kind) == 0) continue;
      const Place place = tensor_memory_scales(row);
      const std::uint32_t word = memory.at(place.row, scale_column + place.column) >> (8 * first_scale);
      for (unsigned i = 0; i < scales_of(kind); ++i) scales.push_back(static_cast<std::uint8_t>(word >> (8 * i)));
    }
  }
  /// Copies a row to a batch, whose arrays begin there.
  void copy(std::size_t row, std::size_t scale_count, std::uint8_t* to_bytes, std::uint8_t* to_scales) const {
    std::copy_n(bytes.data() + row * 32, 32, to_bytes);
    std::copy_n(scales.data() + row * scale_count, scale_count, to_scales);
  }
};

/// A dot product's accumulator in a column of tensor memory: float16 is its low half.
inline void from_column(std::uint32_t column, float& value) { value = std::bit_cast<float>(column); }
inline void from_column(std::uint32_t column, Half& value) { value.bits = static_cast<std::uint16_t>(column); }
inline std::uint32_t column_of(float value) { return std::bit_cast<std::uint32_t>(value); }
inline std::uint32_t column_of(Half value) { return value.bits; }

/// tcgen05.mma: the accumulators, in tensor memory from column d on, of the tiles that descriptors describe.
template <typename Value>
void host_tcgen05_mma_of(const HostTeam& team, HostTensorMemory& memory, MmaKind kind, unsigned d, std::uint64_t a,
                         std::uint64_t b, std::uint32_t instruction, unsigned scale_a, unsigned scale_b, bool add) {
  const HostTcgen05Instruction told{instruction};
  const HostTcgen05Operand left(team, memory, kind, told.m(), a, scale_a, told.scale_a());
  const HostTcgen05Operand right(team, memory, kind, told.n(), b, scale_b, told.scale_b());
  const std::size_t scales = scales_of(kind);
  const unsigned n = told.n();
  ScaledDots<Value> dots(kind, std::size_t{told.m()} * n);
  for (unsigned i = 0; i < told.m() * n; ++i) {
    const std::size_t dot = i;
    left.copy(i / n, scales, dots.a.data() + dot * 32, dots.scale_a.data() + dot * scales);
    right.copy(i % n, scales, dots.b.data() + dot * 32, dots.scale_b.data() + dot * scales);
    if (add) from_column(memory.at(i / n, d + i % n), dots.d[dot]);
  }
  dots.run(kind, told.format_a(), told.format_b());
  for (unsigned i = 0; i < told.m() * n; ++i) {
    memory.at(i / n, d + i % n) = column_of(dots.d[i]);
  }
}
inline void host_tcgen05_mma(const HostTeam& team, HostTensorMemory& memory, MmaKind kind, unsigned d, std::uint64_t a,
                             std::uint64_t b, std::uint32_t instruction, unsigned scale_a, unsigned scale_b, bool add) {
  if (kind == MmaKind::f8f6f4 && HostTcgen05Instruction{instruction}.is_half()) {
    host_tcgen05_mma_of<Half>(team, memory, kind, d, a, b, instruction, scale_a, scale_b, add);
  } else {
    host_tcgen05_mma_of<float>(team, memory, kind, d, a, b, instruction, scale_a, scale_b, add);
  }
}

/// tcgen05.cp.32x128b.warpx4: 32 rows of 16 bytes into four columns, for each 32 lanes.
inline void host_tcgen05_copy(const HostTeam& team, HostTensorMemory& memory, unsigned column,
                              std::uint64_t descriptor) {
  for (unsigned lane = 0; lane < tensor_memory_lanes; ++lane) {
    for (unsigned word = 0; word < 4; ++word) {
      const std::size_t place = tcgen05_scale_address(descriptor, lane % 32, 4 * word);
      std::memcpy(&memory.at(lane, column + word), team.read_async(place, 4, HostRaces::Part::tcgen05), 4);
    }
  }
}

}  // namespace fp8lab::gpu
