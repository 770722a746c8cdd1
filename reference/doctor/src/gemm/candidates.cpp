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
#include "search/words.hpp"

namespace fp8lab::doctor {
namespace {

/// "Correct: ", or what else the diagnosis comes to.
void put_answer(TextStream& text, const GemmDiagnosis& result, std::size_t checked) {
  const std::size_t unexplained = result.explanations.front().unexplained;
  const std::string instead_of = result.is_expected() ? "" : result.expected;
  if (unexplained == 0 || !instead_of.empty()) text << explained_words(result.correct(), instead_of);
  if (unexplained * 2 > checked) {
    text << "Cannot tell: no hypothesis explains half of the elements. The nearest: ";
  } else if (unexplained != 0) {
    text << unexplained_words << ": ";
  }
}

void put_amount(TextStream& text, const GemmDiagnosis& result, std::size_t checked) {
  const GemmExplanation& first = result.explanations.front();
  if (first.unexplained == 0) {
    text << (checked == 1 ? "the " : "all ");
  } else {
    text << checked - first.unexplained << " of ";
  }
  text << counted(checked, "element") << (checked < result.elements ? " looked at" : "")
       << (checked == 1 ? " is that of " : " are those of ") << describe(first);
  if (first.models.size() > 1) {
    text << " (or of " << first.models.size() - 1 << " other model" << (first.models.size() > 2 ? "s" : "") << ")";
  }
  text << ".";
}

}  // namespace

GemmExplanation explanation_of(const GemmCandidate& candidate) {
  GemmExplanation explanation{.recipe = candidate.recipe};
  explanation.departures = departures_of(candidate);
  return explanation;
}

void explain_gemm(GemmDiagnosis& result, const std::vector<GemmCandidate>& candidates, std::size_t checked) {
  std::map<std::pair<std::string, std::size_t>, std::size_t> numbers;  // by all but the model
  for (const GemmCandidate& one : candidates) {
    GemmExplanation explanation = explanation_of(one);
    explanation.recipe.model = {};
    const std::size_t unexplained = checked - one.matches;
    const auto [at, is_new] = numbers.try_emplace({describe(explanation), unexplained}, result.explanations.size());
    if (is_new) {
      explanation.recipe.model = one.recipe.model;
      explanation.checked = checked;
      explanation.unexplained = unexplained;
      result.explanations.push_back(std::move(explanation));
    }
    result.explanations[at->second].models.emplace_back(one.recipe.model.name);
  }
  const std::size_t least = result.explanations.front().unexplained;
  result.tied = static_cast<std::size_t>(
      std::ranges::count_if(result.explanations, [&](const auto& one) { return one.unexplained == least; }));
}

namespace {

/// In what the explanations differ that the data cannot tell apart.
std::vector<std::string_view> untold_parts(const GemmDiagnosis& result) {
  const auto tied = std::span(result.explanations).first(result.tied);
  const GemmExplanation& first = tied.front();
  std::vector<std::string_view> parts;
  const auto add_if = [&](std::string_view part, const auto& value_of) {
    const auto differs = [&](const GemmExplanation& one) { return value_of(one) != value_of(first); };
    if (std::ranges::any_of(tied, differs)) parts.push_back(part);
  };
  const auto add = [&](std::string_view part, const auto& value_of) {
    add_if(part, [&](const GemmExplanation& one) { return value_of(one.recipe); });
  };
  using One = const GemmRecipe&;
  add("the tensor core", [](One r) { return r.model.name; });
  add("whether operands are dequantized first", [](One r) { return r.dequantized; });
  add("the promotion", [](One r) { return r.promote_k; });
  add("split-K", [](One r) { return std::tuple(r.range_k, r.split_k, r.split_order); });
  add("the order of partial sums", [](One r) { return std::tuple(r.order, r.partial_type, r.total_type); });
  add("the order of K", [](One r) { return std::tuple(r.k_order.ways, r.k_order.granule, r.k_order.window); });
  add("the rule for zeros", [](One r) { return r.zero_rule; });
  add("how scales multiply", [](One r) {
    return std::tuple(r.scale_order, r.tensor_scales, r.fused, r.divided, r.scale_out_first, r.sum_type);
  });
  add("how c and the bias are added",
      [](One r) { return std::tuple(r.c_enters, r.addition, r.addend_type, r.bias_first); });
  add("the rounding of the output", [](One r) { return std::pair(std::pair(r.via_type, r.unscaled_type), r.cast); });
  add_if("the defect", [](const GemmExplanation& one) { return one.departures; });
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
         << (result.tied == 1 ? " explanation fits, " : " explanations fit, such as ") << describe(first) << ".";
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
