// SPDX-License-Identifier: Apache-2.0
#include "gemm/expected.hpp"

#include <algorithm>
#include <ranges>
#include <utility>

#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "reference/src/linear/with_name.hpp"
#include "reference/src/tensor_core/misfit.hpp"

namespace fp8lab::doctor {
namespace {

void check_model(const MmaModel& model, const Operand& a, const Operand& b) {
  if (model.is_fp64()) refuse("products of float64 are not diagnosed");
  for (const auto& [name, operand] : {std::pair("a", &a), std::pair("b", &b)}) {
    if (!takes(model, *operand)) refuse("", name, " is not what ", model.name, " takes");
  }
}

/// Refuses a recipe that gemm() does not run of such operands.
void check_expected_recipe(const GemmRecipe& r, const GemmFacts& facts) {
  const MmaModel& model = r.model;
  constexpr Format single = binary32;
  if (r.output != facts.format) {
    refuse("output is ", format_name(r.output), ", and that of the GEMM ", format_name(facts.format));
  }
  if (r.cast && facts.format == single) refuse("float32 is not rounded, and has no profile");
  check_gemm_recipe(r);
  if (r.activation == GemmActivation::dgelu)
    refuse("activation dgelu has an activation_input, which is not given here");
  if (r.bias_gradient != BiasGradient::none) refuse("bias_gradient is beside the output, which alone is compared");
  const auto promote_k = static_cast<std::size_t>(r.promote_k);
  if (facts.tile_depth != 0 && promote_k != 0 && facts.tile_depth % promote_k != 0) {
    refuse("promote_k must be the depth of the tile scales, ", facts.tile_depth, ", or divide it, which ", promote_k,
           " does not");
  }
  if (model.k() == 0 && (promote_k != 0 || facts.tile_depth != 0)) {
    refuse("promote_k must be left out for ", model.name, ", whose sums have no length");
  }
  if (model.k() == 0 && (r.ranges != 0 || r.range_k != 0 || !r.split_k.empty())) {
    refuse("split_k must be left out for ", model.name, ", whose sums have no length");
  }
  const bool from_c = r.c_enters == CEntry::accumulator;
  if (from_c && !facts.c) refuse("c_enters says that the accumulation starts from c, and there is no c");
  if (from_c && model.k() == 0) refuse("c enters exact in the epilogue");
  if (r.cast && r.cast->rounding == Rounding::stochastic) {
    refuse("the output is rounded stochastically, and its random words are not known");
  }
}

/// Writes the ranges and their order as hypotheses do, where they have one length, of which the last may be shorter,
/// and ascend or descend.
void simplify_ranges(GemmRecipe& r, const std::vector<std::size_t>& ranges) {
  const auto ascending = std::views::iota(std::size_t{0}, ranges.size());
  const bool descends = r.split_order.empty() ? r.order == PartialOrder::descending
                                              : std::ranges::equal(r.split_order, ascending | std::views::reverse);
  const bool is_listed = !r.split_order.empty() && !descends && !std::ranges::equal(r.split_order, ascending);
  const PartialOrder order = descends ? PartialOrder::descending : PartialOrder::ascending;
  const std::size_t length = ranges.front();
  const bool are_equal = std::ranges::all_of(std::span(ranges).first(ranges.size() - 1),
                                             [&](std::size_t range) { return range == length; });
  r.ranges = r.range_k = 0;
  r.split_k.clear();
  if (ranges.size() < 2) {
    r.split_order.clear();
    return;
  }
  if (!is_listed) {
    r.split_order.clear();
    if (r.order != PartialOrder::pairwise) r.order = order;
  }
  if (are_equal && ranges.back() <= length && !is_listed) {
    r.range_k = length;
  } else {
    r.split_k = ranges;
  }
}

/// Writes out how scales multiply.
void set_scale_order(GemmRecipe& r, const GemmFacts& facts, const Operand& a, const Operand& b) {
  if (!facts.scales_a && !facts.scales_b) {
    r.scale_order.reset();
    r.tensor_scales = TensorScaleUse::as_alpha;
    return;
  }
  const bool rows_a = !a.row_scales.empty();
  const bool rows_b = !b.row_scales.empty();
  const bool has_rows = rows_a || rows_b;
  const bool has_tiles = facts.tile_depth != 0;
  const bool scaled_a = a.tensor_scale != TensorScale{};
  const bool scaled_b = b.tensor_scale != TensorScale{};
  if (has_rows && has_tiles && !r.scale_order) {
    refuse("scales of tiles and rows have one scale_order: say which");
  }
  if (r.tensor_scales == TensorScaleUse::with_rows) {
    if (!r.scale_order) r.scale_order = ScaleOrder::scales_first;
    return;
  }
  const bool has_both = (has_rows || has_tiles) && (scaled_a || scaled_b);
  // One scale of each side, of rows and of the tensor, multiplies as those that are searched do.
  const bool has_divisors = a.tensor_scale.divisor != 1 || b.tensor_scale.divisor != 1;
  const bool is_one_each = !has_tiles && !has_divisors && !(rows_a && (rows_b || scaled_a)) && !(rows_b && scaled_b);
  const bool is_alpha = r.alpha != 1 || r.divided;
  if (has_both && is_one_each && !is_alpha) {
    r.scale_order = rows_a ? ScaleOrder::accumulator_first : ScaleOrder::b_first;
    r.tensor_scales = TensorScaleUse::with_rows;
    return;
  }
  const bool has_order = (has_rows || has_tiles) && facts.scales_a && facts.scales_b;
  const ScaleOrder usual = has_rows ? ScaleOrder::accumulator_first : ScaleOrder::scales_first;
  r.scale_order = has_order ? r.scale_order.value_or(usual) : ScaleOrder::scales_first;
  if (!has_both && !is_alpha) r.tensor_scales = TensorScaleUse::with_rows;
}

/// Drops what changes nothing: a cast that is the usual one, and how addends are added where there are none.
void drop_unread(GemmRecipe& r, const GemmFacts& facts) {
  GemmRecipe usual = r;
  usual.cast.reset();
  if (r.cast == cast_of(usual)) r.cast.reset();
  if (facts.c || facts.bias) return;
  r.addition = Addition::after_scales;
  r.addend_type = StepType::as_given;
  r.bias_first = false;
  r.beta = 1;
}

GemmCandidate candidate_of(const GemmRecipe& expected, const GemmProblem& problem) {
  GemmRecipe r = expected;
  if (r.dequantized != StepType::as_given) refuse("operands that are dequantized first are found alone");
  check_model(r.model, problem.a(), problem.b());
  const GemmFacts facts = problem.facts_for(r.model);
  constexpr Format any = binary32;
  if (r.output == any) r.output = facts.format;
  check_expected_recipe(r, facts);
  if (r.promote_k == 0) r.promote_k = static_cast<int>(facts.tile_depth);
  if (std::cmp_greater_equal(r.promote_k, facts.depth) && facts.tile_depth == 0) r.promote_k = 0;
  const auto unit = static_cast<std::size_t>(std::max(r.promote_k, r.model.k()));
  simplify_ranges(r, ranges_of(r, facts.depth, unit));
  set_scale_order(r, facts, problem.a(), problem.b());
  drop_unread(r, facts);
  const MmaModel& known = find_gemm_model(r.model.name);
  return {.recipe = r, .model = r.model == known ? &known : &expected.model};
}

}  // namespace

GemmCandidate expected_candidate(const GemmRecipe& expected, const GemmProblem& problem) {
  return with_name("expected", [&] { return candidate_of(expected, problem); });
}

bool is_same(const GemmCandidate& x, const GemmCandidate& y) {
  const auto simplest = [](GemmCandidate h) {
    GemmRecipe& r = h.recipe;
    const bool is_range = r.promote_k == 0 || std::cmp_equal(r.promote_k, r.range_k);
    if (r.range_k != 0 && is_range && r.order != PartialOrder::pairwise) {
      r.promote_k = static_cast<int>(std::exchange(r.range_k, std::size_t{0}));
    }
    return h;
  };
  return simplest(x).is_like(simplest(y));
}

}  // namespace fp8lab::doctor
