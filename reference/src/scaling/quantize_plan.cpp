// SPDX-License-Identifier: Apache-2.0
#include "scaling/quantize_plan.hpp"

#include <stdexcept>
#include <string>

#include "fp8lab/reference/scaling/facts.hpp"

namespace fp8lab {
namespace {

/// A size that is no multiple of its block: named, with the nearest that are.
void check_multiple(const char* what, std::size_t size, std::size_t block, const std::string& why) {
  if (size % block == 0) return;
  const std::size_t below = size / block * block;
  std::string nearest = below == 0 ? "" : std::to_string(below) + " or ";
  nearest += std::to_string(below + block);
  throw std::invalid_argument(std::string(what) + " must be a multiple of " + std::to_string(block) + ", " + why +
                              ", not " + std::to_string(size) + " (nearest: " + nearest + ")");
}

/// Lays out tiles of `across` x `along` elements, along K and across it. Where `whole`, they must fit.
void lay_out(QuantizePlan& plan, Direction direction, std::size_t rows, std::size_t columns, std::size_t across,
             std::size_t along, bool whole) {
  const bool rowwise = direction == Direction::rowwise;
  plan.tile_rows = rowwise ? across : along;
  plan.tile_columns = rowwise ? along : across;
  if (!whole) return;
  check_multiple("rows", rows, plan.tile_rows, "the recipe's block");
  check_multiple("columns", columns, plan.tile_columns, "the recipe's block");
}

/// Fills in what depends on the kind of recipe.
struct Planner {
  QuantizePlan& plan;
  Direction direction;
  std::size_t rows, columns;

  void operator()(const GivenScale& /*recipe*/) const { plan.uniform = true; }
  void operator()(const JustInTime& recipe) const {
    plan.uniform = plan.tensor_amax = recipe.axis == Axis::tensor;
    if (recipe.rule == JustInTimeRule::torchao) plan.nan = NanInAmax::counted;
    const std::size_t along = direction == Direction::rowwise ? columns : rows;
    if (!plan.uniform) lay_out(plan, direction, rows, columns, 1, along, false);
  }
  void operator()(const MxBlock& recipe) const {
    plan.nan = recipe.nan;
    plan.scale_codes = true;
    plan.replicated = recipe.enable_2d_quantization;
    if (recipe.drop_negative_zero) plan.operation = TileOperation::multiply_add_zero;
    if (recipe.format.bits() > 4) plan.transposed = false;
    lay_out(plan, direction, rows, columns, recipe.enable_2d_quantization ? 32 : 1, 32, true);
  }
  void operator()(const Block& recipe) const {
    const bool divides = recipe.rule == BlockRule::deepseek_2024 || recipe.rule == BlockRule::deepseek_2025;
    if (divides) plan.operation = TileOperation::divide;
    switch (recipe.rule) {
      case BlockRule::deepgemm_cpu:
      case BlockRule::deepgemm_cuda:
      case BlockRule::torchao: plan.nan = NanInAmax::counted; break;  // torch.amax
      case BlockRule::te:
      case BlockRule::deepseek_2024:
      case BlockRule::deepseek_2025: break;
    }
    lay_out(plan, direction, rows, columns, recipe.rows, recipe.columns, divides || recipe.rule == BlockRule::torchao);
  }
  void operator()(const NvFp4& recipe) const {
    plan.nan = recipe.nan;
    plan.tensor_amax = true;
    plan.scale_codes = true;
    plan.replicated = recipe.with_2d_quantization;
    lay_out(plan, direction, rows, columns, recipe.with_2d_quantization ? 16 : 1, 16, true);
  }
};

}  // namespace

CastPolicy policy_of(const Recipe& recipe) {
  const CastPolicy clamped = find_profile("clamp_then_cast").policy;
  if (const auto* one = std::get_if<JustInTime>(&recipe)) {
    return one->rule == JustInTimeRule::torchao ? clamped : CastPolicy{};
  }
  if (const auto* one = std::get_if<Block>(&recipe)) {
    switch (one->rule) {
      case BlockRule::torchao: return clamped;
      case BlockRule::deepgemm_cpu:
      case BlockRule::deepgemm_cuda: return find_profile("torch_2_13").policy;
      case BlockRule::te:
      case BlockRule::deepseek_2024:
      case BlockRule::deepseek_2025: return {};
    }
  }
  // A block of torchao 0.18 with a NaN keeps the NaN's sign, but by rceil, where it is the product's of two.
  const auto* mx = std::get_if<MxBlock>(&recipe);
  if (mx != nullptr && mx->edges == E8m0Edges::torchao_0_18 && mx->rule != MxRule::rceil) return clamped;
  const auto* nvfp4 = std::get_if<NvFp4>(&recipe);
  if (nvfp4 != nullptr && nvfp4->stochastic_rounding) return {.rounding = Rounding::stochastic};
  return {};
}

QuantizePlan quantize_plan(const Recipe& recipe, Direction direction, std::size_t rows, std::size_t columns) {
  check_recipe(recipe);
  const bool rowwise = direction == Direction::rowwise;
  QuantizePlan plan{.format = format_of(recipe), .policy = policy_of(recipe), .transposed = !rowwise};
  std::visit(Planner{plan, direction, rows, columns}, recipe);
  if (plan.format.bits() == 4) {
    check_multiple(rowwise ? "columns" : "rows", rowwise ? columns : rows, 2, "codes of 4 bits a byte");
    const auto* block = std::get_if<Block>(&recipe);
    if (block != nullptr) check_multiple("columns of a block", block->columns, 2, "codes of 4 bits a byte");
  }
  return plan;
}

QuantizePlan plan_of(const Quantized& q) {
  Recipe recipe = q.recipe;
  if (auto* given = std::get_if<GivenScale>(&recipe)) given->scale = 1;
  return quantize_plan(recipe, q.direction, q.rows, q.columns);
}

}  // namespace fp8lab
