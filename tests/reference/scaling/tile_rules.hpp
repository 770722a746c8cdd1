// SPDX-License-Identifier: Apache-2.0
// Rules of scales, and amaxes about which they may go wrong.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "support.hpp"

namespace fp8lab::tests {

/// Every way to make scales of many tiles.
inline std::vector<Recipe> recipes_of_tiles() {
  std::vector<Recipe> recipes{NvFp4{}, GivenScale{.scale = 3}};
  for (const Format& format : {e4m3, e5m2, e3m2, e2m3, e2m1}) {
    for (const MxRule rule : {MxRule::te, MxRule::floor, MxRule::ceil, MxRule::even, MxRule::rceil}) {
      for (const E8m0Edges edges :
           {E8m0Edges::specified, E8m0Edges::te_before_2_19, E8m0Edges::te_before_2_13, E8m0Edges::torchao_0_18}) {
        recipes.emplace_back(MxBlock{.format = format, .rule = rule, .edges = edges});
      }
    }
    for (const bool power : {false, true}) {
      for (const BlockRule rule : {BlockRule::te, BlockRule::deepseek_2024, BlockRule::deepseek_2025,
                                   BlockRule::deepgemm_cpu, BlockRule::deepgemm_cuda, BlockRule::torchao}) {
        recipes.emplace_back(Block{.format = format, .rule = rule, .force_pow_2_scales = power});
      }
      recipes.emplace_back(Block{.format = format, .amax_epsilon = 1e-3F, .force_pow_2_scales = power});
      recipes.emplace_back(JustInTime{.format = format, .axis = Axis::row, .force_pow_2_scales = power});
    }
  }
  return recipes;
}

/// Amaxes around every power of two, the recipes' own thresholds, infinity and NaN: an odd number of them.
inline std::vector<std::uint32_t> edge_amaxes() {
  std::vector<std::uint32_t> amaxes;
  const auto around = [&](std::uint32_t word) {
    for (std::uint32_t near = word - std::min(word, 2U); near <= std::min(word + 2, 0x7FFFFFFFU); ++near) {
      amaxes.push_back(near);
    }
  };
  for (std::uint32_t field = 0; field <= 255; ++field) {
    for (const std::uint32_t mantissa : {0x000000U, 0x200000U, 0x400000U, 0x600000U, 0x700000U, 0x780000U, 0x7C0000U}) {
      around(field << 23 | mantissa);
    }
  }
  for (const float threshold : {1e-4F, 1e-12F, 1e-3F, 448.0F, 57344.0F, 6.0F, 7.5F, 28.0F}) around(bits(threshold));
  for (std::uint64_t i = 0; i < 20001; ++i) amaxes.push_back(static_cast<std::uint32_t>(random_bits(11, i) >> 33));
  return amaxes;
}

}  // namespace fp8lab::tests
