// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// The constants by which the words of a format are told apart.
struct PairConstants {
  std::uint64_t sign;         ///< the sign bit; 0 where the format has none
  std::uint64_t magnitude;    ///< the bits below the sign
  std::uint64_t last_number;  ///< magnitudes above it are NaN
  std::uint64_t zero;         ///< the magnitude of zero; a magnitude that no word has where the format has no zero
  std::uint64_t lone_nan;     ///< all ones where the sign bit alone is NaN

  explicit constexpr PairConstants(const Format& format)
      : sign(format.sign_mask()),
        magnitude(format.magnitude_mask()),
        last_number(format.has_infinity() ? format.infinity_code() : format.max_code()),
        zero(format.has_subnormals ? 0 : ~std::uint64_t{0}),
        lone_nan(format.specials == Specials::nan_at_negative_zero ? ~std::uint64_t{0} : 0) {}
};

/// How two words differ: one of these, or first_bin + the bin of their distance, where b is below a
/// pair_bins() further.
struct PairKind {
  static constexpr std::uint32_t equal = 0, zero_sign = 1, nan_words = 2, nan_in_a = 3, nan_in_b = 4, first_bin = 5;
};
/// The bins that distances of words of so many bits have.
constexpr std::uint32_t pair_bins(std::size_t bits) { return bits < 8 ? 9 : static_cast<std::uint32_t>(bits) + 5; }

/// Numbers that a count is spread over: the lanes of 64 bits that a vector has at most.
inline constexpr std::size_t pair_lanes = 8;
/// The counts that count_pairs_vector() adds to.
struct PairCounts {
  std::uint64_t* kinds;  ///< pair_lanes numbers for each PairKind but `equal`; their sum is its count
  std::uint64_t opposite_signs = 0, opposite_values = 0, became_zero = 0, was_zero = 0;
  std::uint64_t largest = 0;  ///< distance
  bool has_beyond = false;    ///< whether a word that differs has bits beyond those of the format
};

/// Elements of a word of bits.
inline constexpr std::size_t bits_at_once = 64;

/// Counts `count` pairs of words of 4, 8, 16, 32 or 64 bits, of which those of 4 lie two in a byte, and sets bit i of
/// `differing` where words i differ; bits behind the last are 0.
void count_pairs_vector(const PairConstants& constants, std::size_t bits, const std::byte* a, const std::byte* b,
                        std::size_t count, PairCounts& counts, std::uint64_t* differing);

/// The bits first to first + count of a row that begins at `column`: how many are set, and the first and the last.
/// Sets bit s of segments[w] where one of the 16 columns from (64 * w + s) * 16 on has one; w counts from the word of
/// `column`. Reads the word behind the last bit.
struct RowBits {
  std::uint64_t count = 0, first = 0, last = 0;  ///< columns, where any is set
};
RowBits row_bits_vector(const std::uint64_t* bits, std::size_t first, std::size_t count, std::uint64_t column,
                        std::uint64_t* segments);

/// The 64 bits from `first` on; reads the word behind them.
inline std::uint64_t bits_from(const std::uint64_t* bits, std::size_t first) {
  const std::size_t shift = first % 64;
  return bits[first / 64] >> shift | (shift == 0 ? 0 : bits[first / 64 + 1] << (64 - shift));
}

/// Adds bit first + i to counts[i]. Reads the word behind the last bit; may change up to bits_at_once counts behind the
/// last.
void add_bits_vector(const std::uint64_t* bits, std::size_t first, std::size_t count, std::uint8_t* counts);

}  // namespace fp8lab
