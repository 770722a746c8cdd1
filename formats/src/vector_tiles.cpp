// SPDX-License-Identifier: Apache-2.0
// Largest magnitudes of tiles, and tiles scaled, as many elements at a time as a vector has. The scalar functions of
// tiles.cpp define the result.
#include "vector_tiles.hpp"

#include <algorithm>

#include "vector_memory.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "vector_tiles.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Integers = hn::RebindToSigned<Floats>;
using Words = hn::RebindToUnsigned<Floats>;
using Shorts = hn::Rebind<std::uint16_t, Floats>;

HWY_INLINE hn::Vec<Floats> Load(const float* in) { return hn::LoadU(Floats(), in); }
HWY_INLINE hn::Vec<Floats> Load(const BFloat16* in) {
  const auto words = hn::PromoteTo(Words(), hn::LoadU(Shorts(), reinterpret_cast<const std::uint16_t*>(in)));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(words));
}

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

/// Magnitudes as integers, whose order is that of the numbers; NaN, above all, is 0 where it is dropped.
template <NanInAmax kNan>
HWY_INLINE hn::Vec<Integers> Magnitude(hn::Vec<Floats> x) {
  const Integers di;
  const auto magnitude = hn::And(hn::BitCast(di, x), hn::Set(di, 0x7FFFFFFF));
  if constexpr (kNan == NanInAmax::counted) return magnitude;
  return hn::IfThenZeroElse(hn::Gt(magnitude, hn::Set(di, 0x7F800000)), magnitude);
}

template <NanInAmax kNan, typename Source>
HWY_INLINE hn::Vec<Integers> AmaxOfTile(const Source* in, std::size_t count) {
  const Integers di;
  const std::size_t lanes = hn::Lanes(di);
  auto most = hn::Zero(di);
  auto other = hn::Zero(di);  // two, so that one's latency hides behind the other
  auto third = hn::Zero(di);
  auto fourth = hn::Zero(di);
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    most = hn::Max(most, Magnitude<kNan>(Load(in + i)));
    other = hn::Max(other, Magnitude<kNan>(Load(in + i + lanes)));
    third = hn::Max(third, Magnitude<kNan>(Load(in + i + 2 * lanes)));
    fourth = hn::Max(fourth, Magnitude<kNan>(Load(in + i + 3 * lanes)));
  }
  for (; i + lanes <= count; i += lanes) most = hn::Max(most, Magnitude<kNan>(Load(in + i)));
  if (i < count) other = hn::Max(other, Magnitude<kNan>(LoadSome(in + i, count - i)));
  return hn::Max(hn::Max(most, other), hn::Max(third, fourth));
}

#if HWY_TARGET != HWY_SCALAR
/// Four tiles of a few vectors each at a time: their vectors are turned so that lanes of a tile meet. Returns how many
/// tiles it did, all of them full.
template <NanInAmax kNan, typename Source>
HWY_INLINE std::size_t AddAmaxOfFours(const Source* in, std::size_t tiles, std::size_t tile, std::int32_t* all) {
  const Integers di;
  const hn::Repartition<std::int64_t, Integers> pairs;
  const hn::CappedTag<std::int32_t, 4> four;
  const std::size_t lanes = hn::Lanes(di);
  const auto of = [&](const Source* from) HWY_ATTR {
    auto most = Magnitude<kNan>(Load(from));
    for (std::size_t i = lanes; i < tile; i += lanes) most = hn::Max(most, Magnitude<kNan>(Load(from + i)));
    return most;
  };
  std::size_t t = 0;
  for (; t + 4 <= tiles; t += 4, in += 4 * tile) {
    const auto a = of(in);
    const auto b = of(in + tile);
    const auto c = of(in + 2 * tile);
    const auto d = of(in + 3 * tile);
    const auto ab = hn::BitCast(pairs, hn::Max(hn::InterleaveLower(di, a, b), hn::InterleaveUpper(di, a, b)));
    const auto cd = hn::BitCast(pairs, hn::Max(hn::InterleaveLower(di, c, d), hn::InterleaveUpper(di, c, d)));
    const auto low = hn::BitCast(di, hn::InterleaveLower(pairs, ab, cd));
    const auto high = hn::BitCast(di, hn::InterleaveUpper(pairs, ab, cd));
    std::int32_t blocks[widest_vector / sizeof(std::int32_t)];  // of the four tiles each
    hn::StoreU(hn::Max(low, high), di, blocks);
    auto most = hn::LoadU(four, all + t);
    for (std::size_t i = 0; i < lanes; i += 4) most = hn::Max(most, hn::LoadU(four, blocks + i));
    hn::StoreU(most, four, all + t);
  }
  return t;
}
#else
template <NanInAmax kNan, typename Source>
HWY_INLINE std::size_t AddAmaxOfFours(const Source* /*in*/, std::size_t /*tiles*/, std::size_t /*tile*/,
                                      std::int32_t* /*all*/) {
  return 0;
}
#endif

template <NanInAmax kNan, typename Source>
HWY_INLINE void AddAmaxWith(const Source* in, std::size_t count, std::size_t tile, std::uint32_t* amax) {
  const Integers di;
  const std::size_t lanes = hn::Lanes(di);
  auto* all = reinterpret_cast<std::int32_t*>(amax);
  if (tile == 1) {
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      hn::StoreU(hn::Max(Magnitude<kNan>(Load(in + i)), hn::LoadU(di, all + i)), di, all + i);
    }
    for (; i < count; ++i) all[i] = std::max(all[i], hn::GetLane(Magnitude<kNan>(LoadSome(in + i, 1))));
    return;
  }
  const bool few = tile % lanes == 0 && tile <= 8 * lanes;
  std::size_t t = few ? AddAmaxOfFours<kNan>(in, count / tile, tile, all) : 0;
  for (std::size_t first = t * tile; first < count; first += tile, ++t) {
    const auto most = AmaxOfTile<kNan>(in + first, std::min(tile, count - first));
    all[t] = std::max(all[t], hn::GetLane(hn::MaxOfLanes(di, most)));
  }
}

template <typename Source>
HWY_ATTR void AddAmax(const Source* in, std::size_t count, std::size_t tile, NanInAmax nan, std::uint32_t* amax) {
  switch (nan) {
    case NanInAmax::dropped: return AddAmaxWith<NanInAmax::dropped>(in, count, tile, amax);
    case NanInAmax::counted: return AddAmaxWith<NanInAmax::counted>(in, count, tile, amax);
  }
}
HWY_ATTR void AddAmaxOfFloats(const float* in, std::size_t count, std::size_t tile, NanInAmax nan,
                              std::uint32_t* amax) {
  AddAmax(in, count, tile, nan, amax);
}
HWY_ATTR void AddAmaxOfBFloats(const BFloat16* in, std::size_t count, std::size_t tile, NanInAmax nan,
                               std::uint32_t* amax) {
  AddAmax(in, count, tile, nan, amax);
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

void add_amax_vector(const float* row, std::size_t count, std::size_t tile, NanInAmax nan, std::uint32_t* amax) {
  HWY_DYNAMIC_DISPATCH(AddAmaxOfFloats)(row, count, tile, nan, amax);
}
void add_amax_vector(const BFloat16* row, std::size_t count, std::size_t tile, NanInAmax nan, std::uint32_t* amax) {
  HWY_DYNAMIC_DISPATCH(AddAmaxOfBFloats)(row, count, tile, nan, amax);
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
