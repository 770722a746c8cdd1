// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/formats/unpack.hpp"

namespace fp8lab {

/// What NaN elements do to the largest magnitude among which they are.
enum class NanInAmax : std::uint8_t {
  dropped,  ///< nothing, as fmaxf
  counted,  ///< make it NaN, as torch.amax
};

/// What an element and its tile's factor become.
enum class TileOperation : std::uint8_t {
  multiply,           ///< fl(x * factor)
  divide,             ///< fl(x / factor)
  multiply_add_zero,  ///< fma(x, factor, +0): -0 becomes +0, all else is fl(x * factor)
};

// A row is cut into tiles of `tile` elements, of which the last may be shorter.

/// amax[t] = max(amax[t], the largest |x| of the row's tile t), as float32 bits: what is above 7F800000 is NaN. Returns
/// whether every element is finite. Precondition: amax has an element for every tile.
bool add_amax(std::span<const float> row, std::size_t tile, NanInAmax nan, std::span<std::uint32_t> amax);
bool add_amax(std::span<const BFloat16> row, std::size_t tile, NanInAmax nan, std::span<std::uint32_t> amax);

/// The same where columns are the tiles: of rows with as many elements as amax has, whose first ones lie `stride`
/// apart.
bool add_amax_of_columns(std::span<const float> rows, std::size_t stride, NanInAmax nan, std::span<std::uint32_t> amax);
bool add_amax_of_columns(std::span<const BFloat16> rows, std::size_t stride, NanInAmax nan,
                         std::span<std::uint32_t> amax);

/// out = row, each tile multiplied with or divided by its factor, rounded once to float32. A NaN of the row stays as it
/// is; one that arises is 7FC00000. Precondition: factors has an element for every tile, out as many as the row; the
/// default floating-point environment. out may be the row.
void scale_tiles(std::span<const float> row, std::size_t tile, TileOperation operation, std::span<const float> factors,
                 std::span<float> out);
void scale_tiles(std::span<const BFloat16> row, std::size_t tile, TileOperation operation,
                 std::span<const float> factors, std::span<float> out);

/// Where overflow begins in rounding to nearest: half a spacing above the largest value.
[[nodiscard]] float overflow_from(const Format& format);

/// What makes encoding quicker, and changes no code.
struct EncodeHints {
  bool in_range = false;  ///< known: no scaled value is NaN, all are closer to 0 than overflow_from()
  std::size_t ahead = 0;  ///< elements from each one on to that which is read at the next call
};

/// Encodes scaled tiles, with what can be worked out once for many rows.
class TileEncoder {
 public:
  /// Throws std::invalid_argument where the bulk encode to bytes does.
  TileEncoder(const Format& format, const CastPolicy& policy);

  /// out = the codes of scale_tiles(row, tile, operation, factors). Preconditions: those.
  void operator()(std::span<const float> row, std::size_t tile, TileOperation operation, std::span<const float> factors,
                  std::span<std::uint8_t> out, const EncodeHints& hints = {}) const;
  void operator()(std::span<const BFloat16> row, std::size_t tile, TileOperation operation,
                  std::span<const float> factors, std::span<std::uint8_t> out, const EncodeHints& hints = {}) const;
  /// The same of a format of 4 bits, packed by pack_pairs(). Precondition, too: the row has an even number of elements,
  /// a tile an even number or one.
  void encode_pairs(std::span<const float> row, std::size_t tile, TileOperation operation,
                    std::span<const float> factors, std::span<std::uint8_t> out, const EncodeHints& hints = {}) const;
  void encode_pairs(std::span<const BFloat16> row, std::size_t tile, TileOperation operation,
                    std::span<const float> factors, std::span<std::uint8_t> out, const EncodeHints& hints = {}) const;

 private:
  struct Cast;
  template <typename Source>
  void encode_row(std::span<const Source> row, std::size_t tile, TileOperation operation,
                  std::span<const float> factors, bool pairs, std::span<std::uint8_t> out,
                  const EncodeHints& hints) const;

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

}  // namespace fp8lab
