// SPDX-License-Identifier: Apache-2.0
// 4 over 6: which of two scales a tile of E2M1 under a tensor's scale takes, by the error of its elements.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/widen.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/scale_rule.hpp"
#include "scaling/cells.hpp"

namespace fp8lab {

/// The facts that the choice depends on, beside the elements.
struct ChoiceFacts {
  const Recipe& recipe;
  const TensorFacts& tensor;
  Direction direction;
};

/// The amaxes of a cell's tiles, and their scales, which may be replaced.
struct ChosenScales {
  std::span<const std::uint32_t> amaxes;
  std::span<float> factors, scale_inv;
  std::span<std::uint8_t> codes;
};

/// The error of some elements, added in order.
inline float error_of(const ChoiceFacts& facts, const ScaleConstants& constants, const TileScale& scale,
                      std::span<const float> elements) {
  const BlockChoice choice = facts.recipe.block_choice;
  const bool is_scaled =
      choice == BlockChoice::four_or_six_absolute_scaled || choice == BlockChoice::four_or_six_squared_scaled;
  const bool is_squared =
      choice == BlockChoice::four_or_six_squared || choice == BlockChoice::four_or_six_squared_scaled;
  float sum = 0;
  for (const float x : elements) {
    const float scaled =
        facts.recipe.operation == TileOperation::multiply_add_zero ? std::fma(x, scale.factor, 0.0F) : x * scale.factor;
    const float code = decode(facts.recipe.format, encode(facts.recipe.format, facts.recipe.cast, scaled));
    const float off = is_scaled ? code * scale.scale_inv - x * constants.tensor_scale
                                : code * scale.scale_inv * facts.tensor.amax / constants.tensor_top - x;
    sum += is_squared ? off * off : std::fabs(off);
  }
  return sum;
}

/// The error of a tile whose lines, as long as `width`, follow one another: a tree of the errors of the lines.
inline float error_of_lines(const ChoiceFacts& facts, const ScaleConstants& constants, const TileScale& scale,
                            std::span<const float> elements, std::size_t width) {
  std::vector<float> sums(elements.size() / width);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = error_of(facts, constants, scale, elements.subspan(i * width, width));
  }
  for (std::size_t half = std::bit_ceil(sums.size()) / 2; half != 0; half /= 2) {
    for (std::size_t i = 0; i < half && i + half < sums.size(); ++i) sums[i] += sums[i + half];
    sums.resize(std::min(half, sums.size()));
  }
  return sums.front();
}

/// Replaces the scales of the tiles of a cell whose error is smaller with the stretched one.
template <typename Source>
void choose_blocks(const Tiling<Source>& tiling, const Cell& cell, const ChoiceFacts& facts, const ChosenScales& out) {
  const DefaultEnvironment environment;
  const ScaleConstants constants = scale_constants(facts.recipe, facts.tensor);
  const QuantizePlan& plan = tiling.plan;
  const std::size_t across = tiling.tiles_across(cell);
  std::vector<float> elements(plan.tile_rows * plan.tile_columns);
  const std::size_t width = plan.tile_rows > 1 && plan.tile_columns > 1 ? plan.tile_columns : elements.size();
  for (std::size_t t = 0; t < out.amaxes.size(); ++t) {
    const std::size_t row = cell.row + t / across * plan.tile_rows;
    const std::size_t column = cell.column + t % across * plan.tile_columns;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const std::size_t at = (row + i / plan.tile_columns) * tiling.x.columns + column + i % plan.tile_columns;
      elements[i] = widened(tiling.x.values[at]);
    }
    const auto amax = std::bit_cast<float>(out.amaxes[t]);
    const TileScale six = scale_under_tensors(facts.recipe, constants, amax);
    const TileScale four = scale_under_tensors(facts.recipe, constants, amax, 1.5F);
    const bool stretches = error_of_lines(facts, constants, four, elements, width) <
                           error_of_lines(facts, constants, six, elements, width);
    if (!stretches) continue;
    out.factors[t] = four.factor;
    out.scale_inv[t] = four.scale_inv;
    out.codes[t] = four.code;
  }
}

}  // namespace fp8lab
