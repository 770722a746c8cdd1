// SPDX-License-Identifier: Apache-2.0
#include "quantize/verdict.hpp"

#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "quantize/named_rows.hpp"
#include "search/words.hpp"

namespace fp8lab::doctor {
namespace {

void put_amount(TextStream& text, const Diagnosis& diagnosis) {
  text << "all " << counted(diagnosis.elements, "code");
  if (diagnosis.scales != 0) text << " and " << counted(diagnosis.scales, "scale");
}

/// Names of what makes the same of every tensor, or of this one.
void put_others(TextStream& text, const Diagnosis& diagnosis) {
  const Explanation& first = diagnosis.explanations.front();
  std::string_view separator = " The same arithmetic has the names ";
  for (const std::string& name : first.hypothesis.also) {
    text << separator << name;
    separator = ", ";
  }
  if (!first.hypothesis.also.empty()) text << '.';
  if (diagnosis.tied < 2) return;
  constexpr std::size_t most_named = 6;
  text << " This tensor does not tell it apart from " << diagnosis.tied - 1
       << (diagnosis.tied == 2 ? " other: " : " others: ");
  for (std::size_t i = 1; i < diagnosis.tied && i <= most_named && i < diagnosis.explanations.size(); ++i) {
    text << (i == 1 ? "" : "; ") << describe(diagnosis.explanations[i].hypothesis);
  }
  text << (diagnosis.tied > most_named + 1 ? "; ..." : ".");
}

/// Where a recipe is expected, the others are less plausible, but may make the same of this tensor.
void put_unexpected(TextStream& text, const Diagnosis& diagnosis) {
  if (diagnosis.expected.empty()) return;
  const bool is_plain = diagnosis.tied == 1 && diagnosis.explanations.front().hypothesis.is_plain();
  std::string_view separator =
      is_plain ? " This tensor does not tell it apart from " : " Without any departure it is explained by ";
  for (std::size_t i = diagnosis.tied; i < diagnosis.explanations.size(); ++i) {
    const Explanation& one = diagnosis.explanations[i];
    if (one.unexplained() != 0 || !one.hypothesis.is_plain()) continue;
    text << separator << describe(one.hypothesis);
    separator = "; ";
  }
  if (separator == "; ") text << '.';
}

/// What a correct kernel was not asked.
void put_unexercised(TextStream& text, const Diagnosis& diagnosis) {
  const std::vector<std::string> kinds = diagnosis.unexercised();
  if (kinds.empty()) return;
  text << " This tensor does not show what the kernel makes of ";
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (i != 0) text << (i + 1 == kinds.size() ? " and " : ", ");
    text << kinds[i];
  }
  text << ": exercise() makes one that does.";
}

/// Codes that say nothing.
void put_unwritten(TextStream& text, const Diagnosis& diagnosis) {
  const Explanation& first = diagnosis.explanations.front();
  text << "All codes are 0: nothing was written?";
  if (diagnosis.scales == 0) return;
  if (first.scales != 0) {
    text << " No recipe makes the scales.";
    return;
  }
  Hypothesis recipe = first.hypothesis;
  recipe.deviations.pop_back();
  text << " The scales are those of " << describe(recipe) << '.';
}

/// What explains everything.
void put_explained(TextStream& text, const Diagnosis& diagnosis) {
  const Explanation& first = diagnosis.explanations.front();
  const bool is_another = !diagnosis.is_expected() && first.hypothesis.is_plain();
  text << explained_words(diagnosis.correct(), is_another ? diagnosis.expected : "") << describe(first.hypothesis)
       << (diagnosis.is_in_order ? ". That explains " : ", and codes stand in another order. That explains ");
  put_amount(text, diagnosis);
  text << '.';
  if (first.hypothesis.is_plain() && has_given_scale(first.hypothesis)) {
    text << " The scale is a given number, which does not follow from the tensor: static, delayed or stale.";
    if (diagnosis.expected.empty()) text << " It is right where such a recipe is expected.";
  }
  if (!first.hypothesis.deviations.empty() && first.hypothesis.is_plain()) {
    const bool of_tiles = first.hypothesis.deviations.front().departure == &rows::tile_scales_given;
    text << (of_tiles ? " The scales are those that are stored, which do not follow from the tensor: static, delayed "
                        "or stale."
                      : " The scale of the tensor is the one that was given, which the recipe does not make of this "
                        "tensor: static, delayed, stale or by another rule.");
  }
  put_others(text, diagnosis);
  put_unexpected(text, diagnosis);
  put_unexercised(text, diagnosis);
}

}  // namespace

bool has_given_scale(const Hypothesis& hypothesis) {
  return is_given(hypothesis.recipe) && hypothesis.recipe.given_scale != 1;
}

std::vector<std::string> Diagnosis::unexercised() const {
  std::vector<std::string> kinds;
  for (const Exercised& one : exercised) {
    if (one.is_needed && one.count == 0) kinds.emplace_back(name_of(one.kind));
  }
  return kinds;
}

std::string verdict_of(const Diagnosis& diagnosis) {
  const Explanation& first = diagnosis.explanations.front();
  TextStream text;
  const auto& deviations = first.hypothesis.deviations;
  if (!deviations.empty() && deviations.back().departure == &rows::codes_unwritten) {
    put_unwritten(text, diagnosis);
    return text.str();
  }
  if (diagnosis.explained() && !diagnosis.is_telling) {
    text << "Cannot tell: x has no number but zero, which says nothing of scales and rounding. " << diagnosis.tied
         << (diagnosis.tied == 1 ? " explanation fits" : " explanations fit") << ", such as "
         << describe(first.hypothesis) << '.';
    return text.str();
  }
  if (diagnosis.explained()) {
    put_explained(text, diagnosis);
    return text.str();
  }
  if (first.codes * 2 > diagnosis.elements) {
    text << "Cannot tell: nothing fits. No hypothesis explains half of the codes.";
    return text.str();
  }
  text << unexplained_words << " is " << describe(first.hypothesis) << ", which leaves " << first.codes << " of "
       << counted(diagnosis.elements, "code");
  if (diagnosis.scales != 0) text << " and " << first.scales << " of " << counted(diagnosis.scales, "scale");
  text << " unexplained.";
  return text.str();
}

}  // namespace fp8lab::doctor
