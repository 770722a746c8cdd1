// SPDX-License-Identifier: Apache-2.0
// Amaxes of tiles, tiles scaled, encoded and decoded: what quantize and dequantize are made of. Not installed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/formats/tiles.hpp"
#include "fp8lab/formats/unpack.hpp"

namespace fp8lab {

/// Rows of a matrix, or parts of them, cut into tiles of one row and `tile` columns, of which the last may be shorter.
template <typename Source>
struct TileRows {
  const Source* values;
  std::size_t rows;
  std::size_t width;
  std::size_t stride;  ///< from one row to the next, in elements
  std::size_t tile;

  /// Tiles in a row.
  [[nodiscard]] std::size_t across() const { return width / tile + (width % tile == 0 ? 0 : 1); }
  /// A row alone.
  [[nodiscard]] std::span<const Source> row(std::size_t r) const { return {values + r * stride, width}; }
};

/// The result of add_amax().
struct AmaxSeen {
  std::uint32_t largest;  ///< largest |x| of all tiles, by the same rule
  bool finite;            ///< whether every element is
};

/// Raises amaxes to the largest |x| of tiles, as float32 bits: what is above 7F800000 is NaN. Those of a row follow one
/// another, those of the next begin `amax_stride` later: 0 where tiles are higher than a row.
AmaxSeen add_amax(const TileRows<float>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride);
AmaxSeen add_amax(const TileRows<BFloat16>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride);
AmaxSeen add_amax(const TileRows<Half>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride);

/// out = row, each tile of `tile` elements multiplied with or divided by its factor, rounded once to float32. A NaN of
/// the row stays as widened() has it; one that arises is 7FC00000. Precondition: factors has an element for every tile,
/// out as many as the row. out may be the row.
void scale_tiles(std::span<const float> row, std::size_t tile, TileOperation operation, std::span<const float> factors,
                 std::span<float> out);
void scale_tiles(std::span<const BFloat16> row, std::size_t tile, TileOperation operation,
                 std::span<const float> factors, std::span<float> out);
void scale_tiles(std::span<const Half> row, std::size_t tile, TileOperation operation, std::span<const float> factors,
                 std::span<float> out);

/// Where overflow begins in rounding to nearest: half a spacing above the largest value.
[[nodiscard]] float overflow_from(const Format& format);

/// Hints that make encoding quicker, and change no code.
struct EncodeHints {
  /// Known: no factor is negative, no scaled value is NaN, all are closer to 0 than overflow_from().
  bool in_range = false;
  /// Codes go past the caches where rows of them begin with cache lines, as a Buffer does. Before another thread reads
  /// them, the writing one calls TileEncoder::flush().
  bool stream = false;
  /// How many bytes later the next calls read and write, which is fetched ahead; 0: nothing is.
  std::size_t ahead = 0;
  std::size_t out_ahead = 0;
};

/// Encodes scaled tiles, with what can be worked out once for many.
class TileEncoder {
 public:
  /// Throws std::invalid_argument where the bulk encode to bytes does.
  TileEncoder(const Format& format, const CastPolicy& policy);

  /// The codes of what scale_tiles() makes of the rows, with factors as amaxes of add_amax(): rows of them `out_stride`
  /// bytes apart. `pairs`: a format of 4 bits, packed by pack_pairs(); then rows have an even width, and tiles, but
  /// those of one element.
  void operator()(const TileRows<float>& x, TileOperation operation, const float* factors, std::size_t factor_stride,
                  bool pairs, std::uint8_t* out, std::size_t out_stride, const EncodeHints& hints = {}) const;
  void operator()(const TileRows<BFloat16>& x, TileOperation operation, const float* factors, std::size_t factor_stride,
                  bool pairs, std::uint8_t* out, std::size_t out_stride, const EncodeHints& hints = {}) const;
  void operator()(const TileRows<Half>& x, TileOperation operation, const float* factors, std::size_t factor_stride,
                  bool pairs, std::uint8_t* out, std::size_t out_stride, const EncodeHints& hints = {}) const;

  /// Flushes the streamed stores of this thread.
  static void flush();

 private:
  struct Cast;
  template <typename Source>
  void encode_rows(const TileRows<Source>& x, TileOperation operation, const float* factors, std::size_t factor_stride,
                   bool pairs, std::uint8_t* out, std::size_t out_stride, const EncodeHints& hints) const;
  template <typename Source>
  void encode_rest(std::span<const Source> row, std::size_t done, std::size_t tile, TileOperation operation,
                   const float* factors, bool pairs, std::uint8_t* out) const;

  std::shared_ptr<const Cast> cast_;
};

/// Decodes tiles and scales them, with what can be worked out once for many rows.
class TileDecoder {
 public:
  /// Throws std::invalid_argument where the bulk decode of bytes does.
  explicit TileDecoder(const Format& format);

  /// out = scale_tiles(the values of the codes, tile, multiply, factors). Preconditions: those.
  void operator()(std::span<const std::uint8_t> codes, std::size_t tile, std::span<const float> factors,
                  std::span<float> out) const;

 private:
  struct Cast;
  std::shared_ptr<const Cast> cast_;
};

// The functions above in vector code.
AmaxSeen add_amax_vector(const TileRows<float>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride);
AmaxSeen add_amax_vector(const TileRows<BFloat16>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride);
AmaxSeen add_amax_vector(const TileRows<Half>& x, NanInAmax nan, std::uint32_t* amaxes, std::size_t amax_stride);
void scale_tiles_vector(const float* row, std::size_t count, std::size_t tile, TileOperation operation,
                        const float* factors, float* out);
void scale_tiles_vector(const BFloat16* row, std::size_t count, std::size_t tile, TileOperation operation,
                        const float* factors, float* out);
void scale_tiles_vector(const Half* row, std::size_t count, std::size_t tile, TileOperation operation,
                        const float* factors, float* out);

}  // namespace fp8lab
