// SPDX-License-Identifier: Apache-2.0
// Answers what the page "Try it" asks, by the library's own functions, as JSON. build.sh compiles it to WebAssembly.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "dot/picture.hpp"
#include "explain/explain.hpp"
#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/gemm/trace.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace fp8lab::browser {
namespace {

using namespace fp8lab::experiments;

// JSON

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}
/// A number; infinities and NaN are texts.
std::string number(double x) { return std::isfinite(x) ? fmt::format("{}", x) : fmt::format("\"{}\"", x); }
std::string number(const std::optional<int>& x) { return x ? std::to_string(*x) : "null"; }

using Fields = std::vector<std::pair<std::string_view, std::string>>;
std::string object(const Fields& fields) {
  std::string out;
  for (const auto& [name, value] : fields) out += (out.empty() ? "{" : ",") + quoted(name) + ":" + value;
  return out + "}";
}
template <typename Range, typename Function>
std::string list(const Range& range, const Function& f) {
  std::string out;
  for (const auto& one : range) out += (out.empty() ? "" : ",") + f(one);
  return "[" + out + "]";
}

/// What an answer points to, until the next one.
const char* told(std::string text) {
  static std::string answer;
  answer = std::move(text);
  return answer.c_str();
}

// Casts and codes

const Format& format_at(int index) { return named_formats.at(static_cast<std::size_t>(index)).format; }

/// The policy of a profile, with another rounding where `rounding` is not negative.
CastPolicy policy_of(int profile, int rounding) {
  CastPolicy policy = profiles.at(static_cast<std::size_t>(profile)).policy;
  if (rounding >= 0) policy.rounding = named_roundings.at(static_cast<std::size_t>(rounding)).value;
  return policy;
}

std::string code_json(const Format& format, std::uint32_t code) {
  const ExplainedCode one = explain_code(format, code);
  const bool is_finite = std::isfinite(one.value);
  return object({{"code", quoted(code_text(format, code))},
                 {"bits", quoted(experiments::bits_text(format, code))},
                 {"kind", quoted(words_of_class(one.kind))},
                 {"value", number(one.value)},
                 {"fraction", is_finite ? quoted(fraction_text(one.value)) : "\"\""},
                 {"product", is_finite && one.value != 0 ? quoted(product_text(format, code)) : "\"\""}});
}

const std::vector<ExplainedCode>& sorted_codes(int format) {
  static std::map<int, std::vector<ExplainedCode>> known;
  std::vector<ExplainedCode>& codes = known[format];
  if (codes.empty()) codes = codes_by_value(format_at(format));
  return codes;
}

/// The codes on both sides of a number that no code is, and the tie between them; null beyond the ends.
std::string neighbours_json(int format, double x) {
  const std::vector<ExplainedCode>& codes = sorted_codes(format);
  const ExplainedCode* below = nullptr;
  const ExplainedCode* above = nullptr;
  for (const ExplainedCode& one : codes) {
    if (one.value <= x) below = &one;
    if (one.value >= x && above == nullptr) above = &one;
  }
  const bool is_between = below != nullptr && above != nullptr && below->value < above->value;
  const double tie = is_between ? below->value / 2 + above->value / 2 : 0;
  return object({{"below", below != nullptr ? code_json(format_at(format), below->code) : "null"},
                 {"above", above != nullptr ? code_json(format_at(format), above->code) : "null"},
                 {"tie", is_between ? number(tie) : "null"},
                 {"tie_fraction", is_between ? quoted(fraction_text(tie)) : "null"},
                 {"is_tie", is_between && x == tie ? "true" : "false"}});
}

/// The numbers that round to a finite code, and the codes beside it.
std::string range_json(int format, std::uint32_t code) {
  const std::vector<ExplainedCode>& codes = sorted_codes(format);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (codes[i].code != code) continue;
    const RoundsTo range = rounds_to(format_at(format), codes, i);
    const auto beside = [&](bool is_there, std::size_t at) {
      return is_there ? code_json(format_at(format), codes[at].code) : "null";
    };
    return object({{"low", number(range.low)},
                   {"high", number(range.high)},
                   {"low_included", range.low_included ? "true" : "false"},
                   {"high_included", range.high_included ? "true" : "false"},
                   {"below", beside(i > 0, i - 1)},
                   {"above", beside(i + 1 < codes.size(), i + 1)}});
  }
  return "null";
}

// Dot products

/// Whether the page offers a tensor core: its operands are codes of 16 bits at most, without scales.
bool is_offered(const MmaModel& model) {
  return !model.scales && !model.operands.empty() && model.operands.front().bits() <= 16;
}

std::array<std::vector<double>, 2> numbers_given;

/// The numbers of a side as codes, in the size that the library takes.
struct GivenCodes {
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint16_t> words;

  GivenCodes(const std::vector<double>& numbers, const Format& format) {
    for (const double x : numbers) {
      const std::uint32_t code = encode(format, CastPolicy{}, x);
      if (format.bits() <= 8) {
        bytes.push_back(static_cast<std::uint8_t>(code));
      } else {
        words.push_back(static_cast<std::uint16_t>(code));
      }
    }
  }
  [[nodiscard]] Operand operand(const Format& format) const {
    return format.bits() <= 8 ? Operand::codes(std::span(bytes), format, 1, bytes.size())
                              : Operand::codes(std::span(words), format, 1, words.size());
  }
};

std::string factor_json(const Format& format, std::uint64_t code, double value) {
  return object({{"code", quoted(code_text(format, static_cast<std::uint32_t>(code)))}, {"value", number(value)}});
}

std::string term_json(const DotTrace& trace, const TraceStep& step, const TraceTerm& term,
                      const std::array<Format, 2>& formats) {
  const TraceProduct* product = term.products.size() == 1 ? &term.products.front() : nullptr;
  return object({{"k", quoted(k_text(term, trace.model))},
                 {"a", product != nullptr ? factor_json(formats[0], product->code_a, product->a) : "null"},
                 {"b", product != nullptr ? factor_json(formats[1], product->code_b, product->b) : "null"},
                 {"value", number(term.value)},
                 {"exponent", number(term.exponent)},
                 {"kept", number(term.kept)},
                 {"cut", number(term.cut)},
                 {"picture", step.exponent ? quoted(picture(step, term, trace.model.fraction_bits)) : "\"\""}});
}

std::string word_json(const Format& format, std::uint64_t word) {
  const auto code = static_cast<std::uint32_t>(word);
  return object({{"word", quoted(code_text(format, code))},
                 {"value", number(decode(format, code))},
                 {"bits", quoted(experiments::bits_text(format, code))}});
}

std::string step_json(const DotTrace& trace, const TraceStep& step, const std::array<Format, 2>& formats) {
  const Format& accumulator = trace.model.accumulator();
  return object(
      {{"why", quoted(exponent_text(step, trace.model))},
       {"terms", list(told_terms(step), [&](const TraceTerm* term) { return term_json(trace, step, *term, formats); })},
       {"unit", number(step.unit)},
       {"sum", step.sum ? quoted(std::to_string(*step.sum)) : "null"},
       {"sum_value", step.sum ? number(std::ldexp(static_cast<double>(*step.sum), step.unit.value_or(0))) : "null"},
       {"cut", number(cut_off(step))},
       {"before", word_json(accumulator, step.before)},
       {"after", word_json(accumulator, step.after)}});
}

std::string trace_json(const DotTrace& trace, const std::array<Format, 2>& formats) {
  const auto step = [&](const TraceStep& one) { return step_json(trace, one, formats); };
  return object({{"instructions", list(trace.instructions,
                                       [&](const TraceInstruction& one) {
                                         return object({{"k", std::to_string(one.k)},
                                                        {"products", std::to_string(one.products)},
                                                        {"steps", list(one.steps, step)},
                                                        {"result", word_json(trace.model.accumulator(), one.result)}});
                                       })},
                 {"result", word_json(trace.format, trace.word)}});
}

std::string model_json(const MmaModel& model) {
  return object({{"name", quoted(model.name)},
                 {"words", quoted(describe(model))},
                 {"evidence", quoted(evidence_of(model))},
                 {"products", std::to_string(model.k())},
                 {"offered", is_offered(model) ? "true" : "false"},
                 {"operands", list(model.operands, [](const Format& one) { return quoted(format_name(one)); })},
                 {"accumulator", quoted(format_name(model.accumulator()))}});
}

}  // namespace

// What the page calls. An index is a place in the lists that lists() gives.
extern "C" {

#define FP8LAB_ASKED(name) __attribute__((export_name(#name)))

/// Shows a message of the library; the page has it.
__attribute__((import_module("page"), import_name("refuse"))) void page_refuse(const char* message);

FP8LAB_ASKED(lists) const char* lists() {
  return told(object({{"formats", list(named_formats,
                                       [](const NamedFormat& one) {
                                         return object({{"name", quoted(one.name)},
                                                        {"words", quoted(one.description)},
                                                        {"bits", std::to_string(one.format.bits())}});
                                       })},
                      {"profiles", list(profiles,
                                        [](const Profile& one) {
                                          return object({{"name", quoted(one.name)},
                                                         {"words", quoted(describe(one.policy))},
                                                         {"source", quoted(one.source)}});
                                        })},
                      {"roundings", list(named_roundings, [](const Named<Rounding>& one) { return quoted(one.name); })},
                      {"models", list(models, model_json)}}));
}

FP8LAB_ASKED(encode) std::uint32_t encode_one(double x, int format, int profile, int rounding) {
  return fp8lab::encode(format_at(format), policy_of(profile, rounding), x);
}

FP8LAB_ASKED(decode) double decode_one(int format, std::uint32_t code) { return decode(format_at(format), code); }

FP8LAB_ASKED(cast) const char* cast(double x, int format, int profile, int rounding) {
  const std::uint32_t code = encode_one(x, format, profile, rounding);
  return told(object({{"x", number(x)},
                      {"fraction", std::isfinite(x) ? quoted(fraction_text(x)) : "\"\""},
                      {"result", code_json(format_at(format), code)},
                      {"neighbours", neighbours_json(format, x)},
                      {"range", range_json(format, code)}}));
}

FP8LAB_ASKED(explain) const char* explain(int format, std::uint32_t code) {
  return told(object({{"result", code_json(format_at(format), code)}, {"range", range_json(format, code)}}));
}

/// Where the page writes the numbers of a side of a dot product.
FP8LAB_ASKED(numbers) double* numbers(int side, int count) {
  std::vector<double>& room = numbers_given.at(static_cast<std::size_t>(side));
  room.assign(static_cast<std::size_t>(count), 0.0);
  return room.data();
}

FP8LAB_ASKED(dot) const char* dot(int model, int format_a, int format_b, double c) {
  const MmaModel& core = models.at(static_cast<std::size_t>(model));
  const std::array formats{format_at(format_a), format_at(format_b)};
  const GivenCodes a(numbers_given[0], formats[0]);
  const GivenCodes b(numbers_given[1], formats[1]);
  const TraceOptions options{.c = fp8lab::encode(core.accumulator(), ieee_policy, c)};
  return told(trace_json(trace_dot(core, a.operand(formats[0]), b.operand(formats[1]), options), formats));
}

// WebAssembly as it is compiled here has no exceptions: the page shows the message, and starts anew.
void* __cxa_allocate_exception(std::size_t size) noexcept { return std::malloc(size); }
[[noreturn]] void __cxa_throw(void* thrown, std::type_info* /*type*/, void (* /*destroy*/)(void*)) {
  page_refuse(static_cast<const std::exception*>(thrown)->what());
  __builtin_trap();
}
// A page has one thread, which never ends.
int __cxa_thread_atexit(void (* /*destroy*/)(void*), void* /*object*/, void* /*module*/) { return 0; }
}

}  // namespace fp8lab::browser

namespace fp8lab {

// These check arguments: trace_dot() has gemm() do so, by computing them. Here codes come from encode() and always fit,
// so that all of the vector code can stay out.
void gemm(const GemmRecipe& /*recipe*/, const Operand& /*a*/, const Operand& /*b*/, std::span<float> /*out*/,
          const GemmCall& /*call*/) {}
void gemm(const GemmRecipe& /*recipe*/, const Operand& /*a*/, const Operand& /*b*/, std::span<double> /*out*/,
          const GemmCall& /*call*/) {}
void check_codes(const Format& /*format*/, std::span<const std::uint8_t> /*codes*/, std::string_view /*name*/,
                 int /*threads*/) {}

}  // namespace fp8lab
