// SPDX-License-Identifier: Apache-2.0
// Which scale the codes of a tile are made with by a hypothesis.
#include "quantize/kernel_model.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/scale_rule.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "quantize/equal_casts.hpp"

namespace fp8lab::doctor {

AmaxKey KernelModel::amax_key() const {
  AmaxKey key{.across = recipe().tile_across, .along = recipe().tile_along};
  call(&Departure::tile, key);
  const auto along = static_cast<std::ptrdiff_t>(key.along == 0 ? source_->columns() : key.along);
  for (const Deviation& one : deviations_) {
    if (one.departure->counted != nullptr) one.departure->counted(key, one, along);
  }
  key.counts_nan = recipe().nan_in_amax == NanInAmax::counted;
  key.narrowing = narrowing_.counted;
  return key;
}

ScaleConstants KernelModel::constants_of(const Recipe& recipe) const {
  ScaleConstants constants = scale_constants(recipe, facts_);
  call(&Departure::constants, constants);
  return constants;
}

bool KernelModel::follows_rule() const {
  return stored_recipe_ == scale_recipe_ && !has_any(&Departure::amax, &Departure::constants, &Departure::made);
}

void KernelModel::complete() const {
  source_->complete(*amaxes_);
  if (made_.empty() && stored_recipe_ == scale_recipe_) {
    if (follows_rule()) {
      find_scales();
    } else {
      keep_made(std::make_shared<const std::vector<TileScale>>(make_changed_scales()));
    }
  }
  if (factors_.empty()) make_factors();
  const bool is_transpose = is_transposed_ && !has_any(&Departure::index, &Departure::place);
  if (is_transpose && dump_ != nullptr) turned_codes_ = dump_->turned(source_->rows(), source_->threads());
}

bool KernelModel::take_known_scales() const {
  if (amaxes_->scales.empty() || stored_recipe_ != scale_recipe_ || !follows_rule()) return false;
  const auto is_this = [&](const ScalesByRule& one) {
    if (one.facts.amax != facts_.amax || one.facts.input_type != facts_.input_type ||
        one.facts.tensor_scale != facts_.tensor_scale || one.facts.tensor_scale_inv != facts_.tensor_scale_inv)
      return false;
    return one.rule == rule_of_scales();
  };
  const auto found = std::ranges::find_if(amaxes_->scales, is_this);
  if (found == amaxes_->scales.end()) return false;
  keep_made(found->scales);
  return true;
}

Recipe KernelModel::rule_of_scales() const {
  Recipe rule = scale_recipe_;
  rule.cast = {};
  return rule;
}

void KernelModel::find_scales() const {
  constexpr std::size_t most_kept = 6;
  if (take_known_scales()) return;
  std::vector<ScalesByRule>& known = amaxes_->scales;
  if (known.size() == most_kept) known.erase(known.begin());
  auto made = std::make_shared<const std::vector<TileScale>>(make_scales());
  keep_made(known.emplace_back(rule_of_scales(), facts_, std::move(made)).scales);
}

std::vector<TileScale> KernelModel::make_scales() const {
  const std::span<const float> amaxes = amaxes_->values;
  std::vector<TileScale> made(amaxes.size());
  const bool has_values = scale_recipe_.scale_type == ScaleType::e8m0_code || has_tensor_scale(scale_recipe_);
  std::array<float, 256> value_of;
  for (std::size_t i = 0; i < value_of.size(); ++i) {
    const auto code = static_cast<std::uint8_t>(i);
    value_of[i] = has_tensor_scale(scale_recipe_) ? decode(ue4m3, code) : e8m0_value(scale_recipe_.edges, code);
  }
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
        made[at + i] = {factors[i], has_values ? value_of[codes[i]] : values[i], codes[i]};
      }
    }
  });
  return made;
}

std::vector<TileScale> KernelModel::make_changed_scales() const {
  std::vector<TileScale> made(amaxes_->values.size());
  parallel_for(
      made.size(), source_->threads(),
      [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i) {
          made[i] = made_scale(stored_recipe_, stored_constants_, amaxes_->values[i]);
        }
      },
      scalar_piece);
  return made;
}

void KernelModel::make_factors() const {
  if (meets_twice_ || amaxes_->shift != 0) return;
  std::vector<float> factors(amaxes_->values.size());
  const std::size_t across = amaxes_->tiles_across;
  const bool are_made = !made_.empty() && keeps_scales_;
  parallel_for(amaxes_->tiles_down, source_->threads(), [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first * across; i < last * across; ++i)
      factors[i] = are_made ? made_[i].factor : used_scale(i / across, i % across).factor;
  });
  factors_ = std::move(factors);
  const bool is_cast_alone = keeps_codes_ && narrowing_.elements == Narrowing::none && !recipe().float32_steps &&
                             type_of(recipe().product, facts_.input_type) == binary32 && !has_any(&Departure::product);
  if (encode_ && is_cast_alone && !is_stochastic(recipe())) encoder_.emplace(recipe().format, recipe().cast);
}

std::optional<CastOfTiles> KernelModel::cast_of_tiles() const {
  if (!encoder_ || codes_in_order() == nullptr) return std::nullopt;
  std::vector<std::uint32_t> bits(factors_.size());
  std::memcpy(bits.data(), factors_.data(), factors_.size() * sizeof(float));
  CastOfTiles cast{source_,    codes_in_order(), amaxes_->across, amaxes_->along,
                   operation_, recipe().format,  recipe().cast,   std::move(bits)};
  simplify(cast, *amaxes_);
  return cast;
}

TileScale KernelModel::made_scale(const Recipe& recipe, const ScaleConstants& constants, float amax) const {
  for (const Deviation& one : deviations_) {
    if (one.departure->amax != nullptr) amax = one.departure->amax(amax, one);
  }
  TileScale scale = scale_of_amax(recipe, constants, amax);
  const ScaleRule rule{recipe, constants, amax};
  call(&Departure::made, scale, rule);
  return scale;
}

float KernelModel::factor_of_block(float amax, float scale) const {
  const float product = product_under_tensors(scale_recipe_, scale_constants_, amax);
  // Stretched to what is stored, it is rounded to that.
  return scale_under_tensors(scale_recipe_, scale_constants_, amax, product == 0 ? 1 : scale / product).factor;
}

TileIndex KernelModel::tile_read(TileIndex tile) const {
  for (const Deviation& one : deviations_) {
    if (one.departure->read != nullptr) tile = one.departure->read(tile, *amaxes_, one);
  }
  return tile;
}

void KernelModel::take_stored(TileIndex tile, TileScale& scale) const {
  const auto place = layout_.place_of(tile.row * amaxes_->across / layout_.entry_rows, tile.column);
  const float amax = amax_of(tile.row, tile.column);
  const bool follows = place && takes_stored_ == TakesStored::some &&
                       is_stored(stored_scale(tile.row, tile.column), amax, dump_->scales[*place]);
  if (follows) return;
  const float stored = place ? stored_value(dump_->scales[*place]) : 1;
  scale.factor = stores_inverse_ == divides(recipe().operation) ? 1 / stored : stored;
  if (has_tensor_scale(recipe())) scale.factor = factor_of_block(amax, stored);
}

TileScale KernelModel::used_scale(std::size_t tile_row, std::size_t tile_column) const {
  if (!made_.empty() && keeps_scales_) return made_[tile_row * amaxes_->tiles_across + tile_column];
  const TileIndex tile = tile_read({tile_row, tile_column});
  TileScale scale = made_.empty() ? made_scale(scale_recipe_, scale_constants_, amax_of(tile.row, tile.column))
                                  : made_[tile.row * amaxes_->tiles_across + tile.column];
  if (takes_stored_ != TakesStored::none) take_stored(tile, scale);
  call(&Departure::used, scale, recipe());
  return scale;
}

}  // namespace fp8lab::doctor
