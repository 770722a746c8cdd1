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

/// How the scales of one operand are read.
struct SideReading {
  ScaleReading scales = ScaleReading::own;
  bool previous_tile = false;  ///< of tiles: the scale of the tile before along K; of the first its own
  BlockReading blocks = BlockReading::own;
};

/// The matrix that is read, or stored, as if it were its transpose.
enum class Turned : std::uint8_t { none, a, b, out };

enum class CReading : std::uint8_t { own, missing, transposed };
enum class BiasReading : std::uint8_t {
  own,
  missing,
  along_rows,    ///< element m is added to row m, not element n to column n
  in_each_range  ///< every range of split-K, or every promotion, adds it
};

/// A correct kernel reads as this is by default.
struct GemmReading {
  SideReading a = {}, b = {};
  Turned turned = Turned::none;
  CReading c = CReading::own;
  BiasReading bias = BiasReading::own;
  ScaleReading scale_out = ScaleReading::own;

  /// Whether a float32 scale of a or b is another one than meant.
  [[nodiscard]] constexpr bool changes_scales() const {
    return a.scales != ScaleReading::own || b.scales != ScaleReading::own || a.previous_tile || b.previous_tile;
  }
};

}  // namespace fp8lab
