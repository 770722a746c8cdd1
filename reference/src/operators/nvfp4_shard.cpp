// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/nvfp4_shard.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "operators/tensor_pieces.hpp"

namespace fp8lab {

namespace {

constexpr float most_scale = std::numeric_limits<float>::max();
constexpr float sixth = 1.0F / 6;  // of E2M1's largest value
constexpr const CastPolicy& saturating = profiles.front().policy;
static_assert(profiles.front().name == "cuda_satfinite");

std::size_t tiles_along(std::size_t size) { return (size + nvfp4_shard_tile - 1) / nvfp4_shard_tile; }

/// What the elements of each tile are multiplied by.
std::vector<float> tile_factors(std::span<const float> scales, float global_scale) {
  const float inverse = 1 / (global_scale > 0 || std::isnan(global_scale) ? global_scale : 1);
  std::vector<float> factors;
  factors.reserve(scales.size());
  for (const float scale : scales) {
    const float rounded = decode(e4m3, encode(e4m3, saturating, scale));
    factors.push_back(rounded > 0 ? std::fmin(1 / (rounded * inverse), most_scale) : most_scale);
  }
  return factors;
}

/// values times the factors of their tiles.
void multiply_by_factors(std::span<float> values, const WeightShard& shard, std::size_t first,
                         std::span<const float> factors) {
  const std::size_t across = tiles_along(shard.columns);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t row = (first + i) / shard.columns;
    const std::size_t column = (first + i) % shard.columns;
    values[i] *= factors[row / nvfp4_shard_tile * across + column / nvfp4_shard_tile];
  }
}

void check_shard(const WeightShard& shard, std::size_t size, std::size_t scales, std::size_t codes) {
  const std::size_t all = shard.rows * shard.columns;
  if (shard.start > all || size > all - shard.start) {
    refuse("a shard of ", size, " elements at ", shard.start, " does not lie in a weight of ", shard.rows, " x ",
           shard.columns);
  }
  check_size("scales", scales, tiles_along(shard.rows) * tiles_along(shard.columns));
  check_size("codes", codes, size);
}

}  // namespace

float nvfp4_global_scale(float amax) {
  const DefaultEnvironment environment;
  if (!(amax > 0)) return 1;
  return std::fmin(2688 / std::fmax(amax, std::numeric_limits<float>::min()), most_scale);
}

void nvfp4_tile_scales(std::span<const float> amaxes, float global_amax, std::span<float> scales) {
  check_size("scales", scales.size(), amaxes.size());
  const DefaultEnvironment environment;
  const float factor = nvfp4_global_scale(global_amax) * sixth;
  for (std::size_t i = 0; i < amaxes.size(); ++i) scales[i] = std::fmin(amaxes[i] * factor, most_scale);
}

void nvfp4_shard_codes(FloatSpan x, const WeightShard& shard, std::span<const float> scales, float global_scale,
                       std::span<std::uint8_t> codes, int threads) {
  const std::size_t size = tensor_size("x", x);
  check_shard(shard, size, scales.size(), codes.size());
  std::vector<float> factors;
  {
    const DefaultEnvironment environment;
    factors = tile_factors(scales, global_scale);
  }
  for_each_tensor_piece(size, threads, [&](std::size_t first, std::size_t count) {
    TensorPiece values{};
    read_tensor(x, first, count, values.data());
    const std::span<float> some(values.data(), count);
    multiply_by_factors(some, shard, shard.start + first, factors);
    encode(e2m1, saturating, std::span<const float>(some), codes.subspan(first, count));
  });
}

}  // namespace fp8lab
