// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/linear/shape_rules.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <variant>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace fp8lab {
namespace {

constexpr std::array shape_checks{Named{"split", ShapeCheck::split}, Named{"module", ShapeCheck::module},
                                  Named{"quantizer", ShapeCheck::quantizer}, Named{"gemm", ShapeCheck::gemm}};
constexpr std::array linear_dimensions{Named{"tokens", LinearDimension::tokens}, Named{"in", LinearDimension::in},
                                       Named{"out", LinearDimension::out}};
static_assert(is_in_order(shape_checks) && is_in_order(linear_dimensions));

constexpr std::string_view te_split =
    "NVIDIA/TransformerEngine after 2.18 (d0067d0), transformer_engine/pytorch/utils.py (divide), "
    "pytorch/distributed.py "
    "(reduce_scatter_along_first_dim)";
constexpr std::string_view te_module =
    "NVIDIA/TransformerEngine after 2.18 (d0067d0), transformer_engine/pytorch/utils.py (assert_dim_for_fp8_exec)";
constexpr std::string_view te_quantizer =
    "NVIDIA/TransformerEngine after 2.18 (d0067d0), transformer_engine/pytorch/csrc/quantizer.cpp";
constexpr std::string_view te_gemm =
    "NVIDIA/TransformerEngine after 2.18 (d0067d0), transformer_engine/common/gemm/cublaslt_gemm.cu "
    "(CanonicalizeGemmInput)";
constexpr std::string_view te_swizzle =
    "NVIDIA/TransformerEngine after 2.18 (d0067d0), transformer_engine/common/swizzle/swizzle_block_scaling.cu";
constexpr std::string_view cublas =
    "cuBLAS documentation, Tensor Core Usage: rows of operands and results are multiples of 16 bytes";
constexpr std::string_view deepseek_cast = "deepseek-ai/DeepSeek-V3, inference/kernel.py (act_quant)";
constexpr std::string_view deepgemm_cast =
    "deepseek-ai/DeepGEMM (54e2261), deep_gemm/utils/math.py (per_channel_cast_to_fp8)";
constexpr std::string_view deepgemm_gemm =
    "deepseek-ai/DeepGEMM (54e2261), deep_gemm/include/deep_gemm/impls/sm90_fp8_gemm_1d2d.cuh; TMA: rows of the result "
    "are multiples of 16 bytes";

/// The blocks of a recipe, as far as sizes depend on them.
enum class Blocks : std::uint8_t { tensor, tiles_of_128, mx, nvfp4, other };

Blocks kind_of_blocks(const Recipe& recipe) {
  if (recipe.tile_across == 0 && recipe.tile_along == 0) return Blocks::tensor;
  if (has_tensor_scale(recipe) && recipe.tile_along == 16) return Blocks::nvfp4;
  if (recipe.scale_type == ScaleType::e8m0_code && recipe.tile_along == 32) return Blocks::mx;
  return recipe.tile_along == 128 ? Blocks::tiles_of_128 : Blocks::other;
}

/// The dimensions of a tensor.
struct TensorDimensions {
  LinearDimension rows, columns;
};
TensorDimensions dimensions_of(LinearTensor tensor) {
  switch (tensor) {
    case LinearTensor::x: break;
    case LinearTensor::w: return {LinearDimension::out, LinearDimension::in};
    case LinearTensor::dy: return {LinearDimension::tokens, LinearDimension::out};
  }
  return {LinearDimension::tokens, LinearDimension::in};
}

/// One factor of a GEMM: its tensor, how that is cast, the dimension that the GEMM sums over, and the other one.
struct GemmFactor {
  LinearTensor tensor;
  const Recipe& recipe;
  LinearDimension k, outer;
  bool is_rowwise;

  GemmFactor(const LinearFactor& factor, const LinearCast& cast)
      : tensor(factor.tensor), recipe(std::get<Recipe>(cast)), is_rowwise(factor.direction == Direction::rowwise) {
    const TensorDimensions dimensions = dimensions_of(tensor);
    k = is_rowwise ? dimensions.columns : dimensions.rows;
    outer = is_rowwise ? dimensions.rows : dimensions.columns;
  }
};

/// The rules of a recipe, as they are collected.
class RuleList {
 public:
  RuleList(const LinearRecipe& recipe, TensorParallel parallel) : recipe_(recipe), parallel_(std::move(parallel)) {
    if (recipe.system == LinearSystem::none) return;
    add_split();
    if (recipe.system == LinearSystem::transformer_engine) add_module();
    for (const LinearPass pass : {LinearPass::fprop, LinearPass::dgrad, LinearPass::wgrad}) {
      const LinearGemm& gemm = gemm_of(recipe, pass);
      if (std::holds_alternative<Format>(gemm.a)) continue;
      pass_ = pass;
      const LinearFactors factors = factors_of(pass);
      const GemmFactor a(factors.a, gemm.a);
      const GemmFactor b(factors.b, gemm.b);
      if (recipe.system == LinearSystem::deepseek) {
        add_deepseek(gemm, a, b);
      } else {
        add_quantizer(a);
        add_quantizer(b);
        add_gemm(gemm, a, b);
      }
    }
  }

  [[nodiscard]] const std::vector<ShapeRule>& rules() const { return rules_; }

 private:
  /// The ranks that share a dimension: of the tensor as its cast sees it, or as the GEMM does.
  [[nodiscard]] std::size_t ranks_of(LinearTensor tensor, LinearDimension dimension, ShapeCheck check) const {
    const auto ranks = static_cast<std::size_t>(parallel_.ranks);
    const bool column = parallel_.mode == ParallelMode::column;
    switch (dimension) {
      case LinearDimension::tokens: break;
      case LinearDimension::in: return column ? 1 : ranks;
      case LinearDimension::out: return column ? ranks : 1;
    }
    const bool is_part =
        parallel_.sequence_parallel && column && tensor == LinearTensor::x && check != ShapeCheck::gemm;
    return is_part || check == ShapeCheck::split ? ranks : 1;
  }
  void add(LinearTensor tensor, LinearDimension dimension, std::size_t multiple, ShapeCheck check,
           std::string_view source) {
    rules_.push_back(
        {pass_, tensor, dimension, multiple, ranks_of(tensor, dimension, check), check, recipe_.system, source});
  }

  void add_split() {
    if (parallel_.ranks == 1) return;
    const bool column = parallel_.mode == ParallelMode::column;
    add(LinearTensor::w, column ? LinearDimension::out : LinearDimension::in, 1, ShapeCheck::split, te_split);
    if (parallel_.sequence_parallel) {
      add(LinearTensor::x, LinearDimension::tokens, 1, ShapeCheck::split, te_split);
    }
  }

  /// te.Linear: rows % 8, columns % 16 of x and w, whatever the recipe.
  void add_module() {
    const auto is_quantized = [&](LinearPass pass) { return std::holds_alternative<Recipe>(gemm_of(recipe_, pass).a); };
    if (!is_quantized(LinearPass::fprop) && !is_quantized(LinearPass::dgrad) && !is_quantized(LinearPass::wgrad))
      return;
    for (const LinearTensor tensor : {LinearTensor::x, LinearTensor::w}) {
      const TensorDimensions dimensions = dimensions_of(tensor);
      add(tensor, dimensions.rows, 8, ShapeCheck::module, te_module);
      add(tensor, dimensions.columns, 16, ShapeCheck::module, te_module);
    }
  }

  /// MXFP8 and NVFP4 want whole blocks in both directions, whichever is made.
  void add_quantizer(const GemmFactor& factor) {
    const Blocks blocks = kind_of_blocks(factor.recipe);
    if (blocks != Blocks::mx && blocks != Blocks::nvfp4) return;
    const std::size_t block = blocks == Blocks::mx ? 32 : 16;
    const TensorDimensions dimensions = dimensions_of(factor.tensor);
    add(factor.tensor, dimensions.rows, block, ShapeCheck::quantizer, te_quantizer);
    add(factor.tensor, dimensions.columns, block, ShapeCheck::quantizer, te_quantizer);
  }

  /// Adds the rules of cuBLAS, or of Transformer Engine for it. b is cuBLAS's A: its outer dimension is a row of the
  /// result.
  void add_gemm(const LinearGemm& gemm, const GemmFactor& a, const GemmFactor& b) {
    const auto add_row = [&](const GemmFactor& factor, LinearDimension dimension, std::size_t multiple,
                             std::string_view source) {
      add(factor.tensor, dimension, multiple, ShapeCheck::gemm, source);
    };
    switch (kind_of_blocks(a.recipe)) {
      case Blocks::other:
      case Blocks::mx: break;  // whole blocks are more than the GEMM wants
      case Blocks::tensor:
        for (const GemmFactor* factor : {&b, &a}) {
          // Where all layouts are taken, an operand lies as its tensor does: a row of it has the tensor's columns.
          const bool takes_all_layouts = gemm.recipe.model.chip == blackwell_tcgen05_fp8.chip;
          const LinearDimension row = takes_all_layouts ? dimensions_of(factor->tensor).columns : factor->k;
          add_row(*factor, row, 16, te_gemm);
        }
        if (gemm.recipe.output.bits() == 8) add_row(b, b.outer, 16, cublas);
        break;
      case Blocks::tiles_of_128:
        if (gemm.recipe.model.scales) {  // an MXFP8 GEMM stands in
          add_row(b, b.k, 16, cublas);
          add_row(a, a.k, 16, cublas);
          if (b.recipe.tile_across == 1) add_row(b, b.outer, 4, te_swizzle);
          if (a.recipe.tile_across == 1) add_row(a, a.outer, 4, te_swizzle);
          break;
        }
        add_row(b, b.k, 16, te_gemm);
        add_row(b, b.outer, 8, te_gemm);
        add_row(a, a.k, 16, te_gemm);
        if (a.recipe.tile_across == 1) add_row(a, a.outer, 8, te_gemm);
        break;
      case Blocks::nvfp4:  // 16 bytes of codes of 4 bits
        add_row(b, b.k, 32, cublas);
        add_row(a, a.k, 32, cublas);
        break;
    }
  }

  /// A weight is padded to whole tiles, and so are scales and, in the GEMM, the tail of K.
  void add_deepseek(const LinearGemm& gemm, const GemmFactor& a, const GemmFactor& b) {
    for (const GemmFactor* factor : {&a, &b}) {
      if (factor->recipe.tile_across != 1) continue;
      add(factor->tensor, factor->k, 128, ShapeCheck::quantizer, factor->is_rowwise ? deepseek_cast : deepgemm_cast);
    }
    add(b.tensor, b.outer, gemm.recipe.output == binary32 ? 4 : 8, ShapeCheck::gemm, deepgemm_gemm);
  }

  const LinearRecipe& recipe_;
  TensorParallel parallel_;
  LinearPass pass_ = LinearPass::fprop;
  std::vector<ShapeRule> rules_;
};

std::size_t size_in(const LinearShape& shape, LinearDimension dimension) {
  switch (dimension) {
    case LinearDimension::tokens: break;
    case LinearDimension::in: return shape.in;
    case LinearDimension::out: return shape.out;
  }
  return shape.tokens;
}

std::string_view words_of(LinearSystem system, ShapeCheck check) {
  const bool is_te = system == LinearSystem::transformer_engine;
  switch (check) {
    case ShapeCheck::split: break;
    case ShapeCheck::module: return "te.Linear, of x and w";
    case ShapeCheck::quantizer: return is_te ? "Transformer Engine's quantizer" : "DeepSeek's cast";
    case ShapeCheck::gemm: return is_te ? "cuBLAS's GEMM" : "DeepGEMM";
  }
  return "the split into ranks";
}

}  // namespace

std::span<const Named<ShapeCheck>> named_values(ShapeCheck /*any*/) { return shape_checks; }
std::span<const Named<LinearDimension>> named_values(LinearDimension /*any*/) { return linear_dimensions; }

std::vector<ShapeFit> shape_fits(const LinearRecipe& recipe, const LinearShape& shape, const TensorParallel& parallel) {
  const DefaultEnvironment environment;
  check_linear_recipe(recipe);
  check_tensor_parallel(parallel);
  for (const LinearDimension dimension : {LinearDimension::tokens, LinearDimension::in, LinearDimension::out}) {
    const std::size_t size = size_in(shape, dimension);
    if (size < 1 || size > most_size) refuse(name_of(dimension), " must be from 1 to ", most_size, ", not ", size);
  }
  const RuleList list(recipe, parallel);
  std::vector<ShapeFit> fits;
  for (const ShapeRule& rule : list.rules()) {
    std::size_t wanted = 1;
    for (const ShapeRule& other : list.rules()) {
      if (other.dimension == rule.dimension) wanted = std::lcm(wanted, other.multiple * other.ranks);
    }
    const std::size_t size = size_in(shape, rule.dimension);
    const std::size_t below = size / wanted * wanted;
    fits.push_back({rule, size, below, below == size ? size : below + wanted});
  }
  return fits;
}

std::string describe(const ShapeFit& fit) {
  const DefaultEnvironment environment;
  const ShapeRule& rule = fit.rule;
  const bool is_rows = dimensions_of(rule.tensor).rows == rule.dimension;
  TextStream text;
  text << name_of(rule.tensor) << ": " << name_of(rule.dimension) << (is_rows ? " (rows)" : " (columns)")
       << " must be a multiple of " << rule.multiple * rule.ranks;
  if (rule.ranks > 1) text << " (" << rule.multiple << " on each of " << rule.ranks << " ranks)";
  if (fit.fits()) {
    text << ", and is " << fit.size;
  } else {
    text << ", not " << fit.size << " (nearest: ";
    if (fit.below > 0) text << fit.below << " or ";
    text << fit.above << ")";
  }
  text << ", for " << words_of(rule.system, rule.check);
  return text.str();
}

void check_shape(const LinearRecipe& recipe, LinearPass pass, const LinearShape& shape,
                 const TensorParallel& parallel) {
  if (recipe.system == LinearSystem::none) return;
  for (const ShapeFit& fit : shape_fits(recipe, shape, parallel)) {
    if (fit.rule.pass == pass && !fit.fits()) {
      refuse(describe(fit), "; check_shapes = false computes what it refuses");
    }
  }
}

}  // namespace fp8lab
