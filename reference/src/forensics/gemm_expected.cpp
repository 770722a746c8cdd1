// SPDX-License-Identifier: Apache-2.0
#include "forensics/gemm_expected.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <ranges>
#include <utility>

#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "gemm/misfit.hpp"

namespace fp8lab::forensics {
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
  if (promote_k != 0 && (unit == 0 || promote_k % unit != 0)) {
    refuse("expected: promote_k is ", promote_k, ", no multiple of the K of ", model.name, ", ", unit);
  }
  return promote_k >= facts.depth && facts.tile_depth == 0 ? 0 : promote_k;
}

/// The length of the ranges; 0: there is one.
std::size_t range_of(const ExpectedGemm& expected, const GemmFacts& facts, std::size_t unit) {
  const std::vector<std::size_t>& ranges = expected.split_k;
  if (ranges.empty()) return 0;
  if (std::accumulate(ranges.begin(), ranges.end(), std::size_t{0}) != facts.depth) {
    refuse("expected: the ranges of split_k must add up to K, ", facts.depth);
  }
  const std::size_t length = ranges.front();
  const auto is_length = [&](std::size_t range) { return range == length; };
  const bool are_equal = std::ranges::all_of(std::span(ranges).first(ranges.size() - 1), is_length);
  if (!are_equal || ranges.back() == 0 || ranges.back() > length) {
    refuse("expected: the ranges of split_k must have one length, of which the last may be shorter");
  }
  if (ranges.size() > 1 && (unit == 0 || length % unit != 0)) {
    refuse("expected: a range of split_k is ", length, ", no multiple of ", unit);
  }
  return ranges.size() == 1 ? 0 : length;
}

PartialOrder order_of(const ExpectedGemm& expected) {
  const std::vector<std::size_t>& order = expected.split_order;
  const auto ascending = std::views::iota(std::size_t{0}, expected.split_k.size());
  if (order.empty() || std::ranges::equal(order, ascending)) return PartialOrder::ascending;
  if (!std::ranges::equal(order, ascending | std::views::reverse)) {
    refuse("expected: split_order must have the numbers of all ranges, ascending or descending");
  }
  return PartialOrder::descending;
}

ScaleUse scale_use_of(const ExpectedGemm& expected, const GemmFacts& facts, const Operand& a, const Operand& b) {
  if (!facts.scales_a && !facts.scales_b) return ScaleUse::none;
  const bool rows_a = !a.row_scales.empty();
  const bool rows_b = !b.row_scales.empty();
  const bool has_rows = rows_a || rows_b;
  const bool scaled_a = a.tensor_scale != TensorScale{};
  const bool scaled_b = b.tensor_scale != TensorScale{};
  const bool accumulator_first =
      expected.scale_order.value_or(has_rows ? ScaleOrder::accumulator_first : ScaleOrder::scales_first) ==
      ScaleOrder::accumulator_first;
  // The scales of rows come before those of tensors.
  if ((has_rows || facts.tile_depth != 0) && (scaled_a || scaled_b)) {
    if (facts.tile_depth != 0 || (rows_a && (rows_b || scaled_a)) || (rows_b && scaled_b)) {
      refuse("expected: scales of rows or tiles and of the tensor at once are not composed as gemm() does");
    }
    return rows_a ? ScaleUse::a_first : ScaleUse::b_first;
  }
  if (!has_rows && facts.tile_depth == 0) return ScaleUse::product_first;
  if (!facts.scales_a || !facts.scales_b) return ScaleUse::product_first;
  return accumulator_first ? ScaleUse::a_first : ScaleUse::product_first;
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
  } else if (policy.rounding != Rounding::nearest_even) {
    refuse("expected: the output must be rounded to the nearest or toward zero");
  }
  policy.rounding = Rounding::nearest_even;
  h.saturated = policy == CastPolicy{};
  if (!h.saturated && policy != cuda_nosat_policy) refuse("expected: that profile is none that is searched");
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
  GemmHypothesis h{.model = std::string(model.name), .zero_rule = expected.zero_rule};
  h.promote_k = promotion_of(expected, facts, model);
  const std::size_t unit = h.promote_k != 0 ? h.promote_k : static_cast<std::size_t>(model.k());
  h.split_k = range_of(expected, facts, unit);
  h.order = order_of(expected);
  h.scale_use = scale_use_of(expected, facts, a, b);
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

}  // namespace fp8lab::forensics
