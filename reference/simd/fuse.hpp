// SPDX-License-Identifier: Apache-2.0
// One instruction for 2 rows x 64 columns of a product at a time, in vector code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "gemm/multiplier.hpp"

namespace fp8lab {

inline constexpr std::size_t most_groups = 4;           // of products, an instruction
inline constexpr std::size_t most_small_products = 32;  // a step

/// The type that holds a step's sum, in units of 2^-fraction_bits of the power that its terms are aligned to.
enum class StepSum : std::uint8_t {
  small,      ///< a float32 of fuse_small(), an int32 of fuse(), where it stays below 2^22 units
  ints,       ///< an int32, where it stays below 2^31 units
  int_pairs,  ///< two of them, one for each half of the products
};

/// The facts of an instruction that the vector code needs.
struct FuseShape {
  Arithmetic arithmetic;
  std::size_t steps;
  std::size_t products;  ///< a step
  std::size_t groups;    ///< of products that are summed exactly before they are aligned, a step; 0: none
  std::size_t block;     ///< products that share a scale; 0: there are no scales
  StepSum sum;
  bool scaled_values;  ///< in groups: values have been multiplied with their scales
  int group_bits;      ///< a group's scaled sum is a multiple of 2^(the exponents of its scales - group_bits)
  int fraction_bits;
  int least_exponent;       ///< a floor of the alignment exponent
  bool empty_groups_count;  ///< groups of products that are all zero contribute their scales' exponents
  int output_bits;          ///< mantissa bits of the accumulator
  bool half;        ///< the accumulator is binary16, to which results are rounded; else binary32, to which they are cut
  bool keeps_sign;  ///< of negative sums that underflow; otherwise zero is +0
  bool adds_c_last;    ///< the steps start from zero, and the accumulator is added at the end, as IEEE 754 adds
  std::size_t sums;    ///< products_first: the sums of a step's products, which lie together
  int sum_bits;        ///< products_first: fraction bits of the sum before it is rounded
  bool drops_small_c;  ///< products_first, as MmaModel has it
};

/// What finds the largest exponent of products: a narrow exponent as it is, or how far a wide one is below the largest
/// of its tile, as near_exponents() tells it.
template <typename Exponent>
using NearOf = std::conditional_t<sizeof(Exponent) == 1, std::int8_t, std::uint8_t>;

/// Factors as vector code takes them: a row's, one after the other, or a tile's, as [k][tile_columns], in the order in
/// which the steps take them. Infinities and NaN are what they are, also those that a scale makes; their exponents, and
/// those of zeros, are absent.
template <typename Exponent>
struct FactorsOf {
  const float* values;
  const Exponent* exponents;
  const NearOf<Exponent>* near;         ///< the same in a byte
  const double* scales;                 ///< one a block
  const std::int16_t* scale_exponents;  ///< likewise
  const std::uint16_t* nonzero;         ///< one a group: bit k is set where its k-th factor is not zero
  /// For fuse_small(): as [k][2][width] the exponents of the last places of positive factors, and of negative ones.
  const std::int8_t* lasts;
  bool special;   ///< there may be an infinity or a NaN among the values
  int near_base;  ///< the largest exponent of the tile; 0 for narrow ones

  /// Returns the last places from number `element` on, null where there are none.
  [[nodiscard]] const std::int8_t* lasts_from(std::size_t element) const {
    return lasts == nullptr ? nullptr : lasts + 2 * element;
  }
};

/// The factors of consecutive rows.
template <typename Exponent>
struct RowsOf {
  FactorsOf<Exponent> first;
  const std::uint8_t* special;     ///< of each row
  const std::int16_t* near_bases;  ///< likewise; null for narrow ones
  std::size_t count;
  std::size_t elements, blocks, groups, specials;  ///< from a row to the next

  [[nodiscard]] FactorsOf<Exponent> operator[](std::size_t row) const {
    return {first.values + row * elements,
            first.exponents + row * elements,
            first.near + row * elements,
            first.scales + row * blocks,
            first.scale_exponents + row * blocks,
            first.nonzero + row * groups,
            first.lasts_from(row * elements),
            special[row * specials] != 0,
            near_bases == nullptr ? 0 : near_bases[row]};
  }
  /// One of them.
  [[nodiscard]] RowsOf only(std::size_t row) const {
    const std::int16_t* const base = near_bases == nullptr ? nullptr : near_bases + row;
    return {(*this)[row], special + row * specials, base, 1, elements, blocks, groups, specials};
  }
};

/// In place of the exponent of a last place where there is none: above all others, also in a sum of two.
inline constexpr std::int8_t no_last_place = 63;

/// Their exponents are in [-16, 15], and they have no scales.
using NarrowFactors = FactorsOf<std::int8_t>;
using NarrowRows = RowsOf<std::int8_t>;
using WideFactors = FactorsOf<std::int16_t>;
using WideRows = RowsOf<std::int16_t>;

/// The exponent of what has none: apart from all others, also in a sum of two, or of four of which two are scales'.
template <typename Exponent>
inline constexpr Exponent absent_exponent_of = -64;
template <>
inline constexpr std::int16_t absent_exponent_of<std::int16_t> = -2000;

/// Sums of two narrow exponents are no less, unless one is absent.
inline constexpr std::int8_t least_narrow_sum = -32;

/// Products and scales, all in all, that fuse() takes have exponents in [-limit, limit].
inline constexpr int fuse_exponent_limit = 100;

/// How far wide exponents are below the largest, in bytes: farthest_near at most, absent_near where there is none. A
/// sum of two fits a byte, and one with an absent exponent is above all others.
inline constexpr std::uint8_t farthest_near = 62;
inline constexpr std::uint8_t absent_near = 2 * farthest_near + 1;

/// Where a step finds its factors. `width`: from one of K to the next. Inlined, for a call takes as long as the step.
template <typename Exponent>
[[gnu::always_inline]] inline FactorsOf<Exponent> at_step(const FuseShape& shape, const FactorsOf<Exponent>& x,
                                                          std::size_t step, std::size_t width) {
  const std::size_t k = step * shape.products;
  const std::size_t block = shape.block == 0 ? 0 : k / shape.block;
  return {x.values + k * width,
          x.exponents + k * width,
          x.near + k * width,
          x.scales + block * width,
          x.scale_exponents + block * width,
          x.nonzero,
          x.lasts_from(k * width),
          x.special,
          x.near_base};
}

/// accumulators = what the instruction makes of them: tile_columns float32 numbers a row, NaN as it comes; of an odd
/// count of rows, one row more may change. They must not be tiny, but for those that instructions made of such that
/// were not.
void fuse(const FuseShape& shape, const NarrowRows& a, const NarrowFactors& b, float* accumulators);
void fuse(const FuseShape& shape, const WideRows& a, const WideFactors& b, float* accumulators);
/// The same where sums are StepSum::small, of at most most_small_products.
void fuse_small(const FuseShape& shape, const NarrowRows& a, const NarrowFactors& b, float* accumulators);
/// The same for numbers of any size, where sums stay below 2^53 units. Slower.
void fuse_wide(const FuseShape& shape, const NarrowRows& a, const NarrowFactors& b, float* accumulators);
void fuse_wide(const FuseShape& shape, const WideRows& a, const WideFactors& b, float* accumulators);
/// The exponents of values of a format whose least normal number has the exponent `least`, of zero, infinity and NaN
/// absent. Returns whether there is one of the latter two. `flushes`: makes subnormal values zero first.
bool find_exponents(int least, bool flushes, std::span<float> values, std::int8_t* exponents);
bool find_exponents(int least, bool flushes, std::span<float> values, std::int16_t* exponents);
/// The least and the largest exponent; `low` is above `high` where there is none.
struct ExponentRange {
  int low, high;
};
ExponentRange range_of(std::span<const std::int16_t> exponents);
/// Makes of exponents how far they are below the largest.
void near_exponents(std::span<const std::int16_t> exponents, int largest, std::uint8_t* near);
/// result = c + the products of a and b, whose elements are tile_columns apart, rounded once; unless there is an
/// infinity or a NaN, which leave it as it is.
void exact_step(std::size_t products, const float* a, const float* b, float c, float& result);
/// The same of AMD's arithmetic: products_first, flushed_pairs, fma_chain, exact. Accumulators are of any size, and so
/// are exponents unless they are `within_limits`: those of fuse().
void fuse_amd(const FuseShape& shape, bool within_limits, const NarrowRows& a, const NarrowFactors& b,
              float* accumulators);
void fuse_amd(const FuseShape& shape, bool within_limits, const WideRows& a, const WideFactors& b, float* accumulators);
/// The same in groups of at most 16 products, which floats add exactly; exponents are not looked at.
void fuse_groups(const FuseShape& shape, const NarrowRows& a, const NarrowFactors& b, float* accumulators);

}  // namespace fp8lab
