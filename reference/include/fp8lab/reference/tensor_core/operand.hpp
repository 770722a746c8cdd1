// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "fp8lab/formats/policy.hpp"
#include "fp8lab/formats/unpack.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "fp8lab/reference/tensor_core/mma_model.hpp"

namespace fp8lab {

struct Quantized;

/// Codes of block scales, which the tensor core multiplies with the products of their block.
struct BlockScaleCodes {
  std::span<const std::uint8_t> codes = {};
  std::optional<BlockScales> type = {};  ///< their format and block; left out: those that the model takes
  ScaleLayout layout = ScaleLayout::compact;
};

/// float32 factors of a matrix, one for each tile of rows x depth elements (1 x 128 and 128 x 128 in DeepSeek-V3's
/// recipe). They multiply where accumulators are promoted. Tiles at the end may be smaller.
struct TileScales {
  std::span<const float> values = {};  ///< row-major, (tiles of rows, tiles of K); transposed where the elements are
  std::size_t rows = 1;
  std::size_t depth = 128;
};

/// The scale of a whole tensor, factor / divisor, which multiplies on dequantize. The epilogue folds those of both
/// operands into one float32 number, alpha = fl(fl(factor_a * factor_b) * fl(1 / (divisor_a * divisor_b))).
///
/// Both are 1 for most recipes. Systems of NVFP4 make alpha in three ways: of the amaxes, with the divisors 6 * 448
/// (transformer_engine/common/recipe/nvfp4.cu, compute_nvfp4_per_tensor_scale_kernel); as the inverse of the scales'
/// product (flashinfer/gemm/gemm_base.py, mm_fp4); or as the product of the inverse scales (torchao 0.18,
/// prototype/mx_formats/nvfp4_tensor.py, _addmm_nvfp4_dispatch). operand_of() does as the recipe's system does.
struct TensorScale {
  float factor = 1;
  float divisor = 1;

  friend constexpr bool operator==(const TensorScale&, const TensorScale&) = default;
};

/// A matrix of dot-product operands with all of its scales: each row is one dot product's factors, so a GEMM's B is
/// given as (N, K). It views its arrays, which must outlive it.
struct Operand {
  /// Codes of formats of up to 8 bits, of 9 to 16, float32 values, or float64 values for the models that multiply them.
  std::variant<std::span<const std::uint8_t>, std::span<const std::uint16_t>, std::span<const float>,
               std::span<const double>>
      elements;
  Format format;  ///< of the codes; binary32 for float32 values, binary64 for float64 values
  std::size_t rows;
  std::size_t depth;                       ///< K
  bool transposed = false;                 ///< the elements are stored as (K, rows)
  bool packed = false;                     ///< codes of 4 bits are stored two a byte, as pack_pairs() packs them
  BlockScaleCodes scales = {};             ///< for models that have block scales
  TileScales tile_scales = {};             ///< for gemm() alone, as the next two are
  std::span<const float> row_scales = {};  ///< one for each row; they multiply in the epilogue
  TensorScale tensor_scale = {};
  /// How float32 values become TF32 for models that take it: toward_zero, as instructions cut them (MMA-Sim 2.1.1),
  /// nearest_away, as cvt.rna rounds them, or nearest_even, as cuBLASLt 13.1 rounds them on an H200. Left out: mma()
  /// cuts, gemm() and trace_dot() round to nearest_away.
  std::optional<Rounding> tf32_rounding = {};

  [[nodiscard]] static Operand codes(std::span<const std::uint8_t> codes, const Format& format, std::size_t rows,
                                     std::size_t depth, std::span<const std::uint8_t> scales = {}) {
    return {.elements = codes, .format = format, .rows = rows, .depth = depth, .scales = {.codes = scales}};
  }
  [[nodiscard]] static Operand codes(std::span<const std::uint16_t> codes, const Format& format, std::size_t rows,
                                     std::size_t depth) {
    return {.elements = codes, .format = format, .rows = rows, .depth = depth};
  }
  [[nodiscard]] static Operand floats(std::span<const float> values, std::size_t rows, std::size_t depth) {
    return {.elements = values, .format = binary32, .rows = rows, .depth = depth};
  }
  [[nodiscard]] static Operand doubles(std::span<const double> values, std::size_t rows, std::size_t depth) {
    return {.elements = values, .format = binary64, .rows = rows, .depth = depth};
  }
};

/// A Quantized as an operand of tensor cores: a view of its codes, in the layout that they have, with its scales. K is
/// the dimension of its direction: columns where it is rowwise, rows where it is columnwise.
///
/// Its scales are applied where hardware applies them: E8M0 and E4M3 codes by the tensor core, float32 scales of tiles
/// where accumulators are promoted, of rows and of the tensor in the epilogue.
///
/// Throws std::invalid_argument as check_quantized() does.
[[nodiscard]] Operand operand_of(const Quantized& q);

}  // namespace fp8lab
