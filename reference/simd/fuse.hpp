// SPDX-License-Identifier: Apache-2.0
// One instruction for 2 rows x 64 columns of a product at a time, in vector code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gemm/multiplier.hpp"

namespace fp8lab {

inline constexpr std::size_t most_groups = 4;  // of products, an instruction

/// The facts of an instruction that the vector code needs.
struct FuseShape {
  std::size_t steps;
  std::size_t products;  ///< a step
  std::size_t groups;    ///< of products that are summed exactly before they are aligned, a step; 0: none
  std::size_t block;     ///< products that share a scale; 0: there are no scales
  int fraction_bits;
  int least_exponent;       ///< a floor of the alignment exponent
  bool empty_groups_count;  ///< groups of products that are all zero contribute their scales' exponents
  int output_bits;          ///< mantissa bits of the accumulator
  bool half;        ///< the accumulator is binary16, to which results are rounded; else binary32, to which they are cut
  bool keeps_sign;  ///< of negative sums that underflow; otherwise zero is +0
  bool adds_c_last;  ///< the steps start from zero, and the accumulator is added at the end, as IEEE 754 adds
};

/// Factors as vector code takes them: a row's, one after the other, or a tile's, as [k][tile_columns], in the order in
/// which the steps take them. Infinities and NaN are what they are; their exponents, and those of zeros, are absent.
template <typename Value, typename Exponent>
struct FactorsOf {
  const Value* values;
  const Exponent* exponents;
  const std::int16_t* grids;            ///< one a step: all its values are multiples of 2^grid
  const double* scales;                 ///< one a block
  const std::int16_t* scale_exponents;  ///< likewise
  const std::uint16_t* nonzero;         ///< one a group: bit k is set where its k-th factor is not zero
};
/// For sums below 2^24, without scales.
using NarrowFactors = FactorsOf<float, std::int8_t>;
/// For sums below 2^53.
using WideFactors = FactorsOf<double, std::int16_t>;

template <typename Exponent>
inline constexpr Exponent absent_exponent_of = -128;
template <>
inline constexpr std::int16_t absent_exponent_of<std::int16_t> = -2000;

/// accumulators = what the instruction makes of them: tile_columns float32 numbers a row, NaN as it comes.
///
/// Precondition of NarrowFactors: exponents of factors in [-31, 31]; accumulators are zero or at least 2^-80.
void fuse(const FuseShape& shape, const NarrowFactors& a0, const NarrowFactors& a1, const NarrowFactors& b,
          float* accumulators0, float* accumulators1);
void fuse(const FuseShape& shape, const WideFactors& a0, const WideFactors& a1, const WideFactors& b,
          float* accumulators0, float* accumulators1);
/// The same in groups: values are floats, so that 16 products are added exactly; exponents are not looked at.
void fuse_groups(const FuseShape& shape, const NarrowFactors& a0, const NarrowFactors& a1, const NarrowFactors& b,
                 float* accumulators0, float* accumulators1);

}  // namespace fp8lab
