// SPDX-License-Identifier: Apache-2.0
// The GEMM of Blackwell (sm_100a): FP8, MXFP8, MXFP4 and NVFP4 by tcgen05.mma.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8lab/gpu/kernels/gemm_epilogue.hpp"
#include "fp8lab/gpu/ptx/bulk_copy.hpp"
#include "fp8lab/gpu/ptx/mbarrier.hpp"
#include "fp8lab/gpu/ptx/tcgen05.hpp"
#include "fp8lab/gpu/ptx/wgmma.hpp"
#include "fp8lab/gpu/team.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"

namespace fp8lab::gpu {

/// out = a * b^T, K being a multiple of 16 bytes of codes. It equals gemm() of the reference with the instruction's
/// model, model_of(kind), whose alpha the epilogue's two scales make. Scales are as swizzle_scales() has them; what
/// stands in their padding counts for nothing.
///
/// A block makes a tile of 128 x 128. One thread has boxes of 128 bytes of K, and their scales, copied into stages of
/// shared memory. Of another 128 threads, one has the scales copied on to tensor memory and four instructions run; all
/// store the result. `full` says that a stage was copied, `empty` that its instructions ended, `done` that all did.
/// A stage has scales of its own in tensor memory too, for nothing orders an instruction before a later copy.
///
/// TensorMap is DeviceTensorMap, or HostTensorMap on the host; boxes have 128 rows.
template <typename Mma, typename TensorMap>
struct GemmSm100 {
  static constexpr unsigned threads = 2 * 128;
  static constexpr unsigned tile = 128, stage_bytes = 128, stages = 4;
  static constexpr unsigned scale_tiles = scales_of(Mma::kind);                      ///< of 128 x 4 scales, of a stage
  static constexpr unsigned scale_room = scale_tiles == 0 ? 16 : scale_tiles * 512;  ///< bytes of them
  static constexpr unsigned columns = 256;  ///< of tensor memory: the accumulators, then scales
  static_assert(tile + stages * 2 * scale_tiles * 4 <= columns);

  struct alignas(1024) Shared {
    std::uint8_t a[stages][box_bytes(tile)];     // NOLINT(modernize-avoid-c-arrays)
    std::uint8_t b[stages][box_bytes(tile)];     // NOLINT(modernize-avoid-c-arrays)
    std::uint8_t scales[stages][2][scale_room];  // NOLINT(modernize-avoid-c-arrays): of a and b
    Mbarrier full[stages];                       // NOLINT(modernize-avoid-c-arrays)
    Mbarrier empty[stages];                      // NOLINT(modernize-avoid-c-arrays)
    Mbarrier done;
    std::uint32_t tensor_memory;
  };
  struct Values {
    float values[32];  // NOLINT(modernize-avoid-c-arrays)
  };

  TensorMap a, b;
  const std::uint8_t* scales_a;  ///< none for f8f6f4
  const std::uint8_t* scales_b;
  std::size_t k;
  GemmEpilogue out;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return ceil_div(out.m, tile) * ceil_div(out.n, tile); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& shared) const {
    const Place number = tile_of(block, ceil_div(out.m, tile), ceil_div(out.n, tile));
    team.for_each(1, [&](std::size_t) {
      for (unsigned stage = 0; stage < stages; ++stage) {
        init(shared.full[stage], 1);
        init(shared.empty[stage], 1);
      }
      init(shared.done, 1);
      fence_init(team);
    });
    TensorMemory memory(team, shared.tensor_memory, columns);
    team.template roles<1>(
        [&](const auto& group, unsigned) {
          accumulate(group, shared, memory);
          store(group, number, memory);
        },
        [&](const auto& role) { role.once([&] { produce(role, number, shared); }); });
    memory.free(team);
  }

 private:
  /// A stage, and the parity of the phases of its barriers; both follow from the number of the block of K.
  struct Turn {
    unsigned stage = 0, parity = 0;
    FP8LAB_HD void advance() {
      ++stage;
      if (stage < stages) return;
      stage = 0;
      parity ^= 1U;
    }
  };
  [[nodiscard]] FP8LAB_HD std::size_t row_bytes() const { return is_packed(Mma::kind) ? k / 2 : k; }
  [[nodiscard]] FP8LAB_HD std::size_t blocks_of_k() const { return ceil_div(row_bytes(), stage_bytes); }
  /// Scales of a row.
  [[nodiscard]] FP8LAB_HD std::size_t scale_columns() const { return k / block_of(Mma::kind); }
  /// Bytes of scales that the block number `block` of K has in memory.
  [[nodiscard]] FP8LAB_HD std::uint32_t scale_bytes(std::size_t block) const {
    if constexpr (scale_tiles == 0) {
      return 0;
    } else {
      const std::size_t left = ceil_div(scale_columns(), 4) - block * scale_tiles;
      return static_cast<std::uint32_t>(left < scale_tiles ? left : scale_tiles) * 512;
    }
  }

  /// One thread has the boxes and scales of all blocks of K copied, each as soon as its stage is empty.
  template <typename Role>
  FP8LAB_HD void produce(const Role& role, Place number, Shared& shared) const {
    Turn turn;
    for (std::size_t i = 0; i < blocks_of_k(); ++i, turn.advance()) {
      Mbarrier& full = shared.full[turn.stage];
      wait(role, shared.empty[turn.stage], turn.parity ^ 1U);
      const std::uint32_t bytes = scale_bytes(i);
      arrive_expecting(role, full, 2 * box_bytes(tile) + 2 * bytes);
      copy_box(role, a, full, shared.a[turn.stage], std::size_t{number.row} * tile, i * stage_bytes);
      copy_box(role, b, full, shared.b[turn.stage], std::size_t{number.column} * tile, i * stage_bytes);
      if constexpr (scale_tiles != 0) {
        const std::size_t tiles_k = ceil_div(scale_columns(), 4);
        copy_bytes(role, scales_a + (number.row * tiles_k + i * scale_tiles) * 512, full, shared.scales[turn.stage][0],
                   bytes);
        copy_bytes(role, scales_b + (number.column * tiles_k + i * scale_tiles) * 512, full,
                   shared.scales[turn.stage][1], bytes);
      }
    }
  }

  /// Has all of K multiplied into tensor memory, and waits for it. One thread alone waits for stages: another could
  /// come so late to a barrier that its parity is that of two phases later.
  template <typename Group>
  FP8LAB_HD void accumulate(const Group& group, Shared& shared, TensorMemory& memory) const {
    Turn turn;
    for (std::size_t block = 0; block < blocks_of_k(); ++block, turn.advance()) {
      group.once([&] { wait(group, shared.full[turn.stage], turn.parity); });
      if constexpr (scale_tiles != 0) {
        if (block + 1 == blocks_of_k()) clear_padding(group, block, shared.scales[turn.stage]);
      }
      group.once([&] {
        tcgen05_fence_after(group);
        multiply(group, shared, turn.stage, block > 0, memory);
        memory.commit(group, shared.empty[turn.stage]);
      });
    }
    group.once([&] { memory.commit(group, shared.done); });
    wait(group, shared.done, 0);
    tcgen05_fence_after(group);
  }

  /// Clears the scales beyond K in the last stage: factors are zero there, but the product of zero and NaN is not.
  template <typename Group, typename Scales>
  FP8LAB_HD void clear_padding(const Group& group, std::size_t block, Scales& scales) const {
    group.sync();  // the stage is there for all threads, since it is for one
    group.for_each_thread([&](std::size_t row) {
      for (unsigned t = 0; t != scale_tiles; ++t) {
        const std::size_t first = (block * scale_tiles + t) * 4;
        const std::size_t count = first < scale_columns() ? scale_columns() - first : 0;
        if (count >= 4) continue;
        const std::size_t place = t * std::size_t{512} + swizzled_place(row, 0, 4);
        for (std::size_t i = count; i < 4; ++i) scales[0][place + i] = scales[1][place + i] = 0;
      }
    });
    fence_shared(group);
    group.sync();
  }

  /// One thread begins the instructions of a stage.
  template <typename Group>
  FP8LAB_HD void multiply(const Group& group, Shared& shared, unsigned stage, bool add, TensorMemory& memory) const {
    const unsigned scales_of_a = tile + stage * 2 * scale_tiles * 4;
    const unsigned scales_of_b = scales_of_a + scale_tiles * 4;
    for (unsigned t = 0; t != scale_tiles; ++t) {
      const std::uint32_t left = shared_address(group, shared.scales[stage][0]) + t * 512;
      const std::uint32_t right = shared_address(group, shared.scales[stage][1]) + t * 512;
      memory.copy_scales(group, scales_of_a + t * 4, tcgen05_scale_descriptor(left));
      memory.copy_scales(group, scales_of_b + t * 4, tcgen05_scale_descriptor(right));
    }
    const std::uint32_t left = shared_address(group, shared.a[stage]);
    const std::uint32_t right = shared_address(group, shared.b[stage]);
    for (unsigned step = 0; step < stage_bytes / 32; ++step) {
      const unsigned scale = step * scales_of(Mma::kind);
      memory.template multiply<Mma>(group, 0, tcgen05_descriptor(left + step * 32),
                                    tcgen05_descriptor(right + step * 32), tcgen05_instruction<Mma>(scale % 4),
                                    scales_of_a + scale / 4 * 4, scales_of_b + scale / 4 * 4, add || step > 0);
    }
  }

  template <typename Group>
  FP8LAB_HD void store(const Group& group, Place number, TensorMemory& memory) const {
    const float alpha = out.alpha();
    auto values = group.template each<Values>();
    for (unsigned first = 0; first < tile; first += 32) {
      memory.load(group, first, values);
      group.for_each_thread([&](std::size_t thread) {
        const auto& own = values[thread].values;
        const std::size_t row = std::size_t{number.row} * tile + thread;
        const std::size_t column = std::size_t{number.column} * tile + first;
        unrolled<16>(
            [&](std::size_t pair) { out.store(row, column + 2 * pair, own[2 * pair], own[2 * pair + 1], alpha); });
      });
    }
    tcgen05_fence_before(group);
  }
};

}  // namespace fp8lab::gpu
