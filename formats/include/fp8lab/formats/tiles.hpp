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

/// amax[t] = max(amax[t], the largest |x| of the row's tile t), as float32 bits: what is above 7F800000 is NaN.
/// Precondition: amax has an element for every tile.
void add_amax(std::span<const float> row, std::size_t tile, NanInAmax nan, std::span<std::uint32_t> amax);
void add_amax(std::span<const BFloat16> row, std::size_t tile, NanInAmax nan, std::span<std::uint32_t> amax);

/// out = row, each tile multiplied with or divided by its factor, rounded once to float32. A NaN of the row stays as it
/// is; one that arises is 7FC00000. Precondition: factors has an element for every tile, out as many as the row; the
/// default floating-point environment. out may be the row.
void scale_tiles(std::span<const float> row, std::size_t tile, TileOperation operation, std::span<const float> factors,
                 std::span<float> out);
void scale_tiles(std::span<const BFloat16> row, std::size_t tile, TileOperation operation,
                 std::span<const float> factors, std::span<float> out);

/// Encodes scaled tiles, with what can be worked out once for many rows.
class TileEncoder {
 public:
  /// Throws std::invalid_argument where the bulk encode to bytes does.
  TileEncoder(const Format& format, const CastPolicy& policy);

  /// out = the codes of scale_tiles(row, tile, operation, factors). Preconditions: those.
  void operator()(std::span<const float> row, std::size_t tile, TileOperation operation, std::span<const float> factors,
                  std::span<std::uint8_t> out) const;
  void operator()(std::span<const BFloat16> row, std::size_t tile, TileOperation operation,
                  std::span<const float> factors, std::span<std::uint8_t> out) const;

 private:
  struct Cast;
  template <typename Source>
  void encode_row(std::span<const Source> row, std::size_t tile, TileOperation operation,
                  std::span<const float> factors, std::span<std::uint8_t> out) const;

  std::shared_ptr<const Cast> cast_;
};

}  // namespace fp8lab
