// SPDX-License-Identifier: Apache-2.0
// Two arrays of codes or values that should be equal: how many elements differ, how far, and where.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/formats/format.hpp"

namespace fp8lab::doctor {

/// The type of the elements of an array of bytes.
struct ElementType {
  Format format;  ///< at most 8 bits: a byte for each code; 9 to 16 bits: two; binary32 and binary64; little-endian
  bool pairs = false;  ///< two codes of 4 bits in each byte, the element with the even index in the lower half

  /// Throws std::invalid_argument for other formats, and for pairs of a format that has not 4 bits.
  void check() const;
  /// Bits of an element in memory.
  [[nodiscard]] int bits() const;
};

/// An element that differs.
struct Mismatch {
  std::uint64_t index;
  std::uint64_t a, b;  ///< the words

  friend bool operator==(const Mismatch&, const Mismatch&) = default;
};

/// How far b is from a among the values of the format: its neighbour is at 1. Both zeros are one value, an infinity is
/// the neighbour of the largest finite one. Bins 0 to 7 count the distances 1 to 8, bin 8 counts 9 to 15, each bin from
/// there on counts [2^i, 2^(i + 1)).
struct Distances {
  static constexpr std::size_t bins = 69;
  static constexpr std::uint64_t singles = 8;        ///< distances that have a bin of their own
  std::array<std::uint64_t, bins> below{}, above{};  ///< b < a, b > a
  std::uint64_t largest = 0;

  /// The bin of a distance of at least 1.
  [[nodiscard]] static constexpr std::size_t bin_of(std::uint64_t distance) {
    if (distance <= singles) return static_cast<std::size_t>(distance) - 1;
    return static_cast<std::size_t>(std::bit_width(distance)) + 4;
  }
  /// The smallest and the largest distance of a bin.
  [[nodiscard]] static constexpr std::uint64_t first_of(std::size_t bin) {
    if (bin <= singles) return bin + 1;
    return std::uint64_t{1} << (bin - 5);
  }
  [[nodiscard]] static constexpr std::uint64_t last_of(std::size_t bin) {
    return bin + 1 == bins ? ~std::uint64_t{0} : first_of(bin + 1) - 1;
  }
};

/// How many differing elements each index of a dimension has.
struct Places {
  std::uint64_t length = 1;           ///< of the dimension
  std::uint64_t indices_per_bin = 1;  ///< 1 up to most_bins indices; counts[i] is about [i, i + 1) times as many
  std::vector<std::uint64_t> counts = {};
  std::uint64_t first = 0, last = 0;  ///< of those that have one, where any has

  static constexpr std::size_t most_bins = std::size_t{1} << 16;
};

/// Tiles of so many rows and columns; those at the ends may have fewer.
struct Tiles {
  std::uint64_t rows, columns;
  std::uint64_t count = 0;    ///< of the array
  std::uint64_t touched = 0;  ///< of these: those with a differing element
  std::uint64_t first = 0;    ///< the number of the first of these, row-major
  std::uint64_t missing = 0;  ///< elements that touched tiles at the ends lack

  friend bool operator==(const Tiles&, const Tiles&) = default;
};

/// The result of compare().
struct Comparison {
  ElementType type;
  std::uint64_t elements = 0;
  std::uint64_t differing = 0;        ///< words that are not equal: the sum of the next five
  std::uint64_t zero_signs = 0;       ///< both are zeros
  std::uint64_t nan_words = 0;        ///< both are NaNs
  std::uint64_t nan_in_a = 0;         ///< a alone is a NaN
  std::uint64_t nan_in_b = 0;         ///< b alone is a NaN
  std::uint64_t numbers = 0;          ///< two numbers that are not equal, infinities among them
  std::uint64_t opposite_signs = 0;   ///< of these: one is above zero and one below
  std::uint64_t opposite_values = 0;  ///< of these: b is -a
  std::uint64_t became_zero = 0;      ///< of numbers: b alone is zero
  std::uint64_t was_zero = 0;         ///< of numbers: a alone is zero
  Distances distances;                ///< of numbers
  Places rows, columns;
  std::vector<Tiles> tiles;     ///< of 1 x 16, 1 x 32, 1 x 64, 1 x 128, 16 x 16, 32 x 32, 128 x 128, as far as they fit
  std::vector<Mismatch> first;  ///< those with the smallest indices

  [[nodiscard]] bool equal() const { return differing == 0; }
};

/// How arrays are compared.
struct CompareOptions {
  std::uint64_t columns = 0;    ///< the last dimension; 0: one row
  std::size_t most_shown = 10;  ///< of Comparison::first
  int threads = 1;              ///< changes nothing but the time
};

/// Elements first .. last of an array.
struct ElementRange {
  std::uint64_t first, last;
};

/// Compares two arrays that come piece by piece, in order; or a part of them, which append() joins to the parts before.
class Comparer {
 public:
  /// Throws std::invalid_argument where `type` does not check, or `elements` are no multiple of the columns.
  Comparer(const ElementType& type, std::uint64_t elements, const CompareOptions& options = {});

  /// Up to `most` parts of like size that follow each other and cover all elements. None ends within a tile that
  /// counts, nor within a byte: they are of whole rows of tiles, and where all tiles have one row, of multiples of 1024
  /// columns. There is one at least, which is empty where the array is.
  [[nodiscard]] std::vector<ElementRange> parts(std::size_t most) const;
  /// A comparer of the same arrays, for one of parts() alone: its elements are the next.
  [[nodiscard]] Comparer part(const ElementRange& range) const;
  /// Adds what `next` has found in the part behind those that were added. Throws std::logic_error where it is another
  /// one, or has not all of its elements.
  void append(Comparer next);

  /// The next bytes of both. Throws std::invalid_argument where there are more than the elements have, their numbers
  /// differ, they end within an element, or a differing element has bits beyond those of its format.
  void add(std::span<const std::byte> a, std::span<const std::byte> b);

  /// Throws std::logic_error before all elements were added.
  [[nodiscard]] Comparison result() const;

 private:
  void add_words(const std::byte* a, const std::byte* b, std::size_t count);
  void add_values(const std::byte* a, const std::byte* b, std::size_t count, std::uint64_t* differing);
  void refuse_beyond(const std::byte* a, const std::byte* b, std::size_t count) const;
  void show_first(const std::byte* a, const std::byte* b, std::size_t count, const std::uint64_t* differing);
  void add_columns(std::size_t count, const std::uint64_t* differing);
  void add_places(std::size_t count, const std::uint64_t* differing);
  void add_rows(std::uint64_t row, std::uint64_t column, std::size_t first, std::size_t count,
                const std::uint64_t* differing);
  void find_columns(std::uint64_t column, std::size_t first, std::size_t count, const std::uint64_t* differing);
  [[nodiscard]] std::uint64_t of_any_row(std::uint64_t segments) const;
  [[nodiscard]] bool has_column_counts() const;

  void flush_columns();
  void flush_word();
  void flush_band(std::size_t kind);
  void count_tiles(std::size_t kind, std::uint64_t band, std::uint64_t word, std::uint64_t segments);
  void set_counts(Comparison& whole) const;
  void finish_counts();

  /// Which segments of the current rows of tiles of one kind have a differing element; tiles with one row need none.
  struct Band {
    std::uint64_t number = 0;
    std::vector<std::uint64_t> segments;
    bool are_whole = true;  ///< all tiles of that kind
  };

  CompareOptions options_;
  Comparison result_;
  std::uint64_t begin_ = 0, next_ = 0, end_ = 0;  ///< elements: the part is [begin_, end_), next_ comes next
  std::uint64_t beyond_ = 0;                      ///< bits that no code of the format has
  std::vector<Band> bands_;                       ///< by kind of tiles
  std::uint64_t word_row_ = 0, word_ = 0;         ///< of the segments that are being touched
  std::uint64_t touched_segments_ = 0;            ///< of that word, a bit for each
  /// How many pairs of words are of each kind: several numbers, whose sum it is.
  std::vector<std::uint64_t> kinds_;
  /// Counts of differing elements of some whole rows side by side that were not added to the columns yet: each at most
  /// as large as the number of such stretches that have been added.
  std::vector<std::uint8_t> column_counts_;
  std::uint64_t rows_at_once_ = 1;  ///< narrow rows that are gone through at once
  std::uint64_t stretch_ = 0;       ///< elements of such rows
  std::uint64_t last_stretch_ = 0;  ///< its number
  std::uint64_t stretches_added_ = 0;
};

/// The threads that are worth starting for arrays of so many bytes. Throws std::invalid_argument unless
/// 1 <= threads <= most_threads.
[[nodiscard]] int useful_threads(int threads, std::uint64_t bytes);

/// Compares two whole arrays. Throws as Comparer does, where the bytes are no whole number of elements, and for threads
/// as parallel_for() does.
[[nodiscard]] Comparison compare(const ElementType& type, std::span<const std::byte> a, std::span<const std::byte> b,
                                 const CompareOptions& options = {});

/// Says what the differences have in common, a sentence each: where they lie, and of which kind all are. Empty where
/// the arrays are equal.
[[nodiscard]] std::vector<std::string> findings(const Comparison& comparison);

/// The value of a word, in double.
[[nodiscard]] double value_of(const ElementType& type, std::uint64_t word);

}  // namespace fp8lab::doctor
