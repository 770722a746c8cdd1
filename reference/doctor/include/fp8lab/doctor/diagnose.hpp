// SPDX-License-Identifier: Apache-2.0
// What a foreign kernel did: the recipe and the departures from it that explain its codes and scales.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"

namespace fp8lab::doctor {

/// The scales that a kernel has stored, in whatever order.
struct DumpedScales {
  /// Values: binary32, binary16 or bfloat16. Bytes: e8m0 or ue4m3; left out, whichever of these a recipe stores.
  std::optional<Format> format = {};
  std::span<const std::byte> bytes = {};  ///< little-endian; empty: no scales are known
  std::optional<float> of_tensor = {};    ///< the scale of the tensor over those of tiles, or its inverse
};

/// What a kernel has made of a tensor.
struct Dump {
  std::span<const std::uint8_t> codes;  ///< a byte for each element, or half as many: two codes of 4 bits in each
  std::optional<Format> format = {};    ///< of codes; left out: any
  DumpedScales scales = {};
};

/// Which tile has the element at the end of a row that moved tiles leave out: the last one where they begin early, the
/// first one where they begin late.
enum class TileEdge : std::uint8_t {
  usual,     ///< early: the element is a tile of its own; late: the first tile has it, too
  other,     ///< the other of these two
  uncounted  ///< the nearest tile has it, and its amax does not count it
};

/// What a kernel does that no recipe says. Each is one change of the input, the amax, the scale, the product, the code,
/// or of where codes and scales are stored.
enum class Departure : std::uint8_t {
  input_float16,           ///< elements are rounded to float16 first
  input_bfloat16,          ///< elements are rounded to bfloat16 first
  input_flushed,           ///< subnormal float32 elements are taken as zeros
  elements_float16,        ///< the same roundings, but the amax is that of the elements before
  elements_bfloat16,       ///
  amax_float16,            ///< the amax alone is that of the rounded elements
  amax_bfloat16,           ///
  amax_signed,             ///< the largest element counts, not the largest magnitude
  amax_misses_first,       ///< the first element of each tile does not count
  amax_of_first_half,      ///< the first half of each tile alone counts
  amax_of_second_half,     ///< the second half
  amax_of_even_elements,   ///< the first, third, ... element of each tile
  amax_of_odd_elements,    ///< the second, fourth, ...
  amax_reads_next,         ///< the first element of the next tile counts, too
  amax_of_moved_window,    ///< the elements that count lie `value` places behind those of the tile, within the row
  amax_of_first,           ///< the first `value` elements of each tile count; of a row, `place` to `last` do the same
  amax_of_last,            ///< the last `value` elements
  amax_of_first_elements,  ///< the first `value` elements of the tensor count; `place` to `last` do the same
  amax_times,              ///< the amax is multiplied by `value`
  amax_plus,               ///< `value` is added to the amax
  amax_of_other_axis,      ///< the amax is that of the tile in the same place of the transpose
  amax_misses_last,        ///< the last element of each tile does not count
  tile_shape,              ///< tiles have `place` rows and `last` columns, which no recipe's have; 0: all
  tile_starts_early,       ///< tiles begin one element before they should; `place` is a TileEdge
  tile_starts_late,        ///< tiles begin one element after they should; `place` is a TileEdge
  scale_of_next_tile,      ///< elements meet the scale of the next tile along K; the last one of a row its own or,
                           ///< where `place` is 1, the first of the next row
  scale_of_previous_tile,  ///< of the previous one; the first its own or the last of the previous row
  scale_of_next_row,       ///< of the tile in the next row of tiles
  scale_of_previous_row,   ///< of the one in the previous row
  scale_row_stride,        ///< tile c of row r meets the scale in place r * `value` + c, where there is one
  scale_of_first_row,      ///< elements of all rows meet the scales of the first row of tiles
  scale_of_first_tile,     ///< elements of a row meet the scale of its first tile
  scale_index_turned,      ///< tile c of row r meets the scale in place c * (rows of tiles) + r
  scale_inverted,          ///< elements are multiplied where they should be divided, or the other way round
  scale_unrounded,         ///< codes are made before the scale is rounded and stored
  block_scale_truncated,   ///< the E4M3 scale of a tile under a tensor's is rounded toward zero
  block_scale_rounded_up,  ///< away from zero
  scale_plus,              ///< `value` is added to scale_inv before it is rounded
  scale_times,             ///< scale_inv is multiplied by `value`, where it is stored and where codes are made
  scale_nearest_power,     ///< scale_inv is rounded to the nearest power of two: from 1.5 times one on to the next
  scale_float16,           ///< codes are made with the scale rounded to float16
  scale_bfloat16,          ///< codes are made with the scale rounded to bfloat16
  scale_doubled,           ///< codes are made with twice the scale
  scale_halved,            ///< codes are made with half the scale
  scale_missing,           ///< elements are cast without a scale
  tensor_scale_missing,    ///< codes are made with the scales of tiles alone: divided by them or, where `place` is 1,
                           ///< multiplied with their inverses
  scale_as_stored,         ///< codes are made with the stored scales, which do not follow from the tensor
  tiles_as_stored,         ///< codes of `place` tiles alone are made with stored scales that do not follow from theirs
  scale_stale,             ///< codes are made with one number, which does not follow from the tensor: `value`
  tensor_scale_stale,   ///< the scale of the tensor over those of tiles does not follow from the tensor: it is `value`,
                        ///< or where `place` is 1 its inverse is
  tensor_scale_given,   ///< the caller's scale of the tensor, `value`, or where `place` is 1 the inverse of that: no
                        ///< defect
  tile_scales_given,    ///< the caller's scales of rows or tiles, as they are stored: where such are expected no defect
  largest_of_e4m3fnuz,  ///< the scale is made for the largest value 240
  largest_of_e5m2,      ///< for 57344
  largest_of_e4m3,      ///< for 448
  largest_of_e2m1,      ///< for 6
  largest_of_value,     ///< for `value`
  product_float16,      ///< the scaled element is rounded to float16 before it becomes a code
  product_bfloat16,     ///< to bfloat16
  overflow_wraps,       ///< what is too large becomes the low bits of a code with more exponents
  clamped_to_240,       ///< scaled elements are clamped to 240
  subnormals_flushed,   ///< subnormal codes become zero and keep their sign
  product_flushed,      ///< scaled elements below the least normal number of the format become 0
  negative_zero_lost,   ///< the code of -0 becomes that of 0
  sign_lost,            ///< codes have no sign
  sign_inverted,        ///< codes have the other sign
  negatives_zeroed,     ///< codes of negative numbers become 0
  nan_is_zero,          ///< NaN becomes 0
  pairs_swapped,        ///< of two codes of 4 bits the first stands in the upper half
  pairs_of_halves,      ///< a byte has codes i and i + columns / 2 of a row
  bytes_swapped_2,      ///< codes stand in reverse order in words of 2 bytes
  bytes_swapped_4,      ///< of 4 bytes
  bytes_swapped_8,      ///< of 8 bytes
  codes_transposed,     ///< codes are stored as those of the transpose
  codes_tiled_128x4,    ///< codes are stored in tiles of 128 rows x 4 bytes, as scales for tensor cores of Blackwell
  codes_tiled_8x16,     ///< in core matrices of 8 rows x 16 bytes, which follow each other along a row
  codes_tiled_8x16_down,    ///< in core matrices which follow each other down the rows
  codes_swizzled_128,       ///< bits 4 to 6 of the address are XORed with bits 7 to 9, as TMA does with 128 bytes
  codes_swizzled_64,        ///< bits 4 and 5 with bits 7 and 8
  codes_swizzled_32,        ///< bit 4 with bit 7
  columns_interleaved,      ///< column i stands at 2 i, column i of the second half at 2 i + 1
  columns_deinterleaved,    ///< even columns stand in the first half of a row, odd ones in the second
  rows_interleaved,         ///< the same of rows
  rows_deinterleaved,       ///
  codes_one_late,           ///< each code stands one place behind its own
  codes_one_early,          ///< each code stands one place before its own
  columns_unwritten,        ///< columns from `place` on have not been written
  rows_unwritten,           ///< rows from `place` on have not been written
  end_unwritten,            ///< elements from index `place` on have not been written
  block_unwritten,          ///< codes of the rows and columns from index `place` to index `last` are 0
  codes_unwritten,          ///< all codes are 0
  tile_of_left_neighbor,    ///< one tile, that of element `place`, meets the scale of the one to the left
  tile_of_right_neighbor,   ///< to the right
  tile_of_upper_neighbor,   ///< above
  tile_of_lower_neighbor,   ///< below
  stored_inverted,          ///< the inverse of what should be stored
  stored_quotient,          ///< the scale, largest / amax, of which what should be stored is not the inverse
  stored_transposed,        ///< scales are stored as those of the transpose
  stored_for_tma,           ///< the same, each row of the transpose padded to a multiple of 4 scales, as DeepGEMM does
  stored_swizzled,          ///< scales are stored in tiles of 128 x 4, as tensor cores of Blackwell read them
  stored_unrounded,         ///< the scale is stored in float32 as it was before it was rounded and used
  stored_rounded_down,      ///< scales are rounded to a power of two when they are stored, after they were used
  stored_rounded_up,        ///
  stored_rounded_nearest,   ///
  stored_float16,           ///< scales are rounded to float16 when they are stored, after they were used
  stored_bfloat16,          ///< to bfloat16
  stored_doubled,           ///< twice the scale is stored
  stored_halved,            ///< half of it is
  stored_one_late,          ///< each scale stands one place behind its own
  stored_one_early,         ///< one place before its own
  stored_of_previous_tile,  ///< each stored scale is that of the previous tile in its row; the first keeps its own, or
                            ///< has the last one's
  stored_of_next_tile,      ///< of the next tile
  stored_of_previous_row,   ///< of the tile in the previous row
  stored_of_next_row,       ///< of the tile in the next row
  stored_amax,              ///< the amax is stored instead of the scale
  stored_bytes_reversed,    ///< the bytes of each stored scale stand in reverse order
  stored_end_unwritten,     ///< scales from place `place` of those stored on have not been written; where `last` is 1
                            ///< they are 0, where it is 2 all of them are the same
};

/// The departures with their names and what they say of a kernel.
[[nodiscard]] std::span<const Named<Departure>> departures();
[[nodiscard]] std::string_view name_of(Departure departure);

/// A departure, and what it needs to know.
struct Deviation {
  Departure departure;
  std::uint64_t place = 0;  ///< an index of the tensor, where the departure has one
  float value = 0;          ///< a factor, where the departure has one
  std::uint64_t last = 0;   ///< an index of the tensor, where the departure has two

  friend bool operator==(const Deviation&, const Deviation&) = default;
};

/// What a kernel may have done.
struct Hypothesis {
  std::string base;                    ///< the named recipe or the profile that it is, or that it is nearest to
  std::vector<std::string> also = {};  ///< others whose record is the same
  Recipe recipe;
  std::vector<std::string> changes = {};  ///< fields in which `recipe` differs from the base, in words
  std::vector<Deviation> deviations = {};
  Direction direction = Direction::rowwise;

  /// Whether it is a named recipe or profile, or the expected recipe, without change and departure. The caller may give
  /// the scale of the tensor, and those of rows and tiles where that is expected.
  [[nodiscard]] bool is_plain() const {
    const auto is_given = [](const Deviation& one) {
      return one.departure == Departure::tensor_scale_given || one.departure == Departure::tile_scales_given;
    };
    return changes.empty() && std::ranges::all_of(deviations, is_given);
  }
};
/// Whether its scale is the stored number, which need not follow from the tensor: static or delayed, or wrong.
[[nodiscard]] bool has_given_scale(const Hypothesis& hypothesis);
/// In words: "te_mxfp8, but scaled elements are rounded to bfloat16 before they become codes".
[[nodiscard]] std::string describe(const Hypothesis& hypothesis);

/// How much of a dump a hypothesis does not explain.
struct Explanation {
  Hypothesis hypothesis;
  std::uint64_t codes = 0;   ///< that it does not explain
  std::uint64_t scales = 0;  ///< that it does not explain

  [[nodiscard]] std::uint64_t unexplained() const { return codes + scales; }
};

/// An element whose code tells hypotheses apart.
struct Discriminator {
  std::uint64_t index;
  double x;
  std::uint8_t code;           ///< that is there
  std::uint8_t first, second;  ///< by the first hypothesis, and by the second
};

/// The factors x is multiplied with that would explain all codes, if one number did: [lowest, highest].
struct FactorInterval {
  double lowest, highest;
};

/// What diagnose() finds.
struct Diagnosis {
  std::uint64_t elements = 0;  ///< codes
  std::uint64_t scales = 0;    ///< stored scales; 0: none were given
  std::size_t searched = 0;    ///< hypotheses
  /// The best first: by what they leave unexplained, then by plausibility. Never empty.
  std::vector<Explanation> explanations;
  /// How many of the first ones explain equally much, and make the same of this tensor: the data cannot tell them
  /// apart.
  std::size_t tied = 1;
  std::vector<Discriminator> discriminators;  ///< where the first and the best that makes something else differ
  Format format = e4m3;                       ///< of codes, by the first
  std::optional<FactorInterval> factor;       ///< where codes allow one factor for all elements
  std::vector<std::string> rest;              ///< where what the first leaves unexplained lies, a sentence each
  std::vector<std::string> notes;             ///< what else is known, a sentence each
  std::string verdict;                        ///< a sentence

  std::string expected;     ///< the name of the expected recipe; empty: none was
  bool is_in_order = true;  ///< whether codes stand in the order of x; otherwise they were put in order, as a note says
  bool is_telling = true;   ///< whether x has a number that is not zero: otherwise nothing is known of scales

  /// Whether the first leaves nothing unexplained.
  [[nodiscard]] bool explained() const { return explanations.front().unexplained() == 0; }
  /// Whether the first is what was expected, or nothing was.
  [[nodiscard]] bool is_expected() const {
    const Hypothesis& first = explanations.front().hypothesis;
    return expected.empty() || first.base == expected || std::ranges::count(first.also, expected) != 0;
  }
  /// Whether it also has neither change nor departure, and x tells of scales: the kernel does what the expected recipe
  /// says, or a named one where none was expected. That does not say of a scale of the tensor that follows from nothing
  /// whether it is right: it is so where it is expected.
  [[nodiscard]] bool correct() const {
    const Hypothesis& first = explanations.front().hypothesis;
    const bool is_known = !expected.empty() || !has_given_scale(first);
    return explained() && is_telling && is_in_order && is_expected() && first.is_plain() && is_known;
  }
};

/// How diagnose() goes about it.
struct DiagnoseOptions {
  /// What the kernel should do: the first candidate, and what departures are told from. Left out: any named recipe.
  std::optional<Recipe> expected = {};
  std::string expected_name = "the expected recipe";
  std::optional<Direction> direction = {};  ///< of the quantization; left out: rowwise, then columnwise
  std::size_t most_shown = 10;              ///< explanations and discriminators
  int threads = 1;
};

/// Names the semantics that explain what a kernel has made of x, of float, Half or BFloat16. Named recipes and casts by
/// profiles are searched first, then those with another value in one field, one departure, and two of both. Hypotheses
/// are sieved on a sample; what is left is compared with every element and scale, and elements that contradict join the
/// sample.
///
/// Throws std::invalid_argument where x is empty or of double, codes are neither as many as x has elements nor half as
/// many, have more bits than their format, or are of one without a sign or with more than 8 bits, or the scale of the
/// tensor is not positive and finite.
[[nodiscard]] Diagnosis diagnose(const MatrixView& x, const Dump& dump, const DiagnoseOptions& options = {});

/// A sentence where codes are half as many bytes as x has elements, as pairs of codes of 4 bits are, but have another
/// shape than pairs of x or of its transpose: half of them may be missing. Empty elsewhere, and for codes of one
/// dimension.
[[nodiscard]] std::string note_on_pairs(std::span<const std::uint64_t> shape_of_x,
                                        std::span<const std::uint64_t> shape_of_codes);

/// A tensor on which hypotheses differ.
struct Probe {
  std::size_t rows = 0, columns = 0;
  std::vector<float> values;  ///< row-major; of bfloat16 values where `input_type` is that
  /// Digest (FNV-1a, 64 bits) of each hypothesis' codes, a byte each, in the order of the arguments.
  std::vector<std::uint64_t> digests;
  std::size_t pairs = 0;  ///< of hypotheses
  /// Indices of the pairs of hypotheses that it does not part.
  std::vector<std::array<std::size_t, 2>> alike;

  /// Pairs of hypotheses that differ on it.
  [[nodiscard]] std::size_t parted() const { return pairs - alike.size(); }
};

/// The tensor of those tried, of that type, on which most pairs of hypotheses differ. Throws std::invalid_argument
/// where there are fewer than two hypotheses.
[[nodiscard]] Probe probe(std::span<const Hypothesis> hypotheses, const Format& input_type = binary32);

}  // namespace fp8lab::doctor
