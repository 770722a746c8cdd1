// SPDX-License-Identifier: Apache-2.0
// Largest magnitudes of tiles, and tiles scaled, as many elements at a time as a vector has. The scalar functions of
// tiles.cpp define the result.
#include "vector_tiles.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <type_traits>

#include "vector_memory.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "vector_tiles.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "vector_load-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The first `count` elements, at most a vector, and zeros.
template <typename Source>
HWY_INLINE hn::Vec<Floats> LoadSome(const Source* in, std::size_t count) {
  Source some[widest_vector / sizeof(float)] = {};
  for (std::size_t k = 0; k < count; ++k) some[k] = in[k];
  return Load(some);
}
HWY_INLINE void StoreSome(hn::Vec<Floats> x, std::size_t count, float* out) {
  float some[widest_vector / sizeof(float)];
  hn::StoreU(x, Floats(), some);
  for (std::size_t k = 0; k < count; ++k) out[k] = some[k];
}

constexpr std::int32_t infinity = 0x7F800000;

/// Magnitudes as integers, whose order is that of the numbers, with NaN above all.
HWY_INLINE hn::Vec<Integers> Magnitude(hn::Vec<Floats> x) {
  return hn::And(hn::BitCast(Integers(), x), hn::Set(Integers(), 0x7FFFFFFF));
}
/// The same with 0 for NaN.
HWY_INLINE hn::Vec<Integers> MagnitudeButNan(hn::Vec<Floats> x) {
  const auto magnitude = Magnitude(x);
  return hn::IfThenZeroElse(hn::Gt(magnitude, hn::Set(Integers(), infinity)), magnitude);
}

/// The largest magnitudes of full vectors of elements in the lanes that they have in memory, NaN counted.
template <class D, class Load>
HWY_INLINE hn::Vec<D> MostOfLanes(D d, std::size_t count, const Load& load) {
  const std::size_t lanes = hn::Lanes(d);
  const auto magnitude = [&](std::size_t i) HWY_ATTR {
    return hn::And(load(i), hn::Set(d, std::numeric_limits<hn::TFromD<D>>::max()));
  };
  auto most = hn::Zero(d);  // four, so that one's latency hides behind the others
  auto other = hn::Zero(d);
  auto third = hn::Zero(d);
  auto fourth = hn::Zero(d);
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    most = hn::Max(most, magnitude(i));
    other = hn::Max(other, magnitude(i + lanes));
    third = hn::Max(third, magnitude(i + 2 * lanes));
    fourth = hn::Max(fourth, magnitude(i + 3 * lanes));
  }
  for (; i + lanes <= count; i += lanes) most = hn::Max(most, magnitude(i));
  return hn::Max(hn::Max(most, other), hn::Max(third, fourth));
}
/// The same as magnitudes of floats; and how many of the elements fill whole vectors.
HWY_INLINE hn::Vec<Integers> MostOfVectors(const float* in, std::size_t count) {
  return MostOfLanes(Integers(), count, [&](std::size_t i) HWY_ATTR { return hn::BitCast(Integers(), Load(in + i)); });
}
HWY_INLINE std::size_t WholeVectors(const float* /*in*/, std::size_t count) {
  return count - count % hn::Lanes(Integers());
}
#if HWY_TARGET != HWY_SCALAR
/// bfloat16s are the upper halves of floats: two a lane.
using Halves = hn::Repartition<std::int16_t, Integers>;
HWY_INLINE hn::Vec<Integers> MostOfVectors(const BFloat16* in, std::size_t count) {
  const Integers di;
  const auto most = MostOfLanes(Halves(), count, [&](std::size_t i) HWY_ATTR {
    return hn::LoadU(Halves(), reinterpret_cast<const std::int16_t*>(in + i));
  });
  const auto pairs = hn::BitCast(di, most);
  return hn::Max(hn::And(pairs, hn::Set(di, 0x7FFF0000)), hn::ShiftLeft<16>(pairs));
}
HWY_INLINE std::size_t WholeVectors(const BFloat16* /*in*/, std::size_t count) {
  return count - count % hn::Lanes(Halves());
}
#else
HWY_INLINE hn::Vec<Integers> MostOfVectors(const BFloat16* in, std::size_t count) {
  return MostOfLanes(Integers(), count, [&](std::size_t i) HWY_ATTR { return hn::BitCast(Integers(), Load(in + i)); });
}
HWY_INLINE std::size_t WholeVectors(const BFloat16* /*in*/, std::size_t count) { return count; }
#endif

/// The largest magnitude of one tile. NaNs are few: they are counted first, and dropped where any is found.
template <typename Source>
HWY_INLINE std::int32_t AmaxOfTile(const Source* in, std::size_t count, NanInAmax nan, bool& finite) {
  const Integers di;
  const std::size_t lanes = hn::Lanes(di);
  const std::size_t whole = WholeVectors(in, count);
  auto most = MostOfVectors(in, whole);
  for (std::size_t i = whole; i < count; i += lanes) {
    most = hn::Max(most, Magnitude(LoadSome(in + i, std::min(lanes, count - i))));
  }
  const std::int32_t amax = hn::GetLane(hn::MaxOfLanes(di, most));
  finite = finite && amax < infinity;
  if (amax <= infinity || nan == NanInAmax::counted) return amax;
  most = hn::Zero(di);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) most = hn::Max(most, MagnitudeButNan(Load(in + i)));
  if (i < count) most = hn::Max(most, MagnitudeButNan(LoadSome(in + i, count - i)));
  return hn::GetLane(hn::MaxOfLanes(di, most));
}

#if HWY_TARGET != HWY_SCALAR && !HWY_HAVE_SCALABLE
/// Of four tiles, a vector each: largest magnitudes of the four in every block of 16 bytes.
HWY_INLINE hn::Vec<Integers> TurnFour(hn::Vec<Integers> a, hn::Vec<Integers> b, hn::Vec<Integers> c,
                                      hn::Vec<Integers> d) {
  const Integers di;
  const hn::Repartition<std::int64_t, Integers> pairs;
  const auto ab = hn::BitCast(pairs, hn::Max(hn::InterleaveLower(di, a, b), hn::InterleaveUpper(di, a, b)));
  const auto cd = hn::BitCast(pairs, hn::Max(hn::InterleaveLower(di, c, d), hn::InterleaveUpper(di, c, d)));
  return hn::Max(hn::BitCast(di, hn::InterleaveLower(pairs, ab, cd)),
                 hn::BitCast(di, hn::InterleaveUpper(pairs, ab, cd)));
}

/// Keeps a compiler from reading in another order than that of the memory, in which it is fetched ahead.
HWY_INLINE void KeepOrder() { std::atomic_signal_fence(std::memory_order_seq_cst); }

/// Largest magnitudes of as many tiles as a vector has lanes, a lane each. `of(t)` gives a vector of tile t's.
template <class Of>
HWY_INLINE hn::Vec<Integers> TurnAll(const Of& of) {
  const Integers di;
  constexpr std::size_t blocks = hn::MaxLanes(Integers()) / 4;
  const auto four = [&](std::size_t t) HWY_ATTR { return TurnFour(of(t), of(t + 1), of(t + 2), of(t + 3)); };
  if constexpr (blocks == 1) {
    return four(0);
  } else {
    const auto halves = [&](hn::Vec<Integers> x, hn::Vec<Integers> y) HWY_ATTR {
      return hn::Max(hn::ConcatLowerLower(di, y, x), hn::ConcatUpperUpper(di, y, x));
    };
    const auto first = four(0);
    KeepOrder();
    const auto second = four(4);
    if constexpr (blocks == 2) return halves(first, second);
    KeepOrder();
    const auto third = four(8);
    KeepOrder();
    const auto fourth = four(12);
    KeepOrder();
    const auto even = halves(first, third);
    const auto odd = halves(second, fourth);
    return hn::OddEvenBlocks(hn::Max(odd, hn::SwapAdjacentBlocks(odd)), hn::Max(even, hn::SwapAdjacentBlocks(even)));
  }
}

/// The largest magnitudes of a tile that fills kVectors vectors of floats.
template <std::size_t kVectors>
HWY_INLINE hn::Vec<Integers> MostOfFew(const float* in) {
  const std::size_t lanes = hn::Lanes(Integers());
  auto most = Magnitude(Load(in));
  for (std::size_t i = 1; i < kVectors; ++i) most = hn::Max(most, Magnitude(Load(in + i * lanes)));
  return most;
}
template <std::size_t kVectors>
HWY_INLINE hn::Vec<Integers> MostOfFew(const BFloat16* in) {
  if constexpr (kVectors == 1) {
    return Magnitude(Load(in));
  } else {
    return MostOfVectors(in, kVectors * hn::Lanes(Integers()));
  }
}

/// The same of as many tiles as a vector has lanes, a lane each.
template <std::size_t kVectors, typename Source>
HWY_INLINE hn::Vec<Integers> MostOfTiles(const Source* in) {
  const Integers di;
  const std::size_t lanes = hn::Lanes(di);
  if constexpr (kVectors == 1 && std::is_same_v<Source, BFloat16> && hn::MaxLanes(Integers()) == 16) {
    // Two tiles lie in a vector of theirs, each in two blocks of it.
    const auto two = [&](std::size_t t) HWY_ATTR { return MostOfVectors(in + t * lanes, 2 * lanes); };
    const auto first = TurnFour(two(0), two(2), two(4), two(6));
    KeepOrder();
    const auto second = TurnFour(two(8), two(10), two(12), two(14));
    KeepOrder();
    const auto mixed = hn::OddEvenBlocks(hn::Max(second, hn::SwapAdjacentBlocks(second)),
                                         hn::Max(first, hn::SwapAdjacentBlocks(first)));
    constexpr std::int32_t order[16] = {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15};
    return hn::TableLookupLanes(mixed, hn::SetTableIndices(di, order));
  } else {
    return TurnAll([&](std::size_t t) HWY_ATTR { return MostOfFew<kVectors>(in + t * kVectors * lanes); });
  }
}

/// Raises amaxes of tiles that fill kVectors vectors of floats. Returns how many tiles it did.
template <std::size_t kVectors, typename Source>
HWY_INLINE std::size_t AddAmaxOfFew(const Source* in, std::size_t tiles, std::size_t tile, NanInAmax nan,
                                    std::int32_t* all, bool& finite) {
  const Integers di;
  const std::size_t lanes = hn::Lanes(di);
  std::size_t t = 0;
  for (; t + lanes <= tiles; t += lanes, in += lanes * tile) {
    auto most = MostOfTiles<kVectors>(in);
    if (!hn::AllFalse(di, hn::Gt(most, hn::Set(di, infinity - 1)))) {
      std::int32_t amaxes[widest_vector / sizeof(std::int32_t)];
      for (std::size_t k = 0; k < lanes; ++k) amaxes[k] = AmaxOfTile(in + k * tile, tile, nan, finite);
      most = hn::LoadU(di, amaxes);
    }
    hn::StoreU(hn::Max(most, hn::LoadU(di, all + t)), di, all + t);
  }
  return t;
}

/// Raises amaxes of short tiles. Returns how many tiles it did.
template <typename Source>
HWY_INLINE std::size_t AddAmaxOfShort(const Source* in, std::size_t tiles, std::size_t tile, NanInAmax nan,
                                      std::int32_t* all, bool& finite) {
  const std::size_t lanes = hn::Lanes(Integers());
  if (tile == lanes) return AddAmaxOfFew<1>(in, tiles, tile, nan, all, finite);
  if (tile == 2 * lanes) return AddAmaxOfFew<2>(in, tiles, tile, nan, all, finite);
  if (tile == 4 * lanes) return AddAmaxOfFew<4>(in, tiles, tile, nan, all, finite);
  if (tile == 8 * lanes) return AddAmaxOfFew<8>(in, tiles, tile, nan, all, finite);
  return 0;
}
#else
template <typename Source>
HWY_INLINE std::size_t AddAmaxOfShort(const Source* /*in*/, std::size_t /*tiles*/, std::size_t /*tile*/,
                                      NanInAmax /*nan*/, std::int32_t* /*all*/, bool& /*finite*/) {
  return 0;
}
#endif

/// Raises amaxes of tiles of one column that all rows share.
template <typename Source>
HWY_INLINE bool AddAmaxOfColumns(const TileRows<Source>& x, NanInAmax nan, std::int32_t* all) {
  const Integers di;
  const std::size_t lanes = hn::Lanes(di);
  bool finite = true;
  for (std::size_t c = 0; c < x.width; c += lanes) {
    const std::size_t some = std::min(lanes, x.width - c);
    const auto load = [&](std::size_t r) HWY_ATTR {
      const Source* in = x.values + r * x.stride + c;
      return some == lanes ? Load(in) : LoadSome(in, some);
    };
    auto most = hn::Zero(di);
    for (std::size_t r = 0; r < x.rows; ++r) most = hn::Max(most, Magnitude(load(r)));
    if (!hn::AllFalse(di, hn::Gt(most, hn::Set(di, infinity - 1)))) {
      finite = false;
      if (nan == NanInAmax::dropped) {
        most = hn::Zero(di);
        for (std::size_t r = 0; r < x.rows; ++r) most = hn::Max(most, MagnitudeButNan(load(r)));
      }
    }
    if (some == lanes) {
      hn::StoreU(hn::Max(most, hn::LoadU(di, all + c)), di, all + c);
    } else {
      std::int32_t columns[widest_vector / sizeof(std::int32_t)];
      hn::StoreU(most, di, columns);
      for (std::size_t k = 0; k < some; ++k) all[c + k] = std::max(all[c + k], columns[k]);
    }
  }
  return finite;
}

template <typename Source>
HWY_INLINE bool AddAmax(const TileRows<Source>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride) {
  bool finite = true;
  if (x.tile == 1 && amax_stride == 0) {
    return AddAmaxOfColumns(x, nan, reinterpret_cast<std::int32_t*>(amaxes));
  }
  for (std::size_t r = 0; r < x.rows; ++r) {
    const Source* in = x.values + r * x.stride;
    auto* all = reinterpret_cast<std::int32_t*>(amaxes + r * amax_stride);
    std::size_t t = AddAmaxOfShort(in, x.width / x.tile, x.tile, nan, all, finite);
    for (std::size_t first = t * x.tile; first < x.width; first += x.tile, ++t) {
      all[t] = std::max(all[t], AmaxOfTile(in + first, std::min(x.tile, x.width - first), nan, finite));
    }
  }
  return finite;
}
HWY_ATTR bool AddAmaxOfFloats(const TileRows<float>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride) {
  return AddAmax(x, nan, amaxes, amax_stride);
}
HWY_ATTR bool AddAmaxOfBFloats(const TileRows<BFloat16>& x, NanInAmax nan, std::uint32_t* amaxes,
                               std::size_t amax_stride) {
  return AddAmax(x, nan, amaxes, amax_stride);
}

template <TileOperation kOperation>
HWY_INLINE hn::Vec<Floats> Scaled(hn::Vec<Floats> x, hn::Vec<Floats> factor) {
  const Floats df;
  auto result = x;
  if constexpr (kOperation == TileOperation::divide) {
    result = hn::Div(x, factor);
  } else {
    result = hn::Mul(x, factor);
  }
  // Only an exact zero loses its sign to the +0 of an fma; a product that underflows keeps it.
  if constexpr (kOperation == TileOperation::multiply_add_zero) {
    const auto exact_zero = hn::Or(hn::Eq(x, hn::Zero(df)), hn::Eq(factor, hn::Zero(df)));
    result = hn::IfThenElse(exact_zero, hn::Abs(result), result);
  }
  const auto kept = hn::IfThenElse(hn::IsNaN(x), x, hn::BitCast(df, hn::Set(Words(), 0x7FC00000U)));
  return hn::IfThenElse(hn::IsNaN(result), kept, result);
}

template <TileOperation kOperation, typename Source>
HWY_INLINE void ScaleTilesWith(const Source* in, std::size_t count, std::size_t tile, const float* factors,
                               float* out) {
  const Floats df;
  const std::size_t lanes = hn::Lanes(df);
  if (tile == 1) {
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      hn::StoreU(Scaled<kOperation>(Load(in + i), hn::LoadU(df, factors + i)), df, out + i);
    }
    const auto last = Scaled<kOperation>(LoadSome(in + i, count - i), LoadSome(factors + i, count - i));
    return StoreSome(last, count - i, out + i);
  }
  for (std::size_t first = 0, t = 0; first < count; first += tile, ++t) {
    const std::size_t end = std::min(first + tile, count);
    const auto factor = hn::Set(df, factors[t]);
    std::size_t i = first;
    for (; i + lanes <= end; i += lanes) hn::StoreU(Scaled<kOperation>(Load(in + i), factor), df, out + i);
    if (i < end) StoreSome(Scaled<kOperation>(LoadSome(in + i, end - i), factor), end - i, out + i);
  }
}

template <typename Source>
HWY_ATTR void ScaleTiles(const Source* in, std::size_t count, std::size_t tile, TileOperation operation,
                         const float* factors, float* out) {
  switch (operation) {
    case TileOperation::multiply: return ScaleTilesWith<TileOperation::multiply>(in, count, tile, factors, out);
    case TileOperation::divide: return ScaleTilesWith<TileOperation::divide>(in, count, tile, factors, out);
    case TileOperation::multiply_add_zero:
      return ScaleTilesWith<TileOperation::multiply_add_zero>(in, count, tile, factors, out);
  }
}
HWY_ATTR void ScaleTilesOfFloats(const float* in, std::size_t count, std::size_t tile, TileOperation operation,
                                 const float* factors, float* out) {
  ScaleTiles(in, count, tile, operation, factors, out);
}
HWY_ATTR void ScaleTilesOfBFloats(const BFloat16* in, std::size_t count, std::size_t tile, TileOperation operation,
                                  const float* factors, float* out) {
  ScaleTiles(in, count, tile, operation, factors, out);
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(AddAmaxOfFloats);
HWY_EXPORT(AddAmaxOfBFloats);
HWY_EXPORT(ScaleTilesOfFloats);
HWY_EXPORT(ScaleTilesOfBFloats);

bool add_amax_vector(const TileRows<float>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride) {
  return HWY_DYNAMIC_DISPATCH(AddAmaxOfFloats)(x, nan, amaxes, amax_stride);
}
bool add_amax_vector(const TileRows<BFloat16>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride) {
  return HWY_DYNAMIC_DISPATCH(AddAmaxOfBFloats)(x, nan, amaxes, amax_stride);
}
void scale_tiles_vector(const float* row, std::size_t count, std::size_t tile, TileOperation operation,
                        const float* factors, float* out) {
  HWY_DYNAMIC_DISPATCH(ScaleTilesOfFloats)(row, count, tile, operation, factors, out);
}
void scale_tiles_vector(const BFloat16* row, std::size_t count, std::size_t tile, TileOperation operation,
                        const float* factors, float* out) {
  HWY_DYNAMIC_DISPATCH(ScaleTilesOfBFloats)(row, count, tile, operation, factors, out);
}

}  // namespace fp8lab
#endif
