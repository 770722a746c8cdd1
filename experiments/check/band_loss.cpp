// SPDX-License-Identifier: Apache-2.0
#include "check/band_loss.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t known_scales = std::size_t{1} << 11U;

bool has_usual_cast(const Recipe& recipe) {
  const Format& format = recipe.format;
  const bool rounds_as_usual = recipe.cast.rounding == Rounding::nearest_even && !recipe.float32_steps;
  return rounds_as_usual && format.is_signed && format.has_subnormals && format.mantissa_bits > 0 && format.bits() <= 8;
}

/// The largest magnitude that may be scaled to: any finite one, or, where what is too large becomes no number, one that
/// is rounded to the largest value. That is less than half a spacing above it, also after a rounding to 8 bits.
float largest_scaled(const Recipe& recipe) {
  if (recipe.cast.overflow == Overflow::saturate) return std::numeric_limits<float>::max();
  return max_value(recipe.format) * (1 + std::ldexp(1.0F, -recipe.format.mantissa_bits - 3));
}

/// The larger of each two amaxes of a row, as words; the last may be alone.
void find_amaxes_of_pairs(std::span<const float> runs, std::uint32_t* out) {
  const std::size_t pairs = runs.size() / 2;
  for (std::size_t i = 0; i < pairs; ++i) {
    out[i] = std::bit_cast<std::uint32_t>(std::max(runs[2 * i], runs[2 * i + 1]));
  }
  if (runs.size() % 2 != 0) out[pairs] = std::bit_cast<std::uint32_t>(runs.back());
}

}  // namespace

bool is_beyond(float amax, float scale_inv, double largest) {
  // A power of two has no fraction, or, where it is subnormal, one bit. Both products are exact.
  const auto word = std::bit_cast<std::uint32_t>(scale_inv);
  const bool is_power_of_two = (word & (word < 0x00800000U ? word - 1 : 0x7FFFFFU)) == 0;
  const double most = is_power_of_two ? largest : largest * (1 + 0x1p-22);
  return static_cast<double>(amax) > static_cast<double>(scale_inv) * most;
}

bool BandLoss::knows(const Recipe& recipe, const BandedMatrix& matrix) {
  if (!has_usual_cast(recipe) || is_given(recipe)) return false;
  if (recipe.tensor_scale_for_each_row || recipe.block_choice != BlockChoice::none) return false;
  const TileShape tile = tile_shape(recipe, Direction::rowwise, matrix.rows, matrix.columns);
  return tile.columns % run_length == 0 || tile.columns >= matrix.columns;
}

BandLoss::BandLoss(const Recipe& recipe, const BandedMatrix& matrix)
    : recipe_(recipe),
      matrix_(matrix),
      tile_(tile_shape(recipe, Direction::rowwise, matrix.rows, matrix.columns)),
      most_(largest_scaled(recipe)),
      cast_(saturating_cast(recipe.format, divides(recipe.operation), type_of(recipe.product, matrix.input_type))) {
  if (recipe.tile_across == 0) tile_ = {.rows = matrix.rows, .columns = matrix.columns};
  across_ = (matrix.columns + tile_.columns - 1) / tile_.columns;
  if (has_tensor_scale(recipe)) known_.resize(known_scales);
  if (recipe.scale_type == ScaleType::float32) return;
  const ScaleConstants constants = scale_constants(recipe, {.amax = matrix.amax});
  const unsigned codes = recipe.scale_type == ScaleType::e8m0_code ? 256 : 128;  // those of E4M3 have no sign
  for (unsigned code = 0; code < codes; ++code) {
    of_scale_code_[code] = value_of_scale_code(recipe, constants, matrix.amax, static_cast<std::uint8_t>(code));
  }
}

void BandLoss::find_amaxes(std::span<const float> runs, std::size_t rows) {
  const std::size_t runs_a_row = (matrix_.columns + run_length - 1) / run_length;
  const std::size_t runs_a_tile = (tile_.columns + run_length - 1) / run_length;
  amaxes_.assign((rows + tile_.rows - 1) / tile_.rows * across_, 0);
  for (std::size_t row = 0; row < rows; ++row) {
    std::uint32_t* const amaxes = &amaxes_[row / tile_.rows * across_];
    const float* const of_row = &runs[row * runs_a_row];
    if (tile_.rows == 1 && runs_a_tile == 2) {
      find_amaxes_of_pairs({of_row, runs_a_row}, amaxes);
      continue;
    }
    for (std::size_t t = 0; t < across_; ++t) {
      const std::size_t end = std::min(runs_a_row, (t + 1) * runs_a_tile);
      std::uint32_t most = amaxes[t];
      for (std::size_t run = t * runs_a_tile; run < end; ++run) {
        most = std::max(most, std::bit_cast<std::uint32_t>(of_row[run]));
      }
      amaxes[t] = most;
    }
  }
}

void BandLoss::make_scales_of(std::span<const std::uint32_t> amaxes, std::span<float> factors,
                              std::span<float> multipliers) {
  scale_codes_.resize(amaxes.size());
  const TensorFacts facts{.amax = matrix_.amax, .input_type = matrix_.input_type};
  (void)tile_scales(recipe_, amaxes, facts, {factors, multipliers, scale_codes_});
  if (recipe_.scale_type == ScaleType::float32) return;
  std::ranges::transform(scale_codes_, multipliers.begin(), [&](std::uint8_t code) { return of_scale_code_[code]; });
}

void BandLoss::scale_new_ones(std::size_t first, std::size_t end) {
  // Neighbours of bfloat16 have places of their own.
  const auto place_of = [&](std::uint32_t amax) -> KnownScale& {
    return known_[(amax >> 16U ^ amax >> 5U) % known_scales];
  };
  new_amaxes_.clear();
  new_places_.clear();
  for (std::size_t t = first; t < end; ++t) {
    const KnownScale& known = place_of(amaxes_[t]);
    factors_[t] = known.factor;
    multipliers_[t] = known.multiplier;
    if (known.amax == amaxes_[t]) continue;
    new_amaxes_.push_back(amaxes_[t]);
    new_places_.push_back(t);
  }
  new_factors_.resize(new_amaxes_.size());
  new_multipliers_.resize(new_amaxes_.size());
  make_scales_of(new_amaxes_, new_factors_, new_multipliers_);
  for (std::size_t i = 0; i < new_amaxes_.size(); ++i) {
    factors_[new_places_[i]] = new_factors_[i];
    multipliers_[new_places_[i]] = new_multipliers_[i];
    place_of(new_amaxes_[i]) = {new_amaxes_[i], new_factors_[i], new_multipliers_[i]};
  }
}

void BandLoss::scale_all() {
  factors_.resize(amaxes_.size());
  multipliers_.resize(amaxes_.size());
  if (known_.empty()) return make_scales_of(amaxes_, factors_, multipliers_);
  constexpr std::size_t some = 256;  // so that those of a first band, which are new, become known while it lasts
  for (std::size_t first = 0; first < amaxes_.size(); first += some) {
    scale_new_ones(first, std::min(amaxes_.size(), first + some));
  }
}

bool BandLoss::make_scales(std::span<const float> runs, std::size_t rows) {
  // 1. The amaxes of tiles; that of the whole matrix is known.
  if (recipe_.tile_across == 0) {
    amaxes_.assign(1, std::bit_cast<std::uint32_t>(matrix_.amax));
  } else {
    find_amaxes(runs, rows);
  }
  // 2. Their scales.
  scale_all();
  // 3. Whether all that they make has a code.
  const auto fits = [&](std::size_t t, float scaled) {
    return std::uint32_t{factors_[t] >= 0} & std::uint32_t{factors_[t] <= std::numeric_limits<float>::max()} &
           std::uint32_t{scaled <= most_};
  };
  std::uint32_t all_fit = 1;
  for (std::size_t t = 0; t < factors_.size(); ++t) {
    const auto amax = std::bit_cast<float>(amaxes_[t]);
    all_fit &= fits(t, cast_.divides ? amax / factors_[t] : amax * factors_[t]);
  }
  return all_fit != 0;
}

RowLoss BandLoss::add_row(std::size_t row, std::span<const float> magnitudes) const {
  const std::size_t first = row / tile_.rows * across_;
  return row_loss(cast_, magnitudes, tile_.columns, std::span(factors_).subspan(first, across_),
                  std::span(multipliers_).subspan(first, across_));
}

std::size_t BandLoss::clipped_tiles() const {
  const double largest = max_value(recipe_.format);
  std::size_t clipped = 0;
  for (std::size_t t = 0; t < amaxes_.size(); ++t) {
    clipped += std::size_t{is_beyond(std::bit_cast<float>(amaxes_[t]), multipliers_[t], largest)};
  }
  return clipped;
}

}  // namespace fp8lab::experiments
