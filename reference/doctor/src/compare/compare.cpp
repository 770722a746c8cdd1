// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/doctor/compare.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>

#include "formats/simd/targets.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "simd/compare.hpp"

namespace fp8lab::doctor {
namespace {

/// Arrays are compared as memory in pieces of so many bytes; only those that differ are looked into.
constexpr std::size_t bytes_at_once = 16384;

Places places_of(std::uint64_t length) {
  Places places{.length = length};
  while ((length + places.indices_per_bin - 1) / places.indices_per_bin > Places::most_bins)
    places.indices_per_bin *= 2;
  places.counts.resize((length + places.indices_per_bin - 1) / places.indices_per_bin);
  return places;
}

/// Tiles of recipes; their columns are multiples of `segment`.
constexpr std::array tile_sides{std::pair{1, 16},  std::pair{1, 32},  std::pair{1, 64},   std::pair{1, 128},
                                std::pair{16, 16}, std::pair{32, 32}, std::pair{128, 128}};
constexpr std::uint64_t segment = 16;
constexpr std::uint64_t segments_in_word = 64;
static_assert(segment * segments_in_word % 128 == 0, "a tile lies in one word of segments");

std::uint64_t tiles_along(std::uint64_t length, std::uint64_t side) { return (length + side - 1) / side; }

/// Columns whose differing elements are counted one by one: a bin has at most so many of them.
constexpr std::uint64_t most_counted_in_bin = 8;
/// Narrow rows are counted side by side, at least so many elements of them.
constexpr std::uint64_t least_stretch = 1024;
/// Rows that are counted at once lie in one row of tiles, and 16 rows are the fewest that a tile of several rows has.
constexpr std::uint64_t most_rows_at_once = 16;
constexpr std::uint64_t most_stretches = std::numeric_limits<std::uint8_t>::max();

/// A pair of words of any format: its kind; other counts are added to `counts`.
std::uint32_t kind_of(const PairConstants& constants, std::uint64_t a, std::uint64_t b, std::size_t bits,
                      PairCounts& counts) {
  if (a == b) return PairKind::equal;
  const std::uint64_t magnitude_a = a & constants.magnitude;
  const std::uint64_t magnitude_b = b & constants.magnitude;
  const auto is_nan = [&](std::uint64_t word, std::uint64_t magnitude) {
    return magnitude > constants.last_number || (constants.lone_nan != 0 && word == constants.sign);
  };
  // 1. What are no two numbers that differ.
  const bool nan_a = is_nan(a, magnitude_a);
  const bool nan_b = is_nan(b, magnitude_b);
  if (nan_a && nan_b) return PairKind::nan_words;
  if (nan_a) return PairKind::nan_in_a;
  if (nan_b) return PairKind::nan_in_b;
  const bool zero_a = magnitude_a == constants.zero;
  const bool zero_b = magnitude_b == constants.zero;
  if (zero_a && zero_b) return PairKind::zero_sign;
  // 2. Numbers.
  const bool negative_a = (a & constants.sign) != 0;
  const bool negative_b = (b & constants.sign) != 0;
  counts.opposite_signs += negative_a != negative_b && !zero_a && !zero_b ? 1 : 0;
  counts.opposite_values += magnitude_a == magnitude_b ? 1 : 0;
  counts.became_zero += zero_b ? 1 : 0;
  counts.was_zero += zero_a ? 1 : 0;
  // 3. How far apart they are. Of two float64 of opposite sign the difference may need 64 bits.
  const std::uint64_t place_a = negative_a ? 0 - magnitude_a : magnitude_a;
  const std::uint64_t place_b = negative_b ? 0 - magnitude_b : magnitude_b;
  const bool is_above = static_cast<std::int64_t>(place_b) > static_cast<std::int64_t>(place_a);
  const std::uint64_t distance = is_above ? place_b - place_a : place_a - place_b;
  counts.largest = std::max(counts.largest, distance);
  return PairKind::first_bin + static_cast<std::uint32_t>(Distances::bin_of(distance)) +
         (is_above ? 0 : pair_bins(bits));
}

/// Element i of an array of words of `bits` bits, little-endian; those of 4 lie two in a byte, the first in its lower
/// half.
std::uint64_t word_at(const std::byte* words, std::size_t bits, std::size_t i) {
  if (bits == 4) return std::to_integer<std::uint64_t>(words[i / 2]) >> (i % 2 * 4) & 15;
  std::uint64_t word = 0;
  std::memcpy(&word, words + i * (bits / 8), bits / 8);
  return word;
}

}  // namespace

int ElementType::bits() const {
  if (pairs) return 4;
  if (format.bits() <= 8) return 8;
  return format.bits() <= 16 ? 16 : format.bits();
}

void ElementType::check() const {
  if (pairs && format.bits() != 4) {
    refuse("pairs are of formats of 4 bits; ", format_name(format), " has ", format.bits());
  }
  if (format != binary32 && format != binary64) check_format(format);
}

double value_of(const ElementType& type, std::uint64_t word) {
  if (type.format == binary64) return std::bit_cast<double>(word);
  if (type.format == binary32) return std::bit_cast<float>(static_cast<std::uint32_t>(word));
  return decode(type.format, static_cast<std::uint32_t>(word));
}

Comparer::Comparer(const ElementType& type, std::uint64_t elements, const CompareOptions& options) : options_(options) {
  type.check();
  if (options_.columns == 0) options_.columns = std::max<std::uint64_t>(elements, 1);
  if (elements % options_.columns != 0) {
    refuse(elements, " elements are no whole number of rows of ", options_.columns);
  }
  result_.type = type;
  result_.elements = end_ = elements;
  result_.rows = places_of(elements / options_.columns);
  result_.columns = places_of(options_.columns);
  for (const auto& [high, wide] : tile_sides) {
    Tiles tiles{.rows = static_cast<std::uint64_t>(high), .columns = static_cast<std::uint64_t>(wide)};
    if (result_.rows.length < tiles.rows || options_.columns < tiles.columns) continue;
    const std::uint64_t across = tiles_along(options_.columns, tiles.columns);
    tiles.count = tiles_along(result_.rows.length, tiles.rows) * across;
    result_.tiles.push_back(tiles);
    const std::uint64_t words = tiles_along(options_.columns, segment * segments_in_word);
    Band& band = bands_.emplace_back();
    band.segments.resize(tiles.rows == 1 ? 0 : words);
    band.are_whole = options_.columns % tiles.columns == 0 && result_.rows.length % tiles.rows == 0;
  }
  const int width = type.format.bits();
  beyond_ = width < type.bits() ? ~std::uint64_t{0} << width : 0;
  kinds_.resize(pair_lanes * (PairKind::first_bin + 2 * pair_bins(static_cast<std::size_t>(type.bits()))));
  stretch_ = tiles_along(least_stretch, options_.columns) * options_.columns;
  // Rows that are gone through at once lie in one bin of rows and one row of tiles, and in one word of segments.
  if (std::has_single_bit(options_.columns)) {
    rows_at_once_ = std::clamp<std::uint64_t>(segment * segments_in_word / options_.columns, 1,
                                              std::min(most_rows_at_once, result_.rows.indices_per_bin));
  }
}

void Comparer::add(std::span<const std::byte> a, std::span<const std::byte> b) {
  const auto bits = static_cast<std::uint64_t>(result_.type.bits());
  if (a.size() != b.size()) refuse("a has ", a.size(), " bytes, b ", b.size());
  if (a.size() * 8 % bits != 0) refuse(a.size(), " bytes end within an element of ", bits / 8, " bytes");
  const std::uint64_t left = end_ - next_;
  // The last byte of an odd number of codes of 4 bits has one code.
  const std::uint64_t count = std::min(a.size() * 8 / bits, left);
  if ((count * bits + 7) / 8 != a.size())
    refuse(a.size(), " bytes are more than the ", left, " elements that are left");
  for (std::size_t at = 0; at < a.size(); at += bytes_at_once) {
    const std::size_t size = std::min(bytes_at_once, a.size() - at);
    const auto here = static_cast<std::size_t>(std::min<std::uint64_t>(size * 8 / bits, end_ - next_));
    if (std::memcmp(a.data() + at, b.data() + at, size) != 0) add_words(a.data() + at, b.data() + at, here);
    next_ += here;
  }
}

/// A few elements, of which some may differ.
void Comparer::add_words(const std::byte* a, const std::byte* b, std::size_t count) {
  std::array<std::uint64_t, bytes_at_once * 2 / bits_at_once + 2> differing;
  std::fill_n(differing.begin(), count / bits_at_once + 2, std::uint64_t{0});
  add_values(a, b, count, differing.data());
  if (result_.first.size() < options_.most_shown) show_first(a, b, count, differing.data());
  if (has_column_counts()) add_columns(count, differing.data());
  add_places(count, differing.data());
}

/// Counts pairs of words by their kinds, and finds those that differ.
void Comparer::add_values(const std::byte* a, const std::byte* b, std::size_t count, std::uint64_t* differing) {
  const PairConstants constants(result_.type.format);
  const auto bits = static_cast<std::size_t>(result_.type.bits());
  PairCounts counts{.kinds = kinds_.data(), .largest = result_.distances.largest};
  if (vector_code_allowed()) {
    count_pairs_vector(constants, bits, a, b, count, counts, differing);
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t word_a = word_at(a, bits, i);
      const std::uint64_t word_b = word_at(b, bits, i);
      ++kinds_[pair_lanes * kind_of(constants, word_a, word_b, bits, counts)];
      counts.has_beyond |= word_a != word_b && ((word_a | word_b) & beyond_) != 0;
      differing[i / bits_at_once] |= std::uint64_t{word_a != word_b} << (i % bits_at_once);
    }
  }
  if (counts.has_beyond) refuse_beyond(a, b, count);
  result_.opposite_signs += counts.opposite_signs;
  result_.opposite_values += counts.opposite_values;
  result_.became_zero += counts.became_zero;
  result_.was_zero += counts.was_zero;
  result_.distances.largest = counts.largest;
}

/// Names the first of the words that differ and have bits beyond those of their format.
void Comparer::refuse_beyond(const std::byte* a, const std::byte* b, std::size_t count) const {
  const auto bits = static_cast<std::size_t>(result_.type.bits());
  const Format& format = result_.type.format;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t word_a = word_at(a, bits, i);
    const std::uint64_t word_b = word_at(b, bits, i);
    if (((word_a | word_b) & beyond_) == 0 || word_a == word_b) continue;
    refuse("element ", next_ + i, " has bits beyond the ", format.bits(), " of ", format_name(format));
  }
}

void Comparer::show_first(const std::byte* a, const std::byte* b, std::size_t count, const std::uint64_t* differing) {
  const auto bits = static_cast<std::size_t>(result_.type.bits());
  for (std::size_t word = 0; word * bits_at_once < count; ++word) {
    for (std::uint64_t left = differing[word]; left != 0; left &= left - 1) {
      if (result_.first.size() == options_.most_shown) return;
      const std::size_t i = word * bits_at_once + static_cast<std::size_t>(std::countr_zero(left));
      result_.first.push_back({next_ + i, word_at(a, bits, i), word_at(b, bits, i)});
    }
  }
}

/// Whether the columns are counted by add_columns(): not where a bin has many, which a row's bits are counted for.
bool Comparer::has_column_counts() const { return result_.columns.indices_per_bin <= most_counted_in_bin; }

void Comparer::add_columns(std::size_t count, const std::uint64_t* differing) {
  if (column_counts_.empty()) column_counts_.resize(static_cast<std::size_t>(stretch_) + bits_at_once);
  std::uint64_t stretch = next_ / stretch_;
  auto at = static_cast<std::size_t>(next_ - stretch * stretch_);
  for (std::size_t done = 0; done < count;) {
    // No count is larger than the number of stretches.
    if (stretches_added_ == 0 || stretch != last_stretch_) {
      if (stretches_added_ == most_stretches) flush_columns();
      ++stretches_added_;
      last_stretch_ = stretch;
    }
    const std::size_t size = std::min(static_cast<std::size_t>(stretch_) - at, count - done);
    std::uint8_t* const counts = column_counts_.data() + at;
    if (vector_code_allowed()) {
      add_bits_vector(differing, done, size, counts);
    } else {
      for (std::size_t i = 0; i < size; ++i) {
        counts[i] = static_cast<std::uint8_t>(counts[i] + (bits_from(differing, done + i) & 1));
      }
    }
    done += size;
    at = 0;
    ++stretch;
  }
}

void Comparer::flush_columns() {
  Places& columns = result_.columns;
  const int shift = std::countr_zero(columns.indices_per_bin);
  for (std::uint64_t row = 0; row < stretch_ && !column_counts_.empty(); row += options_.columns) {
    for (std::uint64_t i = 0; i < options_.columns; ++i) {
      columns.counts[i >> shift] += std::exchange(column_counts_[row + i], std::uint8_t{0});
    }
  }
  stretches_added_ = 0;
}

/// Goes through the rows of some elements, some at once where they are narrow; where bins of columns have many, through
/// their bins.
void Comparer::add_places(std::size_t count, const std::uint64_t* differing) {
  const std::uint64_t columns = options_.columns * rows_at_once_;
  const std::uint64_t bin = has_column_counts() ? columns : result_.columns.indices_per_bin;
  std::uint64_t row = next_ / columns;
  std::uint64_t column = next_ - row * columns;
  for (std::size_t done = 0; done < count;) {
    const std::uint64_t end = std::min(columns, bin == columns ? columns : column / bin * bin + bin);
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(end - column, count - done));
    add_rows(row * rows_at_once_, column, done, size, differing);
    done += size;
    column += size;
    if (column == columns) {
      column = 0;
      ++row;
    }
  }
}

/// Elements of one row, or of those that are gone through at once as if they were one, from bit `first` on.
void Comparer::add_rows(std::uint64_t row, std::uint64_t column, std::size_t first, std::size_t count,
                        const std::uint64_t* differing) {
  // 1. Counts.
  std::array<std::uint64_t, bytes_at_once * 2 / (segment * segments_in_word) + 2> segments;
  const std::size_t words = count / (segment * segments_in_word) + 2;
  std::fill_n(segments.begin(), words, std::uint64_t{0});
  const RowBits found = row_bits_vector(differing, first, count, column, segments.data());
  if (found.count == 0) return;
  Places& columns = result_.columns;
  Places& rows = result_.rows;
  if (!has_column_counts()) columns.counts[column / columns.indices_per_bin] += found.count;
  rows.counts[row >> std::countr_zero(rows.indices_per_bin)] += found.count;
  // 2. Where they lie.
  const bool is_first = result_.differing == 0;
  if (is_first) rows.first = row + found.first / options_.columns;
  rows.last = row + found.last / options_.columns;
  if (is_first) columns.first = options_.columns;
  if (rows_at_once_ == 1) {
    columns.first = std::min(columns.first, found.first);
    columns.last = std::max(columns.last, found.last);
  } else if (columns.first != 0 || columns.last + 1 != options_.columns) {
    find_columns(column, first, count, differing);
  }
  result_.differing += found.count;
  // 3. Which tiles they touch.
  const std::uint64_t first_word = column / (segment * segments_in_word);
  for (std::size_t i = 0; i < words; ++i) {
    if (segments[i] == 0) continue;
    if (row != word_row_ || first_word + i != word_) {
      flush_word();
      word_row_ = row;
      word_ = first_word + i;
    }
    touched_segments_ |= segments[i];
  }
}

/// Which columns differ, of several rows.
void Comparer::find_columns(std::uint64_t column, std::size_t first, std::size_t count,
                            const std::uint64_t* differing) {
  Places& columns = result_.columns;
  for (std::size_t i = 0; i < count; ++i) {
    if ((bits_from(differing, first + i) & 1) == 0) continue;
    columns.first = std::min(columns.first, (column + i) % options_.columns);
    columns.last = std::max(columns.last, (column + i) % options_.columns);
  }
}

/// The segments that any of the rows that are gone through at once touches.
std::uint64_t Comparer::of_any_row(std::uint64_t segments) const {
  if (rows_at_once_ == 1) return segments;
  const std::uint64_t in_row = options_.columns / segment;
  for (std::uint64_t i = segments_in_word / 2; i >= in_row; i /= 2) segments |= segments >> i;
  return segments & ((std::uint64_t{1} << in_row) - 1);
}

void Comparer::flush_word() {
  if (touched_segments_ == 0) return;
  for (std::size_t i = 0; i < bands_.size(); ++i) {
    Band& band = bands_[i];
    const std::uint64_t number = word_row_ >> std::countr_zero(result_.tiles[i].rows);  // a power of two
    if (band.segments.empty()) {
      count_tiles(i, number / rows_at_once_, word_, touched_segments_);
      continue;
    }
    if (number != band.number) flush_band(i);
    band.number = number;
    band.segments[word_] |= of_any_row(touched_segments_);
  }
  touched_segments_ = 0;
}

void Comparer::flush_band(std::size_t kind) {
  Band& band = bands_[kind];
  for (std::size_t word = 0; word < band.segments.size(); ++word) {
    count_tiles(kind, band.number, word, std::exchange(band.segments[word], 0));
  }
}

/// Counts the tiles that have one of those segments.
void Comparer::count_tiles(std::size_t kind, std::uint64_t band, std::uint64_t word, std::uint64_t segments) {
  if (segments == 0) return;
  Tiles& tiles = result_.tiles[kind];
  const bool are_whole = bands_[kind].are_whole;
  const std::uint64_t in_tile = tiles.columns / segment;
  if (segments == ~std::uint64_t{0} && tiles.touched != 0 && are_whole) {  // as of arrays that differ everywhere
    tiles.touched += segments_in_word / in_tile;
    return;
  }
  // 1. A bit for each tile, where its first segment has its own.
  if (in_tile >= 2) segments = (segments | segments >> 1) & 0x5555555555555555U;
  if (in_tile >= 4) segments = (segments | segments >> 2) & 0x1111111111111111U;
  if (in_tile >= 8) segments = (segments | segments >> 4) & 0x0101010101010101U;
  // 2. Tiles come in order.
  if (tiles.touched == 0) {
    const std::uint64_t width = options_.columns * (tiles.rows == 1 ? rows_at_once_ : 1);
    const std::uint64_t across = tiles_along(width, tiles.columns);
    const std::uint64_t place = word * segments_in_word + static_cast<std::uint64_t>(std::countr_zero(segments));
    tiles.first = band * across + place / in_tile;
  }
  const auto count = static_cast<std::uint64_t>(std::popcount(segments));
  tiles.touched += count;
  if (are_whole) return;
  // 3. What the last rows of tiles lack in height, and the last tile of a row in width.
  const std::uint64_t tail = options_.columns % tiles.columns;
  const std::uint64_t last = (options_.columns - tail) / segment;
  const bool has_last = tail != 0 && word == last / segments_in_word && (segments >> last % segments_in_word & 1) != 0;
  const std::uint64_t height = std::min(tiles.rows, result_.rows.length - band * tiles.rows);
  tiles.missing += count * tiles.columns * (tiles.rows - height) + (has_last ? tiles.columns - tail : 0) * height;
}

/// Puts the counts of kinds where they belong.
void Comparer::set_counts(Comparison& whole) const {
  const auto count = [&](std::size_t kind) {
    const auto lanes = std::span(kinds_).subspan(pair_lanes * kind, pair_lanes);
    return std::accumulate(lanes.begin(), lanes.end(), std::uint64_t{0});
  };
  whole.zero_signs = count(PairKind::zero_sign);
  whole.nan_words = count(PairKind::nan_words);
  whole.nan_in_a = count(PairKind::nan_in_a);
  whole.nan_in_b = count(PairKind::nan_in_b);
  const std::size_t bins = (kinds_.size() / pair_lanes - PairKind::first_bin) / 2;
  for (std::size_t bin = 0; bin < bins; ++bin) {
    whole.distances.above[bin] = count(PairKind::first_bin + bin);
    whole.distances.below[bin] = count(PairKind::first_bin + bins + bin);
    whole.numbers += whole.distances.above[bin] + whole.distances.below[bin];
  }
}

void Comparer::finish_counts() {
  flush_columns();
  flush_word();
  for (std::size_t kind = 0; kind < bands_.size(); ++kind) flush_band(kind);
}

Comparison Comparer::result() const {
  if (begin_ != 0 || next_ != result_.elements) throw std::logic_error("elements are missing");
  Comparer done = *this;
  done.finish_counts();
  Comparison whole = std::move(done.result_);
  done.set_counts(whole);
  return whole;
}

}  // namespace fp8lab::doctor
