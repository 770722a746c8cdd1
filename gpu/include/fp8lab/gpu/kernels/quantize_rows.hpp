// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fp8lab/formats/bits.hpp"
#include "fp8lab/gpu/kernels/scale_maker.hpp"

namespace fp8lab::gpu {

/// Blocks of 16, 32 or 128 elements along rows, each with its scale: MXFP8, 1 x 128 and NVFP4, rowwise. Lanes that lie
/// side by side share a block. Rows are whole blocks, so that the tensor is one long row.
///
/// Bound: reads 4 or 2 bytes an element and writes 1 (E2M1: 1/2), and a scale for each block.
template <typename Source, typename Rule>
struct QuantizeRows {
  static constexpr unsigned threads = 256;
  static constexpr unsigned runs = std::is_same_v<Rule, AnyRecipe> ? 1 : 2;  // of a thread
  static constexpr std::size_t elements_of_block = std::size_t{threads} * runs * run_length;
  struct Shared {
    ScaleConstants constants;
  };

  const Source* x;
  std::size_t count;
  unsigned along;  ///< elements of a block
  ScaleMaker<Rule> scales;
  std::uint8_t* codes;
  ScaleStore store;
  std::uint64_t seed, offset;  ///< of Philox, where the rule is stochastic

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return ceil_div(count, elements_of_block); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& shared) const {
    const std::size_t first = place_of_block(scales, block, blocks()) * elements_of_block;
    const bool aligned = is_aligned<per_load<Source>>(x);
    auto elements = team.template each<Vector<Run<Source>, runs>>();
    auto amaxes = team.template each<Vector<std::uint32_t, runs>>();
    // 1. Runs, all of whose loads begin before the first is waited for, and their amaxes.
    team.for_each_thread([&](std::size_t t) {
      unrolled<runs>([&](unsigned k) {
        const std::size_t i = first + (std::size_t{k} * threads + t) * run_length;
        if (i < count) elements[t][k] = load_run(x + i, run_length, aligned);
      });
      if (t == 0) shared.constants = scales.known_constants();
      const NanInAmax nan = scales.rule.recipe().nan_in_amax;
      unrolled<runs>([&](unsigned k) { amaxes[t][k] = amax_of_run(nan, elements[t][k]); });
    });
    // 2. Those of blocks.
    if (along == 2 * run_length) team.template max_of_lanes<2>(amaxes);
    if (along == 8 * run_length) team.template max_of_lanes<8>(amaxes);
    // 3. Scales, which a block's first lane writes down, and codes.
    team.for_each_thread([&](std::size_t t) {
      unrolled<runs>([&](unsigned k) {
        const std::size_t i = first + (std::size_t{k} * threads + t) * run_length;
        if (i >= count) return;
        const TileScale scale = scale_of_rule(scales.rule, shared.constants, std::bit_cast<float>(amaxes[t][k]));
        if ((i & (along - 1)) == 0) put_scale(i >> trailing_zeros(along), scale);
        put_codes(i, elements[t][k], scale.factor);
      });
    });
  }

 private:
  FP8LAB_HD void put_scale(std::size_t tile, const TileScale& scale) const {
    const ScaleType type = scales.rule.recipe().scale_type;
    if (!store.swizzled) return store.put(type, tile, scale);
    // 32 bits are quicker to divide; no tensor has 2^32 blocks.
    const auto row = static_cast<std::uint32_t>(tile) / static_cast<std::uint32_t>(store.columns);
    store.put(type, store.place(row, tile - std::size_t{row} * store.columns), scale);
  }
  FP8LAB_HD void put_codes(std::size_t i, const Run<Source>& run, float factor) const {
    const ElementRule rule = scales.rule.element();
    if (rule.format != CodeFormat::e2m1) {
      store_codes(codes_of_run(rule, run, factor), codes + i, run_length, is_aligned<run_length>(codes));
      return;
    }
    const RunRandom random = rule.stochastic ? random_of_run(seed, offset, i / run_length) : RunRandom{};
    store_pairs(codes_of_run(rule, run, factor, random), codes + i / 2, run_length, is_aligned<run_length / 2>(codes));
  }
};

}  // namespace fp8lab::gpu
