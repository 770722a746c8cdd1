// SPDX-License-Identifier: Apache-2.0
#include "gemm/candidates.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "fp8lab/formats/text_stream.hpp"

namespace fp8lab::doctor {
namespace {

/// "Correct: ", or what else the diagnosis comes to.
void put_answer(TextStream& text, const GemmDiagnosis& result, std::size_t checked) {
  const std::size_t unexplained = result.explanations.front().unexplained;
  if (!result.is_expected()) text << "Not " << result.expected << ": ";
  if (unexplained * 2 > checked) {
    text << "Cannot tell: no hypothesis explains half of the elements. The nearest: ";
  } else if (unexplained != 0) {
    text << "Unexplained: nothing that was searched explains everything. The nearest: ";
  } else if (result.is_expected()) {
    text << (result.correct() ? "Correct: " : "Explained: ");
  }
}

void put_amount(TextStream& text, const GemmDiagnosis& result, std::size_t checked) {
  const GemmExplanation& first = result.explanations.front();
  if (first.unexplained == 0) {
    text << (checked == 1 ? "the " : "all ") << checked;
  } else {
    text << checked - first.unexplained << " of " << checked;
  }
  text << (checked == 1 ? " element" : " elements") << (checked < result.elements ? " looked at" : "")
       << (checked == 1 ? " is that of " : " are those of ") << describe(first.hypothesis);
  if (first.models.size() > 1) {
    text << " (or of " << first.models.size() - 1 << " other model" << (first.models.size() > 2 ? "s" : "") << ")";
  }
  text << ".";
}

}  // namespace

void explain_gemm(GemmDiagnosis& result, const std::vector<GemmCandidate>& candidates, std::size_t checked) {
  std::map<std::pair<std::string, std::size_t>, std::size_t> numbers;  // by all but the model
  for (const GemmCandidate& one : candidates) {
    GemmHypothesis without_model = one.hypothesis;
    without_model.model.clear();
    const std::size_t unexplained = checked - one.matches;
    const auto [at, is_new] = numbers.try_emplace({describe(without_model), unexplained}, result.explanations.size());
    if (is_new) result.explanations.push_back({one.hypothesis, {}, checked, unexplained});
    result.explanations[at->second].models.push_back(one.hypothesis.model);
  }
  const std::size_t least = result.explanations.front().unexplained;
  result.tied = static_cast<std::size_t>(
      std::ranges::count_if(result.explanations, [&](const auto& one) { return one.unexplained == least; }));
}

namespace {

/// In what the explanations differ that the data cannot tell apart.
std::vector<std::string_view> untold_parts(const GemmDiagnosis& result) {
  const auto tied = std::span(result.explanations).first(result.tied);
  const GemmHypothesis& first = tied.front().hypothesis;
  std::vector<std::string_view> parts;
  const auto add = [&](std::string_view part, const auto& value_of) {
    const auto differs = [&](const GemmExplanation& one) { return value_of(one.hypothesis) != value_of(first); };
    if (std::ranges::any_of(tied, differs)) parts.push_back(part);
  };
  using One = const GemmHypothesis&;
  add("the tensor core", [](One h) { return h.model; });
  add("whether operands are dequantized first", [](One h) { return h.dequantized; });
  add("the promotion", [](One h) { return h.promote_k; });
  add("split-K", [](One h) { return std::tuple(h.split_k, h.ranges, h.range_order); });
  add("the order of partial sums", [](One h) { return std::tuple(h.order, h.partial_type, h.total_type); });
  add("the order of K", [](One h) { return std::tuple(h.k_order.ways, h.k_order.granule, h.k_order.window); });
  add("the rule for zeros", [](One h) { return h.zero_rule; });
  add("how scales multiply",
      [](One h) { return std::tuple(h.scale_use, h.fused, h.divided, h.scale_out_first, h.sum_type, h.alpha_last); });
  add("how c and the bias are added", [](One h) { return std::tuple(h.addend_use, h.addend_type, h.bias_first); });
  const auto untold_policy = [](One h) { return h.policy.value_or(CastPolicy{}); };
  add("the rounding of the output",
      [&](One h) { return std::tuple(h.output, h.saturated, h.policy.has_value(), untold_policy(h)); });
  add("the defect", [](One h) { return std::pair(h.defect, h.depth); });
  return parts;
}

}  // namespace

std::string gemm_verdict(const GemmDiagnosis& result) {
  const GemmExplanation& first = result.explanations.front();
  const std::size_t checked = first.checked;
  TextStream text;
  if (first.unexplained == checked) {
    if (!result.expected.empty()) text << "Not " << result.expected << ": ";
    text << (result.expected.empty() ? "N" : "n") << "o hypothesis explains any of the " << checked
         << " elements looked at.";
    return text.str();
  }
  if (result.explained() && !result.is_telling && result.is_expected()) {
    text << "Cannot tell: these operands and this output say next to nothing of the GEMM. " << result.tied
         << (result.tied == 1 ? " explanation fits, " : " explanations fit, such as ") << describe(first.hypothesis)
         << ".";
    return text.str();
  }
  put_answer(text, result, checked);
  put_amount(text, result, checked);
  if (result.explained() && result.lacks_tensor_core()) text << " No tensor core that was searched computes this.";
  if (!result.is_expected()) {
    text << " What was expected leaves " << result.expected_unexplained << " of " << result.expected_checked
         << " unexplained.";
  }
  if (result.tied > 1) {
    text << " The data cannot tell it from " << result.tied - 1 << " other hypothes" << (result.tied > 2 ? "es" : "is")
         << ", which differ" << (result.tied > 2 ? "" : "s") << " in ";
    std::string_view separator;
    for (const std::string_view part : untold_parts(result)) {
      text << separator << part;
      separator = ", ";
    }
    text << ".";
  }
  return text.str();
}

}  // namespace fp8lab::doctor
