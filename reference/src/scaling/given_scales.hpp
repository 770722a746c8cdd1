// SPDX-License-Identifier: Apache-2.0
// Scales and amaxes that a caller of quantize() has.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "fp8lab/reference/scaling/quantize.hpp"
#include "scaling/cells.hpp"
#include "scaling/quantize_plan.hpp"

namespace fp8lab {

/// Throws where a scale of the tensor, of which 0 is none, is negative, NaN or infinite. Where a
/// rule makes such a scale of a tiny amax, that amax is what can be given.
void check_tensor_scale(const char* name, float scale);

/// Throws where what is given does not go with the recipe or with other options.
void check_given(const Recipe& recipe, const QuantizeOptions& options);

/// Throws where an array has neither one value nor one for each tile of the plan, or a negative one.
void check_given_sizes(const GivenScales& given, const QuantizePlan& plan, std::size_t rows, std::size_t columns);

/// The recipe and the array of scales that a call has, of which one for all tiles is a given_scale.
struct GivenTiles {
  Recipe recipe;
  std::span<const float> scales;
};
[[nodiscard]] GivenTiles given_tiles(const Recipe& recipe, const GivenScales& given);

/// The amaxes of all tiles as the caller gives them.
template <typename Source>
void take_amaxes(const Cells& cells, std::span<const Tiling<Source>> tilings, std::span<const float> given,
                 std::span<TileAmaxes> amaxes) {
  for (std::size_t k = 0; k < tilings.size(); ++k) {
    amaxes[k].of_cell = tilings[k].tiles(cells.at(0));
    amaxes[k].values = std::make_unique_for_overwrite<std::uint32_t[]>(amaxes[k].of_cell * cells.count());
    for (std::size_t i = 0; i < cells.count(); ++i) {
      const Cell cell = cells.at(i);
      const auto own = amaxes[k].of(cell, tilings[k].tiles(cell));
      for (std::size_t t = 0; t < own.size(); ++t) {
        own[t] = std::bit_cast<std::uint32_t>(given[given.size() == 1 ? 0 : tilings[k].index(cell, t)]);
      }
    }
  }
}

}  // namespace fp8lab
