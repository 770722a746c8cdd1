// SPDX-License-Identifier: Apache-2.0
// Where matrix instructions keep their elements: in the registers of threads. (PTX ISA 9.0, section 9.7.14, "Matrix
// Fragments for mma" and "Register Fragments for wgmma".)
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/host_device.hpp"
#include "fp8lab/formats/unpack.hpp"

namespace fp8lab::gpu {

/// What the factors of a matrix instruction are, by PTX's names.
enum class MmaType : std::uint8_t { e4m3, e5m2, f16, bf16, tf32 };
/// What its accumulators are.
enum class MmaAccumulator : std::uint8_t { float32, float16 };

/// Bytes of an element in memory and in registers.
[[nodiscard]] FP8LAB_HD constexpr unsigned bytes_of(MmaType type) {
  switch (type) {
    case MmaType::e4m3:
    case MmaType::e5m2: return 1;
    case MmaType::f16:
    case MmaType::bf16: return 2;
    case MmaType::tf32: return 4;
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
  }
  return {};
}

/// A row and a column of a tile.
struct Place {
  unsigned row, column;
  friend constexpr bool operator==(const Place&, const Place&) = default;
};

/// The place in A (16 x K) of an element of a lane's register, where registers of 32 bits hold `elements` (4 of FP8, 2
/// of f16 and bf16, 1 of tf32).
[[nodiscard]] FP8LAB_HD constexpr Place mma_sync_a(unsigned elements, unsigned lane, unsigned reg, unsigned element) {
  return {lane / 4 + 8 * (reg % 2), lane % 4 * elements + element + 4 * elements * (reg / 2)};
}
/// The place in B, given as (8 x K), as a Linear layer keeps its weight: PTX's column is the row here.
[[nodiscard]] FP8LAB_HD constexpr Place mma_sync_b(unsigned elements, unsigned lane, unsigned reg, unsigned element) {
  return {lane / 4, lane % 4 * elements + element + 4 * elements * reg};
}
/// The place in C and D (16 x 8) of a lane's i-th accumulator of four: float16 ones lie two in a register, the first in
/// the low half.
[[nodiscard]] FP8LAB_HD constexpr Place mma_sync_d(unsigned lane, unsigned i) {
  return {lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2};
}
/// The place in D (64 x N) of the i-th accumulator of N / 2 of a thread of the warpgroup.
[[nodiscard]] FP8LAB_HD constexpr Place wgmma_d(unsigned thread, unsigned i) {
  const Place place = mma_sync_d(thread % 32, i % 4);
  return {thread / 32 * 16 + place.row, i / 4 * 8 + place.column};
}

/// Four accumulators of a lane.
template <MmaAccumulator kAccumulator>
struct MmaSyncD;
template <>
struct MmaSyncD<MmaAccumulator::float32> {
  using Value = float;
  float values[4];  // NOLINT(modernize-avoid-c-arrays)

  [[nodiscard]] FP8LAB_HD float get(unsigned i) const { return values[i]; }
  FP8LAB_HD void set(unsigned i, float value) { values[i] = value; }
};
template <>
struct MmaSyncD<MmaAccumulator::float16> {
  using Value = Half;
  std::uint32_t words[2];  // NOLINT(modernize-avoid-c-arrays)

  [[nodiscard]] FP8LAB_HD Half get(unsigned i) const {
    return {static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16))};
  }
  FP8LAB_HD void set(unsigned i, Half value) {
    words[i / 2] = (words[i / 2] & 0xFFFF0000U >> (i % 2 * 16)) | std::uint32_t{value.bits} << (i % 2 * 16);
  }
};

/// An mma.sync instruction of shape m16n8kK, and the registers of a lane.
template <MmaType kA, MmaType kB, MmaAccumulator kAccumulator, unsigned kK>
struct MmaSync {
  static constexpr MmaType type_a = kA, type_b = kB;
  static constexpr MmaAccumulator accumulator = kAccumulator;
  static constexpr unsigned m = 16, n = 8, k = kK;
  static constexpr unsigned element_bytes = bytes_of(kA);
  static constexpr unsigned elements = 4 / element_bytes;                  ///< in a register
  static constexpr unsigned registers_a = m * k * element_bytes / 4 / 32;  ///< of a lane
  static constexpr unsigned registers_b = n * k * element_bytes / 4 / 32;
  static_assert(bytes_of(kB) == element_bytes && (kA == kB || element_bytes == 1));
  static_assert(k * element_bytes == 32 || k * element_bytes == 16);
  static_assert(kAccumulator == MmaAccumulator::float32 || element_bytes == 1 || kA == MmaType::f16);

  struct A {
    std::uint32_t words[registers_a];  // NOLINT(modernize-avoid-c-arrays)
  };
  struct B {
    std::uint32_t words[registers_b];  // NOLINT(modernize-avoid-c-arrays)
  };
  using D = MmaSyncD<kAccumulator>;
};

}  // namespace fp8lab::gpu
