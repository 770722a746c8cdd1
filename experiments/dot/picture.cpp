// SPDX-License-Identifier: Apache-2.0
#include "dot/picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace fp8lab::experiments {
namespace {

/// The digits before the point that the largest term of a step has.
int whole_digits(const TraceStep& step) {
  int digits = 1;
  for (const TraceTerm* term : terms_of(step)) {
    if (step.exponent && term->kept != 0) digits = std::max(digits, std::ilogb(term->kept) - *step.exponent + 1);
  }
  return digits;
}

/// Names a term in a sentence: "c" or "k 3".
std::string name_of_term(const TraceTerm& term, const MmaModel& model) {
  const std::string text = k_text(term, model);
  return text == "c" ? text : "k " + text;
}

}  // namespace

std::vector<const TraceTerm*> terms_of(const TraceStep& step) {
  std::vector<const TraceTerm*> terms{&step.accumulator};
  for (const TraceTerm& term : step.terms) terms.push_back(&term);
  return terms;
}

std::vector<const TraceTerm*> told_terms(const TraceStep& step) {
  std::vector<const TraceTerm*> terms = terms_of(step);
  std::erase_if(terms, [&](const TraceTerm* term) { return term->value == 0 && term->exponent != step.exponent; });
  return terms;
}

double cut_off(const TraceStep& step) {
  double cut = 0;
  for (const TraceTerm* term : terms_of(step)) cut += term->cut;
  return cut;
}

std::string power_text(int exponent) { return fmt::format("2^{}", exponent); }

std::string picture(const TraceStep& step, const TraceTerm& term, int fraction_bits) {
  constexpr int cut_digits = 6;
  const int unit = step.unit.value_or(0);
  const int digits = fraction_bits + whole_digits(step);
  const auto kept = static_cast<std::uint64_t>(std::ldexp(std::abs(term.kept), -unit));
  std::string text = std::signbit(term.value) ? "-" : "+";
  for (int bit = digits - 1; bit >= 0; --bit) {
    text += (kept >> bit) == 0 ? ' ' : static_cast<char>('0' + ((kept >> bit) & 1U));
    if (bit == fraction_bits) text += '.';
  }
  text += '|';
  double cut = std::ldexp(std::abs(term.cut), -unit);
  for (int digit = 0; digit < cut_digits; ++digit) {
    if (cut == 0) {
      text += ' ';
      continue;
    }
    cut *= 2;
    text += cut >= 1 ? '1' : '0';
    if (cut >= 1) cut -= 1;
  }
  return text + (cut == 0 ? ' ' : '+');
}

std::string k_text(const TraceTerm& term, const MmaModel& model) {
  if (term.products.empty() && !term.scales) return "c";
  std::string text = std::to_string(term.k);
  if (model.group > 1) text += "-" + std::to_string(term.k + static_cast<std::size_t>(model.group) - 1);
  return text;
}

std::string exponent_text(const TraceStep& step, const MmaModel& model) {
  std::string from;
  if (!step.exponent) {
    for (const TraceTerm* term : terms_of(step)) {
      if (!term->is_special()) continue;
      from += fmt::format("{}{} is {}", from.empty() ? "" : ", ", name_of_term(*term, model), term->value);
    }
    if (!from.empty()) return "NaN or infinity decides: " + from;
    switch (model.arithmetic) {
      case Arithmetic::exact: return "every product is kept whole";
      case Arithmetic::products_first:
        return "products are cut beside the largest exponent of their sum, and c, downward, beside the largest of all";
      case Arithmetic::flushed_pairs: return "products are rounded to float32, and subnormal numbers are zero";
      case Arithmetic::fma_chain: return "the product is added whole, and the sum rounded once";
      case Arithmetic::fused: break;
    }
    return "nothing to align: all terms are zero";
  }
  for (const TraceTerm* term : terms_of(step)) {
    if (term->exponent == step.exponent && from.size() < 40)
      from += (from.empty() ? "" : ", ") + name_of_term(*term, model);
  }
  return fmt::format("largest exponent E = {} ({}): multiples of {} are kept", *step.exponent, from,
                     power_text(step.unit.value_or(0)));
}

}  // namespace fp8lab::experiments
