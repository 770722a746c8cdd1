// SPDX-License-Identifier: Apache-2.0
// Registers the experiment `explain`: one code of a format, a format, a recipe or a model.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "explain/explain.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/policy_names.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text.hpp"
#include "fp8lab/reference/gemm/named_gemm_recipes.hpp"
#include "fp8lab/reference/linear/linear_recipe.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "kit/chosen.hpp"
#include "kit/experiment.hpp"

namespace fp8lab::experiments {
namespace {

struct ExplainArguments {
  std::string what = "e4m3";
  std::optional<std::string> code = {};
  std::optional<ChosenFormat> format = {};  ///< one of the user's own, from Python
};

/// The columns of a table of codes.
Table codes_table(const Format& format, const std::vector<ExplainedCode>& codes, Table table) {
  return tabulate(codes, std::move(table))
      .column({"code"}, [&](const ExplainedCode& one) { return code_text(format, one.code); })
      .column({"bits"}, [&](const ExplainedCode& one) { return bits_text(format, one.code); })
      .column({"class"}, [](const ExplainedCode& one) { return words_of_class(one.kind); })
      .column({.name = "value", .digits = 9}, [](const ExplainedCode& one) { return one.value; })
      .column({.name = "fraction", .right = true}, [](const ExplainedCode& one) {
        return std::isfinite(one.value) ? std::optional(fraction_text(one.value)) : std::nullopt;
      });
}

/// Values around codes[at]: those of its binade, or where these are many or few, the nearest ones.
NumberLine line_of(const Format& format, const std::vector<ExplainedCode>& codes, std::size_t at,
                   const RoundsTo& range) {
  const auto binade = [&](const ExplainedCode& one) {
    return std::pair{one.is_negative, (one.code & format.magnitude_mask()) >> format.mantissa_bits};
  };
  std::size_t first = at;
  std::size_t last = at;  // both are shown
  while (first > 0 && binade(codes[first - 1]) == binade(codes[at])) --first;
  while (last + 1 < codes.size() && binade(codes[last + 1]) == binade(codes[at])) ++last;
  const bool is_binade = last - first >= 3 && last - first <= 16;
  if (is_binade) {
    if (!codes[at].is_negative && last + 1 < codes.size()) ++last;  // the power of two that ends it
    if (codes[at].is_negative && first > 0) --first;
  } else {
    const std::size_t beside = 4;
    first = at - std::min(at, beside);
    last = std::min(codes.size() - 1, at + beside);
  }
  NumberLine line{
      .name = "binade",
      .title = is_binade ? "Its binade, and what rounds to it" : "The nearest values, and what rounds to it",
      .low = range.low,
      .high = range.high,
      .low_included = range.low_included,
      .high_included = range.high_included};
  for (std::size_t i = first; i <= last; ++i) {
    const bool is_same_as_before = !line.values.empty() && line.values.back() == codes[i].value;  // -0 and +0
    if (i == at && is_same_as_before) {
      line.values.pop_back();
      line.labels.pop_back();
    } else if (is_same_as_before) {
      continue;
    }
    if (i == at) line.marked = line.values.size();
    line.values.push_back(codes[i].value);
    line.labels.push_back(code_text(format, codes[i].code));
  }
  line.low = std::max(line.low, line.values.front());
  line.high = std::min(line.high, line.values.back());
  return line;
}

std::string bound_text(double bound, bool included) {
  return fmt::format("{} ({}, {})", fraction_text(bound), bound, included ? "included" : "not included");
}

/// The sentences about what rounds to a code.
std::vector<std::string> rounding_words(const Format& format, const std::vector<ExplainedCode>& codes, std::size_t at,
                                        const RoundsTo& range) {
  const ExplainedCode& one = codes[at];
  std::vector<std::string> words{
      fmt::format("Rounded to the nearest, a tie to the even code: all numbers from {} to {}.",
                  bound_text(range.low, range.low_included), bound_text(range.high, range.high_included))};
  const bool is_last = at + 1 == codes.size();
  const bool is_first = at == 0 && format.is_signed;
  if (one.kind == CodeClass::zero && format.is_signed && format.specials != Specials::nan_at_negative_zero) {
    words.emplace_back(one.is_negative ? "Negative numbers alone: +0 and what is above it become +0."
                                       : "Positive numbers and +0 alone: -0 and what is below it become -0.");
  }
  if (is_last || is_first) {
    words.push_back(fmt::format("It is the {} value: a cast that saturates gives it for everything {}, too.",
                                is_last ? "largest" : "lowest", is_last ? "above" : "below"));
  }
  return words;
}

Table facts_of_code(const Format& format, const ExplainedCode& one) {
  const bool is_number = one.kind == CodeClass::normal || one.kind == CodeClass::subnormal;
  return tabulate(std::vector{one}, {.name = "code", .layout = TableLayout::records})
      .column({"code"},
              [&](const ExplainedCode& it) { return code_text(format, it.code) + " = " + bits_text(format, it.code); })
      .column({"class", "class"}, [](const ExplainedCode& it) { return words_of_class(it.kind); })
      .column({.name = "value", .title = "value", .digits = 9}, [](const ExplainedCode& it) { return it.value; })
      .column({"fraction", "as a fraction"},
              [&](const ExplainedCode& it) {
                return std::isfinite(it.value) ? std::optional(fraction_text(it.value)) : std::nullopt;
              })
      .column({"product", "of its bits"},
              [&](const ExplainedCode& it) {
                return is_number ? std::optional(product_text(format, it.code)) : std::nullopt;
              })
      .column({.name = "is_negative", .detail = true}, [](const ExplainedCode& it) { return it.is_negative; });
}

Table neighbours_of(const Format& format, const std::vector<ExplainedCode>& codes, std::size_t at) {
  struct Neighbour {
    const char* which;
    ExplainedCode code;
  };
  std::vector<Neighbour> all;
  for (std::size_t i = at; i-- > 0;) {
    if (codes[i].value == codes[at].value) continue;
    all.push_back({"below", codes[i]});
    break;
  }
  for (std::size_t i = at + 1; i < codes.size(); ++i) {
    if (codes[i].value == codes[at].value) continue;
    all.push_back({"above", codes[i]});
    break;
  }
  const double value = codes[at].value;
  return tabulate(all, {.name = "neighbours", .title = "Its neighbours"})
      .column({"which"}, [](const Neighbour& one) { return one.which; })
      .column({"code"}, [&](const Neighbour& one) { return code_text(format, one.code.code); })
      .column({"bits"}, [&](const Neighbour& one) { return bits_text(format, one.code.code); })
      .column({.name = "value", .digits = 9}, [](const Neighbour& one) { return one.code.value; })
      .column({.name = "fraction", .right = true}, [](const Neighbour& one) { return fraction_text(one.code.value); })
      .column({"distance"}, [value](const Neighbour& one) { return fraction_text(std::abs(one.code.value - value)); });
}

Document document_of_code(const ChosenFormat& chosen, std::uint32_t code) {
  const Format& format = chosen.format;
  const ExplainedCode one = explain_code(format, code);
  Text intro{"intro", "", {fmt::format("Code {} of {}", code_text(format, code), chosen.name)}};
  if (!std::isfinite(one.value)) {
    return {.sections = sections_of(std::move(intro), facts_of_code(format, one))};
  }
  const std::vector<ExplainedCode> codes = codes_by_value(format);
  const auto at = static_cast<std::size_t>(std::ranges::find(codes, code, &ExplainedCode::code) - codes.begin());
  const RoundsTo range = rounds_to(format, codes, at);
  Table interval = tabulate(std::vector{range}, {.name = "rounds_to_it", .detail = true})
                       .column({"low"}, [](const RoundsTo& r) { return r.low; })
                       .column({"low_included"}, [](const RoundsTo& r) { return r.low_included; })
                       .column({"high"}, [](const RoundsTo& r) { return r.high; })
                       .column({"high_included"}, [](const RoundsTo& r) { return r.high_included; });
  return {.sections = sections_of(std::move(intro), facts_of_code(format, one), line_of(format, codes, at, range),
                                  neighbours_of(format, codes, at),
                                  Text{"rounding", "What rounds to it", rounding_words(format, codes, at, range)},
                                  std::move(interval))};
}

Document document_of_format(const ChosenFormat& chosen) {
  const Format& format = chosen.format;
  const std::vector<ExplainedCode> by_value = codes_by_value(format);
  std::vector<ExplainedCode> codes;
  codes.reserve(by_value.size());
  for (std::uint32_t code = 0; code < std::uint32_t{1} << format.bits(); ++code) {
    codes.push_back(explain_code(format, code));
  }
  // Codes to know by heart.
  struct Landmark {
    const char* which;
    ExplainedCode code;
  };
  std::vector<Landmark> landmarks{{"largest", by_value.back()}};
  const auto add = [&](const char* which, CodeClass kind) {
    const auto found =
        std::ranges::find_if(codes, [&](const ExplainedCode& one) { return one.kind == kind && !one.is_negative; });
    if (found != codes.end()) landmarks.push_back({which, *found});
  };
  add("smallest normal", CodeClass::normal);
  add("smallest subnormal", CodeClass::subnormal);
  add("zero", CodeClass::zero);
  add("infinity", CodeClass::infinity);
  const auto nan = std::ranges::find(codes, CodeClass::nan, &ExplainedCode::kind);
  if (nan != codes.end()) landmarks.push_back({"NaN", *nan});
  Table known =
      tabulate(landmarks, {.name = "landmarks"})
          .column({"which"}, [](const Landmark& one) { return one.which; })
          .column({"code"}, [&](const Landmark& one) { return code_text(format, one.code.code); })
          .column({"bits"}, [&](const Landmark& one) { return bits_text(format, one.code.code); })
          .column({.name = "value", .digits = 9}, [](const Landmark& one) { return one.code.value; })
          .column({.name = "fraction", .right = true}, [](const Landmark& one) {
            return std::isfinite(one.code.value) ? std::optional(fraction_text(one.code.value)) : std::nullopt;
          });
  const bool is_long = format.bits() > 8;
  Text intro{"intro", "", {chosen.name}};
  for (const NamedFormat& named : named_formats) {
    if (named.format == format && named.name == chosen.name) {
      intro.paragraphs.front() += ": " + std::string(named.description);
    }
  }
  intro.paragraphs.push_back(fmt::format(
      "{} bits: {}, {} exponent bits with bias {}, {} mantissa bits. fp8lab explain {} CODE tells one code.",
      format.bits(), format.is_signed ? "sign" : "no sign", format.exponent_bits, format.bias, format.mantissa_bits,
      chosen.name));
  return {.sections =
              sections_of(std::move(intro), std::move(known),
                          codes_table(format, codes, {.name = "codes", .title = "All codes", .detail = is_long}))};
}

/// What is told of a thing with a name: its kind, and words.
struct NamedThing {
  std::string name, kind, description, source;
};

/// All that can be explained but formats.
std::vector<NamedThing> named_things() {
  std::vector<NamedThing> all;
  for (const NamedRecipe& one : recipes()) {
    all.push_back({std::string(one.name), "recipe", fp8lab::describe(one.recipe), std::string(one.source)});
  }
  for (const NamedLinearRecipe& one : linear_recipes()) {
    all.push_back({std::string(one.name), "linear recipe", fp8lab::describe(one.recipe), std::string(one.source)});
  }
  for (const NamedGemmRecipe& one : gemm_recipes()) {
    all.push_back({std::string(one.name), "GEMM recipe", fp8lab::describe(one.recipe), std::string(one.source)});
  }
  for (const MmaModel& one : models) {
    all.push_back({std::string(one.name), "model of a tensor core", fp8lab::describe(one), std::string(one.source)});
  }
  for (const Profile& one : profiles) {
    all.push_back({std::string(one.name), "profile of casts", fp8lab::describe(one.policy), std::string(one.source)});
  }
  return all;
}

Document document_of_things(const std::string& name, const std::vector<NamedThing>& things) {
  return {.sections = sections_of(
              Text{"intro", "", {name}},
              tabulate(things, {.name = "things", .layout = TableLayout::records})
                  .column({"kind"}, [](const NamedThing& one) { return one.kind; })
                  .column({"description"}, [](const NamedThing& one) { return one.description; })
                  .column({"source", "Source"}, [](const NamedThing& one) { return one.source; })
                  .column({.name = "name", .detail = true}, [](const NamedThing& one) { return one.name; }))};
}

void describe(ExplainArguments& arguments, ArgumentList& list) {
  list.add("what", arguments.what, "a format, or a recipe, linear recipe, GEMM recipe, model or profile by its name")
      .called("NAME")
      .positional();
  list.add("code", arguments.code, "a code of the format, such as 42, 0x2A or 0b101010")
      .called("CODE")
      .by_default("all codes")
      .positional();
  list.add("format", arguments.format, "a format of one's own").excluding({"what"}).only_python();
}

Document run(const ExplainArguments& arguments, const Context& /*context*/) {
  const DefaultEnvironment environment;
  // 1. A format, or a code of one.
  const auto* const named = std::ranges::find(named_formats, arguments.what, &NamedFormat::name);
  if (arguments.format || named != named_formats.end()) {
    const ChosenFormat format =
        arguments.format ? *arguments.format : ChosenFormat{std::string(named->name), named->format};
    if (format.format.bits() > 16) refuse("a format that is explained must have at most 16 bits");
    if (!arguments.code) return document_of_format(format);
    return document_of_code(format, parse_code(format.format, *arguments.code));
  }
  // 2. Anything else that has a name; several kinds may share one.
  const std::vector<NamedThing> all = named_things();
  std::vector<NamedThing> found;
  std::ranges::copy_if(all, std::back_inserter(found),
                       [&](const NamedThing& one) { return one.name == arguments.what; });
  if (found.empty()) {
    std::vector<std::string_view> names;
    names.reserve(named_formats.size());
    for (const NamedFormat& one : named_formats) names.push_back(one.name);
    for (const NamedThing& one : all) {
      if (std::ranges::find(names, std::string_view(one.name)) == names.end()) names.emplace_back(one.name);
    }
    try {
      refuse_name("format, recipe, model or profile", arguments.what, names);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(std::string("what: ") + error.what());
    }
  }
  if (arguments.code) refuse("a ", found.front().kind, " has no codes: CODE goes with a format");
  return document_of_things(arguments.what, found);
}

}  // namespace

std::vector<Experiment> explain_experiments() {
  return {experiment<ExplainArguments>(
      {.name = "explain",
       .summary = "Explain a format, one code of it, a recipe or a model",
       .description =
           "Of a code: its bits, its value as a fraction, its neighbours, and which numbers round to it, with a "
           "picture of its binade. Of a format: all codes. Of anything else that has a name: what it is, and who says "
           "so.",
       .result =
           "tables `code`, `neighbours` and `rounds_to_it` of a code; `landmarks` and `codes` of a format; `things` of "
           "what else has that name",
       .examples = {{"explain e4m3 0x2A", "one code"},
                    {"explain e2m1", "all 16 codes"},
                    {"explain te_mxfp8", "a recipe"},
                    {"explain hopper_wgmma_fp8", "a tensor core"}},
       .small = R"({"what": "e4m3", "code": "0x2A"})",
       .python = false},
      describe, run)};
}

}  // namespace fp8lab::experiments
