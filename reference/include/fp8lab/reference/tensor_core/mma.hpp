// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "fp8lab/formats/unpack.hpp"
#include "fp8lab/reference/tensor_core/mma_model.hpp"

namespace fp8lab {

/// Factors of a matrix in float32, each that of a tile of rows x depth elements (1 x 128 and 128 x 128 in DeepSeek-V3's
/// recipe); they multiply where accumulators are promoted. Tiles at the end may be smaller.
struct TileScales {
  std::span<const float> values;  ///< row-major, (tiles of rows, tiles of K); transposed where the elements are
  std::size_t rows = 1;
  std::size_t depth = 128;
};

/// A row-major matrix of dot-product operands: each row is one dot product's factors, so a GEMM's B is given as (N, K).
struct Operands {
  /// Codes of formats of up to 8 bits (E2M1 one a byte: unpack_pairs() takes pairs apart), of 9 to 16, or float32.
  std::variant<std::span<const std::uint8_t>, std::span<const std::uint16_t>, std::span<const float>> elements;
  Format format;  ///< of the codes; binary32 for float32 values
  std::size_t rows;
  std::size_t depth;                          ///< K
  std::span<const std::uint8_t> scales = {};  ///< (rows, K / block) codes, for models that have block scales
  TileScales tile_scales = {};                ///< for gemm() alone
  bool transposed = false;                    ///< the elements, and the scales, are stored as (K, rows)

  [[nodiscard]] static Operands codes(std::span<const std::uint8_t> codes, const Format& format, std::size_t rows,
                                      std::size_t depth, std::span<const std::uint8_t> scales = {}) {
    return {.elements = codes, .format = format, .rows = rows, .depth = depth, .scales = scales};
  }
  [[nodiscard]] static Operands codes(std::span<const std::uint16_t> codes, const Format& format, std::size_t rows,
                                      std::size_t depth) {
    return {.elements = codes, .format = format, .rows = rows, .depth = depth};
  }
  [[nodiscard]] static Operands floats(std::span<const float> values, std::size_t rows, std::size_t depth) {
    return {.elements = values, .format = binary32, .rows = rows, .depth = depth};
  }
};

/// A batch of independent dot products of one instruction: out[i] = c[i] + dot(a row i, b row i), word for word,
/// whatever the caller's rounding mode.
///
/// @param a,b  n rows of the instruction's K (any K for `exact`)
/// @param c    n accumulators, or empty for zeros
/// Throws std::invalid_argument where shapes, formats, scales, K or the accumulator's type do not fit; the message says
/// what does. So it does for a code with bits beyond its format's width (of scales in UE4M3 bit 7 is ignored, as by the
/// instruction), and where out overlaps what is read, but for a c that is out itself.
void mma(const MmaModel& model, const Operands& a, const Operands& b, std::span<const float> c, std::span<float> out,
         ZeroRule zero_rule = ZeroRule::skip);
/// The same for models with a float16 accumulator.
void mma(const MmaModel& model, const Operands& a, const Operands& b, std::span<const Half> c, std::span<Half> out,
         ZeroRule zero_rule = ZeroRule::skip);

}  // namespace fp8lab
