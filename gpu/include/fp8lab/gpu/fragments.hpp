// SPDX-License-Identifier: Apache-2.0
// Where matrix instructions keep their elements: in registers of threads, and in shared memory. (PTX ISA 9.0, chapter
// 9.7: "Matrix Fragments" of mma, "Register Fragments" and "Shared Memory Matrix Layout" of wgmma.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/host_device.hpp"
#include "fp8lab/formats/unpack.hpp"

namespace fp8lab::gpu {

/// The type of a matrix instruction's factors, by PTX's names.
enum class MmaType : std::uint8_t { e4m3, e5m2, f16, bf16, tf32, f64 };
/// The type of a matrix instruction's accumulators.
enum class MmaAccumulator : std::uint8_t { float32, float16, float64 };
/// A word of an accumulator in memory.
template <MmaAccumulator kAccumulator>
using AccumulatorWord =
    std::conditional_t<kAccumulator == MmaAccumulator::float64, std::uint64_t,
                       std::conditional_t<kAccumulator == MmaAccumulator::float32, std::uint32_t, std::uint16_t>>;

/// Bytes of an element in memory and in registers.
[[nodiscard]] FP8LAB_HD constexpr unsigned bytes_of(MmaType type) {
  switch (type) {
    case MmaType::e4m3:
    case MmaType::e5m2: return 1;
    case MmaType::f16:
    case MmaType::bf16: return 2;
    case MmaType::tf32: return 4;
    case MmaType::f64: return 8;
  }
  return 0;
}
/// The format of its elements: binary32 for tf32, whose low 13 bits the instruction drops.
[[nodiscard]] constexpr Format format_of(MmaType type) {
  switch (type) {
    case MmaType::e4m3: return e4m3;
    case MmaType::e5m2: return e5m2;
    case MmaType::f16: return binary16;
    case MmaType::bf16: return bfloat16;
    case MmaType::tf32: return binary32;
    case MmaType::f64: return binary64;
  }
  return {};
}

/// A row and a column of a tile.
struct Place {
  unsigned row, column;
  friend constexpr bool operator==(const Place&, const Place&) = default;
};

/// The place in A (16 x K) of an element of a lane's register, where registers of 32 bits hold `elements` (4 of FP8, 2
/// of f16 and bf16, 1 of tf32), or registers of 64 bits 1 of f64. The one register of m8n8k4 is the first of these.
[[nodiscard]] FP8LAB_HD constexpr Place mma_sync_a(unsigned elements, unsigned lane, unsigned reg, unsigned element) {
  return {lane / 4 + 8 * (reg % 2), lane % 4 * elements + element + 4 * elements * (reg / 2)};
}
/// The place in B, given as (8 x K), as a Linear layer keeps its weight: PTX's column is the row here.
[[nodiscard]] FP8LAB_HD constexpr Place mma_sync_b(unsigned elements, unsigned lane, unsigned reg, unsigned element) {
  return {lane / 4, lane % 4 * elements + element + 4 * elements * reg};
}
/// The place in C and D (16 x 8) of a lane's i-th accumulator of four: float16 ones lie two in a register, the first in
/// the low half. m8n8k4 has the first two.
[[nodiscard]] FP8LAB_HD constexpr Place mma_sync_d(unsigned lane, unsigned i) {
  return {lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2};
}
/// The place in D (64 x N) of the i-th accumulator of N / 2 of a thread of the warpgroup.
[[nodiscard]] FP8LAB_HD constexpr Place wgmma_d(unsigned thread, unsigned i) {
  const Place place = mma_sync_d(thread % 32, i % 4);
  return {thread / 32 * 16 + place.row, i / 4 * 8 + place.column};
}

/// Where the 128-byte swizzle keeps the byte of an address of shared memory: within 1024 bytes, the eight pieces of 16
/// bytes of every 128 are permuted by the number of their 128.
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t swizzle_128b(std::uint32_t address) {
  return address ^ (address >> 7 & 7) << 4;
}
/// wgmma's descriptor of a tile in shared memory: rows of 128 bytes with that swizzle, eight rows in every 1024 bytes.
/// The tile begins at a multiple of 1024; `address` is that of the 32 bytes of K in its first row.
[[nodiscard]] FP8LAB_HD constexpr std::uint64_t wgmma_descriptor(std::uint32_t address) {
  const std::uint64_t start = (address & 0x3FFFFU) >> 4;
  const std::uint64_t leading = 1;          // unused with this swizzle
  const std::uint64_t stride = 1024U >> 4;  // from eight rows to the next eight
  const std::uint64_t mode = 1;             // the 128-byte swizzle
  return start | leading << 16 | stride << 32 | mode << 62;
}
/// The address of a byte of a row that such a descriptor describes, byte < 32.
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t wgmma_address(std::uint64_t descriptor, unsigned row, unsigned byte) {
  const auto start = static_cast<std::uint32_t>(descriptor & 0x3FFFU) << 4;
  const auto stride = static_cast<std::uint32_t>(descriptor >> 32 & 0x3FFFU) << 4;
  return swizzle_128b(start + row / 8 * stride + row % 8 * 128 + byte);
}

/// The accumulators of a thread.
template <MmaAccumulator kAccumulator, unsigned kCount>
struct Accumulators {
  using Value = std::conditional_t<kAccumulator == MmaAccumulator::float64, double, float>;
  Value values[kCount];  // NOLINT(modernize-avoid-c-arrays)

  [[nodiscard]] FP8LAB_HD Value get(unsigned i) const { return values[i]; }
  FP8LAB_HD void set(unsigned i, Value value) { values[i] = value; }
};
template <unsigned kCount>
struct Accumulators<MmaAccumulator::float16, kCount> {
  using Value = Half;
  std::uint32_t words[kCount / 2];  // NOLINT(modernize-avoid-c-arrays)

  [[nodiscard]] FP8LAB_HD Half get(unsigned i) const {
    return {static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16))};
  }
  FP8LAB_HD void set(unsigned i, Half value) {
    words[i / 2] = (words[i / 2] & 0xFFFF0000U >> (i % 2 * 16)) | std::uint32_t{value.bits} << (i % 2 * 16);
  }
};

/// An mma.sync instruction of shape m16n8kK, or of f64 m8n8k4, and the registers of a lane.
template <MmaType kA, MmaType kB, MmaAccumulator kAccumulator, unsigned kK, unsigned kM = 16>
struct MmaSync {
  using Register = std::conditional_t<kA == MmaType::f64, double, std::uint32_t>;
  static constexpr MmaType type_a = kA, type_b = kB;
  static constexpr MmaAccumulator accumulator = kAccumulator;
  static constexpr unsigned m = kM, n = 8, k = kK;
  static constexpr unsigned element_bytes = bytes_of(kA);
  static constexpr unsigned elements = sizeof(Register) / element_bytes;  ///< in a register
  static constexpr unsigned registers_a = m * k / elements / 32;          ///< of a lane
  static constexpr unsigned registers_b = n * k / elements / 32;
  static constexpr unsigned values_d = m * n / 32;
  /// The first compute capability that has it, 80 for 8.0.
  static constexpr int capability = [] {
    if (element_bytes == 1) return 89;
    if (kA == MmaType::f64) return kM == 16 ? 90 : 80;
    return kA == MmaType::f16 && kK == 8 ? 75 : 80;
  }();
  static constexpr bool is_f64 = kA == MmaType::f64;
  static_assert(bytes_of(kB) == element_bytes && (kA == kB || element_bytes == 1));
  static_assert(is_f64 ? k == 4 || (m == 16 && (k == 8 || k == 16))
                       : m == 16 && (k * element_bytes == 32 || k * element_bytes == 16));
  static_assert((kAccumulator == MmaAccumulator::float64) == is_f64);
  static_assert(kAccumulator != MmaAccumulator::float16 || element_bytes == 1 || kA == MmaType::f16);

  struct A {
    Register words[registers_a];  // NOLINT(modernize-avoid-c-arrays)
  };
  struct B {
    Register words[registers_b];  // NOLINT(modernize-avoid-c-arrays)
  };
  using D = Accumulators<kAccumulator, values_d>;
};

/// A wgmma instruction of shape m64nNkK, whose K is 32 bytes; its accumulators, of a thread.
template <MmaType kA, MmaType kB, MmaAccumulator kAccumulator, unsigned kN>
struct Wgmma {
  static constexpr MmaType type_a = kA, type_b = kB;
  static constexpr MmaAccumulator accumulator = kAccumulator;
  static constexpr unsigned m = 64, n = kN, k = 32 / bytes_of(kA);
  static_assert(bytes_of(kB) == bytes_of(kA) && (kA == kB || bytes_of(kA) == 1) && kN % 8 == 0 && kN <= 256);
  static_assert(kAccumulator == MmaAccumulator::float32 || bytes_of(kA) == 1 || kA == MmaType::f16);

  using D = Accumulators<kAccumulator, kN / 2>;
};

}  // namespace fp8lab::gpu
