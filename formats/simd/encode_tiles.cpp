// SPDX-License-Identifier: Apache-2.0
// Encoding of elements that are multiplied with their tiles' factors first. The scalar functions define the result.
#include <algorithm>
#include <bit>
#include <type_traits>

#include "simd/encode.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/encode_tiles.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "simd/plain-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR
/// Upper halves of floats are bfloat16s: of two vectors, in order.
HWY_INLINE hn::Vec<PackedShorts> UpperHalves(hn::Vec<Floats> low, hn::Vec<Floats> high) {
  const PackedShorts shorts;
  return hn::ConcatOdd(shorts, hn::BitCast(shorts, high), hn::BitCast(shorts, low));
}

// Factors of element i and those that follow: a vector of floats; those of every lane's first and second bfloat16; the
// upper halves of these.

/// One for all.
struct SameFactor {
  hn::Vec<Floats> factor;
  HWY_INLINE hn::Vec<Floats> of(std::size_t /*i*/) const { return factor; }
  HWY_INLINE hn::Vec<Floats> of_first(std::size_t /*i*/) const { return factor; }
  HWY_INLINE hn::Vec<Floats> of_second(std::size_t /*i*/) const { return factor; }
  HWY_INLINE hn::Vec<PackedShorts> upper(std::size_t /*i*/) const { return UpperHalves(factor, factor); }
};
/// One for each element.
struct OwnFactors {
  const float* factors;
  HWY_INLINE hn::Vec<Floats> of(std::size_t i) const { return hn::LoadU(Floats(), factors + i); }
  HWY_INLINE hn::Vec<Floats> of_first(std::size_t i) const { return hn::ConcatEven(Floats(), next(i), of(i)); }
  HWY_INLINE hn::Vec<Floats> of_second(std::size_t i) const { return hn::ConcatOdd(Floats(), next(i), of(i)); }
  HWY_INLINE hn::Vec<PackedShorts> upper(std::size_t i) const { return UpperHalves(of(i), next(i)); }

 private:
  HWY_INLINE hn::Vec<Floats> next(std::size_t i) const { return of(i + hn::Lanes(Floats())); }
};
/// One for each tile of some whole vectors.
template <std::size_t kVectors>
struct TileFactors {
  const float* factors;
  HWY_INLINE hn::Vec<Floats> of(std::size_t i) const { return hn::Set(Floats(), at(i)); }
  HWY_INLINE hn::Vec<Floats> of_first(std::size_t i) const {
    if (kVectors > 1) return of(i);
    return hn::ConcatLowerLower(Floats(), next(i), of(i));
  }
  HWY_INLINE hn::Vec<Floats> of_second(std::size_t i) const { return of_first(i); }
  HWY_INLINE hn::Vec<PackedShorts> upper(std::size_t i) const {
    if (kVectors == 1) return UpperHalves(of(i), next(i));
    return hn::Set(PackedShorts(), static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(at(i)) >> 16));
  }

 private:
  HWY_INLINE float at(std::size_t i) const { return factors[i / (hn::Lanes(Floats()) * kVectors)]; }
  HWY_INLINE hn::Vec<Floats> next(std::size_t i) const { return of(i + hn::Lanes(Floats())); }
};

/// Encodes elements that are multiplied with their factors first.
template <int kMantissaBits, bool kInRange>
class ScaledEncoder {
 public:
  HWY_INLINE explicit ScaledEncoder(const VectorEncode& cast)
      : encode_(cast), sign_shift_(cast.sign_shift - 24), sign_(hn::Set(PackedShorts(), SignOf(cast))) {}

  /// Codes of element i and those that follow.
  template <typename Source, class Factors>
  HWY_INLINE hn::Vec<PackedBytes> operator()(const Source* in, std::size_t i, const Factors& factors) const {
    const std::size_t step = hn::Lanes(PackedShorts());
    const auto low = Codes(in, i, factors);
    const auto high = Codes(in, i + step, factors);
    return BytesOf<first_bit>(low, high);
  }
  /// Encodes twice as many elements to codes of 4 bits, two a byte.
  template <typename Source, class Factors>
  HWY_INLINE hn::Vec<PackedBytes> Pairs(const Source* in, std::size_t i, const Factors& factors) const {
    const std::size_t step = hn::Lanes(PackedShorts());
    const auto pairs0 = CodePairs(in, i, factors);
    const auto pairs1 = CodePairs(in, i + step, factors);
    const auto pairs2 = CodePairs(in, i + 2 * step, factors);
    const auto pairs3 = CodePairs(in, i + 3 * step, factors);
    return BytesOf<first_bit>(pairs0, pairs1, pairs2, pairs3);
  }

 private:
  using Encoder = PlainEncoder<kMantissaBits, kInRange>;
  static constexpr int first_bit = Encoder::first_bit;  // of codes in 16-bit lanes, and of pairs in those of 32

  /// With kInRange, codes of magnitudes, without signs.
  template <class Factors>
  HWY_INLINE hn::Vec<PackedShorts> Codes(const float* in, std::size_t i, const Factors& factors) const {
    const std::size_t next = i + hn::Lanes(Floats());
    const auto low = Load(in + i);
    const auto high = Load(in + next);
    const auto codes =
        LowerHalves(Code(hn::Mul(Unsigned(low), factors.of(i))), Code(hn::Mul(Unsigned(high), factors.of(next))));
    return WithSigns(codes, [&]() HWY_ATTR { return UpperHalves(low, high); });
  }
  /// bfloat16s are the upper halves of floats: of each lane's two, the first and the second are taken together.
  template <class Factors>
  HWY_INLINE hn::Vec<PackedShorts> Codes(const BFloat16* in, std::size_t i, const Factors& factors) const {
    const auto two = LoadTwo(in + i);
    const auto first = Code(First(two, i, factors));
    const auto second = hn::ShiftLeft<16>(Code(Second(two, i, factors)));
    const auto codes = hn::BitCast(PackedShorts(), hn::OrAnd(second, hn::Set(Integers(), 0xFFFF), first));
    return WithSigns(codes, [&]() HWY_ATTR { return two; });
  }
  template <typename Source, class Factors>
  HWY_INLINE hn::Vec<Integers> CodePairs(const Source* in, std::size_t i, const Factors& factors) const {
    const Integers di;
    if constexpr (kInRange && std::is_same_v<Source, BFloat16>) {
      const auto two = LoadTwo(in + i);
      const auto signs = SumOfHalves<first_bit + 3, first_bit + 7>(hn::BitCast(di, hn::ShiftRight<15>(two)));
      return hn::Or3(Code(First(two, i, factors)), Code<first_bit + 4>(Second(two, i, factors)), signs);
    } else {
      return SumOfHalves<0, 4>(hn::BitCast(di, Codes(in, i, factors)));
    }
  }

  template <int kFirstBit = first_bit>
  HWY_INLINE hn::Vec<Integers> Code(hn::Vec<Floats> x) const {
    if constexpr (kInRange) {
      return encode_.template OfMagnitude<kFirstBit>(hn::BitCast(Integers(), x));
    } else {
      return encode_(x, nullptr);
    }
  }

  // With kInRange, of magnitudes.
  static HWY_INLINE hn::Vec<Floats> Unsigned(hn::Vec<Floats> x) { return kInRange ? hn::Abs(x) : x; }
  static HWY_INLINE hn::Vec<Words> Unsigned(hn::Vec<PackedShorts> two) {
    return hn::BitCast(Words(), kInRange ? hn::And(two, hn::Set(PackedShorts(), 0x7FFF)) : two);
  }
  static HWY_INLINE hn::Vec<PackedShorts> LoadTwo(const BFloat16* in) {
    return hn::LoadU(PackedShorts(), reinterpret_cast<const std::uint16_t*>(in));
  }
  template <class Factors>
  static HWY_INLINE hn::Vec<Floats> First(hn::Vec<PackedShorts> two, std::size_t i, const Factors& factors) {
    return hn::Mul(hn::BitCast(Floats(), hn::ShiftLeft<16>(Unsigned(two))), factors.of_first(i));
  }
  template <class Factors>
  static HWY_INLINE hn::Vec<Floats> Second(hn::Vec<PackedShorts> two, std::size_t i, const Factors& factors) {
    const auto upper = hn::And(Unsigned(two), hn::Set(Words(), 0xFFFF0000U));
    return hn::Mul(hn::BitCast(Floats(), upper), factors.of_second(i));
  }

  static HWY_INLINE std::uint16_t SignOf(const VectorEncode& cast) {
    return static_cast<std::uint16_t>(cast.sign >> (cast.sign_shift - first_bit));
  }
  /// Signs are the highest bits.
  template <class Signs>
  HWY_INLINE hn::Vec<PackedShorts> WithSigns(hn::Vec<PackedShorts> codes, const Signs& signs) const {
    if constexpr (!kInRange) return codes;
    if (sign_shift_ == 0) return hn::OrAnd(codes, sign_, signs());
    return hn::OrAnd(codes, sign_, hn::ShiftRightSame(signs(), sign_shift_));
  }

  Encoder encode_;
  int sign_shift_;  // from the highest bit
  hn::Vec<PackedShorts> sign_;
};

/// The same for bfloat16s in range whose factors are powers of two, and formats of 8 bits. Magnitudes in 16 bits are
/// numbers in order: with the exponent of the factor added, that of the format's first binade taken off, and rounded to
/// nearest even, they are the codes, but of subnormal numbers. Formats of 8 bits are made to have few of these: where
/// one is, floats do.
template <int kMantissaBits>
class ShortEncoder {
 public:
  HWY_INLINE explicit ShortEncoder(const VectorEncode& cast)
      : encode_(cast),
        sign_(hn::Set(PackedShorts(), static_cast<std::uint16_t>(cast.sign >> 16))),
        smallest_(hn::Set(PackedShorts(), SmallestNormal(cast))),
        offset_(hn::Set(PackedShorts(), Offset(cast))) {}

  /// Whether all factors are powers of two, none so large that `offset` would leave something of a zero.
  static HWY_INLINE bool Takes(const VectorEncode& cast, const float* factors, std::size_t count) {
    constexpr std::uint32_t first = 0x00800000U;  // the smallest normal float
    const Words du;
    const std::uint32_t last = (Offset(cast) & 0x7F80U) << 16;
    const std::size_t lanes = hn::Lanes(du);
    auto fraction = hn::Zero(du);
    auto most = hn::Zero(du);
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      const auto word = hn::BitCast(du, hn::LoadU(Floats(), factors + i));
      fraction = hn::OrAnd(fraction, word, hn::Set(du, 0x007FFFFFU));
      most = hn::Max(most, hn::Sub(word, hn::Set(du, first)));
    }
    bool takes =
        hn::AllTrue(du, hn::Eq(fraction, hn::Zero(du))) && hn::GetLane(hn::MaxOfLanes(du, most)) <= last - first;
    for (; i < count; ++i) {
      const auto word = std::bit_cast<std::uint32_t>(factors[i]);
      takes = takes && (word & 0x007FFFFFU) == 0 && word - first <= last - first;
    }
    return takes;
  }

  template <class Factors>
  HWY_INLINE hn::Vec<PackedBytes> operator()(const BFloat16* in, std::size_t i, const Factors& factors) const {
    const PackedShorts shorts;
    const std::size_t lanes = hn::Lanes(shorts);
    auto subnormal = hn::Zero(shorts);
    const auto low = Codes(in + i, factors.upper(i), subnormal);
    const auto high = Codes(in + i + lanes, factors.upper(i + lanes), subnormal);
    if (!hn::AllTrue(shorts, hn::Eq(subnormal, hn::Zero(shorts)))) return encode_(in, i, factors);
    return BytesOf<8>(low, high);
  }

 private:
  static constexpr int cut = 7 - kMantissaBits;  // bits of a bfloat16's fraction
  static constexpr int below_half = (1 << (cut - 1)) - 1;

  /// SmallestNormal() is the sum of the bits of a magnitude and of a factor whose product is the smallest normal
  /// number. Offset() is what the encoder subtracts from that sum, half a unit included.
  static HWY_INLINE std::uint16_t SmallestNormal(const VectorEncode& cast) {
    return static_cast<std::uint16_t>((cast.smallest_normal >> 16) + (127 << 7));
  }
  static HWY_INLINE std::uint16_t Offset(const VectorEncode& cast) {
    return static_cast<std::uint16_t>(SmallestNormal(cast) - (1 << 7) - below_half);
  }
  /// In the upper halves of 16-bit lanes; `subnormal` gets bits where a code is that of a subnormal number other than
  /// 0.
  HWY_INLINE hn::Vec<PackedShorts> Codes(const BFloat16* in, hn::Vec<PackedShorts> factors,
                                         hn::Vec<PackedShorts>& subnormal) const {
    const PackedShorts shorts;
    const auto word = hn::LoadU(shorts, reinterpret_cast<const std::uint16_t*>(in));
    const auto magnitude = hn::And(word, hn::Set(shorts, 0x7FFF));
    const auto product = hn::Add(magnitude, factors);
    subnormal = hn::Or(subnormal, hn::Min(magnitude, hn::SaturatedSub(smallest_, product)));
    const auto is_odd = hn::And(hn::ShiftRight<cut>(magnitude), hn::Set(shorts, 1));
    const auto code = hn::ShiftLeft<8 - cut>(hn::Add(hn::SaturatedSub(product, offset_), is_odd));
    return hn::OrAnd(code, sign_, word);
  }

  ScaledEncoder<kMantissaBits, true> encode_;
  hn::Vec<PackedShorts> sign_, smallest_, offset_;
};

/// Fetches `count` elements that lie `ahead` bytes further on.
template <typename T>
HWY_INLINE void Fetch(const T* from, std::size_t count, std::size_t ahead) {
  if (ahead == 0) return;
  constexpr std::size_t line = 64;
  const char* first = reinterpret_cast<const char*>(from) + ahead;
  for (std::size_t i = 0; i < count * sizeof(T); i += line) hwy::Prefetch(first + i);
}

/// `stream` needs an aligned `to`. A branch that always goes the same way takes no time, unlike a second loop to
/// compile.
HWY_INLINE void Store(hn::Vec<PackedBytes> codes, bool stream, std::uint8_t* to) {
  if (stream) return hn::Stream(codes, PackedBytes(), to);
  hn::StoreU(codes, PackedBytes(), to);
}

/// A row's elements from `first` on, in whole vectors of bytes; returns to where.
template <bool kPairs, class Encoder, typename Source, class Factors>
HWY_INLINE std::size_t EncodeScaled(const Encoder& encode, const Source* in, std::size_t first, std::size_t end,
                                    const Factors& factors, const EncodeHints& hints, std::uint8_t* out) {
  const std::size_t width = hn::Lanes(PackedBytes());
  const bool stream = hints.stream;
  std::size_t i = first;
  if constexpr (kPairs) {
    for (; i + 2 * width <= end; i += 2 * width) {
      Fetch(in + i, 2 * width, hints.ahead);
      Fetch(out + i / 2, width, hints.out_ahead);
      Store(encode.Pairs(in, i, factors), stream, out + i / 2);
    }
  } else {
    for (; i + width <= end; i += width) {
      Fetch(in + i, width, hints.ahead);
      Fetch(out + i, width, hints.out_ahead);
      Store(encode(in, i, factors), stream, out + i);
    }
  }
  return i;
}

/// Rows with one kind of factors each.
template <bool kPairs, class Factors, class Encoder, typename Source>
HWY_INLINE std::size_t EncodeEach(const Encoder& encode, const TilesToEncode<Source>& tiles, std::size_t end) {
  std::size_t done = 0;
  for (std::size_t r = 0; r < tiles.x.rows; ++r) {
    const Factors factors{tiles.factors + r * tiles.factor_stride};
    done = EncodeScaled<kPairs>(encode, tiles.x.values + r * tiles.x.stride, 0, end, factors, tiles.hints,
                                tiles.out + r * tiles.out_stride);
  }
  return done;
}

/// Rows of long tiles, one after the other.
template <bool kPairs, class Encoder, typename Source>
HWY_INLINE std::size_t EncodeLong(const Encoder& encode, const TilesToEncode<Source>& tiles) {
  const std::size_t step = (kPairs ? 2 : 1) * hn::Lanes(PackedBytes());
  const std::size_t width = tiles.x.width;
  const std::size_t tile = tiles.x.tile;
  std::size_t i = 0;
  for (std::size_t r = 0; r < tiles.x.rows; ++r) {
    i = 0;
    for (const float* factor = tiles.factors + r * tiles.factor_stride; i + step <= width; ++factor) {
      const std::size_t end = tile < width - i ? i + tile : width;
      i = EncodeScaled<kPairs>(encode, tiles.x.values + r * tiles.x.stride, i, end,
                               SameFactor{hn::Set(Floats(), *factor)}, tiles.hints, tiles.out + r * tiles.out_stride);
    }
  }
  return i;
}

template <bool kPairs, class Encoder, typename Source>
HWY_INLINE std::size_t EncodeTilesWith(const Encoder& encode, const TilesToEncode<Source>& tiles) {
  const std::size_t lanes = hn::Lanes(Floats());
  const std::size_t width = tiles.x.width;
  const std::size_t tile = tiles.x.tile;
  if (tile == 1) return EncodeEach<kPairs, OwnFactors>(encode, tiles, width);
  if (tile >= width || tile % ((kPairs ? 8 : 4) * lanes) == 0) return EncodeLong<kPairs>(encode, tiles);
  const std::size_t whole = width - width % tile;
  if (tile == lanes) return EncodeEach<kPairs, TileFactors<1>>(encode, tiles, whole);
  if (tile == 2 * lanes) return EncodeEach<kPairs, TileFactors<2>>(encode, tiles, whole);
  if constexpr (kPairs) {
    if (tile == 4 * lanes) return EncodeEach<kPairs, TileFactors<4>>(encode, tiles, whole);
  }
  return 0;
}

/// Whether ShortEncoder takes the rows.
template <int kMantissaBits, typename Source>
HWY_INLINE bool AreShort(const VectorEncode& cast, const TilesToEncode<Source>& tiles) {
  if (!tiles.hints.in_range || cast.sign_shift != 24) return false;
  const std::size_t rows = tiles.factor_stride == 0 ? 1 : tiles.x.rows;
  for (std::size_t r = 0; r < rows; ++r) {
    const float* factors = tiles.factors + r * tiles.factor_stride;
    if (!ShortEncoder<kMantissaBits>::Takes(cast, factors, tiles.x.across())) return false;
  }
  return true;
}

template <int kMantissaBits, bool kPairs, typename Source>
HWY_INLINE std::size_t EncodeTilesTo(const VectorEncode& cast, const TilesToEncode<Source>& tiles) {
  if constexpr (std::is_same_v<Source, BFloat16> && kMantissaBits > 1) {
    if (AreShort<kMantissaBits>(cast, tiles)) return EncodeTilesWith<kPairs>(ShortEncoder<kMantissaBits>(cast), tiles);
  }
  return tiles.hints.in_range ? EncodeTilesWith<kPairs>(ScaledEncoder<kMantissaBits, true>(cast), tiles)
                              : EncodeTilesWith<kPairs>(ScaledEncoder<kMantissaBits, false>(cast), tiles);
}

template <typename Source>
HWY_ATTR std::size_t EncodeTiles(const VectorEncode& cast, const TilesToEncode<Source>& tiles) {
  if (tiles.pairs) return cast.mantissa_bits == 1 ? EncodeTilesTo<1, true>(cast, tiles) : 0;
  switch (cast.mantissa_bits) {
    case 1: return EncodeTilesTo<1, false>(cast, tiles);
    case 2: return EncodeTilesTo<2, false>(cast, tiles);
    case 3: return EncodeTilesTo<3, false>(cast, tiles);
    default: return 0;
  }
}
#else
template <typename Source>
HWY_ATTR std::size_t EncodeTiles(const VectorEncode& /*cast*/, const TilesToEncode<Source>& /*tiles*/) {
  return 0;
}
#endif

HWY_ATTR std::size_t EncodeTilesOfFloats(const VectorEncode& cast, const TilesToEncode<float>& tiles) {
  return EncodeTiles(cast, tiles);
}
HWY_ATTR std::size_t EncodeTilesOfBFloats(const VectorEncode& cast, const TilesToEncode<BFloat16>& tiles) {
  return EncodeTiles(cast, tiles);
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(EncodeTilesOfFloats);
HWY_EXPORT(EncodeTilesOfBFloats);

std::size_t encode_tiles_vector(const VectorEncode& cast, const TilesToEncode<float>& tiles) {
  return HWY_DYNAMIC_DISPATCH(EncodeTilesOfFloats)(cast, tiles);
}
std::size_t encode_tiles_vector(const VectorEncode& cast, const TilesToEncode<BFloat16>& tiles) {
  return HWY_DYNAMIC_DISPATCH(EncodeTilesOfBFloats)(cast, tiles);
}

}  // namespace fp8lab
#endif
