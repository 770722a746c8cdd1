// SPDX-License-Identifier: Apache-2.0
#include "gemm/expected.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <ranges>
#include <utility>

#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "reference/src/tensor_core/misfit.hpp"

namespace fp8lab::doctor {
namespace {

void check_model(const MmaModel& model, const Operand& a, const Operand& b) {
  if (model.is_fp64()) refuse("expected: products of float64 are not diagnosed");
  for (const auto& [name, operand] : {std::pair("a", &a), std::pair("b", &b)}) {
    if (!takes(model, *operand)) refuse("expected: ", name, " is not what ", model.name, " takes");
  }
}

std::size_t promotion_of(const ExpectedGemm& expected, const GemmFacts& facts, const MmaModel& model) {
  const auto unit = static_cast<std::size_t>(model.k());
  const std::size_t promote_k = expected.promote_k != 0 ? expected.promote_k : facts.tile_depth;
  if (facts.tile_depth != 0 && promote_k != facts.tile_depth) {
    refuse("expected: promote_k must be the depth of the tile scales, ", facts.tile_depth, ", not ", promote_k);
  }
  if (promote_k != 0 && unit == 0) {
    refuse("expected: promote_k must be left out for ", model.name, ", whose sums have no length");
  }
  if (promote_k != 0 && promote_k % unit != 0) {
    refuse("expected: promote_k is ", promote_k, ", no multiple of the K of ", model.name, ", ", unit);
  }
  return promote_k >= facts.depth && facts.tile_depth == 0 ? 0 : promote_k;
}

/// Refuses ranges and orders of them that gemm() has not.
void check_ranges(const ExpectedGemm& expected, const GemmFacts& facts, std::size_t unit) {
  const std::vector<std::size_t>& ranges = expected.split_k;
  if (!ranges.empty() && std::accumulate(ranges.begin(), ranges.end(), std::size_t{0}) != facts.depth) {
    refuse("expected: the ranges of split_k must add up to K, ", facts.depth);
  }
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const bool is_last = i + 1 == ranges.size();
    if (ranges[i] == 0) refuse("expected: a range of split_k is 0");
    if (!is_last && (unit == 0 || ranges[i] % unit != 0)) {
      refuse("expected: a range of split_k is ", ranges[i], ", no multiple of ", unit);
    }
  }
  std::vector<std::size_t> order = expected.split_order;
  std::ranges::sort(order);
  if (!order.empty() && !std::ranges::equal(order, std::views::iota(std::size_t{0}, ranges.size()))) {
    refuse("expected: split_order must have the numbers of all ranges of split_k, once");
  }
}

/// Sets the ranges and their order: as those that are searched, where they have one length, of which the last may be
/// shorter, and ascend or descend.
void set_ranges(GemmHypothesis& h, const ExpectedGemm& expected) {
  const std::vector<std::size_t>& ranges = expected.split_k;
  const std::vector<std::size_t>& order = expected.split_order;
  if (ranges.size() < 2) return;
  const std::size_t length = ranges.front();
  const auto is_length = [&](std::size_t range) { return range == length; };
  const bool are_equal = std::ranges::all_of(std::span(ranges).first(ranges.size() - 1), is_length);
  const auto ascending = std::views::iota(std::size_t{0}, ranges.size());
  const bool ascends = order.empty() || std::ranges::equal(order, ascending);
  const bool descends = std::ranges::equal(order, ascending | std::views::reverse);
  if (are_equal && ranges.back() <= length && (ascends || descends)) {
    h.split_k = length;
    h.order = ascends ? PartialOrder::ascending : PartialOrder::descending;
    return;
  }
  h.ranges = ranges;
  if (!ascends) h.range_order = order;
}

/// Sets how scales multiply.
void set_scale_use(GemmHypothesis& h, const ExpectedGemm& expected, const GemmFacts& facts, const Operand& a,
                   const Operand& b) {
  if (!facts.scales_a && !facts.scales_b) return;
  const bool rows_a = !a.row_scales.empty();
  const bool rows_b = !b.row_scales.empty();
  const bool has_rows = rows_a || rows_b;
  const bool has_tiles = facts.tile_depth != 0;
  const bool scaled_a = a.tensor_scale != TensorScale{};
  const bool scaled_b = b.tensor_scale != TensorScale{};
  if (has_rows && has_tiles && !expected.scale_order) {
    refuse("expected: scales of tiles and rows have one scale_order: say which");
  }
  const ScaleOrder usual = has_rows ? ScaleOrder::accumulator_first : ScaleOrder::scales_first;
  const bool accumulator_first = expected.scale_order.value_or(usual) == ScaleOrder::accumulator_first;
  const bool has_both = (has_rows || has_tiles) && (scaled_a || scaled_b);
  // One scale of each side, of rows and of the tensor, multiplies as those that are searched do.
  const bool has_divisors = a.tensor_scale.divisor != 1 || b.tensor_scale.divisor != 1;
  const bool is_one_each = !has_tiles && !has_divisors && !(rows_a && (rows_b || scaled_a)) && !(rows_b && scaled_b);
  if (has_both && is_one_each) {
    h.scale_use = rows_a ? ScaleUse::a_first : ScaleUse::b_first;
    return;
  }
  h.alpha_last = has_both;
  const bool has_order = (has_rows || has_tiles) && facts.scales_a && facts.scales_b;
  h.scale_use = has_order && accumulator_first ? ScaleUse::a_first : ScaleUse::product_first;
}

/// Sets how the output is rounded.
void set_rounding(GemmHypothesis& h, const ExpectedGemm& expected, const Format& format) {
  constexpr Format single = binary32;
  if (format == single) {
    if (expected.policy) refuse("expected: float32 is not rounded, and has no profile");
    return;
  }
  CastPolicy policy = expected.policy.value_or(format.bits() <= 8 ? CastPolicy{} : cuda_nosat_policy);
  if (policy.rounding == Rounding::toward_zero) {
    h.output = OutputRounding::toward_zero;
  } else if (policy.rounding == Rounding::nearest_away) {
    h.output = OutputRounding::nearest_away;
  }
  if (policy.rounding == Rounding::stochastic) {
    refuse("expected: the output is rounded stochastically, and its random words are not known");
  }
  const bool is_directed = policy.rounding == Rounding::upward || policy.rounding == Rounding::downward;
  policy.rounding = Rounding::nearest_even;
  h.saturated = policy == CastPolicy{};
  if (is_directed || (!h.saturated && policy != cuda_nosat_policy)) {  // as no GEMM that is searched
    h.output = OutputRounding::nearest;
    h.saturated = false;
    h.policy = expected.policy;
  }
}

AddendUse addend_use_of(const ExpectedGemm& expected, const GemmFacts& facts) {
  if (facts.c && expected.c_enters == CEntry::accumulator) return AddendUse::accumulator;
  return facts.c || facts.bias ? AddendUse::after_scales : AddendUse::none;
}

}  // namespace

GemmCandidate expected_candidate(const ExpectedGemm& expected, const GemmProblem& problem, const Operand& a,
                                 const Operand& b) {
  const MmaModel& model = find_model(expected.model);
  check_model(model, a, b);
  const GemmFacts facts = problem.facts_for(model);
  if (!facts.c && expected.c_enters == CEntry::accumulator) {
    refuse("expected: c_enters says that the accumulation starts from c, and there is no c");
  }
  GemmHypothesis h{.model = std::string(model.name), .zero_rule = expected.zero_rule};
  h.promote_k = promotion_of(expected, facts, model);
  const std::size_t unit = h.promote_k != 0 ? h.promote_k : static_cast<std::size_t>(model.k());
  check_ranges(expected, facts, unit);
  set_ranges(h, expected);
  set_scale_use(h, expected, facts, a, b);
  h.addend_use = addend_use_of(expected, facts);
  if (h.addend_use == AddendUse::accumulator && model.k() == 0) refuse("expected: c enters exact in the epilogue");
  set_rounding(h, expected, facts.format);
  return {h, &model};
}

bool is_same(const GemmHypothesis& x, const GemmHypothesis& y) {
  const auto simplest = [](GemmHypothesis h) {
    const bool is_range = h.promote_k == 0 || h.promote_k == h.split_k;
    if (h.split_k != 0 && is_range && h.order != PartialOrder::pairwise) {
      h.promote_k = std::exchange(h.split_k, std::size_t{0});
    }
    return h;
  };
  return simplest(x) == simplest(y);
}

}  // namespace fp8lab::doctor
