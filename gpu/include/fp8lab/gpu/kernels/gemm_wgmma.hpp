// SPDX-License-Identifier: Apache-2.0
// FP8 GEMM of Hopper (sm_90a).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "fp8lab/gpu/kernels/gemm_epilogue.hpp"
#include "fp8lab/gpu/ptx/bulk_copy.hpp"
#include "fp8lab/gpu/ptx/mbarrier.hpp"
#include "fp8lab/gpu/ptx/wgmma.hpp"
#include "fp8lab/gpu/team.hpp"

namespace fp8lab::gpu {

/// "Fast accumulation": all of K in the tensor core's accumulator.
struct NoPromotion {
  static constexpr bool promotes = false;
  static constexpr unsigned tile_n = 256, stages = 4;
  struct Shared {};
};
/// The tensor core's accumulator is added to a float32 one (nearest even) after every `interval` instructions, each of
/// 32 of K, and at the end: CUTLASS's mma_promotion_interval.
struct PlainPromotion {
  static constexpr bool promotes = true, at_stages = false;
  static constexpr unsigned tile_n = 128, stages = 6;
  struct Shared {};
  std::size_t interval;

  template <typename Group>
  FP8LAB_HD void load(const Group& /*group*/, const GemmEpilogue& /*out*/, Place /*tile*/, std::size_t /*k*/,
                      Shared& /*shared*/) const {}
  template <typename D>
  FP8LAB_HD void promote(const GemmEpilogue& /*out*/, Place /*tile*/, unsigned /*thread*/, std::size_t /*k*/,
                         const Shared& /*shared*/, const D& accumulators, D& sums) const {
    unrolled<tile_n / 2>([&](unsigned i) { sums.values[i] += accumulators.values[i]; });
  }
};
/// DeepGEMM's promotion: after every 128 of K, sum = fma(fl(scale_a * scale_b), accumulator, sum), with a scale for 128
/// of K of every row of a, and of every kRowsB rows of b: 128 (its "1d2d") or 1 ("1d1d").
template <unsigned kRowsB>
struct ScaledPromotion {
  static constexpr bool promotes = true, at_stages = true;
  static constexpr unsigned tile_n = 128, stages = 6, interval = 4;
  static_assert(kRowsB == 1 || kRowsB == tile_n);
  struct Shared {
    float scales_b[2][tile_n];  // NOLINT(modernize-avoid-c-arrays): of even and odd blocks of K
  };
  const float* scales_a;  ///< (M, blocks)
  const float* scales_b;  ///< (N / kRowsB rounded up, blocks)
  std::size_t blocks;     ///< of K

  /// Loads the scales of b's rows for block number k of K. `tile` is where the group's part of out begins.
  template <typename Group>
  FP8LAB_HD void load(const Group& group, const GemmEpilogue& out, Place tile, std::size_t k, Shared& shared) const {
    group.for_each_thread([&](std::size_t i) {
      const bool inside = tile.column + i < out.n;  // columns beyond the end are not stored
      shared.scales_b[k % 2][i] = inside ? scales_b[(tile.column + i) / kRowsB * blocks + k] : 0;
    });
    group.sync();
  }
  /// Adds the accumulators of a thread to its sums.
  template <typename D>
  FP8LAB_HD void promote(const GemmEpilogue& out, Place tile, unsigned thread, std::size_t k, const Shared& shared,
                         const D& accumulators, D& sums) const {
    const auto scale_a = [&](std::size_t row) { return row < out.m ? scales_a[row * blocks + k] : 0; };
    const Place first = wgmma_d(thread, 0);
    const float upper = scale_a(tile.row + first.row);
    const float lower = scale_a(tile.row + first.row + 8);
    unrolled<tile_n / 2>([&](unsigned i) {
      const float scale = (i % 4 < 2 ? upper : lower) * shared.scales_b[k % 2][wgmma_d(thread, i).column];
      sums.values[i] = std::fma(scale, accumulators.values[i], sums.values[i]);
    });
  }
};

/// out = a * b^T of codes a (M, K) and b (N, K), K a multiple of 16, by wgmma m64nNk32 with a float32 accumulator. It
/// equals gemm(hopper_wgmma_fp8, ...) of the reference, with promote_k or tile scales as the promotion says.
///
/// A block makes a tile of 128 rows and Promotion::tile_n columns. One of its threads has boxes of 128 of K copied into
/// stages of shared memory; two groups of 128 threads multiply 64 rows each. `full` says that a stage was copied,
/// `empty` that both groups are done with it. TensorMap is DeviceTensorMap, or HostTensorMap on the host; boxes have
/// 128 rows of a and tile_n rows of b.
template <MmaType kA, MmaType kB, typename Promotion, typename TensorMap>
struct WgmmaGemm {
  static constexpr unsigned threads = 3 * 128;
  static constexpr unsigned tile_m = 128, tile_n = Promotion::tile_n, tile_k = 128, stages = Promotion::stages;
  static constexpr unsigned steps = tile_k / 32;  ///< instructions of a stage
  using Instruction = Wgmma<kA, kB, MmaAccumulator::float32, tile_n>;
  using D = Instruction::D;

  struct alignas(1024) Shared {
    std::uint8_t a[stages][box_bytes(tile_m)];  // NOLINT(modernize-avoid-c-arrays)
    std::uint8_t b[stages][box_bytes(tile_n)];  // NOLINT(modernize-avoid-c-arrays)
    Mbarrier full[stages];                      // NOLINT(modernize-avoid-c-arrays)
    Mbarrier empty[stages];                     // NOLINT(modernize-avoid-c-arrays)
    Promotion::Shared promotion[2];             // NOLINT(modernize-avoid-c-arrays): of each group
  };

  TensorMap a, b;
  std::size_t k;
  Promotion promotion;
  GemmEpilogue out;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return ceil_div(out.m, tile_m) * ceil_div(out.n, tile_n); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& shared) const {
    const Place number = tile_of(block, ceil_div(out.m, tile_m), ceil_div(out.n, tile_n));
    const Place tile{number.row * tile_m, number.column * tile_n};
    team.for_each(1, [&](std::size_t) {
      for (unsigned stage = 0; stage < stages; ++stage) {
        init(shared.full[stage], 1);
        init(shared.empty[stage], 2 * 4);  // the warps of both groups
      }
      fence_init(team);
    });
    team.template roles<2>(
        [&](const auto& group, unsigned i) {
          take_registers<232>(group);
          consume(group, {tile.row + i * 64, tile.column}, i, shared);
        },
        [&](const auto& group) {
          give_registers<40>(group);
          group.once([&] { produce(group, tile, shared); });
        });
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
  [[nodiscard]] FP8LAB_HD std::size_t blocks_of_k() const { return ceil_div(k, tile_k); }

  /// One thread has the boxes of all blocks of K copied, each as soon as its stage is empty.
  template <typename Role>
  FP8LAB_HD void produce(const Role& role, Place tile, Shared& shared) const {
    Turn turn;
    for (std::size_t i = 0; i < blocks_of_k(); ++i, turn.advance()) {
      Mbarrier& full = shared.full[turn.stage];
      wait(role, shared.empty[turn.stage], turn.parity ^ 1U);
      arrive_expecting(role, full, box_bytes(tile_m) + box_bytes(tile_n));
      copy_box(role, a, full, shared.a[turn.stage], tile.row, i * tile_k);
      copy_box(role, b, full, shared.b[turn.stage], tile.column, i * tile_k);
    }
  }

  /// Makes the 64 rows of the tile that begin at `tile`, from part i of the rows of a.
  template <typename Group>
  FP8LAB_HD void consume(const Group& group, Place tile, unsigned i, Shared& shared) const {
    auto sums = group.template each<D>();
    if constexpr (Promotion::promotes) {
      accumulate_promoted(group, tile, i, shared, sums);
    } else {
      accumulate_fast(group, i, shared, sums);
    }
    const float alpha = out.alpha();
    group.for_each_thread([&](std::size_t thread) {
      unrolled<tile_n / 4>([&](unsigned pair) {
        const Place place = wgmma_d(static_cast<unsigned>(thread), 2 * pair);
        const auto& own = sums[thread].values;
        out.store(tile.row + place.row, tile.column + place.column, own[2 * pair], own[2 * pair + 1], alpha);
      });
    });
  }

  template <typename Group, typename Sums>
  FP8LAB_HD void accumulate_fast(const Group& group, unsigned i, Shared& shared, Sums& sums) const {
    Turn turn;
    unsigned previous = 0;
    for (std::size_t block = 0; block < blocks_of_k(); ++block, turn.advance()) {
      wait(group, shared.full[turn.stage], turn.parity);
      multiply(group, i, shared, turn.stage, {0, steps}, block > 0, sums);
      wgmma_wait<1>(group);  // so the block before is done
      if (block > 0) arrive_by_warps(group, shared.empty[previous]);
      previous = turn.stage;
    }
    wgmma_wait_all(group, sums);
  }
  template <typename Group, typename Sums>
  FP8LAB_HD void accumulate_promoted(const Group& group, Place tile, unsigned i, Shared& shared, Sums& sums) const {
    auto accumulators = group.template each<D>();
    Turn turn;
    std::size_t count = 0;  // of instructions since the last promotion
    for (std::size_t block = 0; block < blocks_of_k(); ++block, turn.advance()) {
      wait(group, shared.full[turn.stage], turn.parity);
      for (Steps part = next_part(0, count); part.first < steps; part = next_part(part.last, count)) {
        multiply(group, i, shared, turn.stage, part, count > 0, accumulators);
        promotion.load(group, out, tile, block, shared.promotion[i]);
        wgmma_wait_all(group, accumulators);
        if (part.last == steps) arrive_by_warps(group, shared.empty[turn.stage]);
        count += part.last - part.first;
        const bool is_end = part.last == steps && block + 1 == blocks_of_k();
        if (count < promotion.interval && !is_end) continue;
        count = 0;
        group.for_each_thread([&](std::size_t thread) {
          promotion.promote(out, tile, static_cast<unsigned>(thread), block, shared.promotion[i], accumulators[thread],
                            sums[thread]);
        });
      }
    }
  }
  /// Instructions [first, last) of a stage.
  struct Steps {
    unsigned first, last;
  };
  /// The instructions of this stage from `first` up to the next promotion; `count` instructions of earlier stages have
  /// been added since the last one.
  [[nodiscard]] FP8LAB_HD Steps next_part(unsigned first, std::size_t count) const {
    if (Promotion::at_stages || promotion.interval - count >= steps - first) return {first, steps};
    return {first, first + static_cast<unsigned>(promotion.interval - count)};
  }
  /// d = the product of a part of a stage, or d += it; an instruction for each 32 of K.
  template <typename Group, typename Accumulators>
  FP8LAB_HD void multiply(const Group& group, unsigned i, Shared& shared, unsigned stage, Steps part, bool add,
                          Accumulators& d) const {
    const std::uint32_t left = shared_address(group, shared.a[stage]) + i * 64 * tile_k;
    const std::uint32_t right = shared_address(group, shared.b[stage]);
    wgmma_fence(group);
    for (unsigned step = part.first; step < part.last; ++step) {
      wgmma<Instruction>(group, d, wgmma_descriptor(left + step * 32), wgmma_descriptor(right + step * 32),
                         add || step > part.first);
    }
    wgmma_commit(group);
  }
};

}  // namespace fp8lab::gpu
