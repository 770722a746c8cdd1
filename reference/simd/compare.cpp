// SPDX-License-Identifier: Apache-2.0
// What two arrays of words are to each other, as many words at a time as a vector has. The scalar code in
// src/forensics/compare.cpp defines the result.
#include "simd/compare.hpp"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/compare.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

/// Vectors whose kinds make a vector of indices of 16 bits: pairs of them for bytes lie in one already.
template <class T>
constexpr std::size_t vectors_in_group = sizeof(T);
template <class T>
using Lanes = hn::CappedTag<T, bits_at_once / vectors_in_group<T>>;

/// The bin of distances, of which 0 has none.
HWY_INLINE hn::Vec<Lanes<std::uint8_t>> Bin(hn::Vec<Lanes<std::uint8_t>> distance) {
  const Lanes<std::uint8_t> d;
  alignas(16) constexpr std::uint8_t small[16] = {0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 8, 8, 8};
  alignas(16) constexpr std::uint8_t large[16] = {0, 9, 10, 10, 11, 11, 11, 11, 12, 12, 12, 12, 12, 12, 12, 12};
  const auto upper = hn::ShiftRight<4>(distance);
  const auto of_small = hn::TableLookupBytes(hn::LoadDup128(d, small), hn::And(distance, hn::Set(d, 15)));
  return hn::IfThenElse(hn::Eq(upper, hn::Zero(d)), of_small, hn::TableLookupBytes(hn::LoadDup128(d, large), upper));
}
HWY_INLINE hn::Vec<Lanes<std::uint16_t>> Bin(hn::Vec<Lanes<std::uint16_t>> distance) {
  const Lanes<std::uint16_t> d;
  const hn::Repartition<std::uint8_t, decltype(d)> bytes;
  // 1. Those below 16.
  alignas(16) constexpr std::uint8_t small[16] = {0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 8, 8, 8};
  const auto below = hn::TableLookupBytes(hn::LoadDup128(bytes, small), hn::BitCast(bytes, distance));
  // 2. By the highest of the other three groups of four bits that is not 0.
  alignas(16) constexpr std::uint8_t widths[16] = {0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4};
  const auto zero = hn::Zero(d);
  const auto second = hn::ShiftRight<4>(distance);
  const auto third = hn::ShiftRight<8>(distance);
  const auto fourth = hn::ShiftRight<12>(distance);
  const auto has_third = hn::Ne(third, zero);
  const auto has_fourth = hn::Ne(fourth, zero);
  const auto group = hn::IfThenElse(has_fourth, fourth, hn::IfThenElse(has_third, third, second));
  const auto base = hn::IfThenElse(has_fourth, hn::Set(d, 16),
                                   hn::IfThenElse(has_third, hn::Set(d, 12), hn::Set(d, 8)));  // 4 * group + 4
  const auto width = hn::TableLookupBytes(hn::LoadDup128(bytes, widths), hn::BitCast(bytes, group));
  return hn::IfThenElse(hn::Eq(second, zero), hn::And(hn::BitCast(d, below), hn::Set(d, 15)),
                        hn::Add(hn::BitCast(d, width), base));
}
/// A float's exponent is the width of a number whose lower bits do not round it up. Half of it is no negative int.
HWY_INLINE hn::Vec<Lanes<std::uint32_t>> Bin(hn::Vec<Lanes<std::uint32_t>> distance) {
  const Lanes<std::uint32_t> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::RebindToFloat<decltype(d)> df;
  const auto half = hn::ShiftRight<1>(distance);
  const auto upper = hn::AndNot(hn::ShiftRight<9>(distance), half);
  const auto exponent = hn::ShiftRight<23>(hn::BitCast(d, hn::ConvertTo(df, hn::BitCast(di, upper))));
  const auto of_large = hn::Sub(exponent, hn::Set(d, 127 - 1 - 1 - 4));
  return hn::IfThenElse(hn::Gt(distance, hn::Set(d, 8)), of_large, hn::Sub(distance, hn::Set(d, 1)));
}

/// One of two words in each lane.
template <class D>
struct Side {
  hn::Vec<D> magnitude, order;
  hn::Mask<D> negative, nan, zero;
};

/// The constants in every lane.
template <class T>
struct Constants {
  using D = Lanes<T>;
  hn::Vec<D> sign, magnitude, last_number, zero;
  hn::Vec<D> lone_nan;  // the sign bit, or one above it, which no masked word has
  bool has_lone_nan, has_zero;

  HWY_INLINE explicit Constants(const PairConstants& from)
      : sign(hn::Set(D(), static_cast<T>(from.sign))),
        magnitude(hn::Set(D(), static_cast<T>(from.magnitude))),
        last_number(hn::Set(D(), static_cast<T>(from.last_number))),
        zero(hn::Zero(D())),
        lone_nan(hn::Set(D(), static_cast<T>(from.sign))),
        has_lone_nan(from.lone_nan != 0),
        has_zero(from.zero == 0) {}

  HWY_INLINE Side<D> side_of(hn::Vec<D> word) const {
    const D d;
    const auto own = hn::And(word, magnitude);
    const auto negative = hn::Ne(hn::And(word, sign), hn::Zero(d));
    // Negative numbers lie below `sign`, the others above: no word leaves the lane.
    const auto order = hn::IfThenElse(negative, hn::Sub(sign, own), hn::Add(sign, own));
    auto nan = hn::Gt(own, last_number);
    if (has_lone_nan) nan = hn::Or(nan, hn::Eq(word, lone_nan));
    const auto is_zero = has_zero ? hn::Eq(own, zero) : hn::Ne(own, own);
    return {own, order, negative, nan, is_zero};
  }
};

/// Counts a vector of pairs; gives their kinds.
template <class T>
HWY_INLINE hn::Vec<Lanes<T>> CountVector(const Constants<T>& constants, hn::Vec<Lanes<T>> words_a,
                                         hn::Vec<Lanes<T>> words_b, PairCounts& counts, hn::Vec<Lanes<T>>& largest) {
  const Lanes<T> d;
  const auto a = constants.side_of(words_a);
  const auto b = constants.side_of(words_b);
  const auto differs = hn::Ne(words_a, words_b);
  const auto is_plain =
      hn::Not(hn::Or(hn::Or(hn::Or(a.nan, b.nan), hn::Or(a.zero, b.zero)), hn::Xor(a.negative, b.negative)));
  // 1. Two numbers: how far apart they are.
  const auto upper = hn::Max(a.order, b.order);
  auto distance = hn::Sub(upper, hn::Min(a.order, b.order));
  const auto above = hn::Eq(upper, b.order);
  const auto base = hn::IfThenElse(above, hn::Set(d, static_cast<T>(PairKind::first_bin)),
                                   hn::Set(d, static_cast<T>(PairKind::first_bin + pair_bins(sizeof(T)))));
  auto kind = hn::IfThenElseZero(differs, hn::Add(Bin(distance), base));
  // 2. NaNs, zeros, and numbers of opposite signs.
  if (!hn::AllTrue(d, hn::Or(is_plain, hn::Not(differs)))) {
    const auto constant = [d](std::uint32_t value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };
    const auto any_nan = hn::Or(a.nan, b.nan);
    const auto numbers = hn::And(differs, hn::Not(hn::Or(any_nan, hn::And(a.zero, b.zero))));
    const auto of_nan_a = hn::IfThenElse(b.nan, constant(PairKind::nan_words), constant(PairKind::nan_in_a));
    const auto of_others = hn::IfThenElse(b.nan, constant(PairKind::nan_in_b), constant(PairKind::zero_sign));
    const auto special = hn::IfThenElseZero(differs, hn::IfThenElse(a.nan, of_nan_a, of_others));
    kind = hn::IfThenElse(numbers, kind, special);
    distance = hn::IfThenElseZero(numbers, distance);
    const auto any_zero = hn::Or(a.zero, b.zero);
    const auto opposite = hn::And(numbers, hn::And(hn::Xor(a.negative, b.negative), hn::Not(any_zero)));
    counts.opposite_signs += hn::CountTrue(d, opposite);
    counts.opposite_values += hn::CountTrue(d, hn::And(numbers, hn::Eq(a.magnitude, b.magnitude)));
    counts.became_zero += hn::CountTrue(d, hn::And(numbers, b.zero));
    counts.was_zero += hn::CountTrue(d, hn::And(numbers, a.zero));
  }
  largest = hn::Max(largest, distance);
  return kind;
}

/// The indices of two kinds each, in 16 bits.
HWY_INLINE hn::Vec<Lanes<std::uint16_t>> Indices(const hn::Vec<Lanes<std::uint16_t>>* kinds) {
  return hn::Or(kinds[0], hn::ShiftLeft<kind_bits(2)>(kinds[1]));
}
HWY_INLINE hn::Vec<Lanes<std::uint32_t>> Indices(const hn::Vec<Lanes<std::uint32_t>>* kinds) {
  const auto lower = hn::Or(kinds[0], hn::ShiftLeft<kind_bits(4)>(kinds[1]));
  const auto upper = hn::Or(kinds[2], hn::ShiftLeft<kind_bits(4)>(kinds[3]));
  return hn::Or(lower, hn::ShiftLeft<16>(upper));
}
HWY_INLINE auto Indices(const hn::Vec<Lanes<std::uint8_t>>* kinds) {
  const hn::Repartition<std::uint16_t, Lanes<std::uint8_t>> d;
  const auto both = hn::BitCast(d, kinds[0]);  // the upper one lies 8 bits up
  const auto upper = hn::ShiftLeft<kind_bits(1)>(hn::ShiftRight<8>(both));
  return hn::Or(hn::And(both, hn::Set(d, 0xFF)), upper);
}

/// Which of 64 pairs differ.
template <class T>
HWY_INLINE std::uint64_t DifferingBits(const T* a, const T* b) {
  const Lanes<T> d;
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < bits_at_once; i += hn::Lanes(d)) {
    std::uint8_t bytes[8] = {};
    hn::StoreMaskBits(d, hn::Ne(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), bytes);
    std::uint64_t bits;
    std::memcpy(&bits, bytes, sizeof(bits));
    all |= bits << i;
  }
  return all;
}

/// Counts 64 pairs.
template <class T>
HWY_INLINE void CountBlock(const Constants<T>& constants, const T* a, const T* b, PairCounts& counts,
                           hn::Vec<Lanes<T>>& largest) {
  const Lanes<T> d;
  constexpr std::size_t group = vectors_in_group<T>;
  alignas(64) std::uint16_t indices[bits_at_once / 2];
  std::uint16_t* next = indices;
  for (std::size_t i = 0; i < bits_at_once; i += group * hn::Lanes(d)) {
    hn::Vec<Lanes<T>> kinds[group];
    for (std::size_t k = 0; k < group; ++k) {
      const std::size_t at = i + k * hn::Lanes(d);
      kinds[k] = CountVector(constants, hn::LoadU(d, a + at), hn::LoadU(d, b + at), counts, largest);
    }
    const auto own = hn::BitCast(d, Indices(kinds));
    hn::StoreU(own, d, reinterpret_cast<T*>(next));
    next += hn::Lanes(d) * sizeof(T) / 2;
  }
  for (std::size_t i = 0; i < bits_at_once / 2; i += 4) {
    std::uint64_t four;
    std::memcpy(&four, indices + i, sizeof(four));
    ++counts.tables[0][four & 0xFFFF];
    ++counts.tables[1][four >> 16 & 0xFFFF];
    ++counts.tables[0][four >> 32 & 0xFFFF];
    ++counts.tables[1][four >> 48];
  }
}

template <class T>
HWY_INLINE void CountPairs(const PairConstants& from, const T* a, const T* b, std::size_t count, PairCounts& counts,
                           std::uint64_t* differing) {
  const Constants<T> constants(from);
  auto largest = hn::Zero(Lanes<T>());
  PairCounts own = counts;
  std::size_t i = 0;
  for (; i + bits_at_once <= count; i += bits_at_once) {
    differing[i / bits_at_once] = DifferingBits(a + i, b + i);
    if (differing[i / bits_at_once] != 0) CountBlock(constants, a + i, b + i, own, largest);
  }
  // Pairs of zeros, which are equal, fill up the last ones.
  if (i < count) {
    T last_a[bits_at_once] = {};
    T last_b[bits_at_once] = {};
    std::memcpy(last_a, a + i, (count - i) * sizeof(T));
    std::memcpy(last_b, b + i, (count - i) * sizeof(T));
    differing[i / bits_at_once] = DifferingBits(last_a, last_b);
    if (differing[i / bits_at_once] != 0) CountBlock(constants, last_a, last_b, own, largest);
  }
  T distances[bits_at_once];
  hn::StoreU(largest, Lanes<T>(), distances);
  for (std::size_t k = 0; k < hn::Lanes(Lanes<T>()); ++k) {
    if (own.largest < distances[k]) own.largest = distances[k];
  }
  counts = own;
}

template <class T>
HWY_INLINE void AddDiffering(const T* a, const T* b, std::size_t count, T* counts) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto differs = hn::VecFromMask(d, hn::Ne(hn::LoadU(d, a + i), hn::LoadU(d, b + i)));
    hn::StoreU(hn::Sub(hn::LoadU(d, counts + i), differs), d, counts + i);
  }
  for (; i < count; ++i) counts[i] = static_cast<T>(counts[i] + (a[i] != b[i] ? 1 : 0));
}

HWY_ATTR void UnpackPairs(const std::uint8_t* bytes, std::size_t count, std::uint8_t* codes) {
  const hn::CappedTag<std::uint8_t, 16> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto both = hn::LoadU(d, bytes + i);
    const auto lower = hn::And(both, hn::Set(d, 15));
    const auto upper = hn::ShiftRight<4>(both);
    hn::StoreU(hn::InterleaveLower(d, lower, upper), d, codes + 2 * i);
    hn::StoreU(hn::InterleaveUpper(d, lower, upper), d, codes + 2 * i + lanes);
  }
  for (; i < count; ++i) {
    codes[2 * i] = bytes[i] & 15;
    codes[2 * i + 1] = static_cast<std::uint8_t>(bytes[i] >> 4);
  }
}

#else

// The scalar code is called in their place.
template <class T>
void CountPairs(const PairConstants& /*from*/, const T* /*a*/, const T* /*b*/, std::size_t /*count*/,
                PairCounts& /*counts*/, std::uint64_t* /*differing*/) {}
template <class T>
void AddDiffering(const T* /*a*/, const T* /*b*/, std::size_t /*count*/, T* /*counts*/) {}
void UnpackPairs(const std::uint8_t* /*bytes*/, std::size_t /*count*/, std::uint8_t* /*codes*/) {}

#endif

HWY_ATTR void CountBytes(const PairConstants& from, const std::uint8_t* a, const std::uint8_t* b, std::size_t count,
                         PairCounts& counts, std::uint64_t* differing) {
  CountPairs(from, a, b, count, counts, differing);
}
HWY_ATTR void CountHalves(const PairConstants& from, const std::uint16_t* a, const std::uint16_t* b, std::size_t count,
                          PairCounts& counts, std::uint64_t* differing) {
  CountPairs(from, a, b, count, counts, differing);
}
HWY_ATTR void CountWords(const PairConstants& from, const std::uint32_t* a, const std::uint32_t* b, std::size_t count,
                         PairCounts& counts, std::uint64_t* differing) {
  CountPairs(from, a, b, count, counts, differing);
}
HWY_ATTR void AddBytes(const std::uint8_t* a, const std::uint8_t* b, std::size_t count, std::uint8_t* counts) {
  AddDiffering(a, b, count, counts);
}
HWY_ATTR void AddHalves(const std::uint16_t* a, const std::uint16_t* b, std::size_t count, std::uint16_t* counts) {
  AddDiffering(a, b, count, counts);
}
HWY_ATTR void AddWords(const std::uint32_t* a, const std::uint32_t* b, std::size_t count, std::uint32_t* counts) {
  AddDiffering(a, b, count, counts);
}

/// Which of the four groups of 16 bits have one.
HWY_INLINE std::uint64_t Segments(std::uint64_t bits) {
  constexpr std::uint64_t low = 0x7FFF7FFF7FFF7FFFU;
  const std::uint64_t tops = (((bits & low) + low) | bits) & ~low;  // the top bit of each group
  return (tops >> 15) * 0x0001000200040008U >> 48 & 15;
}

/// Compiled for every target, since most have an instruction that counts bits.
HWY_ATTR RowBits CountRow(const std::uint64_t* bits, std::size_t first, std::size_t count, std::uint64_t column,
                          std::uint64_t* segments) {
  RowBits row;
  std::uint64_t word = column / 1024;
  for (std::size_t done = 0; done < count;) {
    const std::size_t shift = column % 64;
    const std::size_t size = 64 - shift < count - done ? 64 - shift : count - done;
    const std::uint64_t own = bits_from(bits, first + done) << (64 - size) >> (64 - size);
    if (own != 0) {
      if (row.count == 0) row.first = column + static_cast<std::uint64_t>(__builtin_ctzll(own));
      row.last = column + 63 - static_cast<std::uint64_t>(__builtin_clzll(own));
      row.count += static_cast<std::uint64_t>(__builtin_popcountll(own));
      segments[column / 1024 - word] |= Segments(own << shift) << (column / 64 % 16 * 4);
    }
    done += size;
    column += size;
  }
  return row;
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(CountBytes);
HWY_EXPORT(CountHalves);
HWY_EXPORT(CountWords);
HWY_EXPORT(AddBytes);
HWY_EXPORT(AddHalves);
HWY_EXPORT(AddWords);
HWY_EXPORT(CountRow);
HWY_EXPORT(UnpackPairs);

void count_pairs_vector(const PairConstants& constants, const std::uint8_t* a, const std::uint8_t* b, std::size_t count,
                        PairCounts& counts, std::uint64_t* differing) {
  HWY_DYNAMIC_DISPATCH(CountBytes)(constants, a, b, count, counts, differing);
}
void count_pairs_vector(const PairConstants& constants, const std::uint16_t* a, const std::uint16_t* b,
                        std::size_t count, PairCounts& counts, std::uint64_t* differing) {
  HWY_DYNAMIC_DISPATCH(CountHalves)(constants, a, b, count, counts, differing);
}
void count_pairs_vector(const PairConstants& constants, const std::uint32_t* a, const std::uint32_t* b,
                        std::size_t count, PairCounts& counts, std::uint64_t* differing) {
  HWY_DYNAMIC_DISPATCH(CountWords)(constants, a, b, count, counts, differing);
}
void add_differing_vector(const std::uint8_t* a, const std::uint8_t* b, std::size_t count, std::uint8_t* counts) {
  HWY_DYNAMIC_DISPATCH(AddBytes)(a, b, count, counts);
}
void add_differing_vector(const std::uint16_t* a, const std::uint16_t* b, std::size_t count, std::uint16_t* counts) {
  HWY_DYNAMIC_DISPATCH(AddHalves)(a, b, count, counts);
}
void add_differing_vector(const std::uint32_t* a, const std::uint32_t* b, std::size_t count, std::uint32_t* counts) {
  HWY_DYNAMIC_DISPATCH(AddWords)(a, b, count, counts);
}
RowBits row_bits_vector(const std::uint64_t* bits, std::size_t first, std::size_t count, std::uint64_t column,
                        std::uint64_t* segments) {
  return HWY_DYNAMIC_DISPATCH(CountRow)(bits, first, count, column, segments);
}
void unpack_pairs_vector(const std::uint8_t* bytes, std::size_t count, std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(UnpackPairs)(bytes, count, codes);
}

}  // namespace fp8lab
#endif
