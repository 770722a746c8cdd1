// SPDX-License-Identifier: Apache-2.0
// Which scale the codes of a tile are made with by a hypothesis.
#include "quantize/kernel_model.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/scale_rule.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"

namespace fp8lab::doctor {

using enum Departure;

namespace {

/// Moves tiles by one element.
void move_tiles(AmaxKey& key, bool is_early, TileEdge edge) {
  key.shift = is_early ? 1 : -1;
  key.counts_rest = edge != TileEdge::uncounted;
  if (is_early) key.is_clamped = edge != TileEdge::usual;
  // The first element is what is left of a tile that began before the row.
  if (!is_early && edge == TileEdge::other) key.shift += static_cast<std::ptrdiff_t>(key.along);
}

/// The recipe with scales that are not rounded.
Recipe unrounded(Recipe recipe) {
  recipe.rounding = ScaleRounding::none;
  recipe.scale_type = ScaleType::float32;
  if (has_tensor_scale(recipe)) {
    recipe.tensor_scale = TensorScaleRule::none;
    recipe.quotient = Quotient::amax_over_largest;
  }
  if (recipe.quotient == Quotient::amax_over_power) recipe.quotient = Quotient::amax_over_largest;
  return recipe;
}

}  // namespace

float KernelModel::unrounded_scale(float amax) const {
  return tile_scale(unrounded(stored_recipe_), amax, facts_).scale_inv;
}

AmaxKey KernelModel::amax_key() const {
  AmaxKey key{.across = recipe().tile_across, .along = recipe().tile_along};
  if (has(tile_shape)) {
    key.across = deviation(tile_shape).place;
    key.along = deviation(tile_shape).last;
  }
  for (const Departure one : {tile_starts_early, tile_starts_late}) {
    if (has(one)) move_tiles(key, one == tile_starts_early, static_cast<TileEdge>(deviation(one).place));
  }
  const auto along = static_cast<std::ptrdiff_t>(key.along == 0 ? source_->columns() : key.along);
  const auto number = [&](Departure departure) { return static_cast<std::ptrdiff_t>(deviation(departure).value); };
  if (has(amax_reads_next)) key.end = 1;
  if (has(amax_of_moved_window)) key.begin = key.end = number(amax_of_moved_window);
  if (has(amax_of_first)) key.end = number(amax_of_first) - along;
  if (has(amax_of_last)) key.begin = along - number(amax_of_last);
  if (has(amax_of_first_elements)) key.elements = static_cast<std::size_t>(deviation(amax_of_first_elements).value);
  using enum AmaxPart;
  for (const auto& [departure, part] :
       {std::pair{amax_misses_first, without_first}, std::pair{amax_misses_last, without_last},
        std::pair{amax_of_first_half, first_half}, std::pair{amax_of_second_half, second_half},
        std::pair{amax_of_even_elements, even}, std::pair{amax_of_odd_elements, odd}}) {
    if (has(departure)) key.part = part;
  }
  key.is_turned = has(amax_of_other_axis);
  key.is_signed = has(amax_signed);
  key.counts_nan = recipe().nan_in_amax == NanInAmax::counted;
  if (has(input_float16) || has(amax_float16)) key.narrowing = Narrowing::float16;
  if (has(input_bfloat16) || has(amax_bfloat16)) key.narrowing = Narrowing::bfloat16;
  if (has(input_flushed)) key.narrowing = Narrowing::flushed;
  return key;
}

void KernelModel::set_scale_recipes() {
  if (has(largest_of_e4m3fnuz)) stored_recipe_.format = e4m3fnuz;
  if (has(largest_of_e5m2)) stored_recipe_.format = e5m2;
  if (has(largest_of_e4m3)) stored_recipe_.format = e4m3;
  if (has(largest_of_e2m1)) stored_recipe_.format = e2m1;
  // Rounding `even` to a mantissa of no bits.
  if (has(scale_nearest_power)) stored_recipe_.rounding = ScaleRounding::even;
  scale_recipe_ = has(scale_unrounded) ? unrounded(stored_recipe_) : stored_recipe_;
}

ScaleConstants KernelModel::constants_of(const Recipe& recipe) const {
  ScaleConstants constants = scale_constants(recipe, facts_);
  if (has(scale_nearest_power)) constants.half_spacing = 0x400000;
  if (has(largest_of_value)) {
    constants.largest = deviation(largest_of_value).value;
    constants.inverse_largest = 1 / constants.largest;
  }
  return constants;
}

bool KernelModel::follows_rule() const {
  constexpr std::array others{amax_plus,  amax_times,  block_scale_truncated, block_scale_rounded_up,
                              scale_plus, scale_times, scale_nearest_power,   largest_of_value};
  return stored_recipe_ == scale_recipe_ &&
         std::ranges::none_of(others, [&](Departure departure) { return has(departure); });
}

void KernelModel::complete() const {
  source_->complete(*amaxes_);
  if (!made_.empty() || !follows_rule()) return;
  const std::span<const float> amaxes = amaxes_->values;
  made_.resize(amaxes.size());
  parallel_for(amaxes.size(), source_->threads(), [&](std::size_t first, std::size_t last) {
    constexpr std::size_t most = 1024;
    std::array<std::uint32_t, most> bits;
    std::array<float, most> factors;
    std::array<float, most> values;
    std::array<std::uint8_t, most> codes{};
    for (std::size_t at = first; at < last; at += most) {
      const std::size_t count = std::min(most, last - at);
      std::memcpy(bits.data(), &amaxes[at], count * sizeof(float));
      tile_scales(scale_recipe_, std::span(bits).first(count), facts_,
                  {std::span(factors).first(count), std::span(values).first(count), std::span(codes).first(count)});
      for (std::size_t i = 0; i < count; ++i) {
        float value = values[i];
        if (scale_recipe_.scale_type == ScaleType::e8m0_code) value = e8m0_value(scale_recipe_.edges, codes[i]);
        if (has_tensor_scale(scale_recipe_)) value = decode(ue4m3, codes[i]);
        made_[at + i] = {factors[i], value, codes[i]};
      }
    }
  });
}

TileScale KernelModel::made_scale(const Recipe& recipe, const ScaleConstants& constants, float amax) const {
  if (has(amax_times)) amax *= deviation(amax_times).value;
  if (has(amax_plus)) amax += deviation(amax_plus).value;
  const bool is_block_rounded = has(block_scale_truncated) || has(block_scale_rounded_up);
  if (is_block_rounded && recipe.tensor_scale != TensorScaleRule::none) {
    const Rounding rounding = has(block_scale_truncated) ? Rounding::toward_zero : Rounding::upward;
    const float product = product_under_tensors(recipe, constants, amax);
    const float rounded = decode(ue4m3, encode(ue4m3, CastPolicy{.rounding = rounding}, product));
    // Stretched to what it is rounded to, it is the nearest.
    return scale_under_tensors(recipe, constants, amax, product == 0 ? 1 : rounded / product);
  }
  TileScale scale = scale_of_amax(recipe, constants, amax);
  const auto take = [&](float scale_inv) {
    scale.scale_inv = scale_inv;
    scale.factor = divides(recipe.operation) ? scale_inv : 1 / scale_inv;
  };
  if (has(scale_plus) && recipe.rounding != ScaleRounding::none && makes_scale_inv(recipe)) {
    // The sum is rounded.
    Recipe unrounded = recipe;
    unrounded.rounding = ScaleRounding::none;
    const float sum = scale_of_amax(unrounded, constants, amax).scale_inv + deviation(scale_plus).value;
    take(rounded_scale(recipe, constants, sum));
  } else if (has(scale_plus)) {
    take(scale.scale_inv + deviation(scale_plus).value);
  }
  if (has(scale_nearest_power) && recipe.scale_type == ScaleType::float32) {
    take(std::bit_cast<float>((std::bit_cast<std::uint32_t>(scale.scale_inv) + 0x400000U) & 0x7F800000U));
  }
  if (has(scale_times)) {
    const float times = deviation(scale_times).value;
    scale.scale_inv *= times;
    scale.factor = divides(recipe.operation) ? scale.factor * times : scale.factor / times;
    if (recipe.scale_type == ScaleType::e8m0_code) {
      scale.code = static_cast<std::uint8_t>(encode(e8m0, CastPolicy{}, scale.scale_inv));
    }
  }
  return scale;
}

float KernelModel::factor_of_block(float amax, float scale) const {
  const float product = product_under_tensors(scale_recipe_, scale_constants_, amax);
  // Stretched to what is stored, it is rounded to that.
  return scale_under_tensors(scale_recipe_, scale_constants_, amax, product == 0 ? 1 : scale / product).factor;
}

void KernelModel::move_to_neighbor(std::size_t& tile_row, std::size_t& tile_column) const {
  const auto is_here = [&](Departure departure) {
    if (!has(departure)) return false;
    const std::uint64_t place = deviation(departure).place;
    return place / source_->columns() / amaxes_->across == tile_row &&
           amaxes_->tile_column(place % source_->columns()) == tile_column;
  };
  const bool left = has(scale_of_previous_tile) || is_here(tile_of_left_neighbor);
  const bool right = has(scale_of_next_tile) || is_here(tile_of_right_neighbor);
  const bool up = has(scale_of_previous_row) || is_here(tile_of_upper_neighbor);
  const bool down = has(scale_of_next_row) || is_here(tile_of_lower_neighbor);
  const bool runs_on = (has(scale_of_previous_tile) && deviation(scale_of_previous_tile).place == 1) ||
                       (has(scale_of_next_tile) && deviation(scale_of_next_tile).place == 1);
  if (runs_on || has(scale_row_stride)) {
    const std::size_t across = amaxes_->tiles_across;
    const std::size_t stride =
        has(scale_row_stride) ? static_cast<std::size_t>(deviation(scale_row_stride).value) : across;
    const std::size_t place = tile_row * stride + tile_column + (right ? 1 : 0) - (left ? 1 : 0);
    if (place >= across * amaxes_->tiles_down) return;  // no scale of the tensor
    tile_row = place / across;
    tile_column = place % across;
    return;
  }
  if (has(scale_index_turned)) {
    const std::size_t place = tile_column * amaxes_->tiles_down + tile_row;
    tile_row = place / amaxes_->tiles_across;
    tile_column = place % amaxes_->tiles_across;
    return;
  }
  if (has(scale_of_first_row)) tile_row = 0;
  if (has(scale_of_first_tile)) tile_column = 0;
  if (left && tile_column > 0) --tile_column;
  if (right && tile_column + 1 < amaxes_->tiles_across) ++tile_column;
  if (up && tile_row > 0) --tile_row;
  if (down && tile_row + 1 < amaxes_->tiles_down) ++tile_row;
}

TileScale KernelModel::used_scale(std::size_t tile_row, std::size_t tile_column) const {
  if (!made_.empty() && keeps_scales_) return made_[tile_row * amaxes_->tiles_across + tile_column];
  move_to_neighbor(tile_row, tile_column);
  const bool divides = fp8lab::divides(recipe().operation);
  TileScale scale = made_.empty() ? made_scale(scale_recipe_, scale_constants_, amax_of(tile_row, tile_column))
                                  : made_[tile_row * amaxes_->tiles_across + tile_column];
  if (takes_all_stored() || has(tiles_as_stored)) {
    const auto place = layout_.place_of(tile_row * amaxes_->across / layout_.entry_rows, tile_column);
    const float amax = amax_of(tile_row, tile_column);
    const bool follows =
        place && has(tiles_as_stored) && is_stored(stored_scale(tile_row, tile_column), amax, dump_->scales[*place]);
    if (follows) return scale;
    const float stored = place ? stored_value(dump_->scales[*place]) : 1;
    const bool is_scale = has(stored_inverted);
    scale.factor = is_scale == divides ? 1 / stored : stored;
    if (has_tensor_scale(recipe())) scale.factor = factor_of_block(amax, stored);
  }
  if (has(tensor_scale_missing)) {
    scale.factor = deviation(tensor_scale_missing).place == 1 ? 1 / scale.scale_inv : scale.scale_inv;
  }
  if (has(scale_missing)) scale.factor = 1;
  if (has(scale_stale)) scale.factor = deviation(scale_stale).value;
  if (has(scale_float16)) scale.factor = rounded_to(binary16, scale.factor);
  if (has(scale_bfloat16)) scale.factor = rounded_to(bfloat16, scale.factor);
  if (has(scale_doubled)) scale.factor *= divides ? 0.5F : 2.0F;
  if (has(scale_halved)) scale.factor *= divides ? 2.0F : 0.5F;
  return scale;
}

}  // namespace fp8lab::doctor
