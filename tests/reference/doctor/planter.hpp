// SPDX-License-Identifier: Apache-2.0
// Plants departures of the table in a kernel.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "fp8lab/doctor/diagnose.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "quantize/departure.hpp"
#include "quantize/kernel_model.hpp"

namespace fp8lab::tests {

using doctor::Amaxes;
using doctor::Departure;
using doctor::Deviation;
using doctor::Dump;
using doctor::Hypothesis;
using doctor::KernelModel;
using doctor::Source;
using doctor::StoredDump;
using doctor::TakesStored;
using doctor::TileIndex;

/// The word of a scale of that value in a type.
inline std::uint32_t word_of(float value, const Format& type) {
  return type == binary32 ? std::bit_cast<std::uint32_t>(value) : encode(type, CastPolicy{}, value);
}

/// What a kernel with one departure stores.
struct PlantedTensor {
  std::vector<std::uint8_t> codes;
  std::vector<std::byte> scales;
  Format scale_format;
  std::optional<float> of_tensor;

  [[nodiscard]] Dump dump(const Recipe& recipe) const {
    return {.codes = codes,
            .format = recipe.format,
            .scales = {.format = scale_format, .bytes = scales, .of_tensor = of_tensor}};
  }
};

/// Plants the departures of a hypothesis, without the searches of the doctor.
class Planter {
 public:
  Planter(const MatrixView& x, const Hypothesis& hypothesis) : x_(x), source_(x, 1), hypothesis_(hypothesis) {}

  [[nodiscard]] std::optional<PlantedTensor> planted() const {
    const Recipe& recipe = hypothesis_.recipe;
    const std::size_t down = recipe.tile_across == 0 ? 1 : (x_.rows() + recipe.tile_across - 1) / recipe.tile_across;
    const std::size_t across = recipe.tile_along == 0 ? 1 : x_.columns() / recipe.tile_along;
    // Tiles of other shapes are more, moved ones are one more in a row, and some layouts have padding.
    // Some are half as many.
    for (const std::size_t count : {down * across, down * across / 2, 2 * down * across, down * (across + 1),
                                    (down + 3) / 4 * 4 * across, swizzled_size(down, across)}) {
      if (auto made = with_scales(count)) return made;
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] std::optional<PlantedTensor> with_scales(std::size_t count) const {
    PlantedTensor made{.codes = std::vector<std::uint8_t>(x_.size()),
                       .scales = {},
                       .scale_format = scale_format_of(hypothesis_.recipe),
                       .of_tensor = {}};
    for (const Deviation& one : hypothesis_.deviations) {
      if (one.departure->tensor_scale != nullptr && one.departure->is_given) made.of_tensor = one.value;
    }
    const std::size_t width = made.scale_format == binary32 ? 4 : 1;
    made.scales.resize(count * width);
    StoredDump dump(x_, made.dump(hypothesis_.recipe));
    const KernelModel model(source_, hypothesis_, &dump);
    if (!model.applies() || !model.has_room_for_scales()) return std::nullopt;
    store_scales(model, dump);
    for (std::size_t i = 0; i < count; ++i) std::memcpy(&made.scales[i * width], &dump.scales[i], width);
    store_codes(model, made.codes);
    return made;
  }

  void store_scales(const KernelModel& model, StoredDump& dump) const {
    const auto& layout = model.layout();
    const Amaxes& tiles = model.tiles();
    const Format type = scale_format_of(hypothesis_.recipe);
    const TensorFacts facts;
    for (std::size_t row = 0; row < layout.rows; ++row) {
      for (std::size_t column = 0; column < layout.columns; ++column) {
        const auto place = layout.place_of(row, column);
        if (!place || is_unwritten(*place)) continue;
        TileIndex tile{row * layout.entry_rows / tiles.across, column};
        for (const Deviation& one : hypothesis_.deviations) {
          if (one.departure->stored_of == nullptr) continue;
          tile = one.departure->stored_of(tile, {tiles.tiles_down - 1, tiles.tiles_across - 1}, one).first;
        }
        const TileScale scale = model.stored_scale(tile.row, tile.column);
        std::uint32_t word = type.bits() <= 8 ? scale.code : word_of(scale.scale_inv, type);
        float value = scale.scale_inv;
        for (const Deviation& one : hypothesis_.deviations) {
          if (one.departure->stored == nullptr) continue;
          const float amax = model.amax_at(tile.row * tiles.across, tile.column);
          value = one.departure->stored(value, {hypothesis_.recipe, facts, amax});
          word = word_of(value, type);
        }
        for (const Deviation& one : hypothesis_.deviations) {
          if (one.departure->word != nullptr) word = one.departure->word(word, type);
        }
        if (is_stale(tile)) word = word_of(0.001F * static_cast<float>(1 + (7 * row + column) % 13), type);
        dump.scales[*place] = word;
      }
    }
  }

  /// Whether a tile's scale follows from nothing.
  [[nodiscard]] bool is_stale(TileIndex tile) const {
    for (const Deviation& one : hypothesis_.deviations) {
      if (one.departure->takes_stored == TakesStored::some)
        return tile.column == 0 && tile.row % 50 == 7 && tile.row < 150;
      if (one.departure->takes_stored == TakesStored::all) return true;
    }
    return false;
  }

  [[nodiscard]] bool is_unwritten(std::size_t place) const {
    return std::ranges::any_of(hypothesis_.deviations, [&](const Deviation& one) {
      return one.departure->is_unwritten != nullptr && one.departure->is_unwritten(place, one);
    });
  }

  void store_codes(const KernelModel& model, std::vector<std::uint8_t>& stored) const {
    const std::size_t columns = x_.columns();
    std::vector<std::uint8_t> codes(columns);
    std::vector<std::uint8_t> others(columns);
    for (std::size_t row = 0; row < x_.rows(); ++row) {
      model.predict({row, 0, columns}, codes, others);
      for (std::size_t column = 0; column < columns; ++column) {
        const std::uint64_t place = model.place_of(row, column);
        if (place < stored.size()) stored[place] = codes[column];
      }
    }
  }

  MatrixView x_;
  Source source_;
  const Hypothesis& hypothesis_;
};

}  // namespace fp8lab::tests
