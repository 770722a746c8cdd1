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

/// Words are counted as bits, 64 pairs at a time.
template <class T>
using Lanes = hn::CappedTag<T, bits_at_once>;
using Bytes = hn::CappedTag<std::uint8_t, 8 * pair_lanes>;

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

/// The constants in every lane. `has_lone_nan`: the sign bit alone is NaN.
template <class T, bool has_lone_nan>
struct Constants {
  using D = Lanes<T>;
  hn::Vec<D> sign, magnitude, last_number, zero;

  HWY_INLINE explicit Constants(const PairConstants& from)
      : sign(hn::Set(D(), static_cast<T>(from.sign))),
        magnitude(hn::Set(D(), static_cast<T>(from.magnitude))),
        last_number(hn::Set(D(), static_cast<T>(from.last_number))),
        zero(hn::Zero(D())) {}

  HWY_INLINE Side<D> side_of(hn::Vec<D> word) const {
    const D d;
    const auto own = hn::And(word, magnitude);
    const auto negative = hn::Ne(hn::And(word, sign), hn::Zero(d));
    // Negative numbers lie below `sign`, the others above: no word leaves the lane.
    const auto order = hn::IfThenElse(negative, hn::Sub(sign, own), hn::Add(sign, own));
    auto nan = hn::Gt(own, last_number);
    if constexpr (has_lone_nan) nan = hn::Or(nan, hn::Eq(word, sign));
    return {own, order, negative, nan, hn::Eq(own, zero)};
  }
};

/// The bits of a bin.
template <class T>
constexpr int bin_bits = sizeof(T) == 1   ? 4
                         : sizeof(T) == 2 ? 5
                                          : 6;
static_assert(pair_bins(1) <= 16 && pair_bins(2) <= 32 && pair_bins(4) <= 64);

/// What is known of each pair, a bit each: words of 64 pairs, of which some differ.
struct Planes {
  static constexpr std::size_t most_words = hn::MaxLanes(Bytes()) < 32 ? 32 : 64;  // few enough for counts in bytes
  enum Name : std::size_t { differs, nan_a, nan_b, zero_a, zero_b, negative_a, negative_b, same, above, below, bin };
  static constexpr std::size_t names = bin + bin_bits<std::uint32_t>;

  alignas(64) std::uint64_t bits[names][most_words];
  std::size_t words = 0;
};

/// Writes the bits of lanes i and on of 64.
template <class D>
HWY_INLINE void PutBits(D d, hn::Mask<D> mask, std::size_t i, std::uint64_t* word) {
  auto* const bytes = reinterpret_cast<std::uint8_t*>(word) + i / 8;
  if constexpr (hn::MaxLanes(D()) >= 8) {
    hn::StoreMaskBits(d, mask, bytes);
  } else {
    std::uint8_t bits[8];
    hn::StoreMaskBits(d, mask, bits);
    *bytes = static_cast<std::uint8_t>((i % 8 == 0 ? 0 : *bytes) | bits[0] << i % 8);
  }
}

/// Which of 64 pairs differ.
template <class T>
HWY_INLINE std::uint64_t DifferingBits(const T* a, const T* b) {
  const Lanes<T> d;
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < bits_at_once; i += hn::Lanes(d)) {
    PutBits(d, hn::Ne(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), i, &all);
  }
  return all;
}

/// Adds a word of 64 pairs, of which those in `differing` differ.
template <class T, bool has_lone_nan>
HWY_INLINE void AddWord(const Constants<T, has_lone_nan>& constants, const T* words_a, const T* words_b,
                        std::uint64_t differing, Planes& planes, hn::Vec<Lanes<T>>& largest) {
  const Lanes<T> d;
  const std::size_t word = planes.words++;
  const auto plane = [&](std::size_t name) HWY_ATTR { return &planes.bits[name][word]; };
  *plane(Planes::differs) = differing;
  for (std::size_t i = 0; i < bits_at_once; i += hn::Lanes(d)) {
    const auto a = constants.side_of(hn::LoadU(d, words_a + i));
    const auto b = constants.side_of(hn::LoadU(d, words_b + i));
    const auto upper = hn::Max(a.order, b.order);
    const auto distance = hn::Sub(upper, hn::Min(a.order, b.order));
    const auto numbers = hn::Not(hn::Or(a.nan, b.nan));
    largest = hn::Max(largest, hn::IfThenElseZero(numbers, distance));
    PutBits(d, a.nan, i, plane(Planes::nan_a));
    PutBits(d, b.nan, i, plane(Planes::nan_b));
    PutBits(d, a.zero, i, plane(Planes::zero_a));
    PutBits(d, b.zero, i, plane(Planes::zero_b));
    PutBits(d, a.negative, i, plane(Planes::negative_a));
    PutBits(d, b.negative, i, plane(Planes::negative_b));
    PutBits(d, hn::Eq(a.magnitude, b.magnitude), i, plane(Planes::same));
    PutBits(d, hn::Eq(upper, b.order), i, plane(Planes::above));
    const auto bin = Bin(distance);
    for (int k = 0; k < bin_bits<T>; ++k) {
      PutBits(d, hn::TestBit(bin, hn::Set(d, static_cast<T>(1 << k))), i, plane(Planes::bin + k));
    }
  }
}

/// The number of bits set, by lanes of 64 bits.
class BitCount {
 public:
  HWY_INLINE BitCount() : sum_(hn::Zero(Bytes())) {}
  HWY_INLINE void add(hn::Vec<Bytes> bits) { sum_ = hn::Add(sum_, hn::PopulationCount(bits)); }
  HWY_INLINE void add_to(std::uint64_t* lanes) const {
    const hn::Repartition<std::uint64_t, Bytes> d;
    hn::StoreU(hn::Add(hn::LoadU(d, lanes), hn::SumsOf8(sum_)), d, lanes);
  }
  [[nodiscard]] HWY_INLINE std::uint64_t sum() const {
    std::uint64_t lanes[pair_lanes] = {};
    add_to(lanes);
    std::uint64_t all = 0;
    for (const std::uint64_t one : lanes) all += one;
    return all;
  }

 private:
  hn::Vec<Bytes> sum_;  // of each byte: at most 16 vectors, at most 8 each
};

/// Counts numbers by their bins [kFirst, bins), four at a time, whose upper bits are the same.
template <class T, std::uint32_t kFirst>
HWY_INLINE void CountBins(std::uint32_t bins, const Planes& planes, PairCounts& counts) {
  constexpr std::uint32_t all = pair_bins(sizeof(T));
  if (kFirst >= bins) return;
  const Bytes d;
  const auto plane = [&](std::size_t name)
                         HWY_ATTR { return reinterpret_cast<const std::uint8_t*>(planes.bits[name]); };
  BitCount above[4];
  BitCount below[4];
  for (std::size_t i = 0; i < 8 * planes.words; i += hn::Lanes(d)) {
    auto others = hn::Zero(d);  // than those of the four
    for (int k = 2; k < bin_bits<T>; ++k) {
      const auto bits = hn::LoadU(d, plane(Planes::bin + k) + i);
      others = hn::Or(others, (kFirst >> k & 1) != 0 ? hn::Not(bits) : bits);
    }
    const auto lower = hn::LoadU(d, plane(Planes::bin) + i);
    const auto upper = hn::LoadU(d, plane(Planes::bin + 1) + i);
    const auto count = [&](BitCount* of_bins, hn::Vec<Bytes> numbers) HWY_ATTR {
      const auto own = hn::AndNot(others, numbers);
      if constexpr (kFirst + 1 == all) return of_bins[0].add(own);  // the last one
      const auto with_upper = hn::And(upper, own);
      const auto without = hn::AndNot(upper, own);
      of_bins[0].add(hn::AndNot(lower, without));
      of_bins[1].add(hn::And(lower, without));
      of_bins[2].add(hn::AndNot(lower, with_upper));
      of_bins[3].add(hn::And(lower, with_upper));
    };
    count(above, hn::LoadU(d, plane(Planes::above) + i));
    count(below, hn::LoadU(d, plane(Planes::below) + i));
  }
  for (std::uint32_t k = 0; k < 4 && kFirst + k < all; ++k) {
    std::uint64_t* const kind = counts.kinds + pair_lanes * (PairKind::first_bin + kFirst + k);
    above[k].add_to(kind);
    below[k].add_to(kind + pair_lanes * all);
  }
  if constexpr (kFirst + 4 < all) CountBins<T, kFirst + 4>(bins, planes, counts);
}

/// Counts what lies in the planes, and empties them.
template <class T>
HWY_INLINE void CountPlanes(bool has_zero, std::uint32_t bins, Planes& planes, PairCounts& counts) {
  const Bytes d;
  const std::size_t step = hn::Lanes(d) / 8;
  for (; planes.words % step != 0; ++planes.words) {
    for (auto& words : planes.bits) words[planes.words] = 0;
  }
  const auto plane = [&](std::size_t name) HWY_ATTR { return reinterpret_cast<std::uint8_t*>(planes.bits[name]); };
  // 1. What are no two numbers, and which numbers are.
  {
    BitCount zero_sign, nan_words, nan_in_a, nan_in_b, opposite_signs, opposite_values, became_zero, was_zero;
    const auto zeros = hn::Set(d, has_zero ? 0xFF : 0);
    for (std::size_t i = 0; i < 8 * planes.words; i += hn::Lanes(d)) {
      const auto bits = [&](Planes::Name name) HWY_ATTR { return hn::LoadU(d, plane(name) + i); };
      const auto differs = bits(Planes::differs);
      const auto nan_a = hn::And(differs, bits(Planes::nan_a));
      const auto nan_b = hn::And(differs, bits(Planes::nan_b));
      const auto others = hn::AndNot(hn::Or(nan_a, nan_b), differs);
      const auto zero_a = hn::And(others, hn::And(zeros, bits(Planes::zero_a)));
      const auto zero_b = hn::And(others, hn::And(zeros, bits(Planes::zero_b)));
      const auto both_zero = hn::And(zero_a, zero_b);
      const auto numbers = hn::AndNot(both_zero, others);
      nan_words.add(hn::And(nan_a, nan_b));
      nan_in_a.add(hn::AndNot(nan_b, nan_a));
      nan_in_b.add(hn::AndNot(nan_a, nan_b));
      zero_sign.add(both_zero);
      const auto opposite = hn::Xor(bits(Planes::negative_a), bits(Planes::negative_b));
      opposite_signs.add(hn::AndNot(hn::Or(zero_a, zero_b), hn::And(numbers, opposite)));
      opposite_values.add(hn::And(numbers, bits(Planes::same)));
      became_zero.add(hn::AndNot(zero_a, zero_b));
      was_zero.add(hn::AndNot(zero_b, zero_a));
      const auto above = bits(Planes::above);
      hn::StoreU(hn::And(numbers, above), d, plane(Planes::above) + i);
      hn::StoreU(hn::AndNot(above, numbers), d, plane(Planes::below) + i);
    }
    zero_sign.add_to(counts.kinds + pair_lanes * PairKind::zero_sign);
    nan_words.add_to(counts.kinds + pair_lanes * PairKind::nan_words);
    nan_in_a.add_to(counts.kinds + pair_lanes * PairKind::nan_in_a);
    nan_in_b.add_to(counts.kinds + pair_lanes * PairKind::nan_in_b);
    counts.opposite_signs += opposite_signs.sum();
    counts.opposite_values += opposite_values.sum();
    counts.became_zero += became_zero.sum();
    counts.was_zero += was_zero.sum();
  }
  // 2. Numbers by their bins, of which words of few bits use few.
  CountBins<T, 0>(bins, planes, counts);
  planes.words = 0;
}

template <bool has_lone_nan, class T>
HWY_INLINE void CountPairsOf(const PairConstants& from, const T* a, const T* b, std::size_t count, PairCounts& counts,
                             std::uint64_t* differing) {
  const Constants<T, has_lone_nan> constants(from);
  const std::uint32_t bins = from.magnitude < 8 ? 9 : pair_bins(sizeof(T));  // those of distances to 14
  auto largest = hn::Zero(Lanes<T>());
  Planes planes;
  std::size_t i = 0;
  for (; i + bits_at_once <= count; i += bits_at_once) {
    const std::uint64_t bits = DifferingBits(a + i, b + i);
    differing[i / bits_at_once] = bits;
    if (bits != 0) AddWord(constants, a + i, b + i, bits, planes, largest);
    if (planes.words == Planes::most_words) CountPlanes<T>(from.zero == 0, bins, planes, counts);
  }
  // Pairs of zeros, which are equal, fill up the last ones.
  if (i < count) {
    T last_a[bits_at_once] = {};
    T last_b[bits_at_once] = {};
    std::memcpy(last_a, a + i, (count - i) * sizeof(T));
    std::memcpy(last_b, b + i, (count - i) * sizeof(T));
    const std::uint64_t bits = DifferingBits(last_a, last_b);
    differing[i / bits_at_once] = bits;
    if (bits != 0) AddWord(constants, last_a, last_b, bits, planes, largest);
  }
  if (planes.words != 0) CountPlanes<T>(from.zero == 0, bins, planes, counts);
  T distances[bits_at_once];
  hn::StoreU(largest, Lanes<T>(), distances);
  for (std::size_t k = 0; k < hn::Lanes(Lanes<T>()); ++k) {
    if (counts.largest < distances[k]) counts.largest = distances[k];
  }
}

template <class T>
HWY_INLINE void CountPairs(const PairConstants& from, const T* a, const T* b, std::size_t count, PairCounts& counts,
                           std::uint64_t* differing) {
  if constexpr (sizeof(T) <= 2) {  // no type of 32 bits has one
    if (from.lone_nan != 0) return CountPairsOf<true>(from, a, b, count, counts, differing);
  }
  CountPairsOf<false>(from, a, b, count, counts, differing);
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
  std::uint64_t differing = 0;
  std::uint64_t first_bits = 0, first_column = 0, last_bits = 0, last_column = 0;
  const std::uint64_t word = column / 1024;
  for (std::size_t done = 0; done < count;) {
    const std::size_t shift = column % 64;
    const std::size_t size = 64 - shift < count - done ? 64 - shift : count - done;
    const std::uint64_t own = bits_from(bits, first + done) << (64 - size) >> (64 - size);
    if (own != 0) {
      if (first_bits == 0) {
        first_bits = own;
        first_column = column;
      }
      last_bits = own;
      last_column = column;
      differing += static_cast<std::uint64_t>(__builtin_popcountll(own));
      segments[column / 1024 - word] |= Segments(own << shift) << (column / 64 % 16 * 4);
    }
    done += size;
    column += size;
  }
  if (differing == 0) return {};
  return {differing, first_column + static_cast<std::uint64_t>(__builtin_ctzll(first_bits)),
          last_column + 63 - static_cast<std::uint64_t>(__builtin_clzll(last_bits))};
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
