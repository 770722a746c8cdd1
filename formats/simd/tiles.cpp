// SPDX-License-Identifier: Apache-2.0
// Largest magnitudes of tiles, and tiles scaled, as many elements at a time as a vector has. The scalar functions of
// tiles.cpp define the result.
#include "simd/tiles.hpp"

#include <algorithm>
#include <atomic>

#include "simd/memory.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/tiles.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "simd/load-inl.hpp"

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

/// The result of add_amax() while it is gathered.
struct PartialAmax {
  std::int32_t largest = 0;
  bool finite = true;
};

/// Magnitudes as integers, whose order is that of the numbers, with NaN above all.
HWY_INLINE hn::Vec<Integers> Magnitude(hn::Vec<Floats> x) {
  return hn::And(hn::BitCast(Integers(), x), hn::Set(Integers(), 0x7FFFFFFF));
}
/// The magnitude of x, but 0 where x is NaN.
HWY_INLINE hn::Vec<Integers> MagnitudeButNan(hn::Vec<Floats> x) {
  const auto magnitude = Magnitude(x);
  return hn::IfThenZeroElse(hn::Gt(magnitude, hn::Set(Integers(), infinity)), magnitude);
}

// The magnitudes of elements, each in a lane as wide as the element.
HWY_INLINE hn::Vec<Integers> LoadMagnitude(const float* in) { return Magnitude(Load(in)); }
HWY_INLINE hn::Vec<Integers> LoadMagnitude(const Half* in) { return Magnitude(Load(in)); }
HWY_INLINE hn::Vec<Integers> AsFloats(hn::Vec<Integers> own) { return own; }
#if HWY_TARGET != HWY_SCALAR
/// bfloat16s are the upper halves of floats: two in a lane.
using Halves = hn::Repartition<std::int16_t, Integers>;
HWY_INLINE hn::Vec<Halves> LoadMagnitude(const BFloat16* in) {
  const Halves halves;
  return hn::And(hn::LoadU(halves, reinterpret_cast<const std::int16_t*>(in)), hn::Set(halves, 0x7FFF));
}
/// The larger of each lane's two.
HWY_INLINE hn::Vec<Integers> AsFloats(hn::Vec<Halves> own) {
  const Integers di;
  const auto two = hn::BitCast(di, own);
  return hn::Max(hn::And(two, hn::Set(di, 0x7FFF0000)), hn::ShiftLeft<16>(two));
}
#else
HWY_INLINE hn::Vec<Integers> LoadMagnitude(const BFloat16* in) { return Magnitude(Load(in)); }
#endif
/// The tag of these lanes.
template <typename Source>
using MagnitudeTag = hn::DFromV<decltype(LoadMagnitude(static_cast<const Source*>(nullptr)))>;

/// The largest magnitudes of full vectors of elements, NaN counted.
template <typename Source>
HWY_INLINE hn::Vec<MagnitudeTag<Source>> MostOfVectors(const Source* in, std::size_t count) {
  const MagnitudeTag<Source> own;
  const std::size_t lanes = hn::Lanes(own);
  auto most = hn::Zero(own);  // four, so that one's latency hides behind the others
  auto other = hn::Zero(own);
  auto third = hn::Zero(own);
  auto fourth = hn::Zero(own);
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    most = hn::Max(most, LoadMagnitude(in + i));
    other = hn::Max(other, LoadMagnitude(in + i + lanes));
    third = hn::Max(third, LoadMagnitude(in + i + 2 * lanes));
    fourth = hn::Max(fourth, LoadMagnitude(in + i + 3 * lanes));
  }
  for (; i + lanes <= count; i += lanes) most = hn::Max(most, LoadMagnitude(in + i));
  return hn::Max(hn::Max(most, other), hn::Max(third, fourth));
}

/// The largest magnitude of one tile. NaNs are few: they are counted first, and dropped where any is found.
template <typename Source>
HWY_INLINE std::int32_t AmaxOfTile(const Source* in, std::size_t count, NanInAmax nan, PartialAmax& seen) {
  const Integers di;
  const std::size_t lanes = hn::Lanes(di);
  const std::size_t whole = count - count % hn::Lanes(MagnitudeTag<Source>());
  auto most = AsFloats(MostOfVectors(in, whole));
  for (std::size_t i = whole; i < count; i += lanes) {
    most = hn::Max(most, Magnitude(LoadSome(in + i, std::min(lanes, count - i))));
  }
  std::int32_t amax = hn::GetLane(hn::MaxOfLanes(di, most));
  seen.finite = seen.finite && amax < infinity;
  if (amax > infinity && nan == NanInAmax::dropped) {
    most = hn::Zero(di);
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes) most = hn::Max(most, MagnitudeButNan(Load(in + i)));
    if (i < count) most = hn::Max(most, MagnitudeButNan(LoadSome(in + i, count - i)));
    amax = hn::GetLane(hn::MaxOfLanes(di, most));
  }
  seen.largest = std::max(seen.largest, amax);
  return amax;
}

#if HWY_TARGET != HWY_SCALAR && !HWY_HAVE_SCALABLE
/// Takes a vector of magnitudes from each of four tiles. Every block of 16 bytes of the result has the largest of each
/// tile.
template <class D>
HWY_INLINE hn::Vec<D> TurnFour(D own, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c, hn::Vec<D> d) {
  const hn::Repartition<std::int32_t, D> ones;
  const hn::Repartition<std::int64_t, D> pairs;
  const auto turn = [&](auto lanes, hn::Vec<D> x, hn::Vec<D> y) HWY_ATTR {
    const auto first = hn::BitCast(lanes, x);
    const auto second = hn::BitCast(lanes, y);
    return hn::Max(hn::BitCast(own, hn::InterleaveLower(lanes, first, second)),
                   hn::BitCast(own, hn::InterleaveUpper(lanes, first, second)));
  };
  return turn(pairs, turn(ones, a, b), turn(ones, c, d));
}

/// Keeps a compiler from reading in another order than that of the memory, in which it is fetched ahead.
HWY_INLINE void KeepOrder() { std::atomic_signal_fence(std::memory_order_seq_cst); }

/// The largest magnitudes of as many tiles as there are lanes of 32 bits, one lane per tile. `of(t)` gives a vector of
/// magnitudes of tile t.
template <class D, class Of>
HWY_INLINE hn::Vec<D> TurnAll(D own, const Of& of) {
  constexpr std::size_t blocks = hn::MaxLanes(Integers()) / 4;
  const auto four = [&](std::size_t t) HWY_ATTR { return TurnFour(own, of(t), of(t + 1), of(t + 2), of(t + 3)); };
  if constexpr (blocks == 1) {
    return four(0);
  } else {
    const auto halves = [&](hn::Vec<D> x, hn::Vec<D> y) HWY_ATTR {
      return hn::Max(hn::ConcatLowerLower(own, y, x), hn::ConcatUpperUpper(own, y, x));
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

/// The largest magnitudes of as many tiles of kVectors vectors as there are lanes of 32 bits, a lane each.
template <std::size_t kVectors, typename Source>
HWY_INLINE hn::Vec<Integers> MostOfTiles(const Source* in) {
  const MagnitudeTag<Source> own;
  const std::size_t lanes = hn::Lanes(own);
  return AsFloats(TurnAll(own, [&](std::size_t t) HWY_ATTR {
    const Source* tile = in + t * kVectors * lanes;
    auto most = LoadMagnitude(tile);
    for (std::size_t i = 1; i < kVectors; ++i) most = hn::Max(most, LoadMagnitude(tile + i * lanes));
    return most;
  }));
}
/// Does the same for tiles of half a vector of 64 bytes, each of which lies in two blocks of it.
template <typename Source>
HWY_INLINE hn::Vec<Integers> MostOfHalfTiles(const Source* in) {
  const MagnitudeTag<Source> own;
  const auto of = [&](std::size_t t) HWY_ATTR { return LoadMagnitude(in + t * hn::Lanes(own)); };
  const auto first = TurnFour(own, of(0), of(1), of(2), of(3));
  KeepOrder();
  const auto second = TurnFour(own, of(4), of(5), of(6), of(7));
  KeepOrder();
  const auto mixed = AsFloats(hn::OddEvenBlocks(hn::Max(second, hn::SwapAdjacentBlocks(second)),
                                                hn::Max(first, hn::SwapAdjacentBlocks(first))));
  constexpr std::int32_t order[16] = {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15};
  return hn::TableLookupLanes(mixed, hn::SetTableIndices(Integers(), order));
}

/// Raises amaxes of tiles, of which most_of gives those of as many as there are lanes. Returns how many tiles it did.
template <typename Source, class MostOf>
HWY_INLINE std::size_t AddAmaxOfFew(const Source* in, std::size_t tiles, std::size_t tile, NanInAmax nan,
                                    std::int32_t* all, PartialAmax& seen, const MostOf& most_of) {
  const Integers di;
  const std::size_t lanes = hn::Lanes(di);
  auto largest = hn::Zero(di);
  std::size_t t = 0;
  for (; t + lanes <= tiles; t += lanes, in += lanes * tile) {
    auto most = most_of(in);
    if (!hn::AllFalse(di, hn::Gt(most, hn::Set(di, infinity - 1)))) {
      std::int32_t amaxes[widest_vector / sizeof(std::int32_t)];
      for (std::size_t k = 0; k < lanes; ++k) amaxes[k] = AmaxOfTile(in + k * tile, tile, nan, seen);
      most = hn::LoadU(di, amaxes);
    }
    largest = hn::Max(largest, most);
    hn::StoreU(hn::Max(most, hn::LoadU(di, all + t)), di, all + t);
  }
  seen.largest = std::max(seen.largest, hn::GetLane(hn::MaxOfLanes(di, largest)));
  return t;
}

/// Raises amaxes of short tiles. Returns how many tiles it did.
template <typename Source>
HWY_INLINE std::size_t AddAmaxOfShort(const Source* in, std::size_t tiles, std::size_t tile, NanInAmax nan,
                                      std::int32_t* all, PartialAmax& seen) {
  const std::size_t lanes = hn::Lanes(MagnitudeTag<Source>());
  const auto few = [&](const auto& most_of) HWY_ATTR { return AddAmaxOfFew(in, tiles, tile, nan, all, seen, most_of); };
  if constexpr (hn::MaxLanes(Integers()) == 16) {
    if (2 * tile == lanes) return few([](const Source* x) HWY_ATTR { return MostOfHalfTiles(x); });
  }
  if (tile == lanes) return few([](const Source* x) HWY_ATTR { return MostOfTiles<1>(x); });
  if (tile == 2 * lanes) return few([](const Source* x) HWY_ATTR { return MostOfTiles<2>(x); });
  if (tile == 4 * lanes) return few([](const Source* x) HWY_ATTR { return MostOfTiles<4>(x); });
  if (tile == 8 * lanes) return few([](const Source* x) HWY_ATTR { return MostOfTiles<8>(x); });
  return 0;
}
#else
template <typename Source>
HWY_INLINE std::size_t AddAmaxOfShort(const Source* /*in*/, std::size_t /*tiles*/, std::size_t /*tile*/,
                                      NanInAmax /*nan*/, std::int32_t* /*all*/, PartialAmax& /*seen*/) {
  return 0;
}
#endif

/// Raises amaxes of tiles of one column that all rows share.
template <typename Source>
HWY_INLINE void AddAmaxOfColumns(const TileRows<Source>& x, NanInAmax nan, std::int32_t* all, PartialAmax& seen) {
  const Integers di;
  const std::size_t lanes = hn::Lanes(di);
  auto largest = hn::Zero(di);
  for (std::size_t c = 0; c < x.width; c += lanes) {
    const std::size_t some = std::min(lanes, x.width - c);
    const auto load = [&](std::size_t r) HWY_ATTR {
      const Source* in = x.values + r * x.stride + c;
      return some == lanes ? Load(in) : LoadSome(in, some);
    };
    auto most = hn::Zero(di);
    for (std::size_t r = 0; r < x.rows; ++r) most = hn::Max(most, Magnitude(load(r)));
    if (!hn::AllFalse(di, hn::Gt(most, hn::Set(di, infinity - 1)))) {
      seen.finite = false;
      if (nan == NanInAmax::dropped) {
        most = hn::Zero(di);
        for (std::size_t r = 0; r < x.rows; ++r) most = hn::Max(most, MagnitudeButNan(load(r)));
      }
    }
    largest = hn::Max(largest, most);
    if (some == lanes) {
      hn::StoreU(hn::Max(most, hn::LoadU(di, all + c)), di, all + c);
    } else {
      std::int32_t columns[widest_vector / sizeof(std::int32_t)];
      hn::StoreU(most, di, columns);
      for (std::size_t k = 0; k < some; ++k) all[c + k] = std::max(all[c + k], columns[k]);
    }
  }
  seen.largest = hn::GetLane(hn::MaxOfLanes(di, largest));
}

template <typename Source>
HWY_INLINE AmaxSeen AddAmax(const TileRows<Source>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride) {
  PartialAmax seen;
  if (x.tile == 1 && amax_stride == 0) {
    AddAmaxOfColumns(x, nan, reinterpret_cast<std::int32_t*>(amaxes), seen);
  } else {
    for (std::size_t r = 0; r < x.rows; ++r) {
      const Source* in = x.values + r * x.stride;
      auto* all = reinterpret_cast<std::int32_t*>(amaxes + r * amax_stride);
      std::size_t t = AddAmaxOfShort(in, x.width / x.tile, x.tile, nan, all, seen);
      for (std::size_t first = t * x.tile; first < x.width; first += x.tile, ++t) {
        all[t] = std::max(all[t], AmaxOfTile(in + first, std::min(x.tile, x.width - first), nan, seen));
      }
    }
  }
  return {static_cast<std::uint32_t>(seen.largest), seen.finite};
}
HWY_ATTR AmaxSeen AddAmaxOfFloats(const TileRows<float>& x, NanInAmax nan, std::uint32_t* amaxes,
                                  std::size_t amax_stride) {
  return AddAmax(x, nan, amaxes, amax_stride);
}
HWY_ATTR AmaxSeen AddAmaxOfBFloats(const TileRows<BFloat16>& x, NanInAmax nan, std::uint32_t* amaxes,
                                   std::size_t amax_stride) {
  return AddAmax(x, nan, amaxes, amax_stride);
}
HWY_ATTR AmaxSeen AddAmaxOfHalves(const TileRows<Half>& x, NanInAmax nan, std::uint32_t* amaxes,
                                  std::size_t amax_stride) {
  return AddAmax(x, nan, amaxes, amax_stride);
}

template <TileOperation kOperation>
HWY_INLINE hn::Vec<Floats> Scaled(hn::Vec<Floats> x, hn::Vec<Floats> factor) {
  const Floats df;
  auto result = x;
  if constexpr (divides(kOperation)) {
    result = hn::Div(x, factor);
  } else {
    result = hn::Mul(x, factor);
  }
  // Only an exact zero loses its sign to the +0 of an fma; a product that underflows keeps it.
  if constexpr (kOperation == TileOperation::multiply_add_zero) {
    const auto exact_zero = hn::Or(hn::Eq(x, hn::Zero(df)), hn::Eq(factor, hn::Zero(df)));
    result = hn::IfThenElse(exact_zero, hn::Abs(result), result);
  }
  if constexpr (kOperation == TileOperation::multiply_then_add_zero ||
                kOperation == TileOperation::divide_then_add_zero) {
    result = hn::IfThenElse(hn::Eq(result, hn::Zero(df)), hn::Abs(result), result);
  }
  if constexpr (kOperation == TileOperation::multiply_negative_zero) {
    result = hn::IfThenElse(hn::Eq(result, hn::Zero(df)), hn::Set(df, -0.0F), result);
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
    case TileOperation::multiply_then_add_zero:
      return ScaleTilesWith<TileOperation::multiply_then_add_zero>(in, count, tile, factors, out);
    case TileOperation::divide_then_add_zero:
      return ScaleTilesWith<TileOperation::divide_then_add_zero>(in, count, tile, factors, out);
    case TileOperation::multiply_negative_zero:
      return ScaleTilesWith<TileOperation::multiply_negative_zero>(in, count, tile, factors, out);
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
HWY_ATTR void ScaleTilesOfHalves(const Half* in, std::size_t count, std::size_t tile, TileOperation operation,
                                 const float* factors, float* out) {
  ScaleTiles(in, count, tile, operation, factors, out);
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(AddAmaxOfFloats);
HWY_EXPORT(AddAmaxOfBFloats);
HWY_EXPORT(AddAmaxOfHalves);
HWY_EXPORT(ScaleTilesOfFloats);
HWY_EXPORT(ScaleTilesOfBFloats);
HWY_EXPORT(ScaleTilesOfHalves);

AmaxSeen add_amax_vector(const TileRows<float>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride) {
  return HWY_DYNAMIC_DISPATCH(AddAmaxOfFloats)(x, nan, amaxes, amax_stride);
}
AmaxSeen add_amax_vector(const TileRows<BFloat16>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride) {
  return HWY_DYNAMIC_DISPATCH(AddAmaxOfBFloats)(x, nan, amaxes, amax_stride);
}
AmaxSeen add_amax_vector(const TileRows<Half>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride) {
  return HWY_DYNAMIC_DISPATCH(AddAmaxOfHalves)(x, nan, amaxes, amax_stride);
}
void scale_tiles_vector(const float* row, std::size_t count, std::size_t tile, TileOperation operation,
                        const float* factors, float* out) {
  HWY_DYNAMIC_DISPATCH(ScaleTilesOfFloats)(row, count, tile, operation, factors, out);
}
void scale_tiles_vector(const BFloat16* row, std::size_t count, std::size_t tile, TileOperation operation,
                        const float* factors, float* out) {
  HWY_DYNAMIC_DISPATCH(ScaleTilesOfBFloats)(row, count, tile, operation, factors, out);
}
void scale_tiles_vector(const Half* row, std::size_t count, std::size_t tile, TileOperation operation,
                        const float* factors, float* out) {
  HWY_DYNAMIC_DISPATCH(ScaleTilesOfHalves)(row, count, tile, operation, factors, out);
}

}  // namespace fp8lab
#endif
