// SPDX-License-Identifier: Apache-2.0
#include "dot/told.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "dot/picture.hpp"
#include "dot/words.hpp"

namespace fp8lab::experiments {
namespace {

/// The two factors of a term: each its code, where that is short, and its value; of a group how many are not zero.
std::array<std::string, 2> factors_of(const TraceTerm& term, const DotArguments& arguments) {
  const auto factor = [](std::uint64_t code, double value, const Format& format) {
    return (format.bits() <= 8 ? hex(code, format) + " " : "") + fmt::format("{:.6g}", value);
  };
  if (arguments.model.group > 1) {
    return {term.scales ? fmt::format("{} not zero", term.products.size()) : "", ""};
  }
  if (term.products.size() != 1) return {"", ""};
  const TraceProduct& product = term.products.front();
  return {factor(product.code_a, product.a, arguments.a.format), factor(product.code_b, product.b, arguments.b.format)};
}

Table terms_told(const DotArguments& arguments, const TraceStep& step, const std::string& name) {
  const MmaModel& model = arguments.model;
  const std::vector<const TraceTerm*> terms = told_terms(step);
  auto table = tabulate(terms, {.name = name});
  table.column({"k"}, [&](const TraceTerm* term) { return k_text(*term, model); })
      .column({.name = "a", .right = true}, [&](const TraceTerm* term) { return factors_of(*term, arguments)[0]; })
      .column({.name = "b", .right = true}, [&](const TraceTerm* term) { return factors_of(*term, arguments)[1]; })
      .column({"product"}, [](const TraceTerm* term) { return term->value; })
      .column({"exponent", "exp"}, [](const TraceTerm* term) { return term->exponent; })
      .column({.name = "cut_off", .title = "cut off", .digits = 3}, [](const TraceTerm* term) { return term->cut; });
  if (step.exponent) {
    table.column({"kept", "kept | cut off, in binary"},
                 [&](const TraceTerm* term) { return picture(step, *term, model.fraction_bits); });
  }
  return table;
}

std::vector<std::string> scales_told(const TraceStep& step, const MmaModel& model) {
  std::vector<std::string> lines;
  std::optional<std::size_t> last;
  const Format format = format_of_scales(model);
  for (const TraceTerm& term : step.terms) {
    if (!term.scales || last == term.scales->k) continue;
    last = term.scales->k;
    lines.push_back(fmt::format("scales of block {}: {} = {:.6g}, {} = {:.6g}", *last, hex(term.scales->code_a, format),
                                term.scales->a, hex(term.scales->code_b, format), term.scales->b));
  }
  return lines;
}

/// Tells how a step sums up its terms and rounds the sum.
std::vector<std::string> sum_told(const TraceStep& step, const MmaModel& model) {
  std::vector<std::string> lines;
  std::string changed;
  if (step.sum && step.unit) {
    const double sum = std::ldexp(static_cast<double>(*step.sum), *step.unit);
    lines.push_back(fmt::format("sum of what is kept: {} * {} = {:.9g}; cut off in all: {:.3g}", *step.sum,
                                power_text(*step.unit), sum, cut_off(step)));
    const double more = number_of(model.accumulator(), step.after) - sum;
    if (more != 0) changed = fmt::format(" (changed by {:.3g} as it is converted)", more);
  }
  lines.push_back("accumulator: " + bits_text(step.after, model.accumulator()) + changed);
  return lines;
}

}  // namespace

void tell(const DotArguments& arguments, const TraceInstruction& instruction, std::vector<Section>& sections) {
  const MmaModel& model = arguments.model;
  const std::string name = fmt::format("k{}", instruction.k);
  Text text{name, "", {fmt::format("k {} to {}", instruction.k, instruction.k + instruction.products - 1)}};
  for (std::size_t i = 0; i < instruction.steps.size(); ++i) {
    const TraceStep& step = instruction.steps[i];
    const std::string number = instruction.steps.size() == 1 ? "" : fmt::format("step {}: ", i + 1);
    text.paragraphs.push_back(number + exponent_text(step, model));
    for (std::string& line : scales_told(step, model)) text.paragraphs.push_back(std::move(line));
    sections.emplace_back(std::exchange(text, {.name = fmt::format("{}_step{}_sum", name, i + 1)}));
    sections.emplace_back(terms_told(arguments, step, fmt::format("{}_step{}", name, i + 1)));
    text.paragraphs = sum_told(step, model);
  }
  if (instruction.added) {
    text.paragraphs.push_back(fmt::format("plus c {}, rounded to nearest: {}",
                                          word_text(*instruction.added, model.accumulator()),
                                          word_text(instruction.result, model.accumulator())));
  }
  if (instruction.promoted) {
    text.paragraphs.push_back("promoted: the float32 sum is " +
                              word_text(std::bit_cast<std::uint32_t>(*instruction.promoted), binary32));
  }
  sections.emplace_back(std::move(text));
}

}  // namespace fp8lab::experiments
