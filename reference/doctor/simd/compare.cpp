// SPDX-License-Identifier: Apache-2.0
// Counts how two arrays of words differ, as many words at a time as a vector has. The scalar code in
// src/compare/compare.cpp defines the result.
#include "simd/compare.hpp"

#include <bit>
#include <cstring>

// Its instruction that counts bits makes most of a difference here.
#define HWY_WANT_AVX3_DL 1
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/compare.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

/// 64 bits in each lane: of a plane, which has a bit for each pair of words.
using Bits = hn::CappedTag<std::uint64_t, pair_lanes>;
using BitVector = hn::Vec<Bits>;
constexpr std::size_t lanes_of_plane = hn::MaxLanes(Bits());
constexpr std::size_t bytes_of_vector = lanes_of_plane * sizeof(std::uint64_t);
/// Bit k of the words of as many pairs as a vector has bits.
struct Planes {
  alignas(64) std::uint64_t of[64][lanes_of_plane];
};

HWY_INLINE BitVector LoadBytes(const std::byte* bytes) {
  const hn::Repartition<std::uint8_t, Bits> d;
  return hn::BitCast(Bits(), hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(bytes)));
}

/// The bits of `yes` where `mask` has them, those of `no` elsewhere.
HWY_INLINE BitVector Choose(BitVector mask, BitVector yes, BitVector no) {
  return hn::OrAnd(hn::AndNot(mask, no), mask, yes);
}

/// Exchanges the upper half of each group of 2 * kBits bits of `low` with the lower half of that of `high`.
template <int kBits>
HWY_INLINE void Exchange(BitVector& low, BitVector& high) {
  const auto mask = hn::Set(Bits(), ~std::uint64_t{0} / ((std::uint64_t{1} << kBits) + 1));
  const auto lower = Choose(mask, low, hn::ShiftLeft<kBits>(high));
  high = Choose(mask, hn::ShiftRight<kBits>(low), high);
  low = lower;
}

/// The planes of 8 vectors of bytes: each byte of them gives a bit.
HWY_INLINE void StorePlanes(BitVector v0, BitVector v1, BitVector v2, BitVector v3, BitVector v4, BitVector v5,
                            BitVector v6, BitVector v7, std::uint64_t (*planes)[lanes_of_plane]) {
  Exchange<4>(v0, v4);
  Exchange<4>(v1, v5);
  Exchange<4>(v2, v6);
  Exchange<4>(v3, v7);
  Exchange<2>(v0, v2);
  Exchange<2>(v1, v3);
  Exchange<2>(v4, v6);
  Exchange<2>(v5, v7);
  Exchange<1>(v0, v1);
  Exchange<1>(v2, v3);
  Exchange<1>(v4, v5);
  Exchange<1>(v6, v7);
  const Bits d;
  hn::Store(v0, d, planes[0]);
  hn::Store(v1, d, planes[1]);
  hn::Store(v2, d, planes[2]);
  hn::Store(v3, d, planes[3]);
  hn::Store(v4, d, planes[4]);
  hn::Store(v5, d, planes[5]);
  hn::Store(v6, d, planes[6]);
  hn::Store(v7, d, planes[7]);
}

/// The planes of 8 * kBytes vectors of words of kBytes bytes. Which bit is whose does not matter, for it is the same in
/// every plane.
template <std::size_t kBytes>
HWY_INLINE void Transpose(const std::byte* words, Planes& planes) {
  const Bits d;
  if constexpr (kBytes == 1) {
    const auto load = [words](std::size_t i) HWY_ATTR { return LoadBytes(words + i * bytes_of_vector); };
    return StorePlanes(load(0), load(1), load(2), load(3), load(4), load(5), load(6), load(7), planes.of);
  } else {
    // 1. Bytes of the words, by their place in the word.
    alignas(64) std::uint64_t bytes[kBytes][8][lanes_of_plane];
    for (std::size_t i = 0; i < 8; ++i) {
      BitVector v[kBytes];
      for (std::size_t k = 0; k < kBytes; ++k) v[k] = LoadBytes(words + (i * kBytes + k) * bytes_of_vector);
      if constexpr (kBytes == 8) {
        for (std::size_t k = 0; k < 4; ++k) Exchange<32>(v[k], v[k + 4]);
      }
      if constexpr (kBytes >= 4) {
        for (std::size_t k = 0; k < kBytes; k += 4) {
          Exchange<16>(v[k], v[k + 2]);
          Exchange<16>(v[k + 1], v[k + 3]);
        }
      }
      for (std::size_t k = 0; k < kBytes; k += 2) Exchange<8>(v[k], v[k + 1]);
      for (std::size_t k = 0; k < kBytes; ++k) hn::Store(v[k], d, bytes[k][i]);
    }
    // 2. Bits of the bytes.
    for (std::size_t k = 0; k < kBytes; ++k) {
      const auto load = [&own = bytes[k]](std::size_t i) HWY_ATTR { return hn::Load(Bits(), own[i]); };
      StorePlanes(load(0), load(1), load(2), load(3), load(4), load(5), load(6), load(7), planes.of + 8 * k);
    }
  }
}

/// Numbers of bits of which each vector was added: byte by byte.
struct Sums {
  /// Behind the kinds, whose bins are as many as words of 64 bits have.
  static constexpr std::size_t flags = PairKind::first_bin + 2 * pair_bins(64), names = flags + 4;
  static constexpr std::size_t most_added = 255 / 8;

  alignas(64) std::uint64_t of[names][lanes_of_plane];  // those in use
  std::size_t added = 0;

  HWY_INLINE explicit Sums(std::uint32_t bins) {
    std::memset(of, 0, (PairKind::first_bin + 2 * bins) * sizeof(of[0]));
    std::memset(of + flags, 0, 4 * sizeof(of[0]));
  }
  HWY_INLINE void add(std::size_t name, BitVector bits) {
    const hn::Repartition<std::uint8_t, Bits> d;
    const auto before = hn::BitCast(d, hn::Load(Bits(), of[name]));
    hn::Store(hn::BitCast(Bits(), hn::Add(before, hn::PopulationCount(hn::BitCast(d, bits)))), Bits(), of[name]);
  }
};

/// The parts of a format's words, and the counts that are kept of pairs of them.
struct PairFormat {
  std::size_t magnitude_bits, word_bits;
  bool has_sign, has_zero, has_lone_nan;
  std::uint64_t last_number;
  std::uint32_t bins;

  PairFormat(const PairConstants& from, std::size_t bits)
      : magnitude_bits(static_cast<std::size_t>(std::popcount(from.magnitude))),
        word_bits(bits),
        has_sign(from.sign != 0),
        has_zero(from.zero == 0),
        has_lone_nan(from.lone_nan != 0),
        last_number(from.last_number),
        bins(pair_bins(bits)) {}
};

/// Compares two planes of bits, from the lowest on, with the bits of one number.
HWY_INLINE BitVector IsAbove(BitVector is_above, BitVector bits, bool bit_of_number) {
  return bit_of_number ? hn::And(is_above, bits) : hn::Or(is_above, bits);
}

HWY_INLINE bool HasAny(BitVector bits) { return !hn::AllTrue(Bits(), hn::Eq(bits, hn::Zero(Bits()))); }

/// Sets `largest` to the largest distance of the pairs in `numbers`.
HWY_NOINLINE void FindLargest(const Planes& distance, std::size_t width, BitVector numbers, std::uint64_t& largest) {
  const Bits d;
  std::uint64_t found = 0;
  for (std::size_t k = width; k-- > 0;) {
    const auto with = hn::And(numbers, hn::Load(d, distance.of[k]));
    if (!HasAny(with)) continue;
    numbers = with;
    found |= std::uint64_t{1} << k;
  }
  largest = found;
}

/// Counts the numbers of which b lies above and below a by their distance, whose bits are planes.
HWY_INLINE void AddDistances(const Planes& distance, std::size_t width, std::uint32_t bins, BitVector above,
                             BitVector below, Sums& sums) {
  const Bits d;
  const auto add = [&](std::size_t bin, BitVector bits) HWY_ATTR {
    sums.add(PairKind::first_bin + bin, hn::And(above, bits));
    sums.add(PairKind::first_bin + bins + bin, hn::And(below, bits));
  };
  // 1. Those of 16 and more, by their highest bit; the others are left.
  for (std::size_t k = width; k-- > 4;) {
    const auto bits = hn::Load(d, distance.of[k]);
    add(k + 5, bits);
    above = hn::AndNot(bits, above);
    below = hn::AndNot(bits, below);
  }
  // 2. 1 to 7.
  const auto bit_0 = hn::Load(d, distance.of[0]);
  const auto bit_1 = hn::Load(d, distance.of[1]);
  const auto bit_2 = hn::Load(d, distance.of[2]);
  const auto bit_3 = hn::Load(d, distance.of[3]);
  const auto small = hn::AndNot(bit_3, hn::Not(bit_2));
  const auto middle = hn::AndNot(bit_3, bit_2);
  const auto one = hn::AndNot(bit_1, bit_0);
  const auto two = hn::AndNot(bit_0, bit_1);
  const auto three = hn::And(bit_0, bit_1);
  const auto any = hn::Or(bit_0, bit_1);
  add(0, hn::And(small, one));
  add(1, hn::And(small, two));
  add(2, hn::And(small, three));
  add(3, hn::AndNot(any, middle));
  add(4, hn::And(middle, one));
  add(5, hn::And(middle, two));
  add(6, hn::And(middle, three));
  // 3. 8 alone, and 9 to 15.
  const auto more = hn::Or(any, bit_2);
  add(7, hn::AndNot(more, bit_3));
  add(8, hn::And(more, bit_3));
}

/// Facts of pairs of words, a bit for each pair.
struct PairBits {
  BitVector sign_a, opposite;  ///< `opposite`: the signs differ
  BitVector nan_a, nan_b;      ///< the magnitude is that of a NaN
  BitVector any_a, any_b;      ///< the magnitude is not 0
  BitVector other_magnitude;   ///< the magnitudes differ
  BitVector is_negative;       ///< the signs are the same, and the magnitude of a is below that of b
  BitVector is_larger;         ///< the distance is larger than the largest so far
  std::size_t distance_bits;
};

/// Looks at the planes of words, and writes those of their distances.
HWY_INLINE PairBits Measure(const PairFormat& format, const std::uint64_t (*planes_a)[lanes_of_plane],
                            const std::uint64_t (*planes_b)[lanes_of_plane], std::uint64_t largest, Planes& distance) {
  const Bits d;
  const auto zero = hn::Zero(d);
  const std::size_t bits = format.magnitude_bits;
  const auto sign_a = format.has_sign ? hn::Load(d, planes_a[bits]) : zero;
  const auto sign_b = format.has_sign ? hn::Load(d, planes_b[bits]) : zero;
  const auto opposite = hn::Xor(sign_a, sign_b);
  const auto same = hn::Not(opposite);
  // 1. The sum of the magnitudes where the signs are opposite; else that of a and the complement of b, which carries
  //    where a is not below b.
  auto carry = same;
  auto nan_a = zero, nan_b = zero, any_a = zero, any_b = zero, other_magnitude = zero;
  for (std::size_t k = 0; k < bits; ++k) {
    const auto a = hn::Load(d, planes_a[k]);
    const auto b = hn::Load(d, planes_b[k]);
    const bool bit_of_last = (format.last_number >> k & 1) != 0;
    nan_a = IsAbove(nan_a, a, bit_of_last);
    nan_b = IsAbove(nan_b, b, bit_of_last);
    any_a = hn::Or(any_a, a);
    any_b = hn::Or(any_b, b);
    other_magnitude = hn::Or(other_magnitude, hn::Xor(a, b));
    const auto added = hn::Xor(b, same);
    const auto one_of_both = hn::Xor(a, added);
    hn::Store(hn::Xor(one_of_both, carry), d, distance.of[k]);
    carry = Choose(one_of_both, carry, a);
  }
  // 2. The distance: the negative of the sum where it is negative. Those of opposite signs have a bit more.
  const auto is_negative = hn::AndNot(carry, same);
  auto plus_one = is_negative;
  auto is_larger = zero;
  for (std::size_t k = 0; k < bits; ++k) {
    const auto bit = hn::Xor(hn::Load(d, distance.of[k]), is_negative);
    const auto own = hn::Xor(bit, plus_one);
    plus_one = hn::And(bit, plus_one);
    hn::Store(own, d, distance.of[k]);
    is_larger = IsAbove(is_larger, own, (largest >> k & 1) != 0);
  }
  std::size_t width = bits;
  if (format.has_sign) {
    const auto own = hn::And(carry, opposite);
    hn::Store(own, d, distance.of[width]);
    is_larger = IsAbove(is_larger, own, (largest >> width & 1) != 0);
    ++width;
  }
  for (std::size_t k = width; k < 4; ++k) hn::Store(zero, d, distance.of[k]);
  if (format.has_lone_nan) {
    nan_a = hn::Or(nan_a, hn::AndNot(any_a, sign_a));
    nan_b = hn::Or(nan_b, hn::AndNot(any_b, sign_b));
  }
  return {sign_a, opposite, nan_a, nan_b, any_a, any_b, other_magnitude, is_negative, is_larger, width};
}

/// Counts what are no two numbers, and what numbers are; gives those that differ.
HWY_INLINE BitVector AddKinds(const PairFormat& format, const PairBits& pairs, Sums& sums) {
  const auto differs = hn::Or(pairs.other_magnitude, pairs.opposite);
  const auto others = hn::AndNot(hn::Or(pairs.nan_a, pairs.nan_b), differs);
  const auto zeros = format.has_zero ? others : hn::Zero(Bits());
  const auto zero_a = hn::AndNot(pairs.any_a, zeros);
  const auto zero_b = hn::AndNot(pairs.any_b, zeros);
  const auto both_zero = hn::And(zero_a, zero_b);
  const auto numbers = hn::AndNot(both_zero, others);
  sums.add(PairKind::zero_sign, both_zero);
  sums.add(PairKind::nan_words, hn::And(differs, hn::And(pairs.nan_a, pairs.nan_b)));
  sums.add(PairKind::nan_in_a, hn::AndNot(pairs.nan_b, pairs.nan_a));
  sums.add(PairKind::nan_in_b, hn::AndNot(pairs.nan_a, pairs.nan_b));
  sums.add(Sums::flags, hn::AndNot(hn::Or(zero_a, zero_b), hn::And(numbers, pairs.opposite)));
  sums.add(Sums::flags + 1, hn::AndNot(pairs.other_magnitude, numbers));
  sums.add(Sums::flags + 2, hn::AndNot(zero_a, zero_b));
  sums.add(Sums::flags + 3, hn::AndNot(zero_b, zero_a));
  return numbers;
}

/// Whether words that differ have bits beyond those of the format.
HWY_INLINE bool HasBeyond(const PairFormat& format, const std::uint64_t (*planes_a)[lanes_of_plane],
                          const std::uint64_t (*planes_b)[lanes_of_plane], const PairBits& pairs) {
  const Bits d;
  auto beyond = hn::Zero(d);
  auto differs = hn::Or(pairs.other_magnitude, pairs.opposite);
  for (std::size_t k = format.magnitude_bits + (format.has_sign ? 1 : 0); k < format.word_bits; ++k) {
    const auto a = hn::Load(d, planes_a[k]);
    const auto b = hn::Load(d, planes_b[k]);
    beyond = hn::Or(beyond, hn::Or(a, b));
    differs = hn::Or(differs, hn::Xor(a, b));
  }
  return HasAny(hn::And(beyond, differs));
}

/// Counts pairs of words, of which plane k has bit k.
HWY_NOINLINE void AddPlanes(const PairFormat& format, const std::uint64_t (*planes_a)[lanes_of_plane],
                            const std::uint64_t (*planes_b)[lanes_of_plane], Sums& sums, PairCounts& counts) {
  Planes distance;
  const PairBits pairs = Measure(format, planes_a, planes_b, counts.largest, distance);
  const auto numbers = AddKinds(format, pairs, sums);
  if (HasAny(hn::And(pairs.is_larger, numbers))) {
    FindLargest(distance, pairs.distance_bits, numbers, counts.largest);
  }
  const auto is_above = hn::Xor(pairs.sign_a, pairs.is_negative);
  AddDistances(distance, pairs.distance_bits, format.bins, hn::And(numbers, is_above), hn::AndNot(is_above, numbers),
               sums);
  ++sums.added;
  if (HasBeyond(format, planes_a, planes_b, pairs)) counts.has_beyond = true;
}

/// Puts sums where they belong, and makes them zero.
HWY_NOINLINE void Flush(const PairFormat& format, Sums& sums, PairCounts& counts) {
  const Bits d;
  const hn::Repartition<std::uint8_t, Bits> bytes;
  const auto take = [&](std::size_t name) HWY_ATTR {
    const auto all = hn::SumsOf8(hn::BitCast(bytes, hn::Load(d, sums.of[name])));
    hn::Store(hn::Zero(d), d, sums.of[name]);
    return all;
  };
  for (std::size_t kind = PairKind::zero_sign; kind < PairKind::first_bin + 2 * format.bins; ++kind) {
    std::uint64_t* const lanes = counts.kinds + pair_lanes * kind;
    hn::StoreU(hn::Add(hn::LoadU(d, lanes), take(kind)), d, lanes);
  }
  std::size_t flag = Sums::flags;
  for (std::uint64_t* const count :
       {&counts.opposite_signs, &counts.opposite_values, &counts.became_zero, &counts.was_zero}) {
    *count += hn::GetLane(hn::SumOfLanes(d, take(flag++)));
  }
  sums.added = 0;
}

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

/// Sets a bit for each of 64 pairs of words of 4 * kHalfBytes bits that differ.
template <std::size_t kHalfBytes>
HWY_INLINE std::uint64_t DifferingBits(const std::byte* words_a, const std::byte* words_b) {
  std::uint64_t all = 0;
  const auto* const a = reinterpret_cast<const std::uint8_t*>(words_a);
  const auto* const b = reinterpret_cast<const std::uint8_t*>(words_b);
  if constexpr (kHalfBytes == 1) {
    const hn::CappedTag<std::uint16_t, bits_at_once / 2> d;
    const hn::Repartition<std::uint8_t, decltype(d)> codes;
    const hn::Rebind<std::uint8_t, decltype(d)> pairs;
    for (std::size_t i = 0; i < bits_at_once / 2; i += hn::Lanes(d)) {
      const auto other = hn::PromoteTo(d, hn::Xor(hn::LoadU(pairs, a + i), hn::LoadU(pairs, b + i)));
      const auto apart = hn::And(hn::Or(other, hn::ShiftLeft<4>(other)), hn::Set(d, 0x0F0F));
      PutBits(codes, hn::Ne(hn::BitCast(codes, apart), hn::Zero(codes)), 2 * i, &all);
    }
  } else {
    constexpr std::size_t bytes = kHalfBytes / 2;
    using Word = hwy::UnsignedFromSize<bytes>;
    const hn::CappedTag<Word, bits_at_once> d;
    const hn::Repartition<std::uint8_t, decltype(d)> of_bytes;
    for (std::size_t i = 0; i < bits_at_once; i += hn::Lanes(d)) {
      const auto word_a = hn::BitCast(d, hn::LoadU(of_bytes, a + i * bytes));
      const auto word_b = hn::BitCast(d, hn::LoadU(of_bytes, b + i * bytes));
      PutBits(d, hn::Ne(word_a, word_b), i, &all);
    }
  }
  return all;
}

/// Pairs of which some differ, as many as planes are made of.
template <std::size_t kHalfBytes>
HWY_INLINE void AddBlock(const PairFormat& format, const std::byte* a, const std::byte* b, Sums& sums,
                         PairCounts& counts) {
  Planes planes_a, planes_b;
  Transpose<(kHalfBytes + 1) / 2>(a, planes_a);
  Transpose<(kHalfBytes + 1) / 2>(b, planes_b);
  AddPlanes(format, planes_a.of, planes_b.of, sums, counts);
  if constexpr (kHalfBytes == 1) AddPlanes(format, planes_a.of + 4, planes_b.of + 4, sums, counts);
  if (sums.added + 2 > Sums::most_added) Flush(format, sums, counts);
}

/// Copies `count` words, and zeros behind them.
template <std::size_t kHalfBytes>
const std::byte* FillUp(const std::byte* words, std::size_t count, std::byte* copy, std::size_t room) {
  const std::size_t size = (count * kHalfBytes + 1) / 2;
  std::memcpy(copy, words, size);
  std::memset(copy + size, 0, room - size);
  if (kHalfBytes == 1 && count % 2 != 0) copy[size - 1] &= std::byte{15};
  return copy;
}

template <std::size_t kHalfBytes>
HWY_INLINE void CountPairs(const PairConstants& from, const std::byte* a, const std::byte* b, std::size_t count,
                           PairCounts& counts, std::uint64_t* differing) {
  const PairFormat format(from, 4 * kHalfBytes);
  constexpr std::size_t block = 8 * bytes_of_vector * (kHalfBytes == 1 ? 2 : 1);
  constexpr std::size_t words = block / bits_at_once;
  constexpr std::size_t bytes_of_word = bits_at_once * kHalfBytes / 2;
  Sums sums(format.bins);
  for (std::size_t i = 0; i < count; i += block) {
    // 1. Pairs of zeros, which are equal, fill up the last ones.
    const std::byte* own_a = a + i * kHalfBytes / 2;
    const std::byte* own_b = b + i * kHalfBytes / 2;
    std::byte last_a[words * bytes_of_word];
    std::byte last_b[words * bytes_of_word];
    const std::size_t left = count - i;
    if (left < block) {
      own_a = FillUp<kHalfBytes>(own_a, left, last_a, sizeof(last_a));
      own_b = FillUp<kHalfBytes>(own_b, left, last_b, sizeof(last_b));
    }
    // 2. Which differ, and how.
    const std::size_t filled = left < block ? (left + bits_at_once - 1) / bits_at_once : words;
    std::uint64_t any = 0;
    for (std::size_t word = 0; word < filled; ++word) {
      const std::uint64_t own = DifferingBits<kHalfBytes>(own_a + word * bytes_of_word, own_b + word * bytes_of_word);
      differing[i / bits_at_once + word] = own;
      any |= own;
    }
    if (any != 0) AddBlock<kHalfBytes>(format, own_a, own_b, sums, counts);
  }
  if (sums.added != 0) Flush(format, sums, counts);
}

HWY_ATTR void AddBits(const std::uint64_t* bits, std::size_t first, std::size_t count, std::uint8_t* counts) {
  const hn::CappedTag<std::uint8_t, bits_at_once> d;
  const auto add = [d](const std::uint64_t& own, std::uint8_t* to) HWY_ATTR {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&own);
    for (std::size_t k = 0; k < bits_at_once; k += hn::Lanes(d)) {
      const auto added = hn::VecFromMask(d, hn::LoadMaskBits(d, bytes + k / 8));
      hn::StoreU(hn::Sub(hn::LoadU(d, to + k), added), d, to + k);
    }
  };
  std::size_t i = 0;
  if (first % bits_at_once == 0) {
    for (; i + bits_at_once <= count; i += bits_at_once) {
      const std::uint64_t& own = bits[(first + i) / bits_at_once];
      if (own != 0) add(own, counts + i);
    }
  }
  for (; i < count; i += bits_at_once) {
    const std::uint64_t own = bits_from(bits, first + i);
    if (own != 0) add(own, counts + i);
  }
}

#else

// The scalar code is called in their place.
template <std::size_t kHalfBytes>
void CountPairs(const PairConstants& /*from*/, const std::byte* /*a*/, const std::byte* /*b*/, std::size_t /*count*/,
                PairCounts& /*counts*/, std::uint64_t* /*differing*/) {}
void AddBits(const std::uint64_t* /*bits*/, std::size_t /*first*/, std::size_t /*count*/, std::uint8_t* /*counts*/) {}

#endif

HWY_ATTR void CountAll(const PairConstants& from, std::size_t bits, const std::byte* a, const std::byte* b,
                       std::size_t count, PairCounts& counts, std::uint64_t* differing) {
  switch (bits) {
    case 4: return CountPairs<1>(from, a, b, count, counts, differing);
    case 8: return CountPairs<2>(from, a, b, count, counts, differing);
    case 16: return CountPairs<4>(from, a, b, count, counts, differing);
    case 32: return CountPairs<8>(from, a, b, count, counts, differing);
    default: return CountPairs<16>(from, a, b, count, counts, differing);
  }
}

/// Finds the groups of 16 bits, of four, in which a bit is set.
HWY_INLINE std::uint64_t Segments(std::uint64_t bits) {
  constexpr std::uint64_t low = 0x7FFF7FFF7FFF7FFFU;
  const std::uint64_t tops = (((bits & low) + low) | bits) & ~low;  // the top bit of each group
  return (tops >> 15) * 0x0001000200040008U >> 48 & 15;
}

#if HWY_TARGET != HWY_SCALAR
/// Counts the bits of 1024 columns each, and sets a bit of a word for 16 of them each.
HWY_INLINE std::uint64_t CountWhole(const std::uint64_t* bits, std::size_t whole, std::uint64_t* segments) {
  const hn::CappedTag<std::uint16_t, bits_at_once> d;
  const hn::Repartition<std::uint8_t, decltype(d)> bytes;
  const hn::Repartition<std::uint64_t, decltype(d)> sums;
  auto count = hn::Zero(sums);
  for (std::size_t word = 0; word < whole; ++word) {
    std::uint64_t own = 0;
    for (std::size_t i = 0; i < bits_at_once; i += hn::Lanes(d)) {
      const auto* const own_bits = reinterpret_cast<const std::uint8_t*>(bits + 16 * word) + i * sizeof(std::uint16_t);
      const auto groups = hn::BitCast(d, hn::LoadU(bytes, own_bits));
      PutBits(d, hn::Ne(groups, hn::Zero(d)), i, &own);
      count = hn::Add(count, hn::SumsOf8(hn::PopulationCount(hn::BitCast(bytes, groups))));
    }
    segments[word] |= own;
  }
  return hn::GetLane(hn::SumOfLanes(sums, count));
}
#else
std::uint64_t CountWhole(const std::uint64_t* /*bits*/, std::size_t /*whole*/, std::uint64_t* /*segments*/) {
  return 0;
}
#endif

/// Compiled for every target, since most have an instruction that counts bits.
HWY_ATTR RowBits CountRow(const std::uint64_t* bits, std::size_t first, std::size_t count, std::uint64_t column,
                          std::uint64_t* segments) {
  std::uint64_t differing = 0;
  std::uint64_t first_bits = 0, first_column = 0, last_bits = 0, last_column = 0;
  const std::uint64_t word = column / 1024;
  const auto find_ends = [&](std::uint64_t own, std::uint64_t at) {
    if (own == 0) return;
    if (first_bits == 0) {
      first_bits = own;
      first_column = at;
    }
    last_bits = own;
    last_column = at;
  };
  std::size_t done = 0;
  if (HWY_TARGET != HWY_SCALAR && first % 64 == 0 && column % 1024 == 0 && count >= 1024) {
    const std::uint64_t* const own = bits + first / 64;
    done = count / 1024 * 1024;
    differing = CountWhole(own, done / 1024, segments);
    if (differing != 0) {
      std::size_t i = 0;
      while (own[i] == 0) ++i;
      find_ends(own[i], column + 64 * i);
      i = done / 64 - 1;
      while (own[i] == 0) --i;
      find_ends(own[i], column + 64 * i);
    }
    column += done;
  }
  while (done < count) {
    const std::size_t shift = column % 64;
    const std::size_t size = 64 - shift < count - done ? 64 - shift : count - done;
    const std::uint64_t own = bits_from(bits, first + done) << (64 - size) >> (64 - size);
    if (own != 0) {
      find_ends(own, column);
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

HWY_EXPORT(CountAll);
HWY_EXPORT(CountRow);
HWY_EXPORT(AddBits);

void count_pairs_vector(const PairConstants& constants, std::size_t bits, const std::byte* a, const std::byte* b,
                        std::size_t count, PairCounts& counts, std::uint64_t* differing) {
  HWY_DYNAMIC_DISPATCH(CountAll)(constants, bits, a, b, count, counts, differing);
}
RowBits row_bits_vector(const std::uint64_t* bits, std::size_t first, std::size_t count, std::uint64_t column,
                        std::uint64_t* segments) {
  return HWY_DYNAMIC_DISPATCH(CountRow)(bits, first, count, column, segments);
}
void add_bits_vector(const std::uint64_t* bits, std::size_t first, std::size_t count, std::uint8_t* counts) {
  HWY_DYNAMIC_DISPATCH(AddBits)(bits, first, count, counts);
}

}  // namespace fp8lab
#endif
