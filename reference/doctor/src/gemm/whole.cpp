// SPDX-License-Identifier: Apache-2.0
#include "gemm/whole.hpp"

#include <algorithm>
#include <cstddef>

#include "fp8lab/reference/gemm/gemm.hpp"
#include "gemm/arithmetic.hpp"
#include "gemm/sample.hpp"

namespace fp8lab::doctor {
namespace {

/// The order of scales as gemm() has it; nothing where gemm() does not multiply so.
std::optional<ScaleOrder> scale_order_of(const GemmHypothesis& h, const GemmFacts& facts, const Operand& a,
                                         const Operand& b) {
  const bool has_order = facts.tile_depth != 0 || !a.row_scales.empty() || !b.row_scales.empty();
  const bool has_numbers = a.tensor_scale != TensorScale{} || b.tensor_scale != TensorScale{};
  if (h.scale_use == ScaleUse::b_first || !h.fused || (has_order && has_numbers && !h.alpha_last)) {
    return std::nullopt;
  }
  if (h.scale_use != ScaleUse::a_first) return ScaleOrder::scales_first;
  if (!has_order) return std::nullopt;
  return ScaleOrder::accumulator_first;
}

bool is_composed_by_gemm(const GemmHypothesis& h, const MmaModel& model) {
  const bool is_in_order = h.split_k != 0 ? h.order != PartialOrder::pairwise : h.order == PartialOrder::ascending;
  const bool adds_last = h.addend_use == AddendUse::none || h.addend_use == AddendUse::after_scales;
  return h.defect == GemmDefect::none && h.k_order.ways == 1 && is_in_order && adds_last && !h.bias_first &&
         !h.scale_out_first && h.addend_type == AddendType::as_given && h.partial_type == AddendType::as_given &&
         h.sum_type == AddendType::as_given && h.output != OutputRounding::float16_before_scale &&
         h.output != OutputRounding::bfloat16_before_scale && model.k() != 0 && !is_cuda_cores(model);
}

/// Lengths of the ranges, and the order in which they are added.
void set_ranges(GemmOptions& options, const GemmHypothesis& h, std::size_t depth) {
  options.split_k = h.ranges;
  options.split_order = h.range_order;
  for (std::size_t first = 0; h.split_k != 0 && first < depth; first += h.split_k) {
    options.split_order.insert(
        h.order == PartialOrder::descending ? options.split_order.begin() : options.split_order.end(),
        options.split_k.size());
    options.split_k.push_back(std::min(h.split_k, depth - first));
  }
}

}  // namespace

std::optional<std::vector<std::uint64_t>> whole_output(const GemmCandidate& candidate, const GemmProblem& problem,
                                                       const Operand& a, const Operand& b, const GemmOutput& out) {
  const GemmHypothesis& h = candidate.hypothesis;
  const GemmFacts facts = problem.facts_for(*candidate.model);
  const auto scale_order = scale_order_of(h, facts, a, b);
  const bool is_within_tile = facts.tile_depth != 0 && h.promote_k != facts.tile_depth;
  if (!scale_order || is_within_tile || !is_composed_by_gemm(h, *candidate.model)) return std::nullopt;
  GemmOptions options{.scale_out = out.scale_out,
                      .promote_k = static_cast<int>(h.promote_k),
                      .c = out.c,
                      .bias = out.bias,
                      .zero_rule = h.zero_rule};
  const bool has_order = facts.tile_depth != 0 || !a.row_scales.empty() || !b.row_scales.empty();
  if (has_order) options.scale_order = scale_order;
  set_ranges(options, h, a.depth);
  std::vector<float> sums(a.rows * b.rows);
  gemm(*candidate.model, a, b, sums, options);
  std::vector<std::uint64_t> words(sums.size());
  std::ranges::transform(sums, words.begin(), [&](float x) { return output_word(h, facts.format, x); });
  return words;
}

}  // namespace fp8lab::doctor
