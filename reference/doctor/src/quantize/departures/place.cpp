// SPDX-License-Identifier: Apache-2.0
// Departures of the place: where codes are stored, and which are not written.
#include <algorithm>
#include <array>

#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "quantize/departures/shared.hpp"
#include "quantize/localize.hpp"
#include "quantize/named_rows.hpp"

namespace fp8lab::doctor {
namespace {

// Where they are stored.

/// The index of the first half that comes first, then that of the second half.
std::uint64_t interleaved(std::uint64_t i, std::uint64_t length) {
  const std::uint64_t half = length / 2;
  return i < half ? 2 * i : 2 * (i - half) + 1;
}
/// Even indices come first.
std::uint64_t deinterleaved(std::uint64_t i, std::uint64_t length) { return i % 2 * (length / 2) + i / 2; }

template <std::uint64_t (*order)(std::uint64_t, std::uint64_t)>
void order_rows(std::uint64_t& row, std::uint64_t& /*column*/, const CodeMatrix& matrix, const Deviation& /*own*/) {
  row = order(row, matrix.rows);
}
template <std::uint64_t (*order)(std::uint64_t, std::uint64_t)>
void order_columns(std::uint64_t& /*row*/, std::uint64_t& column, const CodeMatrix& matrix, const Deviation& /*own*/) {
  column = order(column, matrix.columns);
}

/// Rows `value` apart are exchanged: all of them, or where `last` is not 0 those from `place` to `last`.
void exchange_rows(std::uint64_t& row, std::uint64_t& /*column*/, const CodeMatrix& matrix, const Deviation& own) {
  const auto away = static_cast<std::uint64_t>(own.value);
  if (own.last == 0) {
    const std::uint64_t other = row ^ away;
    if (other < matrix.rows) row = other;
    return;
  }
  if (row < own.place || row > own.last) return;
  if (row + away <= own.last) {
    row += away;
  } else if (row >= own.place + away) {
    row -= away;
  }
}

std::vector<Deviation> usual_distances(const SearchCase& one) {
  std::vector<Deviation> all;
  for (std::size_t away = 1; 2 * away <= one.facts().rows && away <= 64; away *= 2) {
    all.push_back({.value = static_cast<float>(away)});
  }
  return all;
}

void tell_exchanged(TextStream& text, const Deviation& own, const Hypothesis& /*hypothesis*/) {
  text << ": i and i + " << own.value;
  if (own.last != 0) text << ", from row " << own.place << " to row " << own.last;
}

/// Rows that have each other's codes.
std::optional<Deviation> exchanged_rows(const LocalCase& one) {
  const std::size_t first = one.unexplained().first_row;
  const std::size_t last = one.unexplained().last_row;
  if (first == last) return std::nullopt;
  std::vector<std::size_t> distances{last - first};
  for (std::size_t away = 1; away <= 64; away *= 2) distances.push_back(away);
  for (const std::size_t away : distances) {
    const bool is_possible = first + away <= last && last - first + 1 <= 2 * away;
    if (!is_possible || !one.has_codes_of(first, first + away) || !one.has_codes_of(last, last - away)) continue;
    return Deviation{.place = first, .value = static_cast<float>(away), .last = last};
  }
  return std::nullopt;
}

/// The place of a code whose byte goes where f(byte) says.
template <typename F>
std::uint64_t move_byte(std::uint64_t place, const CodeMatrix& matrix, const F& f) {
  return f(place / matrix.per_byte) * matrix.per_byte + place % matrix.per_byte;
}

template <std::uint64_t mask>
std::uint64_t swap_bytes(std::uint64_t place, const CodeMatrix& matrix) {
  return move_byte(place, matrix, [](std::uint64_t byte) { return byte ^ mask; });
}

/// Bits of the address from 4 on are XORed with those three above, as TMA does.
template <std::uint64_t mask>
std::uint64_t swizzle_address(std::uint64_t place, const CodeMatrix& matrix) {
  return move_byte(place, matrix, [](std::uint64_t byte) { return byte ^ (byte >> 3 & mask); });
}

/// As scales for tensor cores of Blackwell.
std::uint64_t tile_128x4(std::uint64_t place, const CodeMatrix& matrix) {
  const std::uint64_t width = matrix.columns / matrix.per_byte;
  return move_byte(place, matrix,
                   [&](std::uint64_t byte) { return swizzled_place(byte / width, byte % width, width); });
}

/// In core matrices of 8 rows x 16 bytes, of which `step` lie between one and the next along a row and `step_down`
/// between one and the next down the rows.
std::uint64_t in_core_matrices(std::uint64_t byte, std::uint64_t width, std::uint64_t step, std::uint64_t step_down) {
  const std::uint64_t row = byte / width;
  const std::uint64_t column = byte % width;
  return (row / 8 * step_down + column / 16 * step) * 128 + row % 8 * 16 + column % 16;
}
std::uint64_t tile_8x16(std::uint64_t place, const CodeMatrix& matrix) {
  const std::uint64_t width = matrix.columns / matrix.per_byte;
  return move_byte(place, matrix, [&](std::uint64_t byte) { return in_core_matrices(byte, width, 1, width / 16); });
}
std::uint64_t tile_8x16_down(std::uint64_t place, const CodeMatrix& matrix) {
  const std::uint64_t width = matrix.columns / matrix.per_byte;
  return move_byte(place, matrix,
                   [&](std::uint64_t byte) { return in_core_matrices(byte, width, matrix.rows / 8, 1); });
}

template <std::size_t bytes>
bool has_words_of(const ModelCase& model, const Deviation& /*own*/) {
  const std::uint64_t per_byte = model.codes.per_byte;
  return (model.source.size() + per_byte - 1) / per_byte % bytes == 0;
}
template <std::size_t rows, std::size_t bytes>
bool has_blocks_of(const ModelCase& model, const Deviation& /*own*/) {
  const auto& [all_rows, columns, per_byte] = model.codes;
  return columns % per_byte == 0 && all_rows % rows == 0 && columns / per_byte % bytes == 0;
}
bool has_pairs(const ModelCase& model, const Deviation& /*own*/) {
  return model.recipe.format.bits() == 4 && model.source.columns() % 2 == 0;
}
bool is_of_pairs(const SearchCase& one) { return one.recipe().format.bits() == 4; }

// Which are not written.

/// `value` is what is there instead.
template <typename IsUnwritten>
void cover(const CodesOfPiece& piece, const Deviation& own, const IsUnwritten& is_unwritten) {
  for (std::size_t i = 0; i < piece.codes.size(); ++i) {
    if (is_unwritten(piece.column + i)) piece.codes[i] = static_cast<std::uint8_t>(own.value);
  }
}

void cover_block(const CodesOfPiece& piece, const Deviation& own) {
  const std::size_t columns = piece.columns;
  if (piece.row < own.place / columns || piece.row > own.last / columns) return;
  cover(piece, own, [&](std::size_t column) { return column >= own.place % columns && column <= own.last % columns; });
}

/// The first index such that all from there on are covered.
template <typename IsCovered>
std::uint64_t begin_of(std::uint64_t length, const IsCovered& is_covered) {
  while (length > 0 && is_covered(length - 1)) --length;
  return length;
}

/// Memory that was not written has one code to its end, from `begin` on or from what is unexplained on: what is written
/// there may be that code, too.
std::optional<Deviation> tail(const LocalCase& one, std::uint64_t begin, std::uint64_t first, std::uint64_t last) {
  const std::uint64_t place = std::max(begin, first);
  if (place == 0 || place > last) return std::nullopt;
  return Deviation{.place = place, .value = static_cast<float>(one.last_code())};
}

std::optional<Deviation> last_columns(const LocalCase& one) {
  const auto is_covered = [&](std::uint64_t column) { return one.has_last_code_in_column(column); };
  const Unexplained& unexplained = one.unexplained();
  return tail(one, begin_of(one.source().columns(), is_covered), unexplained.first_column, unexplained.last_column);
}

std::optional<Deviation> last_rows(const LocalCase& one) {
  const auto is_covered = [&](std::uint64_t row) { return one.has_last_code_in_row(row); };
  const Unexplained& unexplained = one.unexplained();
  return tail(one, begin_of(one.source().rows(), is_covered), unexplained.first_row, unexplained.last_row);
}

constexpr std::uint64_t fewest_unwritten = 8;  // one or two equal codes come by chance

std::optional<Deviation> last_elements(const LocalCase& one) {
  const std::uint64_t columns = one.source().columns();
  const auto is_covered = [&](std::uint64_t i) { return one.code(i / columns, i % columns) == one.last_code(); };
  const std::uint64_t begin = begin_of(one.source().size(), is_covered);
  if (begin + fewest_unwritten > one.source().size()) return std::nullopt;
  return tail(one, begin, one.unexplained().first, one.unexplained().last);
}

/// A block without a code but 0 between others.
std::optional<Deviation> empty_block(const LocalCase& one) {
  const Unexplained& unexplained = one.unexplained();
  const std::uint64_t columns = one.source().columns();
  const std::uint64_t begin = unexplained.first_row * columns + unexplained.first_column;
  const std::uint64_t end = unexplained.last_row * columns + unexplained.last_column;
  if (unexplained.count < fewest_unwritten || !one.is_empty(begin, end)) return std::nullopt;
  // What is 0 anyway, at the edges of tiles, belongs to it.
  const Amaxes& tiles = one.tiles();
  const std::size_t left = tiles.tile_column(unexplained.first_column);
  const std::uint64_t first_column = left == 0 ? 0 : tiles.end_of(left - 1);
  const std::uint64_t last_column = std::min(tiles.end_of(tiles.tile_column(unexplained.last_column)), columns) - 1;
  const std::uint64_t wide_begin = unexplained.first_row * columns + first_column;
  const std::uint64_t wide_end = unexplained.last_row * columns + last_column;
  const bool is_wide = one.is_empty(wide_begin, wide_end);
  return Deviation{.place = is_wide ? wide_begin : begin, .last = is_wide ? wide_end : end};
}

constexpr auto place_table = of_stage(
    KernelStage::place,
    std::array{
        // 1. Rows and columns.
        Departure{.name = "codes_transposed",
                  .words = "codes are stored as those of the transpose",
                  .words_of_transpose = "codes are not transposed",
                  .cost = 1.0711,
                  .transposes_codes = true},
        Departure{.name = "rows_interleaved",
                  .words = "the rows of both halves are interleaved",
                  .cost = 1.0774,
                  .makes_sense = has_blocks_of<2, 1>,
                  .index = order_rows<interleaved>},
        Departure{.name = "rows_deinterleaved",
                  .words = "even rows stand before odd ones",
                  .cost = 1.0781,
                  .makes_sense = has_blocks_of<2, 1>,
                  .index = order_rows<deinterleaved>},
        // Column i stands at 2 i, column i of the second half at 2 i + 1.
        Departure{.name = "columns_interleaved",
                  .words = "the columns of both halves are interleaved",
                  .cost = 1.0760,
                  .makes_sense = has_blocks_of<1, 2>,
                  .index = order_columns<interleaved>},
        // A byte has codes i and i + columns / 2 of a row.
        Departure{.name = "pairs_of_halves",
                  .words = "a byte pairs codes of the two halves of a row",
                  .cost = 1.0683,
                  .is_searched = is_of_pairs,
                  .makes_sense = has_pairs,
                  .index = order_columns<interleaved>,
                  .plant = {.recipe = "te_nvfp4"}},
        Departure{.name = "columns_deinterleaved",
                  .words = "even columns stand before odd ones",
                  .cost = 1.0767,
                  .makes_sense = has_blocks_of<1, 2>,
                  .index = order_columns<deinterleaved>},
        Departure{.name = "rows_exchanged",
                  .words = "rows are exchanged",
                  .cost = 1.0798,
                  .numbers = usual_distances,
                  .local = exchanged_rows,
                  .details = tell_exchanged,
                  .index = exchange_rows,
                  .plant = {.value = 8}},
        Departure{.name = "rows_and_scales_exchanged",
                  .words = "rows are exchanged with their scales",
                  .cost = 1.0802,
                  .is_searched = [](const SearchCase& one) { return one.recipe().tile_across == 1; },
                  .numbers = usual_distances,
                  .details = tell_exchanged,
                  .index = exchange_rows,
                  .stored_of = [](TileIndex tile, TileIndex last, const Deviation& own) -> StoredTiles {
                    const std::size_t other = tile.row ^ static_cast<std::size_t>(own.value);
                    const TileIndex stored{other <= last.row ? other : tile.row, tile.column};
                    return {stored, stored};
                  },
                  .plant = {.value = 8}},
        // 2. Bytes.
        Departure{.name = "codes_tiled_128x4",
                  .words = "codes are stored in tiles of 128 rows x 4 bytes",
                  .cost = 1.0718,
                  .makes_sense = has_blocks_of<128, 4>,
                  .place = tile_128x4},
        Departure{.name = "codes_tiled_8x16",
                  .words = "codes are stored in core matrices of 8 rows x 16 bytes, one after the other along the rows",
                  .cost = 1.0725,
                  .makes_sense = has_blocks_of<8, 16>,
                  .place = tile_8x16},
        Departure{
            .name = "codes_tiled_8x16_down",
            .words = "codes are stored in core matrices of 8 rows x 16 bytes, one after the other down the columns",
            .cost = 1.0732,
            .makes_sense = has_blocks_of<8, 16>,
            .place = tile_8x16_down},
        Departure{.name = "codes_swizzled_128",
                  .words = "codes are stored with the swizzle of 128 bytes",
                  .cost = 1.0739,
                  .makes_sense = has_words_of<1024>,
                  .place = swizzle_address<0x70>},
        Departure{.name = "codes_swizzled_64",
                  .words = "codes are stored with the swizzle of 64 bytes",
                  .cost = 1.0746,
                  .makes_sense = has_words_of<512>,
                  .place = swizzle_address<0x30>},
        Departure{.name = "codes_swizzled_32",
                  .words = "codes are stored with the swizzle of 32 bytes",
                  .cost = 1.0753,
                  .makes_sense = has_words_of<256>,
                  .place = swizzle_address<0x10>},
        Departure{.name = "bytes_swapped_2",
                  .words = "bytes stand in reverse order in words of 2",
                  .cost = 1.0690,
                  .makes_sense = has_words_of<2>,
                  .place = swap_bytes<1>},
        Departure{.name = "bytes_swapped_4",
                  .words = "bytes stand in reverse order in words of 4",
                  .cost = 1.0697,
                  .makes_sense = has_words_of<4>,
                  .place = swap_bytes<3>},
        Departure{.name = "bytes_swapped_8",
                  .words = "bytes stand in reverse order in words of 8",
                  .cost = 1.0704,
                  .makes_sense = has_words_of<8>,
                  .place = swap_bytes<7>},
        // 3. Codes.
        Departure{.name = "pairs_swapped",
                  .words = "the first code of a pair stands in the upper half of its byte",
                  .cost = 1.0676,
                  .is_searched = is_of_pairs,
                  .makes_sense = has_pairs,
                  .place = [](std::uint64_t place, const CodeMatrix&) { return place ^ 1; },
                  .plant = {.recipe = "te_nvfp4"}},
        Departure{.name = "codes_one_late",
                  .words = "each code stands one place too late",
                  .cost = 1.0788,
                  .place = [](std::uint64_t place, const CodeMatrix&) { return place + 1; }},
        // Before the first: behind the last.
        Departure{.name = "codes_one_early",
                  .words = "each code stands one place too early",
                  .cost = 1.0795,
                  .place = [](std::uint64_t place, const CodeMatrix&) { return place - 1; }},
        // 4. What is not written: columns, rows, elements from `place` on, or the block from `place` to `last`.
        Departure{.name = "columns_unwritten",
                  .words = "the last columns are not written",
                  .cost = 1.2,
                  .is_searched = never,
                  .local = last_columns,
                  .details = [](TextStream& text, const Deviation& own,
                                const Hypothesis&) { text << ", from column " << own.place << " on"; },
                  .code =
                      [](const CodesOfPiece& piece, const Deviation& own) {
                        cover(piece, own, [&](std::size_t column) { return column >= own.place; });
                      },
                  .plant = {.place = 250}},
        Departure{.name = "rows_unwritten",
                  .words = "the last rows are not written",
                  .cost = 1.21,
                  .is_searched = never,
                  .local = last_rows,
                  .details = [](TextStream& text, const Deviation& own,
                                const Hypothesis&) { text << ", from row " << own.place << " on"; },
                  .code =
                      [](const CodesOfPiece& piece, const Deviation& own) {
                        cover(piece, own, [&](std::size_t) { return piece.row >= own.place; });
                      },
                  .plant = {.place = 250}},
        Departure{
            .name = "block_unwritten",
            .words = "codes of a block are 0: was it not written?",
            .cost = 1.23,
            .is_searched = never,
            .local = empty_block,
            .details = [](TextStream& text, const Deviation& own,
                          const Hypothesis&) { text << " From element " << own.place << " to element " << own.last; },
            .code = cover_block,
            .plant = {.place = 16 * 256 + 128, .last = 31 * 256 + 255}},
        Departure{.name = "end_unwritten",
                  .words = "the last elements are not written",
                  .cost = 1.22,
                  .is_searched = never,
                  .local = last_elements,
                  .details = tell_element,
                  .code =
                      [](const CodesOfPiece& piece, const Deviation& own) {
                        const std::size_t first = piece.row * piece.columns;
                        cover(piece, own, [&](std::size_t column) { return first + column >= own.place; });
                      },
                  .plant = {.place = 255 * 256 + 100}},
        Departure{.name = "codes_unwritten",
                  .words = "all codes are 0: nothing was written?",
                  .cost = 1,
                  .is_searched = never,
                  .code = [](const CodesOfPiece& piece,
                             const Deviation&) { std::ranges::fill(piece.codes, std::uint8_t{0}); }},
    });

}  // namespace

std::span<const Departure> place_departures() { return place_table; }

namespace rows {
constinit const Departure& codes_unwritten = row_named(place_table, "codes_unwritten");
}  // namespace rows

}  // namespace fp8lab::doctor
