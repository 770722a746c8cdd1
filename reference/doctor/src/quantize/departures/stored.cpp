// SPDX-License-Identifier: Apache-2.0
// Departures of the stored scale: what is stored of it, and where.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "quantize/departures/shared.hpp"

namespace fp8lab::doctor {
namespace {

// Each function below changes the scale that is stored.

float amax_instead(float /*value*/, const StoredRule& rule) { return rule.amax; }

float before_rounding(float /*value*/, const StoredRule& rule) {
  return tile_scale(unrounded(rule.recipe), rule.amax, rule.facts).scale_inv;
}

/// The scale, largest / amax, of which what should be stored is not the inverse.
float quotient_instead(float /*value*/, const StoredRule& rule) {
  Recipe inverse = rule.recipe;
  inverse.quotient = Quotient::largest_over_amax;
  inverse.operation = TileOperation::multiply;
  return tile_scale(inverse, rule.amax, rule.facts).factor;
}

template <std::uint32_t added>
float power_of_two(float value, const StoredRule& /*rule*/) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(value) + added) & 0x7F800000U);
}

template <const Format& format>
float round_stored(float value, const StoredRule& /*rule*/) {
  return rounded_to(format, value);  // NOLINT(readability-redundant-parentheses): there are none
}

bool stores_what_it_makes(const ModelCase& model) { return !has_tensor_scale(model.recipe) && !is_given(model.recipe); }
bool stores_floats(const SearchCase& one) { return one.facts().scales != 0 && !one.facts().scales_are_bytes; }

std::uint32_t reverse_bytes(std::uint32_t word, const Format& type) {
  if (type.bits() == 32) return __builtin_bswap32(word);
  if (type.bits() == 16) return __builtin_bswap16(static_cast<std::uint16_t>(word));
  return word;
}

// Where it is stored.

bool stores_several(const SearchCase& one) { return one.facts().scales > 1; }  // a single scale has no other place
bool stores_tiles(const SearchCase& one) { return one.has_tiles() && one.facts().scales > 1; }
bool has_tiles_beside(const ModelCase& model, const Deviation& /*own*/) { return model.tiles.tiles_across > 1; }
bool has_tiles_below(const ModelCase& model, const Deviation& /*own*/) { return model.tiles.tiles_down > 1; }

// At the edge a kernel either stays in the tensor or wraps around.
StoredTiles previous_tile(TileIndex tile, TileIndex last, const Deviation& /*own*/) {
  const auto [row, column] = tile;
  if (column > 0) return {{row, column - 1}, {row, column - 1}};
  return {{row, 0}, {row, last.column}};
}
StoredTiles next_tile(TileIndex tile, TileIndex last, const Deviation& /*own*/) {
  const auto [row, column] = tile;
  if (column < last.column) return {{row, column + 1}, {row, column + 1}};
  return {{row, column}, {row, 0}};
}
StoredTiles previous_row(TileIndex tile, TileIndex last, const Deviation& /*own*/) {
  const auto [row, column] = tile;
  if (row > 0) return {{row - 1, column}, {row - 1, column}};
  return {{0, column}, {last.row, column}};
}
StoredTiles next_row(TileIndex tile, TileIndex last, const Deviation& /*own*/) {
  const auto [row, column] = tile;
  if (row < last.row) return {{row + 1, column}, {row + 1, column}};
  return {{row, column}, {0, column}};
}

// One scale of several is stored: that with number `place`, of `value` in a row, or where `last` is 1 in a column.

std::vector<Deviation> usual_steps(const SearchCase& one) {
  const std::size_t tiles = one.tiles_down() * one.tiles_across();
  const std::size_t scales = one.facts().scales;
  std::vector<Deviation> all;
  if (scales == 0 || tiles % scales != 0 || tiles / scales < 2 || tiles / scales > 128) return all;
  const std::uint64_t step = tiles / scales;
  for (const std::uint64_t is_down : {0, 1}) {
    if ((is_down == 1 ? one.tiles_down() : one.tiles_across()) % step != 0) continue;
    for (const std::uint64_t kept : {std::uint64_t{0}, step - 1}) {
      all.push_back({.place = kept, .value = static_cast<float>(step), .last = is_down});
    }
  }
  return all;
}

void keep_some(StoredScaleLayout& layout, const Deviation& own) {
  const auto step = static_cast<std::size_t>(own.value);
  if ((own.last == 1 ? layout.rows_of_tiles : layout.columns) % step != 0) return;
  (own.last == 1 ? layout.step_down : layout.step_across) = step;
  (own.last == 1 ? layout.kept_down : layout.kept_across) = own.place;
}

void tell_step(TextStream& text, const Deviation& own, const Hypothesis& /*hypothesis*/) {
  text << ' ' << own.value << (own.last == 1 ? " tiles below each other" : " tiles of a row");
  text << " that of " << (own.place == 0 ? "the first" : "the last") << " is stored";
}

// The stored scale is that of a tile further above or below.

/// Whether all stored scales are those of the tiles that the deviation says.
bool are_of_other_rows(const KernelModel& model, const Deviation& own) {
  const Amaxes& tiles = model.tiles();
  for (std::size_t row = 0; row < tiles.tiles_down; ++row) {
    const std::size_t other = other_row(row, tiles.tiles_down, own);
    for (std::size_t column = 0; column < tiles.tiles_across; ++column) {
      const auto word = model.word_there(row * tiles.across, column);
      if (!word || !model.stores(model.amax_at(other * tiles.across, column), *word)) return false;
    }
  }
  return true;
}

/// Whether a few stored scales are those of the tiles that the deviation says, or of their own above a row that it may
/// begin at.
bool may_be_of_other_rows(const KernelModel& model, const Deviation& own) {
  constexpr std::size_t few = 64;
  const Amaxes& tiles = model.tiles();
  const bool may_begin = static_cast<OtherRow>(own.last) == OtherRow::above;
  const std::size_t count = tiles.tiles_down * tiles.tiles_across;
  for (std::size_t tile = 0; tile < count; tile += (count + few - 1) / few) {
    const std::size_t row = tile / tiles.tiles_across;
    const std::size_t column = tile % tiles.tiles_across;
    const auto word = model.word_there(row * tiles.across, column);
    const auto is_of = [&](std::size_t there) {
      return word && model.stores(model.amax_at(there * tiles.across, column), *word);
    };
    if (!is_of(other_row(row, tiles.tiles_down, own)) && !(may_begin && is_of(row))) return false;
  }
  return true;
}

std::optional<Deviation> of_other_rows(const KernelModel& model, const StoredDump& /*dump*/) {
  const Amaxes& tiles = model.tiles();
  if (tiles.tiles_down < 4 || model.layout().rows != tiles.tiles_down) return std::nullopt;
  std::vector<Deviation> likely = other_rows(tiles.tiles_down);
  std::erase_if(likely, [&](const Deviation& one) { return !may_be_of_other_rows(model, one); });
  if (likely.empty()) return std::nullopt;
  model.complete();
  const std::optional<std::size_t> first = model.first_row_of_wrong_scales();
  if (!first) return std::nullopt;
  for (Deviation& one : likely) {
    if (are_of_other_rows(model, one)) return one;
    if (static_cast<OtherRow>(one.last) != OtherRow::above || static_cast<float>(*first) <= one.value) continue;
    one.place = *first;
    if (are_of_other_rows(model, one)) return one;
  }
  return std::nullopt;
}

// Which are not written.

/// What a place of the stored scales has.
enum class ScaleState : std::uint8_t { padding, as_predicted, other };

/// The stored scales from the first that is not as predicted to the last one.
struct ScaleTail {
  std::size_t begin = 0;
  std::uint64_t before = 0;                    // scales
  std::uint64_t as_predicted = 0, others = 0;  // from there on
  std::optional<std::uint32_t> word = {};      // of all of them
};

ScaleTail tail_of_scales(const std::vector<ScaleState>& places, const std::vector<std::uint32_t>& words) {
  ScaleTail tail;
  const auto first = std::ranges::find(places, ScaleState::other);
  tail.begin = static_cast<std::size_t>(first - places.begin());
  tail.before = static_cast<std::uint64_t>(std::count(places.begin(), first, ScaleState::as_predicted));
  tail.as_predicted = static_cast<std::uint64_t>(std::count(first, places.end(), ScaleState::as_predicted));
  tail.others = static_cast<std::uint64_t>(std::count(first, places.end(), ScaleState::other));
  if (first == places.end()) return tail;
  tail.word = words[tail.begin];
  for (std::size_t i = tail.begin; i < places.size(); ++i) {
    if (places[i] != ScaleState::padding && words[i] != *tail.word) tail.word.reset();
    if (!tail.word) break;
  }
  return tail;
}

/// Whether memory that was not written looks like that: zeros, one word, or numbers that have nothing to do with the
/// predicted ones, of which few are right by chance.
bool is_unwritten(const ScaleTail& tail, const KernelModel& model) {
  constexpr std::uint64_t many = 8;
  constexpr std::uint32_t few_ulps = 64;
  const std::uint64_t count = tail.as_predicted + tail.others;
  if (tail.others == 0 || tail.before == 0 || tail.before * 8 < count) return false;
  if (tail.word) return *tail.word == 0 || count >= many;
  if (tail.others < many || tail.as_predicted * 16 > count) return false;
  const ScaleGrid grid = model.scale_grid();
  return grid.lowest_ratio != grid.highest_ratio && grid.most_ulps > few_ulps;
}

/// The scales from the first that is not as predicted on, where they look as memory does that was not written. `last`
/// says what stands there.
std::optional<Deviation> unwritten_tail(const KernelModel& model, const StoredDump& dump) {
  constexpr std::size_t many_scales = std::size_t{1} << 16;
  // The last scale is looked at first where there are very many.
  if (dump.scales.size() > many_scales && model.has_last_scale()) return std::nullopt;
  if (!model.has_first_scale()) return std::nullopt;  // then none was written
  model.complete();
  std::vector<ScaleState> places(dump.scales.size(), ScaleState::padding);
  model.for_each_scale([&](std::size_t place, bool is_as_predicted) {
    places[place] = is_as_predicted ? ScaleState::as_predicted : ScaleState::other;
  });
  const ScaleTail tail = tail_of_scales(places, dump.scales);
  if (!is_unwritten(tail, model)) return std::nullopt;
  std::uint64_t kind = 0;
  if (tail.word) kind = *tail.word == 0 ? 1 : 2;
  return Deviation{.place = tail.begin, .last = kind};
}

/// What stands there is told where it is one word: 1 where that is 0, 2 where it is another.
void tell_scale_tail(TextStream& text, const Deviation& own, const Hypothesis& /*hypothesis*/) {
  text << ", from scale " << own.place << " on";
  if (own.last != 0) text << (own.last == 1 ? ", which are 0" : ", which are all the same");
}

constexpr auto stored_table = of_stage(
    KernelStage::stored,
    std::array{
        // 1. What is stored.
        Departure{.name = "stored_amax",
                  .words = "the amax is stored instead of the scale",
                  .cost = 1.0998,
                  .stored = amax_instead},
        Departure{.name = "stored_unrounded",
                  .words = "codes are made with the rounded scale, and the one before it was rounded is stored",
                  .cost = 1.0900,
                  .is_searched = stores_floats,
                  .makes_sense =
                      [](const ModelCase& model, const Deviation&) {
                        const bool is_rounded = model.recipe.scale_type != ScaleType::float32 ||
                                                model.recipe.rounding != ScaleRounding::none;
                        return stores_what_it_makes(model) && is_rounded && model.used_rule == model.stored_rule;
                      },
                  .stored = before_rounding,
                  .plant = {.recipe = "vllm_group_ue8m0"}},
        Departure{.name = "stored_quotient",
                  .words = "the inverse of the scale is stored, computed as largest value / amax",
                  .cost = 1.0872,
                  .makes_sense =
                      [](const ModelCase& model, const Deviation&) {
                        return stores_what_it_makes(model) && model.recipe.scale_type == ScaleType::float32;
                      },
                  .stored = quotient_instead},
        Departure{.name = "stored_inverted",
                  .words = "the inverse of the scale is stored",
                  .cost = 1.0865,
                  .stores_inverse = true,
                  .stored = [](float value, const StoredRule&) { return 1 / value; }},
        Departure{.name = "stored_doubled",
                  .words = "twice scale_inv is stored",
                  .cost = 1.0942,
                  .stored = [](float value, const StoredRule&) { return value * 2; }},
        Departure{.name = "stored_squared",
                  .words = "the square of scale_inv is stored",
                  .cost = 1.0956,
                  .stored = [](float value, const StoredRule&) { return value * value; }},
        Departure{.name = "stored_halved",
                  .words = "half of scale_inv is stored",
                  .cost = 1.0949,
                  .stored = [](float value, const StoredRule&) { return value / 2; },
                  .operand = {.name = "scales{}_halved",
                              .words = "the exponents of the scales of {} are one too low",
                              .words_of_both = "the exponents of all scales are one too low",
                              .cost = 1.0066,
                              .is_searched = [](const OperandScales& own) { return own.tiles || own.powers; },
                              .reading = {.word = ScaleWord::halved}}},
        Departure{.name = "stored_rounded_down",
                  .words = "scales are rounded down to a power of two after the codes were made",
                  .cost = 1.0907,
                  .stored = power_of_two<0>,
                  .operand = {.name = "scales{}_without_mantissa",
                              .words = "the scales of {} are read as powers of two, without their mantissa",
                              .words_of_both = "scales are read as powers of two, without their mantissa",
                              .cost = 1.0064,
                              .is_searched = [](const OperandScales& own) { return own.tiles || own.codes; },
                              .reading = {.word = ScaleWord::without_mantissa}}},
        Departure{.name = "stored_rounded_up",
                  .words = "scales are rounded up to a power of two after the codes were made",
                  .cost = 1.0914,
                  .stored = power_of_two<0x7FFFFFU>},
        Departure{.name = "stored_rounded_nearest",
                  .words = "scales are rounded to the nearest power of two after the codes were made",
                  .cost = 1.0921,
                  .stored = power_of_two<0x400000U>},
        Departure{.name = "stored_float16",
                  .words = "scales are rounded to float16 after the codes were made",
                  .cost = 1.0928,
                  .stored = round_stored<binary16>},
        Departure{.name = "stored_bfloat16",
                  .words = "scales are rounded to bfloat16 after the codes were made",
                  .cost = 1.0935,
                  .stored = round_stored<bfloat16>},
        Departure{.name = "stored_bytes_reversed",
                  .words = "the bytes of each stored scale stand in reverse order",
                  .cost = 1.1005,
                  .word = reverse_bytes},
        // 2. Where it is stored.
        Departure{
            .name = "stored_transposed",
            .words = "scales are stored as those of the transpose",
            .words_of_transpose = "scales are not transposed",
            .cost = 1.0879,
            .layout = [](StoredScaleLayout& layout, const Deviation&) { layout.is_transposed = !layout.is_transposed; },
            .operand = {.name = "scales{}_stored_turned",
                        .words = "the scales of {} are stored column-major and read row-major",
                        .words_of_both = "both operands' scales are stored column-major and read row-major",
                        .cost = 1.0073,
                        .is_searched = [](const OperandScales& own) { return own.tiles || own.codes; },
                        .reading = {.place = ScalePlace::stored_turned}}},
        // As DeepGEMM does: those of the transpose, each row of it padded.
        Departure{
            .name = "stored_for_tma",
            .words = "scales are stored column-major, each column padded to a multiple of 4 (aligned for TMA)",
            .cost = 1.0886,
            .is_searched = [](const SearchCase& one) { return one.facts().scales > 0 && one.facts().scales % 4 == 0; },
            .layout = [](StoredScaleLayout& layout,
                         const Deviation&) { layout.is_transposed = layout.is_for_tma = true; },
            .plant = {.rows = 250}},
        Departure{.name = "stored_swizzled",
                  .words = "scales are stored swizzled, in tiles of 128 x 4",
                  .cost = 1.0893,
                  .layout = [](StoredScaleLayout& layout, const Deviation&) { layout.is_swizzled = true; },
                  .operand = {.name = "scale_layout{}",
                              .words = "the block scales of {} are read in the other layout, swizzled or compact",
                              .cost = 1.0032,
                              .is_searched = [](const OperandScales& own) { return own.other_layout; },
                              .reading = {.blocks = BlockReading::other_layout}}},
        Departure{.name = "stored_one_late",
                  .words = "each scale stands one place too late",
                  .cost = 1.0956,
                  .is_searched = stores_several,
                  .layout = [](StoredScaleLayout& layout, const Deviation&) { ++layout.late; }},
        Departure{.name = "stored_one_early",
                  .words = "each scale stands one place too early",
                  .cost = 1.0963,
                  .is_searched = stores_several,
                  .layout = [](StoredScaleLayout& layout, const Deviation&) { --layout.late; }},
        Departure{.name = "stored_of_previous_tile",
                  .words = "the stored scale is that of the previous tile in each row",
                  .cost = 1.0970,
                  .is_searched = stores_tiles,
                  .makes_sense = has_tiles_beside,
                  .stored_of = previous_tile},
        Departure{.name = "stored_of_next_tile",
                  .words = "the stored scale is that of the next tile in each row",
                  .cost = 1.0977,
                  .is_searched = stores_tiles,
                  .makes_sense = has_tiles_beside,
                  .stored_of = next_tile,
                  .operand = {.name = "scale{}_of_next_tile",
                              .words = "the scale of {} is that of the next tile along K, or block",
                              .words_of_both = "both scales are those of the next tile along K, or block",
                              .cost = 1.0027,
                              .is_searched = [](const OperandScales& own) { return own.tiles || own.codes; },
                              .reading = {.place = ScalePlace::next}}},
        Departure{.name = "stored_of_previous_row",
                  .words = "the stored scale is that of the tile in the previous row",
                  .cost = 1.0984,
                  .is_searched = stores_several,
                  .makes_sense = has_tiles_below,
                  .stored_of = previous_row,
                  .operand = {.name = "scale{}_of_previous_row",
                              .words = "the scale of {} is that of the row before",
                              .words_of_both = "both scales are those of the row before",
                              .cost = 1.0068,
                              .is_searched = [](const OperandScales& own) { return own.tiles || own.codes; },
                              .reading = {.place = ScalePlace::previous_row}}},
        Departure{.name = "stored_of_next_row",
                  .words = "the stored scale is that of the tile in the next row",
                  .cost = 1.0991,
                  .is_searched = stores_several,
                  .makes_sense = has_tiles_below,
                  .stored_of = next_row,
                  .operand = {.name = "scale{}_of_next_row",
                              .words = "the scale of {} is that of the row after",
                              .words_of_both = "both scales are those of the row after",
                              .cost = 1.0069,
                              .is_searched = [](const OperandScales& own) { return own.tiles || own.codes; },
                              .reading = {.place = ScalePlace::next_row}}},
        // The number that `other_row` takes.
        Departure{.name = "stored_of_other_row",
                  .words = "the stored scale is that of a tile in another row",
                  .cost = 1.1012,
                  .is_searched = never,
                  .by_wrong_scales = of_other_rows,
                  .makes_sense = has_tiles_below,
                  .details = tell_other_row,
                  .stored_of = [](TileIndex tile, TileIndex last, const Deviation& own) -> StoredTiles {
                    const TileIndex other{other_row(tile.row, last.row + 1, own), tile.column};
                    return {other, other};
                  },
                  .plant = {.value = 64}},
        Departure{.name = "tile_of_other_row",
                  .words = "elements meet, and there is stored, the scale of a tile in another row",
                  .cost = 1.1019,
                  .is_searched = never,
                  .by_wrong_scales = of_other_rows,
                  .makes_sense = has_tiles_below,
                  .details = tell_other_row,
                  .read =
                      [](TileIndex tile, const Amaxes& tiles, const Deviation& own) {
                        return TileIndex{other_row(tile.row, tiles.tiles_down, own), tile.column};
                      },
                  .stored_of = [](TileIndex tile, TileIndex last, const Deviation& own) -> StoredTiles {
                    const TileIndex other{other_row(tile.row, last.row + 1, own), tile.column};
                    return {other, other};
                  },
                  .plant = {.value = 64}},
        Departure{.name = "stored_of_some",
                  .words = "not all scales are stored: of",
                  .cost = 1.1026,
                  .is_searched = [](const SearchCase& one) { return one.facts().scales != 0; },
                  .numbers = usual_steps,
                  .details = tell_step,
                  .layout = keep_some,
                  .plant = {.value = 2}},
        Departure{.name = "stored_end_unwritten",
                  .words = "the last scales are not written",
                  .cost = 1.24,
                  .is_searched = never,
                  .by_wrong_scales = unwritten_tail,
                  .details = tell_scale_tail,
                  .is_unwritten = [](std::size_t place, const Deviation& own) { return place >= own.place; },
                  .plant = {.place = 500}},
    });

}  // namespace

std::span<const Departure> stored_departures() { return stored_table; }

}  // namespace fp8lab::doctor
