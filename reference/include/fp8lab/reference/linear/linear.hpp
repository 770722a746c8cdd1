// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <variant>

#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/formats/stochastic.hpp"
#include "fp8lab/reference/linear/linear_recipe.hpp"
#include "fp8lab/reference/linear/tensor_parallel.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"

namespace fp8lab {

/// A tensor of a Linear layer: its values, of float, Half or BFloat16, which the layer's recipe casts; or what
/// quantize() made of it by the recipe of that operand, in the direction of that pass. Where the recipe's scale is
/// given, the Quantized may have another, as delayed scaling gives one every step.
using LinearInput = std::variant<MatrixView, std::reference_wrapper<const Quantized>>;

/// The arguments of a pass beside its operands.
struct LinearOptions {
  std::span<const float> bias = {};  ///< for linear(): (out), or empty; rounded as bias_format_of() says
  /// For linear_wgrad() with an output of binary32: the result is added to what out has, in float32, after the scales:
  /// out is the main_grad of several microbatches (cuBLASLt's beta = 1).
  bool accumulate = false;
  std::optional<RandomSource> random = {};  ///< where dy is cast by stochastic rounding: as QuantizeOptions has it
  ZeroRule zero_rule = ZeroRule::floor;
  int threads = 1;
  /// For an output of FP8: the scale that its values are multiplied with before they are cast; left out: 1.
  std::optional<float> output_scale = {};
  /// Where a layer is split over ranks: x, w, dy, bias and the result are those of the whole layer, tensors are not
  /// quantized, and every rank computes its part, as Transformer Engine's te.Linear has it:
  /// - A rank quantizes its part of a weight, and, without sequence_parallel, of x (row) and dy (column), by the
  ///   amax of that part.
  /// - A part of a sequence, of x (column) or dy (row), has the amax of all parts where one scale is for the tensor,
  /// and
  ///   is gathered as codes. Tiles of 1 x 128 of an x whose part is no multiple of 128 are quantized, dequantized to
  ///   x's type, gathered and quantized again; other parts whose blocks are not whole are gathered in high precision.
  /// - y (row) and dx (column) of every rank are rounded to the output's type, and then added: see Reduction.
  /// - The bias of row is rounded to the output's type and added after that, in that type; also on one rank.
  /// Random bits are those of the whole dy.
  TensorParallel parallel = {};
  bool check_shapes = true;  ///< sizes that the recipe's system refuses (shape_rules.hpp) are refused here, too
};

/// y = x w^T + bias, as the recipe's fprop computes it: both operands are cast rowwise and multiplied; then the bias is
/// added in float32, and the sum is rounded once to the output's type.
///
/// The bits depend neither on threads nor on the processor or the caller's rounding mode.
///
/// @param x  (tokens, in)
/// @param w  (out, in)
/// @param out  tokens * out elements, row-major: float32 where the recipe's output is binary32; else its codes
///
/// Throws std::invalid_argument where shapes do not fit each other, the recipe, its system's rules or out; where the
/// recipe has an output of another type, or a field that check_linear_recipe() refuses; where a Quantized is of another
/// recipe or direction; where an option is given that nothing reads; and as quantize() and gemm() do. Messages name the
/// pass and the tensor.
void linear(const LinearRecipe& recipe, const LinearInput& x, const LinearInput& w, std::span<float> out,
            const LinearOptions& options = {});
void linear(const LinearRecipe& recipe, const LinearInput& x, const LinearInput& w, std::span<std::uint16_t> out,
            const LinearOptions& options = {});

/// The same where the recipe's output is e4m3 or e5m2: out is the result quantized rowwise by delayed scaling, the
/// codes of fl(value * output_scale), saturated, of the values before any rounding. Its amax is that of the values,
/// which the caller records for the next scale (record_amax); NaN does not count. out may be x or w.
///
/// Source: cuBLASLt's amax and scale of D, as Transformer Engine's te.Linear(fp8_output=True) and fp8_grad set them.
/// That the GEMM's amax skips NaN, as that of casts does, is assumed.
void linear(const LinearRecipe& recipe, const LinearInput& x, const LinearInput& w, Quantized& out,
            const LinearOptions& options = {});

/// dx = dy w, as the recipe's dgrad computes it, from dy rowwise and w columnwise. out has tokens * in elements.
/// Otherwise as linear().
void linear_dgrad(const LinearRecipe& recipe, const LinearInput& dy, const LinearInput& w, std::span<float> out,
                  const LinearOptions& options = {});
void linear_dgrad(const LinearRecipe& recipe, const LinearInput& dy, const LinearInput& w, std::span<std::uint16_t> out,
                  const LinearOptions& options = {});
void linear_dgrad(const LinearRecipe& recipe, const LinearInput& dy, const LinearInput& w, Quantized& out,
                  const LinearOptions& options = {});

/// dw = dy^T x, as the recipe's wgrad computes it, from dy and x columnwise: x is the input itself, not its rowwise
/// codes. out has out * in elements. Otherwise as linear().
void linear_wgrad(const LinearRecipe& recipe, const LinearInput& dy, const LinearInput& x, std::span<float> out,
                  const LinearOptions& options = {});
void linear_wgrad(const LinearRecipe& recipe, const LinearInput& dy, const LinearInput& x, std::span<std::uint16_t> out,
                  const LinearOptions& options = {});

/// db, the gradient of the bias: the sum of each column of dy in float32, rows ascending. (The order in which systems'
/// kernels sum is not documented.)
///
/// Throws std::invalid_argument for a dy of double and where out has not an element for each column.
void linear_bias_gradient(const MatrixView& dy, std::span<float> out);

}  // namespace fp8lab
