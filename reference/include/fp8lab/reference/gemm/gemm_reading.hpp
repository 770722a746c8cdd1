// SPDX-License-Identifier: Apache-2.0
// How a kernel reads what a GEMM is given: as it is meant, or with a defect.
#pragma once

#include <cstdint>

namespace fp8lab {

/// How a kernel reads a float32 scale, of a tile, a row or the tensor.
enum class ScaleReading : std::uint8_t {
  own,
  missing,   ///< 1
  twice,     ///< its square
  inverted,  ///< 1 over it; where the recipe is `divided`, it divides
};

/// How a kernel reads the scales of blocks.
enum class BlockReading : std::uint8_t {
  own,
  missing,       ///< 1
  previous,      ///< that of the block before; of the first its own
  inverted,      ///< of E8M0: 1 over it
  squared,       ///< of E8M0: it is applied twice
  other_layout,  ///< the place of the swizzled layout in compact scales, or the other way round
};

/// Which scale of tiles or blocks is read in the place of one. At an edge it is the one's own.
enum class ScalePlace : std::uint8_t {
  own,
  next,           ///< of the next tile or block along K
  previous_row,   ///< of the row of tiles, or the row, before
  next_row,       ///< of the one after
  first_of_four,  ///< along K, of each four the first
  stored_turned,  ///< they are stored column-major, and read as if they were row-major
  read_turned,    ///< the other way round
  other_operand,  ///< the other operand's, at the same index
  first,          ///< along K, the first one for all
  previous,       ///< of the tile or block before along K
};

/// What is read of a scale of tiles or blocks.
enum class ScaleWord : std::uint8_t {
  own,
  without_mantissa,  ///< the power of two
  halved,            ///< the exponent is one less
  byte_of_float32,   ///< of float32: the byte at the scale's index, from the first scale's first byte on, is E8M0
};

/// How the codes and the scales of one operand are read.
struct SideReading {
  ScaleReading scales = ScaleReading::own;
  bool previous_tile = false;  ///< of tiles: the scale of the tile before along K; of the first its own
  BlockReading blocks = BlockReading::own;
  ScalePlace place = ScalePlace::own;
  ScaleWord word = ScaleWord::own;
  bool wraps = false;            ///< at an edge, `place` is that of the opposite edge instead of the one's own
  bool as_fnuz = false;          ///< codes of E4M3 are taken for E4M3FNUZ: half the value, and -0 is NaN
  bool as_other_format = false;  ///< codes of E4M3 are taken for E5M2, those of E2M3 for E3M2, or the other way round
  bool codes_exchanged = false;  ///< codes of rows i and i + 8 of each 16 are exchanged, their scales are not
  std::int8_t row_scale_step =
      0;  ///< 1: the scale of the next row, and for the last that of the first; -1: of the one before

  /// Whether the values and scales that a tensor core multiplies are others, beside those of blocks.
  [[nodiscard]] constexpr bool changes_factors() const {
    return place != ScalePlace::own || word != ScaleWord::own || as_fnuz || as_other_format || codes_exchanged ||
           row_scale_step != 0;
  }
};

/// The matrix that is read, or stored, as if it were its transpose.
enum class Turned : std::uint8_t { none, a, b, out };

enum class CReading : std::uint8_t { own, missing, transposed };
enum class BiasReading : std::uint8_t {
  own,
  missing,
  along_rows,     ///< element m is added to row m, not element n to column n
  in_each_range,  ///< every range of split-K, or every promotion, adds it
  next,           ///< element n + 1 is added to column n, and the first to the last column
  previous,       ///< element n - 1, and the last to the first column
};

/// Which products are added.
enum class ProductReading : std::uint8_t {
  own,
  head_missing,  ///< the first ones are not
  head_twice,    ///< the first ones are added twice
  tail_twice,    ///< the last ones are
  descending,    ///< all, in blocks that are taken from the end of K to its beginning
  blocks,        ///< those of blocks in a list, in its order
};

/// What happens at promotions.
enum class PromotionReading : std::uint8_t {
  own,
  missed,         ///< one is left out: its accumulator goes on to the next one
  kept,           ///< the accumulator is not cleared after one, and is added again
  never_cleared,  ///< nor after any
};

/// Elements of an output that are a number times what they should be: each, or with a number for each row or column.
enum class ScaledBy : std::uint8_t { nothing, one_number, rows, columns };

/// A correct kernel reads as this is by default.
struct GemmReading {
  SideReading a = {}, b = {};
  Turned turned = Turned::none;
  CReading c = CReading::own;
  BiasReading bias = BiasReading::own;
  ScaleReading scale_out = ScaleReading::own;
  ProductReading products = ProductReading::own;
  PromotionReading promotion = PromotionReading::own;
  ScaledBy scaled_by = ScaledBy::nothing;
  bool blocks_as_tiles = false;    ///< codes are multiplied alone, and the scale of a block multiplies its sum
  bool stale_start = false;        ///< a tile of the output goes on from the accumulators of another one
  bool rows_exchanged = false;     ///< rows i and i + 8 of the output, of each 16
  bool columns_exchanged = false;  ///< columns i and i + 8 of each 16

  /// Whether partial sums are of other factors than the operands' own, beside scales of blocks and a turned matrix.
  [[nodiscard]] constexpr bool changes_factors() const {
    return a.changes_factors() || b.changes_factors() || products != ProductReading::own || rows_exchanged ||
           columns_exchanged || promotion != PromotionReading::own || stale_start || blocks_as_tiles;
  }
  /// Whether a float32 scale of a or b is another one than meant.
  [[nodiscard]] constexpr bool changes_scales() const {
    return a.scales != ScaleReading::own || b.scales != ScaleReading::own || a.previous_tile || b.previous_tile;
  }
};

}  // namespace fp8lab
