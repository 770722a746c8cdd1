// SPDX-License-Identifier: Apache-2.0
#include "simd/tiles.hpp"

#include <hwy/cache_control.h>
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <optional>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/formats/widen.hpp"
#include "simd/decode.hpp"
#include "simd/encode.hpp"
#include "simd/memory.hpp"
#include "simd/targets.hpp"

namespace fp8lab {
namespace {

template <typename Source>
AmaxSeen add_amax_of(const TileRows<Source>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride) {
  if (vector_code_allowed()) return add_amax_vector(x, nan, amaxes, amax_stride);
  AmaxSeen seen{0, true};
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t i = 0; i < x.width; ++i) {
      const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(widened(x.row(r)[i])) & 0x7FFFFFFFU;
      seen.finite = seen.finite && magnitude < 0x7F800000U;
      if (nan == NanInAmax::dropped && magnitude > 0x7F800000U) continue;
      std::uint32_t& amax = amaxes[r * amax_stride + i / x.tile];
      amax = std::max(amax, magnitude);
      seen.largest = std::max(seen.largest, magnitude);
    }
  }
  return seen;
}

float scaled(TileOperation operation, float x, float factor) {
  const auto result = [&] {
    switch (operation) {
      case TileOperation::multiply: return x * factor;
      case TileOperation::divide: return x / factor;
      case TileOperation::multiply_add_zero: return std::fma(x, factor, 0.0F);
      case TileOperation::multiply_then_add_zero: return x * factor + 0.0F;
      case TileOperation::divide_then_add_zero: return x / factor + 0.0F;
      case TileOperation::multiply_negative_zero: {
        const float product = x * factor;
        return product == 0 ? -0.0F : product;
      }
    }
    return x;
  }();
  if (!std::isnan(result)) return result;
  return std::isnan(x) ? x : std::bit_cast<float>(0x7FC00000U);
}

template <typename Source>
void scale_tiles_of(std::span<const Source> row, std::size_t tile, TileOperation operation,
                    std::span<const float> factors, std::span<float> out) {
  by_default_arithmetic([&] {
    if (vector_code_allowed()) {
      return scale_tiles_vector(row.data(), row.size(), tile, operation, factors.data(), out.data());
    }
    for (std::size_t i = 0; i < row.size(); ++i) out[i] = scaled(operation, widened(row[i]), factors[i / tile]);
  });
}

}  // namespace

AmaxSeen add_amax(const TileRows<float>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride) {
  return add_amax_of(x, nan, amaxes, amax_stride);
}
AmaxSeen add_amax(const TileRows<BFloat16>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride) {
  return add_amax_of(x, nan, amaxes, amax_stride);
}
AmaxSeen add_amax(const TileRows<Half>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride) {
  return add_amax_of(x, nan, amaxes, amax_stride);
}
void scale_tiles(std::span<const float> row, std::size_t tile, TileOperation operation, std::span<const float> factors,
                 std::span<float> out) {
  scale_tiles_of(row, tile, operation, factors, out);
}
void scale_tiles(std::span<const BFloat16> row, std::size_t tile, TileOperation operation,
                 std::span<const float> factors, std::span<float> out) {
  scale_tiles_of(row, tile, operation, factors, out);
}
void scale_tiles(std::span<const Half> row, std::size_t tile, TileOperation operation, std::span<const float> factors,
                 std::span<float> out) {
  scale_tiles_of(row, tile, operation, factors, out);
}

float overflow_from(const Format& format) {
  const auto code = static_cast<std::uint32_t>(format.max_code());
  const auto largest = decode(format, code);
  return by_default_arithmetic([&] { return largest + (largest - decode(format, code - 1)) / 2; });
}

struct TileEncoder::Cast {
  Format format;
  CastPolicy policy;
  std::optional<VectorEncode> vector;  // where vector code can do it, and may
};

TileEncoder::TileEncoder(const Format& format, const CastPolicy& policy)
    : cast_(in_default_environment([&] {
        return std::make_shared<Cast>(
            Cast{format, policy, vector_code_allowed() ? vector_encode(format, policy) : std::nullopt});
      })) {
  check_bulk(format, 1, 8, 0, 0);
}

template <typename Source>
void TileEncoder::encode_rows(const TileRows<Source>& x, TileOperation operation, const float* factors,
                              std::size_t factor_stride, bool pairs, std::uint8_t* out, std::size_t out_stride,
                              const EncodeHints& hints) const {
  std::size_t done = 0;
  if constexpr (!std::same_as<Source, Half>) {  // halves are few
    if (cast_->vector && cast_->vector->plain && operation == TileOperation::multiply) {
      EncodeHints own = hints;
      own.stream = hints.stream && begin_with_lines(out, x.rows > 1 ? out_stride : 0);
      done = encode_tiles_vector(*cast_->vector, {x, factors, factor_stride, pairs, own, out, out_stride});
    }
  }
  if (done == x.width) return;
  for (std::size_t r = 0; r < x.rows; ++r) {
    encode_rest(x.row(r), done, x.tile, operation, factors + r * factor_stride, pairs, out + r * out_stride);
  }
}

/// A row from element `done` on, by way of its scaled values, in pieces of whole tiles or of one.
template <typename Source>
void TileEncoder::encode_rest(std::span<const Source> row, std::size_t done, std::size_t tile, TileOperation operation,
                              const float* factors, bool pairs, std::uint8_t* out) const {
  std::array<float, 512> room;
  std::array<std::uint8_t, 512> apart;
  while (done < row.size()) {
    const std::size_t within = done % tile;
    const std::size_t most = tile >= room.size() ? std::min(tile - within, room.size()) : room.size() / tile * tile;
    const auto piece =
        row.subspan(done, std::min(within == 0 ? most : std::min(most, tile - within), row.size() - done));
    const auto values = std::span(room).first(piece.size());
    const std::size_t tiles = (within + piece.size() - 1) / tile + 1;
    scale_tiles(piece, tile, operation, {factors + done / tile, tiles}, values);
    const auto codes = pairs ? std::span(apart).first(piece.size()) : std::span(out + done, piece.size());
    if (cast_->vector) {
      encode_vector(*cast_->vector, values.data(), nullptr, codes.data(), codes.size());
    } else {
      std::ranges::transform(values, codes.begin(), [&](float value) {
        return static_cast<std::uint8_t>(encode(cast_->format, cast_->policy, value));
      });
    }
    if (pairs) pack_pairs(codes, {out + done / 2, codes.size() / 2});
    done += piece.size();
  }
}

void TileEncoder::operator()(const TileRows<float>& x, TileOperation operation, const float* factors,
                             std::size_t factor_stride, bool pairs, std::uint8_t* out, std::size_t out_stride,
                             const EncodeHints& hints) const {
  by_default_arithmetic([&] { encode_rows(x, operation, factors, factor_stride, pairs, out, out_stride, hints); });
}
void TileEncoder::operator()(const TileRows<BFloat16>& x, TileOperation operation, const float* factors,
                             std::size_t factor_stride, bool pairs, std::uint8_t* out, std::size_t out_stride,
                             const EncodeHints& hints) const {
  by_default_arithmetic([&] { encode_rows(x, operation, factors, factor_stride, pairs, out, out_stride, hints); });
}

void TileEncoder::operator()(const TileRows<Half>& x, TileOperation operation, const float* factors,
                             std::size_t factor_stride, bool pairs, std::uint8_t* out, std::size_t out_stride,
                             const EncodeHints& hints) const {
  by_default_arithmetic([&] { encode_rows(x, operation, factors, factor_stride, pairs, out, out_stride, hints); });
}

void TileEncoder::flush() { hwy::FlushStream(); }

struct TileDecoder::Cast {
  Format format;
  std::optional<VectorDecode> vector;  // where vector code can do it, and may
};

TileDecoder::TileDecoder(const Format& format)
    : cast_(in_default_environment([&] {
        return std::make_shared<Cast>(Cast{format, vector_code_allowed() ? vector_decode(format) : std::nullopt});
      })) {
  check_bulk(format, 1, 8, 0, 0);
}

void TileDecoder::operator()(std::span<const std::uint8_t> codes, std::size_t tile, std::span<const float> factors,
                             std::span<float> out) const {
  std::size_t done = 0;
  if (cast_->vector) {
    done = by_default_arithmetic([&] {
      return decode_tiles_vector(*cast_->vector, codes.data(), codes.size(), tile, factors.data(), out.data());
    });
  }
  if (done == codes.size()) return;
  const auto rest = out.subspan(done);
  decode(cast_->format, codes.subspan(done), rest);
  scale_tiles(std::span<const float>(rest), tile, TileOperation::multiply, factors.subspan(done / tile), rest);
}

}  // namespace fp8lab
