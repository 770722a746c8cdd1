// SPDX-License-Identifier: Apache-2.0
// Departures of the scale that elements meet: which tile's it is, and how it is used.
#include <algorithm>
#include <array>
#include <cmath>

#include "fp8lab/reference/scaling/facts.hpp"
#include "quantize/departures/shared.hpp"
#include "quantize/localize.hpp"
#include "quantize/named_rows.hpp"
#include "search/words.hpp"

namespace fp8lab::doctor {
namespace {

// Which tile's scale an element meets.

bool has_tiles_in_a_row(const SearchCase& one) { return one.has_tiles(); }
bool has_a_grid(const SearchCase& one) { return one.has_tiles() && one.tiles_across() > 1 && one.tiles_down() > 1; }

/// The tile in that place, row by row; the own one where there is none.
TileIndex tile_in_place(std::size_t place, TileIndex own, const Amaxes& tiles) {
  if (place >= tiles.tiles_across * tiles.tiles_down) return own;
  return {place / tiles.tiles_across, place % tiles.tiles_across};
}

TileIndex left_of(TileIndex tile, const Amaxes& /*tiles*/) {
  return {tile.row, tile.column - (tile.column > 0 ? 1 : 0)};
}
TileIndex right_of(TileIndex tile, const Amaxes& tiles) {
  return {tile.row, std::min(tile.column + 1, tiles.tiles_across - 1)};
}
TileIndex above(TileIndex tile, const Amaxes& /*tiles*/) { return {tile.row - (tile.row > 0 ? 1 : 0), tile.column}; }
TileIndex below(TileIndex tile, const Amaxes& tiles) {
  return {std::min(tile.row + 1, tiles.tiles_down - 1), tile.column};
}

/// Whether the deviation is of that one tile.
bool is_of(const Deviation& own, TileIndex tile, const Amaxes& tiles) {
  return own.place / tiles.columns / tiles.across == tile.row &&
         tiles.tile_column(own.place % tiles.columns) == tile.column;
}

/// One tile that unexplained elements lie in.
std::optional<Deviation> one_tile(const LocalCase& one) {
  if (!one.is_one_tile()) return std::nullopt;
  return Deviation{.place = one.unexplained().first};
}

/// Within the row, or on to the next row.
std::vector<Deviation> row_edges(const SearchCase& one) {
  std::vector<Deviation> all(1);
  if (one.tiles_down() > 1) all.push_back({.place = 1});
  return all;
}

/// A tile less or more than there are, or as many as a padded row has.
std::vector<Deviation> likely_strides(const SearchCase& one) {
  const std::size_t across = one.tiles_across();
  const std::size_t padded = (across + 3) / 4 * 4;
  std::vector<Deviation> all;
  for (const std::size_t stride : {across - 1, across + 1}) all.push_back({.value = static_cast<float>(stride)});
  if (padded > across + 1) all.push_back({.value = static_cast<float>(padded)});
  return all;
}

/// Any stride up to twice the right one, or that of a padded row, which come first.
std::vector<Deviation> all_strides(const SearchCase& one) {
  const std::size_t across = one.tiles_across();
  std::vector<std::size_t> strides{across - 1, across + 1};
  for (const std::size_t multiple : {4, 8, 16, 32, 128})
    strides.push_back((across + multiple - 1) / multiple * multiple);
  for (std::size_t stride = 1; stride <= 2 * across; ++stride) strides.push_back(stride);
  std::vector<Deviation> all;
  for (auto own = strides.begin(); own != strides.end(); ++own) {
    const bool is_known = std::find(strides.begin(), own, *own) != own;
    if (*own != across && !is_known) all.push_back({.value = static_cast<float>(*own)});
  }
  return all;
}

/// A row about one tile, that of element `place`, which meets the scale of a neighbor.
template <TileIndex (*neighbor)(TileIndex, const Amaxes&)>
constexpr Departure tile_of_neighbor(std::string_view name, std::string_view words, std::uint64_t planted) {
  return {.name = name,
          .words = words,
          .cost = 1.3,
          .is_searched = never,
          .local = one_tile,
          .details = tell_element,
          .read = [](TileIndex tile, const Amaxes& tiles,
                     const Deviation& own) { return is_of(own, tile, tiles) ? neighbor(tile, tiles) : tile; },
          .plant = {.place = planted}};
}

// How an element meets its scale.

template <const Format& format>
void round_used(TileScale& scale, const Recipe& /*recipe*/, const Deviation& /*own*/) {
  scale.factor = rounded_to(format, scale.factor);  // NOLINT(readability-redundant-parentheses): there are none
}

bool uses_made_scales(const ModelCase& model, const Deviation& /*own*/) {
  return model.takes_stored == TakesStored::none;
}

/// The stored number may be the inverse of that factor, but for the last bits.
bool is_stored_number(const ModelCase& model, const Deviation& own) {
  if (model.takes_stored == TakesStored::none) return true;
  if (model.dump->scales.size() != 1) return false;
  const float stored = model.dump->value_of_scale(model.dump->scales.front(), scale_format_of(model.recipe));
  return std::abs(stored * own.value - 1) < 0x1p-20F;
}

constexpr auto used_scale_table = of_stage(
    KernelStage::used_scale,
    std::array{
        // 1. Which tile's scale an element meets.
        tile_of_neighbor<left_of>("tile_of_left_neighbor", "one tile meets the scale of its left neighbor",
                                  70 * 256 + 130),
        tile_of_neighbor<right_of>("tile_of_right_neighbor", "one tile meets the scale of its right neighbor",
                                   70 * 256 + 100),
        tile_of_neighbor<above>("tile_of_upper_neighbor", "one tile meets the scale of its upper neighbor",
                                70 * 256 + 130),
        tile_of_neighbor<below>("tile_of_lower_neighbor", "one tile meets the scale of its lower neighbor",
                                70 * 256 + 130),
        // Tile c of row r meets the scale in place r * `value` + c, where there is one.
        Departure{.name = "scale_row_stride",
                  .words = "elements meet scales that are read with a wrong row stride",
                  .cost = 1.0403,
                  .is_searched = has_a_grid,
                  .numbers = likely_strides,
                  .more_numbers = all_strides,
                  .details = [](TextStream& text, const Deviation& own,
                                const Hypothesis&) { text << ", of " << own.value << " scales"; },
                  .read =
                      [](TileIndex tile, const Amaxes& tiles, const Deviation& own) {
                        return tile_in_place(tile.row * static_cast<std::size_t>(own.value) + tile.column, tile, tiles);
                      },
                  .plant = {.value = 3}},
        Departure{.name = "scale_index_turned",
                  .words = "elements meet scales that are read column-major, as if those of the transpose were stored",
                  .cost = 1.0424,
                  .is_searched = has_a_grid,
                  .read =
                      [](TileIndex tile, const Amaxes& tiles, const Deviation&) {
                        return tile_in_place(tile.column * tiles.tiles_down + tile.row, tile, tiles);
                      }},
        Departure{.name = "scale_of_first_row",
                  .words = "all rows meet the scales of the first row",
                  .cost = 1.0410,
                  .is_searched = [](const SearchCase& one) { return one.tiles_down() > 1; },
                  .read = [](TileIndex tile, const Amaxes&, const Deviation&) { return TileIndex{0, tile.column}; }},
        Departure{.name = "scale_of_first_tile",
                  .words = "all tiles of a row meet the scale of its first tile",
                  .cost = 1.0417,
                  .is_searched = [](const SearchCase& one) { return one.tiles_across() > 1; },
                  .read = [](TileIndex tile, const Amaxes&, const Deviation&) { return TileIndex{tile.row, 0}; }},
        // The first tile of a row meets its own or, where `place` is 1, the last one of the row before.
        Departure{.name = "scale_of_previous_tile",
                  .words = "elements meet the scale of the previous tile along K",
                  .cost = 1.0382,
                  .is_searched = has_tiles_in_a_row,
                  .numbers = row_edges,
                  .details =
                      [](TextStream& text, const Deviation& own, const Hypothesis&) {
                        text << (own.place == 1 ? ", before a row that of the previous row's last" : "");
                      },
                  .read =
                      [](TileIndex tile, const Amaxes& tiles, const Deviation& own) {
                        if (own.place != 1) return left_of(tile, tiles);
                        return tile_in_place(tile.row * tiles.tiles_across + tile.column - 1, tile, tiles);
                      },
                  .operand = {.name = "scale{}_of_previous_tile",
                              .words = "the scale of {} is that of the previous tile along K, or block",
                              .words_of_both = "both scales are those of the previous tile along K, or block",
                              .cost = 1.0026,
                              .is_searched = [](const OperandScales& own) { return own.tiles || own.codes; },
                              .reading = {.previous_tile = true, .blocks = BlockReading::previous}}},
        // The last tile of a row meets its own or, where `place` is 1, the first one of the next row.
        Departure{.name = "scale_of_next_tile",
                  .words = "elements meet the scale of the next tile along K",
                  .cost = 1.0375,
                  .is_searched = has_tiles_in_a_row,
                  .numbers = row_edges,
                  .details =
                      [](TextStream& text, const Deviation& own, const Hypothesis&) {
                        text << (own.place == 1 ? ", behind a row that of the next row's first" : "");
                      },
                  .read =
                      [](TileIndex tile, const Amaxes& tiles, const Deviation& own) {
                        if (own.place != 1) return right_of(tile, tiles);
                        return tile_in_place(tile.row * tiles.tiles_across + tile.column + 1, tile, tiles);
                      }},
        Departure{.name = "scale_of_previous_row",
                  .words = "elements meet the scale of the tile in the previous row",
                  .cost = 1.0396,
                  .read = [](TileIndex tile, const Amaxes& tiles, const Deviation&) { return above(tile, tiles); }},
        Departure{.name = "scale_of_next_row",
                  .words = "elements meet the scale of the tile in the next row",
                  .cost = 1.0389,
                  .read = [](TileIndex tile, const Amaxes& tiles, const Deviation&) { return below(tile, tiles); }},
        // The number that `other_row` takes.
        Departure{.name = "scale_of_other_row",
                  .words = "elements meet the scale of a tile in another row",
                  .cost = 1.0400,
                  .is_searched = never,
                  .local_numbers =
                      [](const LocalCase& one) {
                        std::vector<Deviation> all = other_rows(one.tiles().tiles_down);
                        const std::uint64_t first = one.unexplained().first_row / one.tiles().across;
                        for (std::size_t i = 0, count = all.size(); i < count; ++i) {
                          const bool is_above = static_cast<OtherRow>(all[i].last) == OtherRow::above;
                          if (!is_above || static_cast<float>(first) <= all[i].value) continue;
                          all.push_back({.place = first, .value = all[i].value});
                        }
                        return all;
                      },
                  .details = tell_other_row,
                  .read =
                      [](TileIndex tile, const Amaxes& tiles, const Deviation& own) {
                        return TileIndex{other_row(tile.row, tiles.tiles_down, own), tile.column};
                      },
                  .plant = {.value = 64}},
        // 2. How it is used.
        Departure{
            .name = "scale_as_stored",
            .words = "codes are made with the stored scales, and no rule that was searched makes these of the "
                     "tensor (static, or stale?)",
            .cost = 2.5,
            .is_searched = [](const SearchCase& one) { return one.facts().scales != 0; },
            .makes_sense = [](const ModelCase& model, const Deviation&) { return !has_tensor_scale(model.recipe); },
            .has_no_rule = true,
            .takes_stored = TakesStored::all},
        // Codes of `place` tiles alone are made with stored scales that do not follow from theirs.
        Departure{
            .name = "tiles_as_stored",
            .words = "codes of some tiles are made with their stored scales, which do not follow from these tiles",
            .cost = 2.4,  // two departures may say more
            .is_searched = never,
            .details = [](TextStream& text, const Deviation& own,
                          const Hypothesis&) { text << ": " << counted(own.place, "scale"); },
            .has_no_rule = true,
            .takes_stored = TakesStored::some,
            .plant = {.place = 3}},
        Departure{.name = "tile_scales_given",
                  .words = "the scales are given",
                  .cost = 0,
                  .is_searched = never,
                  .makes_sense =
                      [](const ModelCase& model, const Deviation&) {
                        return model.recipe.quotient == Quotient::given_scale_inv && model.recipe.tile_across != 0;
                      },
                  .is_given = true,
                  .takes_stored = TakesStored::all,
                  .plant = {.recipe = "vllm_static_group"}},
        Departure{.name = "scale_inverted",
                  .words = "elements meet the inverse of their scale",
                  .cost = 1.0431,
                  .operation =
                      [](TileOperation operation, const Deviation&) {
                        return divides(operation) ? TileOperation::multiply : TileOperation::divide;
                      },
                  .operand = {.name = "scale{}_inverted",
                              .words = "the scale of {} divides instead of multiplying",
                              .words_of_both = "both scales divide instead of multiplying",
                              .cost = 1.0024,
                              .is_searched = [](const OperandScales& own) { return own.numbers || own.powers; },
                              .reading = {.scales = ScaleReading::inverted, .blocks = BlockReading::inverted}}},
        Departure{.name = "scale_missing",
                  .words = "elements are cast without their scale",
                  .cost = 1.2,
                  .makes_sense = uses_made_scales,  // those are made with another
                  .used = [](TileScale& scale, const Recipe&, const Deviation&) { scale.factor = 1; },
                  .operand = {.name = "scale{}_missing",
                              .words = "the scale of {} is not applied",
                              .words_of_both = "no scale is applied",
                              .cost = 1.0020,
                              .is_searched = [](const OperandScales& own) { return own.numbers || own.blocks; },
                              .reading = {.scales = ScaleReading::missing, .blocks = BlockReading::missing}}},
        // Elements are divided by the scales of tiles or, where `place` is 1, multiplied with their inverses.
        Departure{
            .name = "tensor_scale_missing",
            .words = "codes are made with the scales of blocks, without the scale of the tensor",
            .cost = 1.0515,
            .is_searched = [](const SearchCase& one) { return has_tensor_scale(one.recipe()); },
            .numbers = [](const SearchCase&) { return std::vector<Deviation>{{.place = 0}, {.place = 1}}; },
            .makes_sense =
                [](const ModelCase& model, const Deviation& own) {
                  return has_tensor_scale(model.recipe) && uses_made_scales(model, own);
                },
            .details = [](TextStream& text, const Deviation& own,
                          const Hypothesis&) { text << (own.place == 1 ? ", by a product with the inverse" : ""); },
            .used = [](TileScale& scale, const Recipe&,
                       const Deviation& own) { scale.factor = own.place == 1 ? 1 / scale.scale_inv : scale.scale_inv; },
            .operation =
                [](TileOperation, const Deviation& own) {
                  return own.place == 1 ? TileOperation::multiply : TileOperation::divide;
                },
            .operand = {.name = "tensor_scale{}_missing",
                        .words = "the scale of the tensor or row of {} is not applied, those of its blocks are",
                        .words_of_both = "the scales of both tensors or rows are not applied, those of blocks are",
                        .cost = 1.0028,
                        .is_searched = [](const OperandScales& own) { return own.numbers && own.codes; },
                        .reading = {.scales = ScaleReading::missing}},
            .plant = {.recipe = "te_nvfp4"}},
        Departure{.name = "scale_stale",
                  .words = "codes are made with one factor that does not follow from the tensor (a stale scale?)",
                  .cost = 1.5,
                  .is_searched = never,
                  .makes_sense = is_stored_number,
                  .details = tell_value,
                  .has_no_rule = true,
                  .used = [](TileScale& scale, const Recipe&, const Deviation& own) { scale.factor = own.value; },
                  .operation = [](TileOperation, const Deviation&) { return TileOperation::multiply; },
                  .plant = {.recipe = "te_current_scaling", .value = 61.5F}},
        Departure{.name = "scale_squared",
                  .words = "codes are made with the square of the scale",
                  .cost = 1.0508,
                  .makes_sense = uses_made_scales,
                  .used = [](TileScale& scale, const Recipe&, const Deviation&) { scale.factor *= scale.factor; }},
        Departure{.name = "scale_met_twice",
                  .words = "elements meet their scale twice",
                  .cost = 1.0512,
                  .makes_sense = uses_made_scales,
                  .meets_twice = true},
        Departure{.name = "scale_float16",
                  .words = "codes are made with the scale rounded to float16",
                  .cost = 1.0480,
                  .used = round_used<binary16>},
        Departure{.name = "scale_bfloat16",
                  .words = "codes are made with the scale rounded to bfloat16",
                  .cost = 1.0487,
                  .used = round_used<bfloat16>},
        Departure{.name = "scale_doubled",
                  .words = "codes are made with half of scale_inv",
                  .cost = 1.0494,
                  .used = [](TileScale& scale, const Recipe& recipe,
                             const Deviation&) { scale.factor *= divides(recipe.operation) ? 0.5F : 2.0F; }},
        Departure{.name = "scale_halved",
                  .words = "codes are made with twice scale_inv",
                  .cost = 1.0501,
                  .used = [](TileScale& scale, const Recipe& recipe,
                             const Deviation&) { scale.factor *= divides(recipe.operation) ? 2.0F : 0.5F; }},
    });

}  // namespace

std::span<const Departure> used_scale_departures() { return used_scale_table; }

namespace rows {
constinit const Departure& scale_as_stored = row_named(used_scale_table, "scale_as_stored");
constinit const Departure& tiles_as_stored = row_named(used_scale_table, "tiles_as_stored");
constinit const Departure& scale_stale = row_named(used_scale_table, "scale_stale");
constinit const Departure& tile_scales_given = row_named(used_scale_table, "tile_scales_given");
}  // namespace rows

}  // namespace fp8lab::doctor
