// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "dot/dot.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "kit/document.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t most_told = 4;  // instructions whose terms are all shown

// Words and numbers.

std::string hex(std::uint32_t word, const Format& format) {
  return fmt::format("{:0{}x}", word, std::max(2, (format.bits() + 3) / 4));
}
std::optional<std::string> hex(const std::optional<std::uint32_t>& word, const Format& format) {
  return word ? std::optional(hex(*word, format)) : std::nullopt;
}
std::optional<std::string> hex(const std::optional<float>& value) {
  return value ? std::optional(hex(std::bit_cast<std::uint32_t>(*value), binary32)) : std::nullopt;
}
std::string hex(const std::vector<std::uint32_t>& codes, const Format& format) {
  std::string text;
  for (const std::uint32_t code : codes) text += hex(code, format);
  return text;
}
/// A word of binary16 or binary32 with its value.
std::string word_text(std::uint32_t word, const Format& format) {
  return fmt::format("{} = {:.9g}", hex(word, format), decode(format, word));
}
/// The same, and its sign, exponent and fraction bit by bit.
std::string bits_text(std::uint32_t word, const Format& format) {
  std::string bits;
  for (int bit = format.bits() - 1; bit >= 0; --bit) {
    bits += ((word >> bit) & 1U) != 0 ? '1' : '0';
    if (bit == format.bits() - 1 || bit == format.mantissa_bits) bits += ' ';
  }
  return word_text(word, format) + ", bits " + bits;
}
std::string power(int exponent) { return fmt::format("2^{}", exponent); }
std::string exponent_or_dash(const std::optional<int>& exponent) { return exponent ? std::to_string(*exponent) : "-"; }
Format format_of_scales(const MmaModel& model) { return model.scales ? model.scales->format : e8m0; }

std::vector<const TraceTerm*> terms_of(const TraceStep& step) {
  std::vector<const TraceTerm*> terms{&step.accumulator};
  for (const TraceTerm& term : step.terms) terms.push_back(&term);
  return terms;
}

double cut_off(const TraceStep& step) {
  double cut = 0;
  for (const TraceTerm* term : terms_of(step)) cut += term->cut;
  return cut;
}

// One step, told in full.

/// What is kept of a term as a binary number, the digit of 2^E before the point, and behind a bar the first digits of
/// what is cut off; "+" where there are more.
std::string picture(const TraceTerm& term, int unit, int fraction_bits, int whole_digits) {
  constexpr int cut_digits = 6;
  const auto kept = static_cast<std::uint64_t>(std::ldexp(std::abs(term.kept), -unit));
  std::string text = std::signbit(term.value) ? "-" : "+";
  for (int bit = fraction_bits + whole_digits - 1; bit >= 0; --bit) {
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

/// The same in a sentence.
std::string name_of_term(const TraceTerm& term, const MmaModel& model) {
  const std::string text = k_text(term, model);
  return text == "c" ? text : "k " + text;
}

/// The two factors of a term: each its code, where that is short, and its value; of a group how many are not zero.
std::array<std::string, 2> factors_of(const TraceTerm& term, const DotArguments& arguments) {
  const auto factor = [](std::uint32_t code, double value, const Format& format) {
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
  std::vector<const TraceTerm*> terms = terms_of(step);
  int whole_digits = 1;
  for (const TraceTerm* term : terms) {
    if (step.exponent && term->kept != 0) {
      whole_digits = std::max(whole_digits, std::ilogb(term->kept) - *step.exponent + 1);
    }
  }
  std::erase_if(terms, [&](const TraceTerm* term) { return term->value == 0 && term->exponent != step.exponent; });
  auto table = tabulate(terms, {.name = name});
  table.column({"k"}, [&](const TraceTerm* term) { return k_text(*term, model); })
      .column({.name = "a", .right = true}, [&](const TraceTerm* term) { return factors_of(*term, arguments)[0]; })
      .column({.name = "b", .right = true}, [&](const TraceTerm* term) { return factors_of(*term, arguments)[1]; })
      .column({"product"}, [](const TraceTerm* term) { return term->value; })
      .column({"exponent", "exp"}, [](const TraceTerm* term) { return term->exponent; })
      .column({.name = "cut_off", .title = "cut off", .digits = 3}, [](const TraceTerm* term) { return term->cut; });
  if (step.exponent) {
    table.column({"kept", "kept | cut off, in binary"}, [&](const TraceTerm* term) {
      return picture(*term, step.unit.value_or(0), model.fraction_bits, whole_digits);
    });
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

/// Where E comes from, or why there is none.
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
      case Arithmetic::flushed_pairs:
      case Arithmetic::fma_chain: return "what is cut off is not told for this arithmetic, but the words are";
      case Arithmetic::fused: break;
    }
    return "nothing to align: all terms are zero";
  }
  for (const TraceTerm* term : terms_of(step)) {
    if (term->exponent == step.exponent && from.size() < 40)
      from += (from.empty() ? "" : ", ") + name_of_term(*term, model);
  }
  return fmt::format("largest exponent E = {} ({}): multiples of {} are kept", *step.exponent, from,
                     power(step.unit.value_or(0)));
}

/// What comes of a step's terms.
std::vector<std::string> sum_told(const TraceStep& step, const MmaModel& model) {
  std::vector<std::string> lines;
  std::string changed;
  if (step.sum && step.unit) {
    const double sum = std::ldexp(static_cast<double>(*step.sum), *step.unit);
    lines.push_back(fmt::format("sum of what is kept: {} * {} = {:.9g}; cut off in all: {:.3g}", *step.sum,
                                power(*step.unit), sum, cut_off(step)));
    const double more = static_cast<double>(decode(model.accumulator(), step.after)) - sum;
    if (more != 0) changed = fmt::format(" (changed by {:.3g} as it is converted)", more);
  }
  lines.push_back("accumulator: " + bits_text(step.after, model.accumulator()) + changed);
  return lines;
}

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
      .column({.name = "value", .digits = 9}, [&](const TraceInstruction& one) { return decode(word, one.result); });
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

/// What came out, what the real sum is, and what was got.
Text outcome(const DotResult& result) {
  const DotTrace& trace = result.trace;
  Text text{"outcome", "", {"Result: " + bits_text(trace.word, trace.format)}};
  if (result.exact) {
    text.paragraphs.push_back(fmt::format("Exact: {}, the real sum of what was given, rounded once",
                                          word_text(std::bit_cast<std::uint32_t>(*result.exact), binary32)));
  }
  if (!result.arguments.got) return text;
  const std::uint32_t got = *result.arguments.got;
  const double more =
      static_cast<double>(decode(trace.format, got)) - static_cast<double>(decode(trace.format, trace.word));
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
