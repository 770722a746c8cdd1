// SPDX-License-Identifier: Apache-2.0
// What Transformer Engine's kernels compute of an NVFP4 weight whose shards lie on several ranks: scales of amaxes that
// were reduced, and the codes of one shard. Tiles are of 16 x 16. The codes are those of a cast of the whole weight but
// for special amaxes: an infinite one makes a scale of 0 here.
//
// Source: Transformer Engine 2.20, common/recipe/nvfp4.cu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fp8lab/formats/encode.hpp"

namespace fp8lab {

inline constexpr std::size_t nvfp4_shard_tile = 16;

/// 2688 / amax, at most the largest float32, of which a subnormal amax makes that; 1 for an amax of 0, below 0 or NaN.
[[nodiscard]] float nvfp4_global_scale(float amax);

/// scales = amaxes * (nvfp4_global_scale(global_amax) / 6), at most the largest float32, which NaN becomes, too. E4M3
/// codes of them (CUDA's, that saturate) are the weight's scales.
///
/// Throws std::invalid_argument where the sizes differ.
void nvfp4_tile_scales(std::span<const float> amaxes, float global_amax, std::span<float> scales);

/// Where elements of a weight lie: number `start` and those that follow, row by row.
struct WeightShard {
  std::size_t rows, columns, start;  // of the weight
};

/// codes = E2M1 codes of a shard, one a byte: x times 1 / (E4M3 of the tile's scale / global_scale). `scales` has one
/// for each tile of the weight, row by row.
///
/// Throws std::invalid_argument for float64, a shard that does not lie in the weight, and sizes that differ.
void nvfp4_shard_codes(FloatSpan x, const WeightShard& shard, std::span<const float> scales, float global_scale,
                       std::span<std::uint8_t> codes, int threads = 1);

}  // namespace fp8lab
