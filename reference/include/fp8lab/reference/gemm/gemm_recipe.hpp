// SPDX-License-Identifier: Apache-2.0
// How a GEMM is composed, as one record.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/reference/tensor_core/mma_model.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace fp8lab {

// fl() rounds to float32, nearest even.

/// Float32 sums without a tensor core, of K ascending, as models of one product: each product is rounded and added, or
/// added by an fma. They differ where products have more than 24 bits. gemm() alone takes them; they are not in
/// `models`.
inline constexpr MmaModel cuda_cores{.name = "cuda_cores",
                                     .instruction = "float32 sums without a tensor core: a multiplication, an addition",
                                     .products_per_step = 1,
                                     .operands = exact_operands,
                                     .source = "definition",
                                     .evidence = Evidence::by_definition};
inline constexpr MmaModel cuda_cores_fma{.name = "cuda_cores_fma",
                                         .instruction = "float32 sums without a tensor core: fused multiply-adds",
                                         .products_per_step = 1,
                                         .operands = exact_operands,
                                         .source = "definition",
                                         .evidence = Evidence::by_definition};
/// Whether the model is one of these.
[[nodiscard]] constexpr bool is_cuda_cores(const MmaModel& model) {
  return model.name == cuda_cores.name || model.name == cuda_cores_fma.name;
}
/// The model of that name, one of `models` or of these. Throws std::invalid_argument that lists the known names.
[[nodiscard]] const MmaModel& find_gemm_model(std::string_view name);

/// The type that a step's result is rounded to, nearest even, in which the next step meets it.
enum class StepType : std::uint8_t {
  as_given,     ///< it stays as it is
  to_float16,   ///< "float16"
  to_bfloat16,  ///< "bfloat16"
};

/// The order in which the products of K are met. Each window of K is dealt out to `ways` parts, granule by granule in
/// turn, and the parts follow one after the other: with 2 ways and granules of 1 first the even elements, then the odd
/// ones. Where a part is a range of split-K, this is how warps share K.
struct KOrder {
  std::size_t ways = 1;     ///< 1: K ascending
  std::size_t granule = 0;  ///< neighbouring elements of K that stay together
  std::size_t window = 0;   ///< elements of K

  friend bool operator==(const KOrder&, const KOrder&) = default;
};

/// The order in which partial sums are added in float32.
enum class PartialOrder : std::uint8_t {
  ascending,
  descending,
  pairwise,  ///< neighbours first, then their sums
};

/// The order in which an accumulator is multiplied with two scales: those of its tiles at a promotion, those of its row
/// and column, or of both tensors, in the epilogue. The last multiplication of a promotion is an fma (see `fused`),
/// which rounds once less than it has operations; the epilogue rounds after every operation.
enum class ScaleOrder : std::uint8_t {
  scales_first,       ///< sum = fma(fl(scale_a * scale_b), accumulator, sum), as DeepGEMM on Hopper
  accumulator_first,  ///< sum = fma(fl(accumulator * scale_a), scale_b, sum); of rows as PyTorch's _scaled_mm (CUTLASS,
                      ///< RowwiseScaledMM.cu), fl(fl(accumulator * scale_a) * scale_b)
  b_first,            ///< sum = fma(fl(accumulator * scale_b), scale_a, sum)
};

/// How the scales of both tensors multiply.
enum class TensorScaleUse : std::uint8_t {
  as_alpha,   ///< as one number, after those of tiles and rows
  with_rows,  ///< that of each tensor multiplies those of its rows, and the products the accumulator by scale_order
};

/// Where c enters a GEMM.
enum class CEntry : std::uint8_t {
  epilogue,     ///< as `addition` says
  accumulator,  ///< the accumulation starts from it: the tensor core's own, or the float32 one that it is promoted to
};

/// How c and the bias are added in the epilogue.
enum class Addition : std::uint8_t {
  after_scales,    ///< to the scaled accumulator, in float32
  fused,           ///< the same, but the last scale multiplies and the first of them is added by one fma
  before_scales,   ///< to the accumulator, which the scales multiply then
  after_rounding,  ///< to the result rounded to the type of the output, and the sum is rounded to it again
};

/// The function that the epilogue applies to the sum.
enum class GemmActivation : std::uint8_t {
  none,
  relu,  ///< max(x, 0); a NaN stays one
  // cuBLASLt's on Hopper (gemm_activation.hpp):
  gelu,          ///< of operands of FP8, float16 and bfloat16
  gelu_float32,  ///< of float32 operands
  dgelu,         ///< the gradient of either at GemmCall's activation_input, times x
};

/// The gradient of a bias that a GEMM writes beside its output: the sum of an operand's elements along K.
enum class BiasGradient : std::uint8_t {
  none,
  of_a,  ///< cuBLASLt's BGRADB (for it, row-major matrices are exchanged), known of hopper_bf16 and hopper_tf32
  of_b,  ///< BGRADA, whose order of sums is not known: refused
};

/// How a GEMM is composed: what its tensor core multiplies, how K is split and its partial sums are added, where scales
/// enter, what the epilogue does, and what the output is. It is a function of the operands alone; c, the bias and the
/// scale of the output come beside it (GemmCall). Real ones are entries of a table, gemm_recipes().
struct GemmRecipe {
  // 1. What multiplies.
  MmaModel model = exact;  ///< the tensor core, cuda_cores or cuda_cores_fma
  /// The type to which each code times its scales is rounded before it is multiplied, which has no scales then.
  StepType dequantized = StepType::as_given;
  ZeroRule zero_rule = ZeroRule::floor;
  // 2. How K is split, and how partial sums are added.
  KOrder k_order = {};
  /// Elements of K after which the tensor core's accumulator is added to a float32 one (nearest even) and cleared; 0:
  /// never ("fast accumulation"), or where operands have tile scales, their depth. CUTLASS and DeepGEMM promote every
  /// 128. Tiles' scales multiply at promotions: it divides their depth.
  int promote_k = 0;
  /// Split-K: ranges of K, computed apart and then added in float32; all but the last are multiples of the
  /// instruction's K (and of promote_k). At most one of the next three says which: how many ranges, which are as long
  /// as each other but for the last; how long each is; or each length. 0 and empty: one range.
  std::size_t ranges = 0;
  std::size_t range_k = 0;
  std::vector<std::size_t> split_k = {};
  std::vector<std::size_t> split_order = {};     ///< the ranges' numbers as they are added; empty: as `order` says
  PartialOrder order = PartialOrder::ascending;  ///< of ranges, or where there is one, of promoted accumulators
  StepType partial_type = StepType::as_given;    ///< what ranges are rounded to before they are added
  StepType total_type = StepType::as_given;      ///< what their sum is rounded to after each of them
  // 3. Where scales enter.
  /// Left out: scales_first for tiles and for tensors with_rows, accumulator_first for rows.
  std::optional<ScaleOrder> scale_order = {};
  TensorScaleUse tensor_scales = TensorScaleUse::as_alpha;
  bool fused = true;     ///< a promotion with scales ends with an fma; otherwise it multiplies, rounds, and adds
  bool divided = false;  ///< a tensor scale's divisor divides alpha; otherwise its reciprocal multiplies
  StepType sum_type = StepType::as_given;  ///< what the accumulator is rounded to before the scales multiply
  // 4. The epilogue, every operation of which is rounded to float32.
  float alpha = 1;  ///< multiplies the scales of the tensors, and their product the sum
  float beta = 1;   ///< multiplies c; 0: c is not read
  CEntry c_enters = CEntry::epilogue;
  Addition addition = Addition::after_scales;
  StepType addend_type = StepType::as_given;         ///< what c and the bias are rounded to before
  bool bias_first = false;                           ///< the bias is added before c
  GemmActivation activation = GemmActivation::none;  ///< of the sum, before the scale of the output multiplies
  BiasGradient bias_gradient = BiasGradient::none;
  bool scale_out_first = false;  ///< the scale of the output multiplies those of a and b, and their product the sum
  StepType unscaled_type = StepType::as_given;  ///< what the result is rounded to before the output's scale multiplies
  // 5. The output.
  StepType via_type = StepType::as_given;  ///< what the result is rounded to on its way
  /// binary32, or a format of up to 16 bits. (Models with a float64 accumulator give that, whatever this says.)
  Format output = binary32;
  /// The rounding to a format of up to 16 bits; left out: saturated to those of up to 8, to infinity of the others.
  std::optional<CastPolicy> cast = {};

  friend bool operator==(const GemmRecipe&, const GemmRecipe&) = default;
};

/// Calls f(name, field) for each field of a GemmRecipe, in order.
template <typename AnyRecipe, typename Function>
  requires std::same_as<std::remove_const_t<AnyRecipe>, GemmRecipe>
void for_fields(AnyRecipe& recipe, const Function& f) {
  f("model", recipe.model);
  f("dequantized", recipe.dequantized);
  f("zero_rule", recipe.zero_rule);
  f("k_order", recipe.k_order);
  f("promote_k", recipe.promote_k);
  f("ranges", recipe.ranges);
  f("range_k", recipe.range_k);
  f("split_k", recipe.split_k);
  f("split_order", recipe.split_order);
  f("order", recipe.order);
  f("partial_type", recipe.partial_type);
  f("total_type", recipe.total_type);
  f("scale_order", recipe.scale_order);
  f("tensor_scales", recipe.tensor_scales);
  f("fused", recipe.fused);
  f("divided", recipe.divided);
  f("sum_type", recipe.sum_type);
  f("alpha", recipe.alpha);
  f("beta", recipe.beta);
  f("c_enters", recipe.c_enters);
  f("addition", recipe.addition);
  f("addend_type", recipe.addend_type);
  f("bias_first", recipe.bias_first);
  f("activation", recipe.activation);
  f("bias_gradient", recipe.bias_gradient);
  f("scale_out_first", recipe.scale_out_first);
  f("unscaled_type", recipe.unscaled_type);
  f("via_type", recipe.via_type);
  f("output", recipe.output);
  f("cast", recipe.cast);
}

/// In words: the model alone, and what else is not as usual.
[[nodiscard]] std::string describe(const GemmRecipe& recipe);

/// Throws std::invalid_argument for a field that is out of range, does not go with another, or is not computed yet; the
/// message names the field and says what is allowed.
void check_gemm_recipe(const GemmRecipe& recipe);

/// Lengths of the ranges of K, where it is split into `unit` and multiples; one range: {K}. Throws
/// std::invalid_argument where split_k or split_order do not go with K.
[[nodiscard]] std::vector<std::size_t> ranges_of(const GemmRecipe& recipe, std::size_t depth, std::size_t unit);

/// How the output is rounded, left out or not.
[[nodiscard]] CastPolicy cast_of(const GemmRecipe& recipe);

/// x rounded to the type.
[[nodiscard]] float rounded_to(StepType type, float x);

}  // namespace fp8lab
