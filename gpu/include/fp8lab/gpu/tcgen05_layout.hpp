// SPDX-License-Identifier: Apache-2.0
// Describes the operands of tcgen05 instructions: descriptors of shared memory and of the instruction, and tensor
// memory. (PTX ISA 9.0, "Tensor Memory", "Shared memory descriptor", "Instruction descriptor", "Scale factor A/B
// layout".)
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8lab/gpu/block_scaled.hpp"
#include "fp8lab/gpu/fragments.hpp"

namespace fp8lab::gpu {

/// A tcgen05.mma of shape m128nNk32 (bytes of K), of one block. Kinds with block scales accumulate in float32.
template <MmaKind kKind, MmaType kA = MmaType::e4m3, MmaType kB = MmaType::e4m3,
          MmaAccumulator kAccumulator = MmaAccumulator::float32, unsigned kN = 128>
struct Tcgen05Mma {
  static constexpr MmaKind kind = kKind;
  static constexpr MmaType type_a = kA, type_b = kB;
  static constexpr MmaAccumulator accumulator = kAccumulator;
  static_assert(kAccumulator == MmaAccumulator::float32 || kKind == MmaKind::f8f6f4);
  static constexpr unsigned m = 128, n = kN, k = k_of(kKind);
  static_assert(kN == 128);  // whose scales of b are as many as those of a
};

/// The descriptor of a tile in shared memory: rows of 128 bytes with the 128-byte swizzle, eight rows in every 1024
/// bytes. The tile begins at a multiple of 1024; `address` is that of the 32 bytes of K in its first row. Its fields of
/// start and stride are wgmma's, so that wgmma_address() reads it.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t tcgen05_descriptor(std::uint32_t address) {
  const std::uint64_t start = (address & 0x3FFFFU) >> 4;
  const std::uint64_t leading = 1;          // unused with this swizzle
  const std::uint64_t stride = 1024U >> 4;  // from eight rows to the next eight
  const std::uint64_t version = 1;
  const std::uint64_t mode = 2;  // the 128-byte swizzle
  return start | leading << 16 | stride << 32 | version << 46 | mode << 61;
}
/// The descriptor of a tile of 128 x 4 scales as swizzle_scales() has them: 32 rows of 16 bytes, without a swizzle.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t tcgen05_scale_descriptor(std::uint32_t address) {
  const std::uint64_t start = (address & 0x3FFFFU) >> 4;
  const std::uint64_t stride = 128U >> 4;  // from eight rows to the next eight
  const std::uint64_t version = 1;
  return start | stride << 32 | version << 46;
}
/// The address of a byte of a row that such a descriptor describes, byte < 16.
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t tcgen05_scale_address(std::uint64_t descriptor, unsigned row,
                                                                      unsigned byte) {
  const auto start = static_cast<std::uint32_t>(descriptor & 0x3FFFU) << 4;
  const auto stride = static_cast<std::uint32_t>(descriptor >> 32 & 0x3FFFU) << 4;
  return start + row / 8 * stride + row % 8 * 16 + byte;
}

/// A format's number in instruction descriptors.
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t tcgen05_format(MmaKind kind, MmaType type) {
  if (is_packed(kind)) return 1;  // E2M1
  return type == MmaType::e5m2 ? 1 : 0;
}
/// The instruction descriptor. The scales of a row are those from byte `first_scale` on of its words in tensor memory.
template <typename Mma>
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t tcgen05_instruction(unsigned first_scale = 0) {
  constexpr MmaKind kind = Mma::kind;
  const std::uint32_t shared = tcgen05_format(kind, Mma::type_a) << 7 | tcgen05_format(kind, Mma::type_b) << 10 |
                               Mma::n / 8 << 17 | Mma::m / 16 << 24;
  if (kind == MmaKind::f8f6f4) return shared | (Mma::accumulator == MmaAccumulator::float32 ? 1U : 0U) << 4;
  const std::uint32_t e8m0_scales = kind == MmaKind::mxf4nvf4 ? 0 : 1;
  return shared | first_scale << 4 | e8m0_scales << 23 | first_scale << 29;
}

/// Tensor memory: 128 lanes of 512 columns of 32 bits. Row i of an accumulator lies in lane i, a column of it in a
/// column, of which float16 is the low half. A tile of 128 x 4 scales takes four columns: the four scales of row r lie
/// in column r / 32 of lane r % 32, and of the lanes 32, 64 and 96 further.
inline constexpr unsigned tensor_memory_lanes = 128, tensor_memory_columns = 512;
[[nodiscard]] FP8LAB_HD constexpr Place tensor_memory_scales(unsigned row) { return {row % 32, row / 32}; }

}  // namespace fp8lab::gpu
