// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/forensics/compare.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/refuse.hpp"

namespace fp8lab::forensics {
namespace {

/// Arrays are compared as memory in pieces of so many bytes; only those that differ are looked into.
constexpr std::size_t bytes_at_once = 4096;

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

/// The place of a number among those of its format.
std::int64_t order_of(const Format& format, std::uint64_t word) {
  const auto magnitude = static_cast<std::int64_t>(word & format.magnitude_mask());
  return (word & format.sign_mask()) != 0 ? -magnitude : magnitude;
}

/// Counts `times` elements that are a here and b there.
void classify(Comparison& result, std::uint64_t a, std::uint64_t b, std::uint64_t times) {
  const double value_a = value_of(result.type, a);
  const double value_b = value_of(result.type, b);
  const bool nan_a = value_a != value_a;
  const bool nan_b = value_b != value_b;
  // 1. What are no two numbers that differ.
  if (nan_a || nan_b) {
    std::uint64_t& of_one = nan_a ? result.nan_in_a : result.nan_in_b;
    (nan_a && nan_b ? result.nan_words : of_one) += times;
    return;
  }
  if (value_a == value_b) {
    result.zero_signs += times;
    return;
  }
  // 2. Numbers.
  result.numbers += times;
  if ((value_a < 0 && value_b > 0) || (value_a > 0 && value_b < 0)) result.opposite_signs += times;
  if (value_a == -value_b) result.opposite_values += times;
  if (value_b == 0) result.became_zero += times;
  if (value_a == 0) result.was_zero += times;
  // 3. How far apart they are. Of two float64 of opposite sign the difference may need 64 bits.
  const auto place_a = static_cast<std::uint64_t>(order_of(result.type.format, a));
  const auto place_b = static_cast<std::uint64_t>(order_of(result.type.format, b));
  const bool is_above = value_b > value_a;
  const std::uint64_t distance = is_above ? place_b - place_a : place_a - place_b;
  Distances& distances = result.distances;
  (is_above ? distances.above : distances.below)[Distances::bin_of(distance)] += times;
  distances.largest = std::max(distances.largest, distance);
}

/// Both words of an element, in memory that need not be aligned.
template <typename Word>
struct Words {
  const std::byte* a;
  const std::byte* b;

  Words(const std::byte* first_a, const std::byte* first_b) : a(first_a), b(first_b) {}
  /// Those from element `done` on.
  Words(const Words& all, std::uint64_t done) : a(all.a + done * sizeof(Word)), b(all.b + done * sizeof(Word)) {}
  std::pair<std::uint64_t, std::uint64_t> operator[](std::uint64_t i) const {
    Word word_a;
    Word word_b;
    std::memcpy(&word_a, a + i * sizeof(Word), sizeof(Word));
    std::memcpy(&word_b, b + i * sizeof(Word), sizeof(Word));
    return {word_a, word_b};
  }
};
/// Two codes in each byte.
struct Nibbles {
  const std::byte* a;
  const std::byte* b;
  std::uint64_t first = 0;

  Nibbles(const std::byte* first_a, const std::byte* first_b) : a(first_a), b(first_b) {}
  Nibbles(const Nibbles& all, std::uint64_t done) : a(all.a), b(all.b), first(all.first + done) {}
  std::pair<std::uint64_t, std::uint64_t> operator[](std::uint64_t i) const {
    const auto code = [at = first + i](const std::byte* bytes) {
      return std::to_integer<std::uint64_t>(bytes[at / 2]) >> (at % 2 * 4) & 0xF;
    };
    return {code(a), code(b)};
  }
};

/// Which of at most 16 elements differ, a bit for each.
template <typename At>
std::uint32_t differing_of(const At& at, std::uint64_t count) {
  std::uint32_t differing = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto [a, b] = at[i];
    differing |= std::uint32_t{a != b} << i;
  }
  return differing;
}
/// The same for bytes, which are compared eight at a time.
std::uint32_t differing_of(const Words<std::uint8_t>& at, std::uint64_t count) {
  if (count != segment) return differing_of<Words<std::uint8_t>>(at, count);
  std::uint32_t differing = 0;
  for (std::uint64_t half = 0; half < 2; ++half) {
    const auto [a, b] = Words<std::uint64_t>(at.a, at.b)[half];
    constexpr std::uint64_t low = 0x7F7F7F7F7F7F7F7FU;
    const std::uint64_t tops = ((((a ^ b) & low) + low) | (a ^ b)) & ~low;  // the top bit of each byte that differs
    differing |= static_cast<std::uint32_t>((tops >> 7) * 0x0102040810204080U >> 56) << (8 * half);
  }
  return differing;
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
  result_.elements = elements;
  result_.rows = places_of(elements / options_.columns);
  result_.columns = places_of(options_.columns);
  for (const auto& [high, wide] : tile_sides) {
    Tiles tiles{.rows = static_cast<std::uint64_t>(high), .columns = static_cast<std::uint64_t>(wide)};
    if (result_.rows.length < tiles.rows || options_.columns < tiles.columns) continue;
    const std::uint64_t across = tiles_along(options_.columns, tiles.columns);
    tiles.count = tiles_along(result_.rows.length, tiles.rows) * across;
    result_.tiles.push_back(tiles);
    const std::uint64_t words = tiles_along(options_.columns, segment * segments_in_word);
    bands_.emplace_back().segments.resize(tiles.rows == 1 ? 0 : words);
  }
  const int width = type.format.bits();
  beyond_ = width < 16 ? ~std::uint64_t{0} << width : 0;
  if (type.bits() <= 8) pairs_.resize(std::size_t{1} << 16);
}

void Comparer::add(std::span<const std::byte> a, std::span<const std::byte> b) {
  const auto bits = static_cast<std::uint64_t>(result_.type.bits());
  if (a.size() != b.size()) refuse("a has ", a.size(), " bytes, b ", b.size());
  if (a.size() * 8 % bits != 0) refuse(a.size(), " bytes end within an element of ", bits / 8, " bytes");
  const std::uint64_t left = result_.elements - next_;
  // The last byte of an odd number of codes of 4 bits has one code.
  const std::uint64_t count = std::min(a.size() * 8 / bits, left);
  if ((count * bits + 7) / 8 != a.size())
    refuse(a.size(), " bytes are more than the ", left, " elements that are left");
  for (std::size_t at = 0; at < a.size(); at += bytes_at_once) {
    const std::size_t size = std::min(bytes_at_once, a.size() - at);
    const auto own_a = a.subspan(at, size);
    const auto own_b = b.subspan(at, size);
    const std::uint64_t here = std::min<std::uint64_t>(size * 8 / bits, result_.elements - next_);
    if (std::memcmp(own_a.data(), own_b.data(), size) != 0) {
      switch (bits) {
        case 4: add_elements(here, Nibbles{own_a.data(), own_b.data()}); break;
        case 8: add_elements(here, Words<std::uint8_t>{own_a.data(), own_b.data()}); break;
        case 16: add_elements(here, Words<std::uint16_t>{own_a.data(), own_b.data()}); break;
        case 32: add_elements(here, Words<std::uint32_t>{own_a.data(), own_b.data()}); break;
        default: add_elements(here, Words<std::uint64_t>{own_a.data(), own_b.data()}); break;
      }
    }
    next_ += here;
  }
}

template <typename At>
void Comparer::add_elements(std::uint64_t count, const At& at) {
  const std::uint64_t columns = options_.columns;
  row_ = next_ / columns;
  std::uint64_t column = next_ - row_ * columns;
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t end = std::min(columns, column / segment * segment + segment);
    const std::uint64_t size = std::min(end - column, count - done);
    add_segment(column, size, At{at, done});
    done += size;
    column += size;
    if (column == columns) {
      column = 0;
      ++row_;
    }
  }
}

/// Elements of one row that lie in one tile of each kind.
template <typename At>
void Comparer::add_segment(std::uint64_t column, std::uint64_t count, const At& at) {
  const std::uint32_t differing = differing_of(at, count);
  if (differing == 0) return;
  const std::uint64_t found = differing == 0xFFFFU ? segment : static_cast<std::uint64_t>(std::popcount(differing));
  const auto first = static_cast<std::uint64_t>(std::countr_zero(differing));
  const auto last = static_cast<std::uint64_t>(std::bit_width(differing)) - 1;
  Places& columns = result_.columns;
  const int shift = std::countr_zero(columns.indices_per_bin);
  // 1. Counts.
  if (shift == 0) {
    std::uint64_t* const counts = columns.counts.data() + column;
    for (std::uint64_t i = 0; i < count; ++i) counts[i] += differing >> i & 1;
  } else {
    for (std::uint64_t i = 0; i < count; ++i) columns.counts[(column + i) >> shift] += differing >> i & 1;
  }
  const std::uint64_t bits = add_values(at, differing);
  // 2. What is looked at less often.
  const std::uint64_t start = row_ * options_.columns + column;
  for (std::uint64_t i = first; i <= last && (result_.first.size() < options_.most_shown || (bits & beyond_) != 0);
       ++i) {
    const auto [a, b] = at[i];
    if (((a | b) & beyond_) != 0 && a != b) refuse_code(start + i);
    if (a != b && result_.first.size() < options_.most_shown) result_.first.push_back({start + i, a, b});
  }
  // 3. Where they lie.
  const bool is_first = result_.differing == 0;
  columns.first = is_first ? column + first : std::min(columns.first, column + first);
  columns.last = is_first ? column + last : std::max(columns.last, column + last);
  Places& rows = result_.rows;
  rows.counts[row_ >> std::countr_zero(rows.indices_per_bin)] += found;
  if (is_first) rows.first = row_;
  rows.last = row_;
  result_.differing += found;
  touch_tiles(column);
}

/// Counts those elements by their words; gives the bits that any of them has.
template <typename At>
std::uint64_t Comparer::add_values(const At& at, std::uint32_t differing) {
  std::uint64_t bits = 0;
  const auto add_one = [&](std::uint64_t i) {
    const auto [a, b] = at[i];
    bits |= a | b;
    if (pairs_.empty()) {
      classify(result_, a, b, 1);
    } else {
      ++pairs_[a << 8 | b];
    }
  };
  if (differing == 0xFFFFU) {
    for (std::uint64_t i = 0; i < segment; ++i) add_one(i);
  } else {
    for (std::uint32_t left = differing; left != 0; left &= left - 1) {
      add_one(static_cast<std::uint64_t>(std::countr_zero(left)));
    }
  }
  return bits;
}

void Comparer::touch_tiles(std::uint64_t column) {
  const std::uint64_t word = column / (segment * segments_in_word);
  if (row_ != word_row_ || word != word_) {
    flush_word();
    word_row_ = row_;
    word_ = word;
  }
  touched_segments_ |= std::uint64_t{1} << (column / segment % segments_in_word);
}

void Comparer::flush_word() {
  if (touched_segments_ == 0) return;
  for (std::size_t i = 0; i < bands_.size(); ++i) {
    Band& band = bands_[i];
    const std::uint64_t number = word_row_ / result_.tiles[i].rows;
    if (band.segments.empty()) {
      count_tiles(i, number, word_, touched_segments_);
      continue;
    }
    if (number != band.number) flush_band(i);
    band.number = number;
    band.segments[word_] |= touched_segments_;
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
  // 1. A bit for each tile, where its first segment has its own.
  const std::uint64_t in_tile = tiles.columns / segment;
  if (in_tile >= 2) segments = (segments | segments >> 1) & 0x5555555555555555U;
  if (in_tile >= 4) segments = (segments | segments >> 2) & 0x1111111111111111U;
  if (in_tile >= 8) segments = (segments | segments >> 4) & 0x0101010101010101U;
  // 2. Tiles come in order.
  if (tiles.touched == 0) {
    const std::uint64_t across = tiles_along(options_.columns, tiles.columns);
    const std::uint64_t place = word * segments_in_word + static_cast<std::uint64_t>(std::countr_zero(segments));
    tiles.first = band * across + place / in_tile;
  }
  tiles.touched += static_cast<std::uint64_t>(std::popcount(segments));
}

void Comparer::refuse_code(std::uint64_t index) const {
  const Format& format = result_.type.format;
  refuse("element ", index, " has bits beyond the ", format.bits(), " of ", format_name(format));
}

Comparison Comparer::result() const {
  if (next_ != result_.elements) throw std::logic_error("elements are missing");
  Comparer done = *this;
  done.flush_word();
  for (std::size_t kind = 0; kind < bands_.size(); ++kind) done.flush_band(kind);
  Comparison whole = std::move(done.result_);
  for (std::uint64_t pair = 0; pair < pairs_.size(); ++pair) {
    if (pairs_[pair] != 0) classify(whole, pair >> 8, pair & 0xFF, pairs_[pair]);
  }
  return whole;
}

Comparison compare(const ElementType& type, std::span<const std::byte> a, std::span<const std::byte> b,
                   const CompareOptions& options) {
  type.check();
  const auto bits = static_cast<std::uint64_t>(type.bits());
  if (a.size() * 8 % bits != 0) refuse(a.size(), " bytes end within an element of ", bits / 8, " bytes");
  Comparer comparer(type, a.size() * 8 / bits, options);
  comparer.add(a, b);
  return comparer.result();
}

}  // namespace fp8lab::forensics
