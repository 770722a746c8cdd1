// SPDX-License-Identifier: Apache-2.0
#include "quantize/scales_case.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace fp8lab::doctor {
namespace {

/// How far a few roundings to float32 move a scale.
constexpr double tolerance = 0x1p-22;

/// The number that all stored scales of some tiles are times those of the rule, if there is one, and not 1.
std::optional<FactorInterval> common_factor(const KernelModel& model, std::size_t step) {
  const Amaxes& tiles = model.tiles();
  const Recipe& recipe = model.recipe();
  const bool are_powers = recipe.rounding != ScaleRounding::none || recipe.scale_type == ScaleType::e8m0_code;
  const double width = are_powers ? 0 : tolerance;
  FactorInterval all{0, std::numeric_limits<double>::infinity()};
  for (std::size_t tile = 0; tile < tiles.tiles_down * tiles.tiles_across; tile += step) {
    const std::size_t row = tile / tiles.tiles_across;
    const std::size_t column = tile % tiles.tiles_across;
    if (model.amax_at(row * tiles.across, column) == 0) continue;  // which a floor may have made
    const double ratio = model.ratio_there(row, column);
    if (!(ratio > 0) || std::isinf(ratio)) return std::nullopt;
    all.lowest = std::max(all.lowest, ratio * (1 - width));
    all.highest = std::min(all.highest, ratio * (1 + width));
    if (all.lowest > all.highest) return std::nullopt;
  }
  const bool is_one = all.lowest <= 1 && all.highest >= 1;
  if (is_one || all.lowest == 0) return std::nullopt;
  return all;
}

}  // namespace

ScalesCase::ScalesCase(const KernelModel& of_recipe, const Source& of_model, std::size_t stored, Direction of_side)
    : model(of_recipe), source(of_model), count(stored), direction(of_side) {
  constexpr std::size_t few_tiles = 64;
  const std::size_t tiles = model.tiles().tiles_down * model.tiles().tiles_across;
  if (!common_factor(model, (tiles + few_tiles - 1) / few_tiles)) return;
  model.complete();
  factor = common_factor(model, 1);
  if (!factor) return;
  const double middle = factor->lowest + (factor->highest - factor->lowest) / 2;
  const double nearest = std::exp2(std::nearbyint(std::log2(middle)));
  if (nearest >= factor->lowest && nearest <= factor->highest) power = static_cast<float>(nearest);
}

std::optional<float> short_decimal(const FactorInterval& interval) {
  const double middle = interval.lowest + (interval.highest - interval.lowest) / 2;
  const int exponent = static_cast<int>(std::floor(std::log10(middle)));
  for (int digits = 0; digits < 3; ++digits) {
    const double unit = std::pow(10.0, exponent - digits);
    const double rounded = std::nearbyint(middle / unit) * unit;
    if (rounded >= interval.lowest && rounded <= interval.highest) return static_cast<float>(rounded);
  }
  return std::nullopt;
}

bool has_rising_scales(const Recipe& recipe) {
  constexpr std::array least{SpecialScale::computed, SpecialScale::zero_factor, SpecialScale::smallest,
                             SpecialScale::smallest_of_nan};
  const bool has_other_zero = makes_scale_inv(recipe) && std::ranges::find(least, recipe.zero_amax) == least.end();
  return recipe.tensor_scale == TensorScaleRule::none && recipe.limit != ScaleLimit::input_type && !has_other_zero;
}

}  // namespace fp8lab::doctor
