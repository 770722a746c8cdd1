// SPDX-License-Identifier: Apache-2.0
// What departures are called, and hypotheses in words.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "fp8lab/doctor/diagnose.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/text_stream.hpp"

namespace fp8lab::doctor {
namespace {

using enum Departure;

/// In the order of the enumerators.
constexpr std::array all_departures{
    Named{"input_float16", input_float16, "elements are rounded to float16 first"},
    Named{"input_bfloat16", input_bfloat16, "elements are rounded to bfloat16 first"},
    Named{"input_flushed", input_flushed, "subnormal float32 elements are taken as zeros"},
    Named{"elements_float16", elements_float16, "elements are rounded to float16 after their amax was taken"},
    Named{"elements_bfloat16", elements_bfloat16, "elements are rounded to bfloat16 after their amax was taken"},
    Named{"amax_float16", amax_float16, "the amax is that of the elements rounded to float16"},
    Named{"amax_bfloat16", amax_bfloat16, "the amax is that of the elements rounded to bfloat16"},
    Named{"amax_signed", amax_signed, "the largest element counts instead of the largest magnitude"},
    Named{"amax_misses_first", amax_misses_first, "the first element of each tile does not count in its amax"},
    Named{"amax_of_first_half", amax_of_first_half, "the first half of each tile alone counts in its amax"},
    Named{"amax_of_second_half", amax_of_second_half, "the second half of each tile alone counts in its amax"},
    Named{"amax_of_even_elements", amax_of_even_elements,
          "every second element of each tile counts in its amax, from the first on"},
    Named{"amax_of_odd_elements", amax_of_odd_elements,
          "every second element of each tile counts in its amax, from the second on"},
    Named{"amax_reads_next", amax_reads_next, "the first element of the next tile counts in the amax, too"},
    Named{"amax_of_moved_window", amax_of_moved_window, "the amax is that of a window moved by"},
    Named{"amax_of_first", amax_of_first, "the amax is that of the first"},
    Named{"amax_of_last", amax_of_last, "the amax is that of the last"},
    Named{"amax_of_first_elements", amax_of_first_elements, "the amax of the tensor is that of its first"},
    Named{"amax_times", amax_times, "the amax is multiplied by a number"},
    Named{"amax_plus", amax_plus, "a number is added to the amax"},
    Named{"amax_of_other_axis", amax_of_other_axis, "the amax is that of the other axis"},
    Named{"amax_misses_last", amax_misses_last, "the last element of each tile does not count in its amax"},
    Named{"tile_shape", tile_shape, "tiles are"},
    Named{"tile_starts_early", tile_starts_early, "tiles begin one element too early"},
    Named{"tile_starts_late", tile_starts_late, "tiles begin one element too late"},
    Named{"scale_of_next_tile", scale_of_next_tile, "elements meet the scale of the next tile along K"},
    Named{"scale_of_previous_tile", scale_of_previous_tile, "elements meet the scale of the previous tile along K"},
    Named{"scale_of_next_row", scale_of_next_row, "elements meet the scale of the tile in the next row"},
    Named{"scale_of_previous_row", scale_of_previous_row, "elements meet the scale of the tile in the previous row"},
    Named{"scale_row_stride", scale_row_stride, "elements meet scales that are read with a wrong row stride"},
    Named{"scale_of_first_row", scale_of_first_row, "all rows meet the scales of the first row"},
    Named{"scale_of_first_tile", scale_of_first_tile, "all tiles of a row meet the scale of its first tile"},
    Named{"scale_index_turned", scale_index_turned,
          "elements meet scales that are read column-major, as if those of the transpose were stored"},
    Named{"scale_inverted", scale_inverted, "elements meet the inverse of their scale"},
    Named{"scale_unrounded", scale_unrounded, "codes are made with the scale before it is rounded"},
    Named{"block_scale_truncated", block_scale_truncated, "the scales of blocks are truncated to E4M3"},
    Named{"block_scale_rounded_up", block_scale_rounded_up, "the scales of blocks are rounded up to E4M3"},
    Named{"scale_plus", scale_plus, "a number is added to the scale"},
    Named{"scale_times", scale_times,
          "scale_inv is multiplied by a number, where it is stored and where codes are made"},
    Named{"scale_nearest_power", scale_nearest_power, "scales are rounded to the nearest power of two, by their value"},
    Named{"scale_float16", scale_float16, "codes are made with the scale rounded to float16"},
    Named{"scale_bfloat16", scale_bfloat16, "codes are made with the scale rounded to bfloat16"},
    Named{"scale_doubled", scale_doubled, "codes are made with half of scale_inv"},
    Named{"scale_halved", scale_halved, "codes are made with twice scale_inv"},
    Named{"scale_missing", scale_missing, "elements are cast without their scale"},
    Named{"tensor_scale_missing", tensor_scale_missing,
          "codes are made with the scales of blocks, without the scale of the tensor"},
    Named{"scale_as_stored", scale_as_stored,
          "codes are made with the stored scales, and no rule that was searched makes these of the tensor (static, or "
          "stale?)"},
    Named{"tiles_as_stored", tiles_as_stored,
          "codes of some tiles are made with their stored scales, which do not follow from these tiles"},
    Named{"scale_stale", scale_stale,
          "codes are made with one factor that does not follow from the tensor (a stale scale?)"},
    Named{"tensor_scale_stale", tensor_scale_stale,
          "the scale of the tensor over those of tiles does not follow from the tensor (given, or stale?)"},
    Named{"tensor_scale_given", tensor_scale_given, "the scale of the tensor is the given one"},
    Named{"tile_scales_given", tile_scales_given, "the scales are given"},
    Named{"largest_of_e4m3fnuz", largest_of_e4m3fnuz, "the scale is made for a largest value of 240"},
    Named{"largest_of_e5m2", largest_of_e5m2, "the scale is made for a largest value of 57344"},
    Named{"largest_of_e4m3", largest_of_e4m3, "the scale is made for a largest value of 448"},
    Named{"largest_of_e2m1", largest_of_e2m1, "the scale is made for a largest value of 6"},
    Named{"largest_of_value", largest_of_value, "the scale is made for another largest value"},
    Named{"product_float16", product_float16, "scaled elements are rounded to float16 before they become codes"},
    Named{"product_bfloat16", product_bfloat16, "scaled elements are rounded to bfloat16 before they become codes"},
    Named{"overflow_wraps", overflow_wraps, "what is too large wraps around instead of saturating"},
    Named{"clamped_to_240", clamped_to_240, "scaled elements are clamped to 240"},
    Named{"subnormals_flushed", subnormals_flushed, "subnormal codes are flushed to zero"},
    Named{"product_flushed", product_flushed,
          "scaled elements below the least normal number become 0 before they are rounded"},
    Named{"negative_zero_lost", negative_zero_lost, "-0 becomes 0"},
    Named{"sign_lost", sign_lost, "the sign is lost"},
    Named{"sign_inverted", sign_inverted, "the sign is inverted"},
    Named{"negatives_zeroed", negatives_zeroed, "negative elements become 0"},
    Named{"nan_is_zero", nan_is_zero, "NaN becomes 0"},
    Named{"pairs_swapped", pairs_swapped, "the first code of a pair stands in the upper half of its byte"},
    Named{"pairs_of_halves", pairs_of_halves, "a byte pairs codes of the two halves of a row"},
    Named{"bytes_swapped_2", bytes_swapped_2, "bytes stand in reverse order in words of 2"},
    Named{"bytes_swapped_4", bytes_swapped_4, "bytes stand in reverse order in words of 4"},
    Named{"bytes_swapped_8", bytes_swapped_8, "bytes stand in reverse order in words of 8"},
    Named{"codes_transposed", codes_transposed, "codes are stored as those of the transpose"},
    Named{"codes_tiled_128x4", codes_tiled_128x4, "codes are stored in tiles of 128 rows x 4 bytes"},
    Named{"codes_tiled_8x16", codes_tiled_8x16,
          "codes are stored in core matrices of 8 rows x 16 bytes, one after the other along the rows"},
    Named{"codes_tiled_8x16_down", codes_tiled_8x16_down,
          "codes are stored in core matrices of 8 rows x 16 bytes, one after the other down the columns"},
    Named{"codes_swizzled_128", codes_swizzled_128, "codes are stored with the swizzle of 128 bytes"},
    Named{"codes_swizzled_64", codes_swizzled_64, "codes are stored with the swizzle of 64 bytes"},
    Named{"codes_swizzled_32", codes_swizzled_32, "codes are stored with the swizzle of 32 bytes"},
    Named{"columns_interleaved", columns_interleaved, "the columns of both halves are interleaved"},
    Named{"columns_deinterleaved", columns_deinterleaved, "even columns stand before odd ones"},
    Named{"rows_interleaved", rows_interleaved, "the rows of both halves are interleaved"},
    Named{"rows_deinterleaved", rows_deinterleaved, "even rows stand before odd ones"},
    Named{"codes_one_late", codes_one_late, "each code stands one place too late"},
    Named{"codes_one_early", codes_one_early, "each code stands one place too early"},
    Named{"columns_unwritten", columns_unwritten, "the last columns are not written"},
    Named{"rows_unwritten", rows_unwritten, "the last rows are not written"},
    Named{"end_unwritten", end_unwritten, "the last elements are not written"},
    Named{"block_unwritten", block_unwritten, "codes of a block are 0: was it not written?"},
    Named{"codes_unwritten", codes_unwritten, "all codes are 0: nothing was written?"},
    Named{"tile_of_left_neighbor", tile_of_left_neighbor, "one tile meets the scale of its left neighbor"},
    Named{"tile_of_right_neighbor", tile_of_right_neighbor, "one tile meets the scale of its right neighbor"},
    Named{"tile_of_upper_neighbor", tile_of_upper_neighbor, "one tile meets the scale of its upper neighbor"},
    Named{"tile_of_lower_neighbor", tile_of_lower_neighbor, "one tile meets the scale of its lower neighbor"},
    Named{"stored_inverted", stored_inverted, "the inverse of the scale is stored"},
    Named{"stored_quotient", stored_quotient, "the inverse of the scale is stored, computed as largest value / amax"},
    Named{"stored_transposed", stored_transposed, "scales are stored as those of the transpose"},
    Named{"stored_for_tma", stored_for_tma,
          "scales are stored column-major, each column padded to a multiple of 4 (aligned for TMA)"},
    Named{"stored_swizzled", stored_swizzled, "scales are stored swizzled, in tiles of 128 x 4"},
    Named{"stored_unrounded", stored_unrounded,
          "codes are made with the rounded scale, and the one before it was rounded is stored"},
    Named{"stored_rounded_down", stored_rounded_down,
          "scales are rounded down to a power of two after the codes were made"},
    Named{"stored_rounded_up", stored_rounded_up, "scales are rounded up to a power of two after the codes were made"},
    Named{"stored_rounded_nearest", stored_rounded_nearest,
          "scales are rounded to the nearest power of two after the codes were made"},
    Named{"stored_float16", stored_float16, "scales are rounded to float16 after the codes were made"},
    Named{"stored_bfloat16", stored_bfloat16, "scales are rounded to bfloat16 after the codes were made"},
    Named{"stored_doubled", stored_doubled, "twice scale_inv is stored"},
    Named{"stored_halved", stored_halved, "half of scale_inv is stored"},
    Named{"stored_one_late", stored_one_late, "each scale stands one place too late"},
    Named{"stored_one_early", stored_one_early, "each scale stands one place too early"},
    Named{"stored_of_previous_tile", stored_of_previous_tile,
          "the stored scale is that of the previous tile in each row"},
    Named{"stored_of_next_tile", stored_of_next_tile, "the stored scale is that of the next tile in each row"},
    Named{"stored_of_previous_row", stored_of_previous_row, "the stored scale is that of the tile in the previous row"},
    Named{"stored_of_next_row", stored_of_next_row, "the stored scale is that of the tile in the next row"},
    Named{"stored_amax", stored_amax, "the amax is stored instead of the scale"},
    Named{"stored_bytes_reversed", stored_bytes_reversed, "the bytes of each stored scale stand in reverse order"},
    Named{"stored_end_unwritten", stored_end_unwritten, "the last scales are not written"},
};

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < all_departures.size(); ++i) {
    if (static_cast<std::size_t>(all_departures[i].value) != i) return false;
  }
  return true;
}
static_assert(is_in_order());

/// Where the element at the end of a row belongs that moved tiles leave out.
void put_edge(TextStream& text, const Deviation& deviation) {
  const bool is_early = deviation.departure == tile_starts_early;
  switch (static_cast<TileEdge>(deviation.place)) {
    case TileEdge::usual: return;
    case TileEdge::other:
      text << (is_early ? ", and the last tile has the last element, too" : ", and the first element is a tile");
      return;
    case TileEdge::uncounted:
      text << (is_early ? ", and the last element of a row counts in no amax"
                        : ", and the first element of a row counts in no amax");
  }
}

/// How many elements count.
void put_part(TextStream& text, const Deviation& deviation, const Hypothesis& hypothesis) {
  text << ' ' << deviation.value;
  if (hypothesis.recipe.tile_along != 0) {
    text << " of " << hypothesis.recipe.tile_along << " elements";
    return;
  }
  text << (hypothesis.direction == Direction::columnwise ? " elements of each column" : " elements of each row");
  if (deviation.place != deviation.last)
    text << " (" << deviation.place << " to " << deviation.last << " make the same scales)";
}

/// How many elements of the tensor count in its amax.
void put_first(TextStream& text, const Deviation& deviation) {
  text << ' ' << static_cast<std::uint64_t>(deviation.value) << " elements";
  if (deviation.place != deviation.last)
    text << " (" << deviation.place << " to " << deviation.last << " make the same scale)";
}

/// What only this deviation knows.
void put_details(TextStream& text, const Deviation& deviation, const Hypothesis& hypothesis) {
  constexpr std::array with_element{end_unwritten, tile_of_left_neighbor, tile_of_right_neighbor,
                                    tile_of_upper_neighbor, tile_of_lower_neighbor};
  const Departure own = deviation.departure;
  if (own == tiles_as_stored) text << ": " << deviation.place << (deviation.place == 1 ? " scale" : " scales");
  if (own == scale_stale || own == amax_plus || own == scale_plus || own == largest_of_value || own == amax_times ||
      own == scale_times)
    text << ": " << deviation.value;
  if (own == tensor_scale_stale) text << (deviation.place == 1 ? ": its inverse is " : ": it is ") << deviation.value;
  if (own == tensor_scale_given) text << (deviation.place == 1 ? ": the inverse of " : ": ") << deviation.value;
  if (own == amax_of_moved_window) text << (deviation.value > 0 ? " +" : " ") << deviation.value;
  if (own == amax_of_first || own == amax_of_last) put_part(text, deviation, hypothesis);
  if (own == tile_shape) {
    const auto put = [&](std::uint64_t length, std::string_view all) { length == 0 ? text << all : text << length; };
    text << ' ';
    put(deviation.place, "all rows");
    text << " x ";
    put(deviation.last, "all columns");
  }
  if (own == amax_of_first_elements) put_first(text, deviation);
  if (own == scale_row_stride) text << ", of " << deviation.value << " scales";
  if (own == scale_of_next_tile && deviation.place == 1) text << ", behind a row that of the next row's first";
  if (own == scale_of_previous_tile && deviation.place == 1) text << ", before a row that of the previous row's last";
  if (own == tile_starts_early || own == tile_starts_late) put_edge(text, deviation);
  if (own == tensor_scale_missing && deviation.place == 1) text << ", by a product with the inverse";
  if (own == columns_unwritten) text << ", from column " << deviation.place << " on";
  if (own == block_unwritten) text << " From element " << deviation.place << " to element " << deviation.last;
  if (own == stored_end_unwritten) {
    text << ", from scale " << deviation.place << " on";
    if (deviation.last != 0) text << (deviation.last == 1 ? ", which are 0" : ", which are all the same");
  }
  if (own == rows_unwritten) text << ", from row " << deviation.place << " on";
  if (std::ranges::count(with_element, own) != 0) text << ", at element " << deviation.place;
}

}  // namespace

std::span<const Named<Departure>> departures() { return all_departures; }

std::string_view name_of(Departure departure) { return all_departures[static_cast<std::size_t>(departure)].name; }

std::string describe(const Hypothesis& hypothesis) {
  const DefaultEnvironment environment;
  TextStream text;
  text << hypothesis.base;
  if (hypothesis.direction == Direction::columnwise) text << ", columnwise";
  std::string_view separator = ", but ";
  for (const std::string& change : hypothesis.changes) {
    text << separator << change;
    separator = "; ";
  }
  // What such recipes make of columns is that of the transpose, without a departure.
  const bool is_of_transpose = hypothesis.direction == Direction::columnwise &&
                               (hypothesis.recipe.transposed_columnwise || hypothesis.recipe.format.bits() == 4);
  for (const Deviation& deviation : hypothesis.deviations) {
    std::string_view words = all_departures[static_cast<std::size_t>(deviation.departure)].words;
    if (is_of_transpose && deviation.departure == codes_transposed) words = "codes are not transposed";
    if (is_of_transpose && deviation.departure == stored_transposed) words = "scales are not transposed";
    // A given scale is no defect.
    const bool is_given = deviation.departure == tensor_scale_given || deviation.departure == tile_scales_given;
    text << (is_given && separator == ", but " ? ", and " : separator) << words;
    put_details(text, deviation, hypothesis);
    if (!is_given) separator = "; ";
  }
  return text.str();
}

}  // namespace fp8lab::doctor
