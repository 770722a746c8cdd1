// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/named_recipes.hpp"

#include <array>
#include <stdexcept>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/policy.hpp"

namespace fp8lab {
namespace {

constexpr std::array axes{Named{"tensor", Axis::tensor}, Named{"row", Axis::row}};
constexpr std::array just_in_time_rules{Named{"te", JustInTimeRule::te}, Named{"torchao", JustInTimeRule::torchao}};
constexpr std::array mx_rules{Named{"te", MxRule::te}, Named{"floor", MxRule::floor}, Named{"ceil", MxRule::ceil},
                              Named{"even", MxRule::even}, Named{"rceil", MxRule::rceil}};
constexpr std::array block_rules{Named{"te", BlockRule::te},
                                 Named{"deepseek_2024", BlockRule::deepseek_2024},
                                 Named{"deepseek_2025", BlockRule::deepseek_2025},
                                 Named{"deepgemm_cpu", BlockRule::deepgemm_cpu},
                                 Named{"deepgemm_cuda", BlockRule::deepgemm_cuda},
                                 Named{"torchao", BlockRule::torchao}};
static_assert(is_in_order(axes) && is_in_order(just_in_time_rules) && is_in_order(mx_rules) &&
              is_in_order(block_rules));

CastPolicy clamped() { return find_profile("clamp_then_cast").policy; }

void refuse_epsilon(float epsilon) {
  if (epsilon != 0) throw std::invalid_argument("amax_epsilon is for rule 'te' only");
}

/// compute_scale_from_amax of Transformer Engine's recipe_common.cuh.
void set_te_scale(Recipe& recipe, float epsilon, bool power_of_two, ScaleLimit limit) {
  recipe.least_amax = static_cast<double>(epsilon);
  recipe.quotient = Quotient::largest_over_amax;
  recipe.limit = limit;
  recipe.rounding = power_of_two ? ScaleRounding::down : ScaleRounding::none;
  recipe.zero_amax = recipe.infinite_amax = recipe.nan_amax = SpecialScale::one;
}

/// torchao divides in double to agree with its compiled code; rounded to float32 that is the float32 quotient.
void set_torchao_scale(Recipe& recipe, float epsilon, bool power_of_two) {
  refuse_epsilon(epsilon);
  recipe.least_amax = 1e-12;
  recipe.nan_in_amax = NanInAmax::counted;
  recipe.quotient = Quotient::largest_over_amax;
  recipe.rounding = power_of_two ? ScaleRounding::down_by_log2 : ScaleRounding::none;
  recipe.cast = clamped();
}

/// scale_inv = amax / largest of DeepSeek and DeepGEMM.
void set_deepseek_scale(Recipe& recipe, const Block& block, Quotient quotient, float least) {
  refuse_epsilon(block.amax_epsilon);
  recipe.least_amax = static_cast<double>(least);
  recipe.quotient = quotient;
  recipe.rounding = block.force_pow_2_scales.value_or(false) ? ScaleRounding::up : ScaleRounding::none;
}

void set_mx_rule(Recipe& recipe, MxRule rule) {
  recipe.quotient = Quotient::amax_over_power;
  recipe.infinite_amax = SpecialScale::nan;
  switch (rule) {
    case MxRule::te:
      recipe.quotient = Quotient::amax_times_inverse;
      recipe.infinite_amax = SpecialScale::computed;
      recipe.rounding = ScaleRounding::up;
      break;
    case MxRule::floor: recipe.rounding = ScaleRounding::down; break;
    case MxRule::ceil: recipe.rounding = ScaleRounding::up; break;
    case MxRule::even: recipe.rounding = ScaleRounding::even; break;
    case MxRule::rceil:
      recipe.quotient = Quotient::amax_times_inverse;
      recipe.rounding = ScaleRounding::up;
      break;
  }
}

/// Sets what torchao 0.18 does, beside the edges: of amaxes NaN alone makes the scale NaN. A NaN among the elements
/// keeps its sign, but by rceil, where it is the product's of two.
void set_torchao_0_18(Recipe& recipe, MxRule rule) {
  recipe.infinite_amax = SpecialScale::computed;
  if (rule != MxRule::rceil) {
    recipe.cast = clamped();
    return;
  }
  recipe.edges = E8m0Edges::torchao_0_18_rceil;
  recipe.quotient = Quotient::amax_over_largest;
  recipe.rounding = ScaleRounding::up_by_log2;
}

}  // namespace

GivenScale::operator Recipe() const {
  return {.quotient = Quotient::given_scale, .given_scale = scale, .format = format};
}

JustInTime::operator Recipe() const {
  Recipe recipe{.tile_across = axis == Axis::row ? 1U : 0U, .format = format};
  switch (rule) {
    case JustInTimeRule::te:
      set_te_scale(recipe, amax_epsilon, force_pow_2_scales.value_or(false), ScaleLimit::float32);
      break;
    case JustInTimeRule::torchao:
      set_torchao_scale(recipe, amax_epsilon, force_pow_2_scales.value_or(axis == Axis::row));
      break;
  }
  return recipe;
}

MxBlock::operator Recipe() const {
  const bool drops = rule == MxRule::te || rule == MxRule::floor;
  Recipe recipe{.tile_across = enable_2d_quantization ? 32U : 1U,
                .tile_along = 32,
                .whole_tiles = true,
                .nan_in_amax = nan.value_or(drops ? NanInAmax::dropped : NanInAmax::counted),
                .scale_type = ScaleType::e8m0_code,
                .edges = edges,
                .operation = drop_negative_zero ? TileOperation::multiply_add_zero : TileOperation::multiply,
                .format = format,
                .transposed_columnwise = false,
                .scale_for_each_row = enable_2d_quantization};
  set_mx_rule(recipe, rule);
  if (edges == E8m0Edges::torchao_0_18 || edges == E8m0Edges::torchao_0_18_rceil) set_torchao_0_18(recipe, rule);
  return recipe;
}

Block::operator Recipe() const {
  constexpr float deepseek_least = 1e-4F;
  if (rows == 0 || columns == 0) throw std::invalid_argument("rows and columns of a block must be 1 or more, not 0");
  Recipe recipe{.tile_across = rows, .tile_along = columns, .format = format};
  switch (rule) {
    case BlockRule::te:
      set_te_scale(recipe, amax_epsilon, force_pow_2_scales.value_or(true), ScaleLimit::input_type);
      return recipe;
    case BlockRule::deepseek_2024:
    case BlockRule::deepseek_2025: {
      const float least = rule == BlockRule::deepseek_2025 ? deepseek_least : 0;
      set_deepseek_scale(recipe, *this, Quotient::amax_over_largest, least);
      recipe.operation = TileOperation::divide;
      recipe.whole_tiles = true;
      return recipe;
    }
    case BlockRule::deepgemm_cpu: set_deepseek_scale(recipe, *this, Quotient::amax_over_largest, deepseek_least); break;
    case BlockRule::deepgemm_cuda:
      set_deepseek_scale(recipe, *this, Quotient::amax_times_inverse, deepseek_least);
      break;
    case BlockRule::torchao:
      set_torchao_scale(recipe, amax_epsilon, force_pow_2_scales.value_or(false));
      recipe.whole_tiles = true;
      return recipe;
  }
  recipe.nan_in_amax = NanInAmax::counted;  // torch.amax
  recipe.cast = find_profile("torch_2_13").policy;
  return recipe;
}

NvFp4::operator Recipe() const {
  if (!round_rht && !with_rht) throw std::invalid_argument("round_rht is for with_rht only");
  const Transform turned = round_rht ? Transform::hadamard_columnwise_bfloat16 : Transform::hadamard_columnwise;
  return {.tile_across = with_2d_quantization ? 16U : 1U,
          .tile_along = 16,
          .whole_tiles = true,
          .transform = with_rht ? turned : Transform::none,
          .nan_in_amax = nan,
          .quotient = Quotient::amax_times_inverse,
          .scale_type = ScaleType::e4m3_code,
          .tensor_scale = TensorScaleRule::largest_over_amax,
          .format = e2m1,
          .cast = {.rounding = stochastic_rounding ? Rounding::stochastic : Rounding::nearest_even},
          .scale_for_each_row = with_2d_quantization};
}

std::span<const Named<Axis>> named_values(Axis /*any*/) { return axes; }
std::span<const Named<JustInTimeRule>> named_values(JustInTimeRule /*any*/) { return just_in_time_rules; }
std::span<const Named<MxRule>> named_values(MxRule /*any*/) { return mx_rules; }
std::span<const Named<BlockRule>> named_values(BlockRule /*any*/) { return block_rules; }

}  // namespace fp8lab
