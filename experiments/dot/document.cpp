// SPDX-License-Identifier: Apache-2.0
// Registers the experiment `dot`: every step of one dot product.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "dot/dot.hpp"
#include "dot/told.hpp"
#include "dot/words.hpp"
#include "fp8lab/formats/environment.hpp"
#include "kit/document.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t most_told = 4;  // instructions whose terms are all shown

// Everything, as tables.

struct StepOf {
  const TraceInstruction& instruction;
  std::size_t number;  ///< of the step in its instruction, from 1
  const TraceStep& step;
};
struct TermOf {
  const StepOf& of;
  const TraceTerm& term;
  bool is_accumulator;
};
struct ProductOf {
  const TermOf& of;
  const TraceProduct& product;
};

template <typename Row, typename StepFrom>
Tabulated<std::vector<Row>>& place_columns(Tabulated<std::vector<Row>>& table, const StepFrom& step_from) {
  return table.column({"instruction"}, [&](const Row& row) { return step_from(row).instruction.k; })
      .column({"step"}, [&](const Row& row) { return step_from(row).number; });
}

Table steps_table(const std::vector<StepOf>& steps, const Format& word) {
  auto table = tabulate(steps, {.name = "steps", .detail = true});
  place_columns(table, std::identity());
  table.column({"before"}, [&](const StepOf& of) { return hex(of.step.before, word); })
      .column({"exponent"}, [](const StepOf& of) { return of.step.exponent; })
      .column({"unit"}, [](const StepOf& of) { return of.step.unit; })
      .column({"sum"}, [](const StepOf& of) { return of.step.sum; })
      .column({"after"}, [&](const StepOf& of) { return hex(of.step.after, word); });
  return table;
}

Table terms_table(const std::vector<TermOf>& terms) {
  auto table = tabulate(terms, {.name = "terms", .detail = true});
  place_columns(table, [](const TermOf& of) -> const StepOf& { return of.of; });
  table.column({"is_accumulator"}, [](const TermOf& of) { return of.is_accumulator; })
      .column({"k"}, [](const TermOf& of) { return of.term.k; })
      .column({"value"}, [](const TermOf& of) { return of.term.value; })
      .column({"exponent"}, [](const TermOf& of) { return of.term.exponent; })
      .column({"kept"}, [](const TermOf& of) { return of.term.kept; })
      .column({"cut"}, [](const TermOf& of) { return of.term.cut; });
  return table;
}

/// The products of all terms, or the scales of their blocks.
Table products_table(const std::vector<ProductOf>& products, const char* name, const Format& a, const Format& b) {
  auto table = tabulate(products, {.name = name, .detail = true});
  place_columns(table, [](const ProductOf& of) -> const StepOf& { return of.of.of; });
  table.column({"term"}, [](const ProductOf& of) { return of.of.term.k; })
      .column({"k"}, [](const ProductOf& of) { return of.product.k; })
      .column({"code_a"}, [&](const ProductOf& of) { return hex(of.product.code_a, a); })
      .column({"code_b"}, [&](const ProductOf& of) { return hex(of.product.code_b, b); })
      .column({"a"}, [](const ProductOf& of) { return of.product.a; })
      .column({"b"}, [](const ProductOf& of) { return of.product.b; });
  return table;
}

std::string exponent_or_dash(const std::optional<int>& exponent) { return exponent ? std::to_string(*exponent) : "-"; }

/// A line for each instruction.
Table instructions_table(const DotResult& result) {
  const Format& word = result.arguments.model.accumulator();
  const auto& instructions = result.trace.instructions;
  const auto detail = [](const char* name) { return Head{.name = name, .detail = true}; };
  const auto range = [](const TraceInstruction& one) { return fmt::format("{}-{}", one.k, one.k + one.products - 1); };
  const auto exponents = [](const TraceInstruction& one) {
    std::string text;
    for (const TraceStep& step : one.steps) text += (text.empty() ? "" : ", ") + exponent_or_dash(step.exponent);
    return text;
  };
  const auto cut = [](const TraceInstruction& one) {
    double sum = 0;
    for (const TraceStep& step : one.steps) sum += cut_off(step);
    return sum;
  };
  auto table =
      tabulate(instructions,
               {.name = "instructions", .title = "Instruction by instruction", .detail = instructions.size() == 1});
  table.column({"range", "k"}, range)
      .column({.name = "exponents", .title = "E", .right = true}, exponents)
      .column({.name = "cut_off", .title = "cut off", .digits = 3}, cut)
      .column({"result", "accumulator"}, [&](const TraceInstruction& one) { return hex(one.result, word); })
      .column({.name = "value", .digits = word == binary64 ? 17 : 9},
              [&](const TraceInstruction& one) { return number_of(word, one.result); });
  Head promoted{.name = "promoted", .detail = result.arguments.options.promote_k == 0};
  table.column(promoted, [](const TraceInstruction& one) { return hex(one.promoted); })
      .column(detail("k"), [](const TraceInstruction& one) { return one.k; })
      .column(detail("products"), [](const TraceInstruction& one) { return one.products; })
      .column(detail("added"), [&](const TraceInstruction& one) { return hex(one.added, word); });
  return table;
}

void add_tables(const DotResult& result, std::vector<Section>& sections) {
  std::vector<StepOf> steps;
  for (const TraceInstruction& instruction : result.trace.instructions) {
    for (std::size_t i = 0; i < instruction.steps.size(); ++i) {
      steps.push_back({instruction, i + 1, instruction.steps[i]});
    }
  }
  std::vector<TermOf> terms;
  for (const StepOf& step : steps) {
    for (const TraceTerm* term : terms_of(step.step)) terms.push_back({step, *term, term == &step.step.accumulator});
  }
  std::vector<ProductOf> products;
  std::vector<ProductOf> scales;
  for (const TermOf& term : terms) {
    for (const TraceProduct& product : term.term.products) products.push_back({term, product});
    const std::optional<TraceProduct>& own = term.term.scales;
    if (own) scales.push_back({term, *own});
  }
  const DotArguments& arguments = result.arguments;
  const Format scale = format_of_scales(arguments.model);
  sections.emplace_back(instructions_table(result));
  sections.emplace_back(steps_table(steps, arguments.model.accumulator()));
  sections.emplace_back(terms_table(terms));
  sections.emplace_back(products_table(products, "products", arguments.a.format, arguments.b.format));
  sections.emplace_back(products_table(scales, "scales", scale, scale));
}

// The rest.

Text heading(const DotResult& result) {
  const DotArguments& arguments = result.arguments;
  const MmaModel& model = arguments.model;
  Text text{"intro", "", {fmt::format("{}: {}", model.name, describe(model))}};
  for (const auto& [name, side] : {std::pair{"a", &arguments.a}, std::pair{"b", &arguments.b}}) {
    text.paragraphs.push_back(fmt::format("{}: {}, {}", name, format_name(side->format), side->source));
  }
  std::string sizes = fmt::format("K = {}", result.trace.depth);
  const TraceInstruction& last = result.trace.instructions.back();
  if (model.k() != 0 && std::cmp_less(last.products, model.k())) {
    sizes += fmt::format(", filled up with {} zeros", static_cast<std::size_t>(model.k()) - last.products);
  }
  sizes += fmt::format("; zero rule {}", name_of(arguments.options.zero_rule));
  if (arguments.options.promote_k > 0) sizes += fmt::format("; promoted every {}", arguments.options.promote_k);
  text.paragraphs.push_back(sizes + "; c " + word_text(arguments.options.c, model.accumulator()));
  return text;
}

Table operands_table(const DotArguments& arguments) {
  struct Side {
    const char* name;
    const DotOperand& operand;
  };
  const std::array sides{Side{"a", arguments.a}, Side{"b", arguments.b}};
  const Format scale = format_of_scales(arguments.model);
  return tabulate(sides, {.name = "operands", .detail = true})
      .column({"side"}, [](const Side& side) { return side.name; })
      .column({"format"}, [](const Side& side) { return format_name(side.operand.format); })
      .column({"source"}, [](const Side& side) { return side.operand.source; })
      .column({"codes"}, [](const Side& side) { return hex(side.operand.codes, side.operand.format); })
      .column({"scales"}, [&](const Side& side) {
        return hex(Codes(side.operand.scales.begin(), side.operand.scales.end()), scale);
      });
}

Table result_table(const DotResult& result) {
  const DotTrace& trace = result.trace;
  const DotArguments& arguments = result.arguments;
  const auto one = std::array{&result};
  return tabulate(one, {.name = "result", .detail = true})
      .column({"depth"}, [&](auto) { return trace.depth; })
      .column({"word"}, [&](auto) { return hex(trace.word, trace.format); })
      .column({"format"}, [&](auto) { return format_name(trace.format); })
      .column({"value"}, [&](auto) { return trace.value(); })
      .column({"exact"}, [&](auto) { return result.exact; })
      .column({"c"}, [&](auto) { return hex(arguments.options.c, arguments.model.accumulator()); })
      .column({"got"}, [&](auto) { return hex(arguments.got, trace.format); })
      .column({"equal"}, [&](auto) { return arguments.got ? std::optional(result.passed()) : std::nullopt; });
}

/// Says what the model computes, what the real sum is, and what the user got.
Text outcome(const DotResult& result) {
  const DotTrace& trace = result.trace;
  Text text{"outcome", "", {"Result: " + bits_text(trace.word, trace.format)}};
  if (result.exact) {
    text.paragraphs.push_back(fmt::format("Exact: {}, the real sum of what was given, rounded once",
                                          word_text(std::bit_cast<std::uint32_t>(*result.exact), binary32)));
  }
  if (!result.arguments.got) return text;
  const std::uint64_t got = *result.arguments.got;
  const double more = number_of(trace.format, got) - number_of(trace.format, trace.word);
  text.paragraphs.push_back("Got: " + word_text(got, trace.format) +
                            (result.passed() ? ", equal" : fmt::format(", NOT equal: it differs by {:+.6g}", more)));
  if (!result.passed() && result.candidates.empty()) {
    text.paragraphs.emplace_back("No model that takes these operands gives it, under any zero rule, promoted or not.");
  }
  return text;
}

Table candidates_table(const DotResult& result) {
  const auto rules = [](const DotCandidate& candidate) {
    if (candidate.every_zero_rule) return std::string("all");
    std::string text;
    for (const ZeroRule rule : candidate.zero_rules) text += (text.empty() ? "" : ", ") + std::string(name_of(rule));
    return text;
  };
  return tabulate(result.candidates,
                  {.name = "candidates", .title = "What would give it", .detail = result.candidates.empty()})
      .column({"model"}, [](const DotCandidate& candidate) { return candidate.model; })
      .column({"promote_k", "promoted every"}, [](const DotCandidate& candidate) { return candidate.promote_k; })
      .column({"zero_rules", "zero rules"}, rules);
}

}  // namespace

Document document_of(const DotResult& result) {
  const DefaultEnvironment environment;
  Document document;
  if (result.arguments.got) document.passed = result.passed();
  std::vector<Section>& sections = document.sections;
  sections.emplace_back(heading(result));
  sections.emplace_back(operands_table(result.arguments));
  const auto& instructions = result.trace.instructions;
  const std::size_t at = result.arguments.at.value_or(result.trace.depth);
  for (const TraceInstruction& instruction : instructions) {
    const bool has_it = at >= instruction.k && at < instruction.k + instruction.products;
    if (instructions.size() <= most_told || has_it) tell(result.arguments, instruction, sections);
  }
  add_tables(result, sections);
  sections.emplace_back(result_table(result));
  sections.emplace_back(outcome(result));
  sections.emplace_back(candidates_table(result));
  return document;
}

}  // namespace fp8lab::experiments
