// SPDX-License-Identifier: Apache-2.0
// The part of the search for scales that are those of a rule times one number.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "fp8lab/reference/scaling/facts.hpp"
#include "quantize/named_rows.hpp"
#include "quantize/search.hpp"

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

/// The number in an interval with the fewest decimal digits, and no more than three.
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

/// What kernels do to multiply all scales by a number of that interval.
std::vector<Deviation> ways_to(const FactorInterval& factor, const Recipe& recipe) {
  const double middle = factor.lowest + (factor.highest - factor.lowest) / 2;
  const double power = std::exp2(std::nearbyint(std::log2(middle)));
  if (power >= factor.lowest && power <= factor.highest) {
    return {{.departure = &rows::scale_times, .value = static_cast<float>(power)}};
  }
  std::vector<Deviation> all;
  const double largest = largest_of(recipe.format);
  if (const auto other = short_decimal({largest / factor.highest, largest / factor.lowest})) {
    all.push_back({.departure = &rows::largest_of_value, .value = *other});
  }
  if (const auto times = short_decimal(factor)) {
    all.push_back({.departure = &rows::amax_times, .value = *times});
    all.push_back({.departure = &rows::scale_times, .value = *times});
  }
  return all;
}

}  // namespace

void Search::add_factors(std::vector<Suspect>& found) {
  constexpr std::size_t few_tiles = 64;
  constexpr std::size_t fewest_that_tell = 4;  // fewer scales may have a common factor by chance
  if (dump_.scales.empty()) return;
  const double cost = dump_.scales.size() < fewest_that_tell ? 1.5 : rows::scale_times.cost;
  for (const Side& side : sides_) {
    for (const Candidate& plain : plain_candidates(side.facts, options_)) {
      const Hypothesis& own = plain.hypothesis;
      if (is_given(own.recipe) || has_tensor_scale(own.recipe) || !own.deviations.empty()) continue;
      const KernelModel model(side.source, own, &dump_);
      if (!model.applies() || !model.has_room_for_scales()) continue;
      const std::size_t tiles = model.tiles().tiles_down * model.tiles().tiles_across;
      if (!common_factor(model, (tiles + few_tiles - 1) / few_tiles)) continue;
      model.complete();
      const auto factor = common_factor(model, 1);
      if (!factor) continue;
      if (!scale_factor_) scale_factor_ = {describe(own), *factor};
      for (const Deviation& way : ways_to(*factor, own.recipe)) {
        Suspect suspect{.candidate = plain, .side = &side};
        suspect.candidate.hypothesis.deviations.push_back(way);
        suspect.candidate.cost += cost;
        if (side.facts.direction == Direction::columnwise && sides_.size() > 1) suspect.candidate.cost += 0.3;
        found.push_back(std::move(suspect));
      }
    }
  }
}

}  // namespace fp8lab::doctor
