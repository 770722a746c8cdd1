// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8lab/gpu/kernels/scale_maker.hpp"

namespace fp8lab::gpu {

/// The amax of a tensor: *amax is raised to it.
///
/// Bound: reads the tensor once: 4 or 2 bytes an element.
template <typename Source>
struct Amax {
  static constexpr unsigned threads = 256;
  static constexpr unsigned runs = sizeof(Source) == 4 ? 2 : 4;  // of a thread: 128 bytes in flight
  static constexpr std::size_t elements_of_block = std::size_t{threads} * runs * run_length;
  struct Shared {};

  const Source* x;
  std::size_t count;
  NanInAmax nan;
  std::uint32_t* amax;  ///< as float32 bits

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return ceil_div(count, elements_of_block); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& /*shared*/) const {
    const bool aligned = is_aligned<per_load<Source>>(x);
    auto largest = team.template each<std::uint32_t>();
    team.for_each_thread([&](std::size_t t) {
      Vector<Run<Source>, runs> elements{};  // all loads begin before the first is waited for
      unrolled<runs>([&](unsigned k) {
        const std::size_t i = block * elements_of_block + (std::size_t{k} * threads + t) * run_length;
        if (i < count) elements[k] = load_run(x + i, count - i, aligned);
      });
      unrolled<runs>([&](unsigned k) {
        const std::uint32_t of_run = amax_of_run(nan, elements[k]);
        largest[t] = largest[t] < of_run ? of_run : largest[t];
      });
    });
    const std::uint32_t most = team.max(largest);
    team.for_each(1, [&](std::size_t) { atomic_max(amax, most); });
  }
};

/// The cast of a tensor by one scale. The scale is given, by value or in memory, and the amax is taken in the same
/// pass; or every block makes it of an amax that has been taken.
///
/// Bound: reads 4 or 2 bytes an element and writes 1.
template <typename Source, typename Rule>
struct Cast {
  static constexpr unsigned threads = 256;
  static constexpr unsigned runs = sizeof(Source) == 4 ? 1 : 2;
  static constexpr unsigned least_blocks = 4;  // of a multiprocessor: 64 KiB in flight
  static constexpr std::size_t elements_of_block = std::size_t{threads} * runs * run_length;
  struct Shared {
    float factor;
  };

  const Source* x;
  std::size_t count;
  ScaleMaker<Rule> scales;
  std::uint8_t* codes;
  float* scale_inv;            ///< one
  std::uint32_t* raised_amax;  ///< is raised to the amax, as float32 bits; null: the amax is not taken

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return ceil_div(count, elements_of_block); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& shared) const {
    const std::size_t first = place_of_block(scales, block, blocks()) * elements_of_block;
    const bool aligned = is_aligned<per_load<Source>>(x) && is_aligned<run_length>(codes);
    auto elements = team.template each<Vector<Run<Source>, runs>>();
    // 1. The scale, which the first block writes down, while the loads of other warps are on their way.
    team.for_each_thread([&](std::size_t t) {
      if (t == 0) {
        const TileScale scale = scales.of_tensor();
        shared.factor = scale.factor;
        if (block == 0) *scale_inv = scale.scale_inv;
      }
      unrolled<runs>([&](unsigned k) {
        const std::size_t i = first + (std::size_t{k} * threads + t) * run_length;
        if (i < count) elements[t][k] = load_run(x + i, count - i, aligned);
      });
    });
    // 2. Codes and the amax of each thread.
    const ElementRule rule = scales.rule.element();
    const NanInAmax nan = scales.rule.recipe().nan_in_amax;
    auto largest = team.template each<std::uint32_t>();
    team.for_each_thread([&](std::size_t t) {
      unrolled<runs>([&](unsigned k) {
        const std::size_t i = first + (std::size_t{k} * threads + t) * run_length;
        if (i >= count) return;
        const Run<Source>& run = elements[t][k];
        if (raised_amax != nullptr) {
          const std::uint32_t of_run = amax_of_run(nan, run);
          largest[t] = largest[t] < of_run ? of_run : largest[t];
        }
        store_codes(codes_of_run(rule, run, shared.factor), codes + i, count - i, aligned);
      });
    });
    // 3. The tensor's amax.
    if (raised_amax == nullptr) return;
    const std::uint32_t most = team.max(largest);
    team.for_each(1, [&](std::size_t) { atomic_max(raised_amax, most); });
  }
};

}  // namespace fp8lab::gpu
