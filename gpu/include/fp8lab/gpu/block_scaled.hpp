// SPDX-License-Identifier: Apache-2.0
// Matrix instructions whose operands have scales of blocks: which there are, and where they have scales and factors.
// (PTX ISA 9.0, "Block Scaling for mma.sync" and "tcgen05.mma, Block Scaling".)
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8lab/formats/host_device.hpp"
#include "fp8lab/gpu/fragments.hpp"

namespace fp8lab::gpu {

/// PTX's kinds of instructions, each with one format of scales and one block.
enum class MmaKind : std::uint8_t {
  f8f6f4,          ///< factors in bytes, without scales; tcgen05.mma alone
  mxf8f6f4,        ///< factors in bytes; E8M0 scales of 32
  mxf4,            ///< E2M1 in pairs; E8M0 scales of 32; mxf4nvf4 with scale_vec::2X is the same
  mxf4nvf4_ue8m0,  ///< E2M1 in pairs; E8M0 scales of 16; tcgen05.mma alone: ptxas 13.0 refuses it for mma.sync
  mxf4nvf4,        ///< E2M1 in pairs; E4M3 scales of 16, whose sign counts for nothing
};

/// Whether factors are E2M1, two in a byte, the first in the low half.
[[nodiscard]] FP8LAB_HD constexpr bool is_packed(MmaKind kind) {
  return kind != MmaKind::f8f6f4 && kind != MmaKind::mxf8f6f4;
}
/// Elements of K that share a scale.
[[nodiscard]] FP8LAB_HD constexpr unsigned block_of(MmaKind kind) {
  return kind == MmaKind::mxf8f6f4 || kind == MmaKind::mxf4 ? 32 : 16;
}
/// The K of an instruction: 32 bytes of a row.
[[nodiscard]] FP8LAB_HD constexpr unsigned k_of(MmaKind kind) { return is_packed(kind) ? 64 : 32; }
/// Scales of a row that an instruction takes: PTX's scale_vec.
[[nodiscard]] FP8LAB_HD constexpr unsigned scales_of(MmaKind kind) {
  return kind == MmaKind::f8f6f4 ? 0 : k_of(kind) / block_of(kind);
}

/// The lane that mma.sync takes the scales of a row of A (of 16) or B (of 8) from, its thread-id selectors being 0. All
/// of that row's scales lie in the lane's word, in the bytes from byte-id on.
[[nodiscard]] FP8LAB_HD constexpr unsigned mma_sync_scale_lane_a(unsigned row) { return row % 8 * 4 + row / 8; }
[[nodiscard]] FP8LAB_HD constexpr unsigned mma_sync_scale_lane_b(unsigned row) { return row * 4; }
/// The row whose scales a lane loads; lanes that the instruction does not ask load those of some row.
[[nodiscard]] FP8LAB_HD constexpr unsigned mma_sync_scale_row_a(unsigned lane) { return lane / 4 + lane % 2 * 8; }
[[nodiscard]] FP8LAB_HD constexpr unsigned mma_sync_scale_row_b(unsigned lane) { return lane / 4; }

/// An mma.sync instruction with block scales, of shape m16n8kK. Its registers have the layout of bytes that MmaSync of
/// FP8 with K = 32 has; E2M1 lies there in pairs. kA and kB are e4m3 or e5m2 for mxf8f6f4, else they have no meaning.
template <MmaKind kKind, MmaType kA = MmaType::e4m3, MmaType kB = MmaType::e4m3>
struct MmaSyncScaled {
  static constexpr MmaKind kind = kKind;
  static constexpr MmaType type_a = kA, type_b = kB;
  static constexpr unsigned m = 16, n = 8, k = k_of(kKind);
  static_assert(kKind != MmaKind::f8f6f4 && kKind != MmaKind::mxf4nvf4_ue8m0);

  struct A {
    std::uint32_t words[4];  // NOLINT(modernize-avoid-c-arrays)
  };
  struct B {
    std::uint32_t words[2];  // NOLINT(modernize-avoid-c-arrays)
  };
  struct D {
    float values[4];  // NOLINT(modernize-avoid-c-arrays)
  };
};

/// The factors, scales and accumulators that a lane holds of its warp's tile of kM * kN instructions. A word has four
/// scales of a row, of consecutive blocks.
template <typename Mma, unsigned kM, unsigned kN>
struct ScaledWarpTile {
  using Instruction = Mma;
  static constexpr unsigned count_m = kM, count_n = kN;
  Mma::A a[kM];               // NOLINT(modernize-avoid-c-arrays)
  Mma::B b[kN];               // NOLINT(modernize-avoid-c-arrays)
  std::uint32_t scale_a[kM];  // NOLINT(modernize-avoid-c-arrays)
  std::uint32_t scale_b[kN];  // NOLINT(modernize-avoid-c-arrays)
  Mma::D d[kM][kN];           // NOLINT(modernize-avoid-c-arrays)
};

}  // namespace fp8lab::gpu
