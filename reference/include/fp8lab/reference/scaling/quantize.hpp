// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/formats/memory.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/stochastic.hpp"
#include "fp8lab/reference/scaling/delayed_scaling.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"

namespace fp8lab {

/// The dimension of x that a GEMM sums over, K, along which elements share scales.
enum class Direction : std::uint8_t {
  rowwise,     ///< a row's elements lie along K
  columnwise,  ///< a column's do: the same as rowwise of the transpose
};
[[nodiscard]] std::span<const Named<Direction>> named_values(Direction of_type);

/// Scales and amaxes of the caller's, in place of those that the tensor makes: of a calibration, an all-reduce, or of
/// another tensor. Arrays have a value for each tile of the tensor, (tiles down, tiles across) and row-major, whatever
/// the layout of the result, or one for all tiles.
struct GivenScales {
  std::span<const float> amaxes = {};  ///< from which the recipe makes the scales; not negative
  /// Used as they are, by what given_recipe() makes of the recipe: for recipes whose scales are float32. One of the
  /// two.
  std::span<const float> scales = {};
  std::span<const float> scales_inv = {};
  std::optional<float> tensor_amax = {};  ///< for a tensor's scale over those of tiles: its amax
  float tensor_scale = 0;                 ///< that scale, E, or its inverse, D, positive and finite; 0: not given
  float tensor_scale_inv = 0;
  /// Where each row (columnwise: column) has a tensor's scale of its own: the amaxes that make these, for quantize() in
  /// one direction.
  std::span<const float> row_amaxes = {};
};

/// The recipe with the quotient given_scale, or given_scale_inv, in place of the one by which an amax makes its scale.
/// Throws std::invalid_argument where its scales are not float32.
[[nodiscard]] Recipe given_recipe(const Recipe& recipe, Quotient quotient);

/// How quantize() goes about it.
struct QuantizeOptions {
  /// The type that values are rounded to (nearest even) before they are quantized, and the type that a recipe's limit
  /// and arithmetic may be of: of an activation computed in float32, the type of the model. Left out: as they come, and
  /// their own type.
  std::optional<Format> input_type = {};
  /// The amax is that of the values before that rounding, as in Transformer Engine's current scaling of activations:
  /// for recipes with one scale for the tensor.
  bool amax_before_rounding = false;
  GivenScales given = {};
  std::optional<RandomSource> random = {};  ///< for stochastic rounding: a word for each code, in the codes' order
  int threads = 1;
};

/// A tensor as codes and scales.
struct Quantized {
  Recipe recipe;
  Direction direction = Direction::rowwise;
  std::size_t rows = 0;  ///< of the tensor, whatever the layout of its codes
  std::size_t columns = 0;
  Format format = e4m3;  ///< of the codes
  /// Codes and scales are those of the transpose, as Transformer Engine keeps columnwise data so that K is contiguous;
  /// its columnwise MXFP8 codes are not.
  bool transposed = false;
  Buffer<std::uint8_t> codes;  ///< row-major, a byte each; of formats of 4 bits, pairs as pack_pairs() has them
  /// Row-major, one for each block of a row (a 2-D block's stand in each of its rows, but for Block), or one for all:
  std::size_t scale_rows = 0;
  std::size_t scale_columns = 0;
  std::vector<float> scale_inv;           ///< what multiplies on dequantize; empty where scales have codes
  std::vector<std::uint8_t> scale_codes;  ///< E8M0 or E4M3
  /// The largest magnitude of the tensor, where its scales depend on it, now or later: one scale for all, a
  /// tensor_scale, Delayed.
  float amax = 0;
  std::vector<float> row_amaxes;  ///< where each row (columnwise: column) has a tensor_scale: its amax
  float tensor_scale = 0;         ///< where the caller gave the tensor's scale: E, or D, or both; else 0
  float tensor_scale_inv = 0;

  /// Rows of codes, and codes a row.
  [[nodiscard]] std::size_t code_rows() const { return transposed ? columns : rows; }
  [[nodiscard]] std::size_t code_columns() const { return transposed ? rows : columns; }
};

/// Quantizes x, of float, Half or BFloat16, exactly. The result depends neither on threads
/// nor on the processor or the caller's rounding mode. `out` may have served before: its memory is used again. Where
/// the recipe pads_tiles, the result is of x and the zeros that fill it up: its rows and columns are multiples of the
/// tile's.
///
/// Throws std::invalid_argument where x is empty or of double, which no kernel reads, the recipe has a field that is
/// out of range, rows or columns are no multiples of its tiles where it has whole_tiles, or of 2 along K for formats of
/// 4 bits, random words are missing or not wanted, given scales do not go with the recipe or have another count than
/// the tiles, x or any of these overlap an array of `out`, or threads < 1.
void quantize(const MatrixView& x, const Recipe& recipe, Direction direction, Quantized& out,
              const QuantizeOptions& options = {});
[[nodiscard]] Quantized quantize(const MatrixView& x, const Recipe& recipe, Direction direction = Direction::rowwise,
                                 const QuantizeOptions& options = {});

/// Both directions from the original values, which are read once where the recipe has no scale of the whole tensor. The
/// random words serve both.
void quantize_both(const MatrixView& x, const Recipe& recipe, Quantized& rowwise, Quantized& columnwise,
                   const QuantizeOptions& options = {});

/// The recipe of one cast by delayed scaling with that scale, which may be infinite, 0 or NaN: check_recipe() refuses
/// such.
[[nodiscard]] Recipe cast_recipe(const Delayed& recipe, Pass pass, float scale);

/// Delayed scaling, in one direction or both: the amax of x goes into the history, as record_amax() has it, and
/// history.scale, which the cast uses, is the given scale of the result's recipe, whose amax is that of x.
/// (update_scale() ends the step.) That scale may be infinite, 0 or NaN, by the versions that make such scales.
///
/// Throws as above, as check() and record_amax() do, and where x overlaps the history; the history is then as it was.
/// It is changed without a lock: threads that share one need their own.
void quantize(const MatrixView& x, const Delayed& recipe, Pass pass, AmaxHistory& history, Direction direction,
              Quantized& out, const QuantizeOptions& options = {});
void quantize_both(const MatrixView& x, const Delayed& recipe, Pass pass, AmaxHistory& history, Quantized& rowwise,
                   Quantized& columnwise, const QuantizeOptions& options = {});

/// Throws std::invalid_argument where a Quantized that quantize() did not make is none: where its arrays and sizes fit
/// neither each other nor its recipe and direction, or a code has bits beyond its format's width.
void check_quantized(const Quantized& q);

/// The values that the codes and scales stand for, (rows, columns), row-major, in float32: fl(code * scale_inv), of
/// NvFp4 as its record says. Where a Hadamard matrix turned the tensor, it stays turned.
///
/// Throws std::invalid_argument as check_quantized() does, and where out is not rows * columns or overlaps an array of
/// q, or threads < 1.
void dequantize(const Quantized& q, std::span<float> out, int threads = 1);

}  // namespace fp8lab
