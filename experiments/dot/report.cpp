// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "dot/dot.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "kit/report.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t most_told = 4;  // instructions whose terms are all shown

std::string hex(std::uint32_t word, const Format& format) {
  return formatted("%0*x", std::max(2, (format.bits() + 3) / 4), word);
}
/// A word of binary16 or binary32 with its value.
std::string word_text(std::uint32_t word, const Format& format) {
  return hex(word, format) + formatted(" = %.9g", static_cast<double>(decode(format, word)));
}
std::string short_number(double x) { return formatted("%.6g", x); }
std::string power(int exponent) { return "2^" + std::to_string(exponent); }

std::string exponent_or_dash(const std::optional<int>& exponent) { return exponent ? std::to_string(*exponent) : "-"; }
/// What the codes of the scales are, where there are any.
Format format_of_scales(const MmaModel& model) { return model.scales ? model.scales->format : e8m0; }
/// A float32, where there is one.
std::optional<std::string> hex(const std::optional<float>& value) {
  return value ? std::optional(hex(std::bit_cast<std::uint32_t>(*value), binary32)) : std::nullopt;
}

/// Sign, exponent and fraction of a word, bit by bit.
std::string bits_text(std::uint32_t word, const Format& format) {
  std::string text;
  for (int bit = format.bits() - 1; bit >= 0; --bit) {
    text += ((word >> bit) & 1U) != 0 ? '1' : '0';
    if (bit == format.bits() - 1 || bit == format.mantissa_bits) text += ' ';
  }
  return text;
}

std::vector<const TraceTerm*> terms_of(const TraceStep& step) {
  std::vector<const TraceTerm*> terms{&step.accumulator};
  for (const TraceTerm& term : step.terms) terms.push_back(&term);
  return terms;
}

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

/// A factor: its code, where that is short, and its value.
std::string factor_text(std::uint32_t code, double value, const Format& format) {
  return (format.bits() <= 8 ? hex(code, format) + " " : "") + short_number(value);
}

/// The rows of a step's table.
std::vector<std::vector<std::string>> table_of(const DotResult& result, const TraceStep& step, bool pictures) {
  const DotArguments& arguments = result.arguments;
  std::vector<std::vector<std::string>> rows{{"k", "a", "b", "product", "exp", "cut off"}};
  int whole_digits = 1;
  for (const TraceTerm* term : terms_of(step)) {
    if (step.exponent && term->kept != 0) {
      whole_digits = std::max(whole_digits, std::ilogb(term->kept) - *step.exponent + 1);
    }
  }
  pictures = pictures && step.exponent.has_value();
  if (pictures) rows.front().emplace_back("kept | cut off, in binary");
  for (const TraceTerm* term : terms_of(step)) {
    const bool one = term->products.size() == 1 && arguments.model.group == 1;
    if (term->value == 0 && term->exponent != step.exponent) continue;
    rows.push_back({k_text(*term, arguments.model), "", "", short_number(term->value), exponent_or_dash(term->exponent),
                    term->cut == 0 ? "0" : formatted("%.3g", term->cut)});
    if (arguments.model.group > 1 && term->scales) {
      rows.back()[1] = formatted("%zu not zero", term->products.size());
    }
    if (one) {
      const TraceProduct& product = term->products.front();
      rows.back()[1] = factor_text(product.code_a, product.a, arguments.a.format);
      rows.back()[2] = factor_text(product.code_b, product.b, arguments.b.format);
    }
    if (pictures)
      rows.back().push_back(picture(*term, step.unit.value_or(0), arguments.model.fraction_bits, whole_digits));
  }
  if (pictures) {  // to the left of the last column
    std::size_t width = 0;
    for (const auto& row : rows) width = std::max(width, row.back().size());
    rows.front().back().resize(width, ' ');
  }
  return rows;
}

/// What is cut off, in red.
std::string coloured(const std::string& table, const TextStyle& style) {
  if (!style.color) return table;
  std::string text;
  bool red = false;
  bool heading = true;
  for (const char c : table) {
    if (c == '\n') {
      text += red ? "\x1b[0m" : "";
      red = heading = false;
    }
    text += c;
    if (c != '|' || heading) continue;
    text += "\x1b[31m";
    red = true;
  }
  return text;
}

std::string scales_text(const TraceStep& step, const MmaModel& model) {
  std::string text;
  std::optional<std::size_t> last;
  for (const TraceTerm& term : step.terms) {
    if (!term.scales || last == term.scales->k) continue;
    last = term.scales->k;
    text += formatted("  scales of block %zu: %s = %.6g, %s = %.6g\n", *last,
                      hex(term.scales->code_a, format_of_scales(model)).c_str(), term.scales->a,
                      hex(term.scales->code_b, format_of_scales(model)).c_str(), term.scales->b);
  }
  return text;
}

/// Where E comes from, or why there is none.
std::string exponent_text(const TraceStep& step, const MmaModel& model) {
  if (!step.exponent) {
    std::string special;
    for (const TraceTerm* term : terms_of(step)) {
      if (term->is_special())
        special += (special.empty() ? "" : ", ") + name_of_term(*term, model) + formatted(" is %g", term->value);
    }
    if (!special.empty()) return "NaN or infinity decides: " + special;
    return model.arithmetic == Arithmetic::exact ? "every product is kept whole"
                                                 : "nothing to align: all terms are zero";
  }
  std::string from;
  for (const TraceTerm* term : terms_of(step)) {
    if (term->exponent == step.exponent && from.size() < 40)
      from += (from.empty() ? "" : ", ") + name_of_term(*term, model);
  }
  return "largest exponent E = " + std::to_string(*step.exponent) + " (" + from + "): multiples of " +
         power(step.unit.value_or(0)) + " are kept";
}

std::string step_text(const DotResult& result, const TraceInstruction& instruction, std::size_t index,
                      const TextStyle& style) {
  const MmaModel& model = result.arguments.model;
  const TraceStep& step = instruction.steps[index];
  std::string text = instruction.steps.size() == 1 ? "" : "step " + std::to_string(index + 1) + ": ";
  text += exponent_text(step, model) + "\n" + scales_text(step, model);
  constexpr int width_of_pictures = 100;
  text += coloured(draw_table(table_of(result, step, style.width >= width_of_pictures), style), style);
  std::string changed;
  if (step.sum && step.unit) {
    double cut = 0;
    for (const TraceTerm* term : terms_of(step)) cut += term->cut;
    const double sum = std::ldexp(static_cast<double>(*step.sum), *step.unit);
    text += formatted("sum of what is kept: %lld * %s = %.9g; cut off in all: %.3g\n",
                      static_cast<long long>(*step.sum), power(*step.unit).c_str(), sum, cut);
    const double more = static_cast<double>(decode(model.accumulator(), step.after)) - sum;
    if (more != 0) changed = formatted("   (changed by %.3g as it is converted)", more);
  }
  return text + "accumulator: " + word_text(step.after, model.accumulator()) + "   " +
         bits_text(step.after, model.accumulator()) + changed + "\n";
}

std::string instruction_text(const DotResult& result, const TraceInstruction& instruction, const TextStyle& style) {
  const MmaModel& model = result.arguments.model;
  std::string text = formatted("\nk %zu to %zu\n", instruction.k, instruction.k + instruction.products - 1);
  for (std::size_t i = 0; i < instruction.steps.size(); ++i) text += step_text(result, instruction, i, style);
  if (instruction.added) {
    text += "plus c " + word_text(*instruction.added, model.accumulator()) +
            ", rounded to nearest: " + word_text(instruction.result, model.accumulator()) + "\n";
  }
  if (instruction.promoted) {
    text += "promoted: the float32 sum is " + word_text(std::bit_cast<std::uint32_t>(*instruction.promoted), binary32) +
            "\n";
  }
  return text;
}

/// A line an instruction.
std::string overview(const DotResult& result, const TextStyle& style) {
  const Format& word = result.arguments.model.accumulator();
  const bool promotes = result.arguments.options.promote_k > 0;
  std::vector<std::vector<std::string>> rows{{"k", "E", "cut off", "accumulator", "value"}};
  if (promotes) rows.front().emplace_back("promoted");
  for (const TraceInstruction& instruction : result.trace.instructions) {
    double cut = 0;
    std::string exponents;
    for (const TraceStep& step : instruction.steps) {
      for (const TraceTerm* term : terms_of(step)) cut += term->cut;
      exponents += (exponents.empty() ? "" : ", ") + exponent_or_dash(step.exponent);
    }
    rows.push_back({formatted("%zu-%zu", instruction.k, instruction.k + instruction.products - 1), exponents,
                    formatted("%.3g", cut), hex(instruction.result, word),
                    formatted("%.9g", static_cast<double>(decode(word, instruction.result)))});
    if (promotes) {
      rows.back().push_back(hex(instruction.promoted).value_or(""));
    }
  }
  return "\nInstruction by instruction:\n" + draw_table(rows, style);
}

std::string heading(const DotResult& result) {
  const DotArguments& arguments = result.arguments;
  const MmaModel& model = arguments.model;
  const TraceInstruction& last = result.trace.instructions.back();
  std::string text = std::string(model.name) + ": " + describe(model) + "\n";
  for (const auto& [name, side] : {std::pair{"a", &arguments.a}, std::pair{"b", &arguments.b}}) {
    text += std::string(name) + ": " + format_name(side->format) + ", " + side->source + "\n";
  }
  text += "K = " + std::to_string(result.trace.depth);
  if (model.k() != 0 && std::cmp_less(last.products, model.k())) {
    text += ", filled up with " + std::to_string(static_cast<std::size_t>(model.k()) - last.products) + " zeros";
  }
  text += "; zero rule " + std::string(name_of(arguments.options.zero_rule));
  if (arguments.options.promote_k > 0) text += "; promoted every " + std::to_string(arguments.options.promote_k);
  return text + "; c " + word_text(arguments.options.c, model.accumulator()) + "\n";
}

/// What was got, and what would give it.
std::string got_text(const DotResult& result) {
  const Format& format = result.trace.format;
  if (!result.arguments.got) return "";
  const std::uint32_t got = *result.arguments.got;
  std::string text = "Got:    " + word_text(got, format);
  if (result.passed()) return text + "   equal\n";
  const double more = static_cast<double>(decode(format, got)) - static_cast<double>(decode(format, result.trace.word));
  text += formatted("   NOT equal: it differs by %+.6g\n", more);
  if (result.candidates.empty()) {
    return text + "No model that takes these operands gives it, under any zero rule, promoted or not.\n";
  }
  text += "What would give it:\n";
  for (const DotCandidate& candidate : result.candidates) {
    text += "  " + candidate.model;
    if (candidate.promote_k > 0) text += ", promoted every " + std::to_string(candidate.promote_k);
    const bool tells = !candidate.every_zero_rule;
    for (std::size_t i = 0; tells && i < candidate.zero_rules.size(); ++i) {
      text += std::string(i == 0 ? "; zero rule " : ", ").append(name_of(candidate.zero_rules[i]));
    }
    text += '\n';
  }
  return text;
}

Json json_of_number(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  return x;
}

Json json_of(const TraceProduct& product, const Format& a, const Format& b) {
  return {{"k", product.k},
          {"code_a", hex(product.code_a, a)},
          {"code_b", hex(product.code_b, b)},
          {"a", json_of_number(product.a)},
          {"b", json_of_number(product.b)}};
}

template <typename T>
Json json_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json json_of(const TraceTerm& term, const DotArguments& arguments) {
  Json json{{"k", term.k}, {"products", Json::array()}};
  for (const TraceProduct& product : term.products) {
    json["products"].push_back(json_of(product, arguments.a.format, arguments.b.format));
  }
  if (term.scales) {
    const Format format = format_of_scales(arguments.model);
    json["scales"] = json_of(*term.scales, format, format);
  }
  json["value"] = json_of_number(term.value);
  json["exponent"] = json_or_null(term.exponent);
  json["kept"] = term.kept;
  json["cut"] = term.cut;
  return json;
}

Json json_of(const TraceInstruction& instruction, const DotArguments& arguments) {
  const Format& word = arguments.model.accumulator();
  Json steps = Json::array();
  for (const TraceStep& step : instruction.steps) {
    Json terms = Json::array();
    for (const TraceTerm& term : step.terms) terms.push_back(json_of(term, arguments));
    steps.push_back({{"before", hex(step.before, word)},
                     {"accumulator", json_of(step.accumulator, arguments)},
                     {"terms", terms},
                     {"exponent", json_or_null(step.exponent)},
                     {"unit", json_or_null(step.unit)},
                     {"sum", json_or_null(step.sum)},
                     {"after", hex(step.after, word)}});
  }
  Json json{{"k", instruction.k}, {"products", instruction.products}, {"steps", steps}};
  json["added"] = instruction.added ? Json(hex(*instruction.added, word)) : Json(nullptr);
  json["result"] = hex(instruction.result, word);
  json["promoted"] = json_or_null(hex(instruction.promoted));
  return json;
}

Json json_of(const DotOperand& operand, const std::optional<BlockScales>& scales) {
  std::string codes;
  for (const std::uint32_t code : operand.codes) codes += hex(code, operand.format);
  Json json{{"format", format_name(operand.format)}, {"source", operand.source}, {"codes", codes}};
  if (scales) {
    std::string text;
    for (const std::uint8_t code : operand.scales) text += hex(code, scales->format);
    json["scales"] = text;
  }
  return json;
}

Json json_of(const DotCandidate& candidate) {
  Json rules = Json::array();
  for (const ZeroRule rule : candidate.zero_rules) rules.push_back(name_of(rule));
  return {{"model", candidate.model}, {"promote_k", candidate.promote_k}, {"zero_rules", rules}};
}

}  // namespace

std::string report_of(const DotResult& result, const TextStyle& style) {
  const DefaultEnvironment environment;
  const DotTrace& trace = result.trace;
  std::string text = heading(result);
  for (const TraceInstruction& instruction : trace.instructions) {
    const std::size_t at = result.arguments.at.value_or(trace.depth);
    const bool told =
        trace.instructions.size() <= most_told || (at >= instruction.k && at < instruction.k + instruction.products);
    if (told) text += instruction_text(result, instruction, style);
  }
  if (trace.instructions.size() > 1) text += overview(result, style);
  text += "\nResult: " + word_text(trace.word, trace.format) + "   " + bits_text(trace.word, trace.format) + "\n";
  if (result.exact) {
    text += "Exact:  " + word_text(std::bit_cast<std::uint32_t>(*result.exact), binary32) +
            "   the real sum of what was given, rounded once\n";
  }
  return text + got_text(result);
}

Files files_of(const DotResult& result) { return {{"dot.json", to_json(result)}}; }

std::string to_json(const DotResult& result) {
  const DefaultEnvironment environment;
  const DotArguments& arguments = result.arguments;
  const DotTrace& trace = result.trace;
  const Json given{{"model", arguments.model.name},
                   {"a", json_of(arguments.a, arguments.model.scales)},
                   {"b", json_of(arguments.b, arguments.model.scales)},
                   {"c", hex(arguments.options.c, arguments.model.accumulator())},
                   {"zero_rule", name_of(arguments.options.zero_rule)},
                   {"promote_k", arguments.options.promote_k},
                   {"got", arguments.got ? Json(hex(*arguments.got, trace.format)) : Json(nullptr)}};
  Json json{{"depth", trace.depth},
            {"word", hex(trace.word, trace.format)},
            {"format", format_name(trace.format)},
            {"value", json_of_number(static_cast<double>(trace.value()))}};
  json["exact"] = result.exact ? json_of_number(static_cast<double>(*result.exact)) : Json(nullptr);
  json["equal"] = arguments.got ? Json(result.passed()) : Json(nullptr);
  json["candidates"] = Json::array();
  for (const DotCandidate& candidate : result.candidates) json["candidates"].push_back(json_of(candidate));
  json["instructions"] = Json::array();
  for (const TraceInstruction& instruction : trace.instructions) {
    json["instructions"].push_back(json_of(instruction, arguments));
  }
  return text_of(json_of_result("dot", given, json));
}

}  // namespace fp8lab::experiments
