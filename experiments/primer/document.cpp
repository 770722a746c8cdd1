// SPDX-License-Identifier: Apache-2.0
// Registers the experiment `primer`: the tables of Transformer Engine's FP8 primer, and their causes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "fp8lab/formats/environment.hpp"
#include "kit/experiment.hpp"
#include "primer/primer.hpp"

namespace fp8lab::experiments {
namespace {

/// The corner that PyTorch prints, beside the published one.
Table corner_table(const PrimerTable& table, const PrimerArguments& arguments) {
  const auto index = [](std::size_t i, long long size) {
    return i < 3 ? static_cast<long long>(i) : size - 6 + static_cast<long long>(i);
  };
  const std::array<std::size_t, 6> places{0, 1, 2, 3, 4, 5};
  auto corner = tabulate(
      places,
      {.name = table.name, .title = fmt::format("{} - {}: {} of 36 match", table.name, table.title, table.matches)});
  corner.column({"row"}, [&](std::size_t i) { return index(i, arguments.rows); });
  for (const std::size_t j : places) {
    const std::string number = std::to_string(index(j, arguments.out_features));
    Texts expected;
    for (const std::size_t i : places) expected.emplace_back(table.published[i][j]);
    corner.column({.name = "column_" + number, .title = number, .right = true},
                  [&](std::size_t i) { return table.ours[i][j]; });
    if (table.matches > 0) corner.expected(std::move(expected));  // otherwise these are other tensors
  }
  return corner;
}

Table matches_table(const PrimerResult& result) {
  return tabulate(result.tables, {.name = "matches", .detail = true})
      .column({"table"}, [](const PrimerTable& table) { return table.name; })
      .column({"matches"}, [](const PrimerTable& table) { return table.matches; })
      .column({"required"}, [](const PrimerTable& table) { return table.required; });
}

Table causes_table(const PrimerResult& result) {
  const auto scientific = [](const char* name, const char* title) {
    return Head{.name = name, .title = title, .notation = Notation::scientific, .digits = 3};
  };
  Head mean_absolute = scientific("mean_absolute_error", "");
  mean_absolute.detail = true;
  return tabulate(result.causes, {.name = "causes",
                                  .title = fmt::format("Where out_fp8 - out_fp32 comes from, over all {} outputs",
                                                       result.causes.front().totals.count)})
      .column({"cause"}, [](const PrimerCause& cause) { return cause.name; })
      .column(scientific("rms_error", "rms error"), [](const PrimerCause& cause) { return cause.totals.rms_error(); })
      .column(scientific("max_absolute_error", "largest"),
              [](const PrimerCause& cause) { return cause.totals.max_absolute_error; })
      .column(scientific("mean_error", "mean"), [](const PrimerCause& cause) { return cause.totals.mean_error(); })
      .column(mean_absolute, [](const PrimerCause& cause) { return cause.totals.mean_absolute_error(); })
      .column({.name = "share", .notation = Notation::percent, .digits = 4},
              [](const PrimerCause& cause) { return cause.share; })
      .column({"meaning", "what it is"}, [](const PrimerCause& cause) { return cause.meaning; });
}

/// The errors by cause, which are drawn, and all other histograms.
std::array<Histograms, 2> histograms_of(const PrimerResult& result) {
  std::array<Histograms, 2> sections{
      Histograms{.name = "errors", .title = "|error| by cause; one line a binade, each column with its own scale"},
      Histograms{.name = "histograms", .detail = true}};
  const std::size_t drawn = result.causes.size() - 1;  // without their sum
  for (std::size_t i = 0; i < result.histograms.size(); ++i) {
    const NamedHistogram& one = result.histograms[i];
    sections[i < drawn ? 0 : 1].histograms.push_back(
        counts_of(one.histogram, one.name, one.title, i < drawn ? result.causes[i].name : ""));
  }
  return sections;
}

/// The share of a tensor's elements that E4M3 makes zero or subnormal, and that it saturates.
std::string codes_sentence(const PrimerResult& result, const char* histogram, const char* tensor, float scale) {
  const Histogram& codes = std::ranges::find(result.histograms, histogram, &NamedHistogram::name)->histogram;
  std::uint64_t tiny = codes.underflows + codes.zeros;
  for (std::size_t code = 1; code < 8; ++code) tiny += codes.counts()[code] + codes.counts()[code + 128];
  const auto percent = [&](std::uint64_t count) {
    return 100 * static_cast<double>(count) / static_cast<double>(codes.total());
  };
  return fmt::format("{} at scale {:g}: {:.1f} % zero or subnormal in E4M3, {:.1f} % saturated.", tensor, scale,
                     percent(tiny), percent(codes.saturations));
}

Text reading(const PrimerResult& result) {
  const auto share = [&](std::string_view name) {
    return 100 * std::ranges::find(result.causes, name, &PrimerCause::name)->share;
  };
  Text text{.name = "reading", .title = "How to read it"};
  text.paragraphs = {
      fmt::format("Of the difference between FP8 and FP32, {:.3f} % comes from the casts, {:.3f} % from the tensor "
                  "core's sums.",
                  share("cast_of_x") + share("cast_of_w"), share("accumulator")),
      codes_sentence(result, "codes_x", "x", result.arguments.scale_x),
      codes_sentence(result, "codes_w", "w", result.arguments.scale_w),
      fmt::format("out_fp8 - out_fp8_representable has equal inputs on both sides: what is left is the accumulator of "
                  "{}.",
                  result.arguments.mma.name)};
  if (result.judged) {
    text.paragraphs.emplace_back(
        "out_fp32's missing digit: the device draws the weight with an approximate sine and cosine, and two weights of "
        "that output lie so close to a tie of TF32's rounding that this decides the last printed digit.");
  }
  return text;
}

Text verdict(const PrimerResult& result) {
  std::string counts;
  for (const PrimerTable& table : result.tables) {
    counts += fmt::format("{}{} {}/36", counts.empty() ? "" : ", ", table.name, table.matches);
  }
  const char* judgement = result.passed ? ": reproduced" : ": NOT reproduced";
  if (!result.judged) judgement = " (not judged: the published tables belong to the default arguments)";
  return {"verdict", "", {"Matches: " + counts + judgement}};
}

void describe(PrimerArguments& arguments, ArgumentList& list) {
  list.add("seed", arguments.seed, "the seed of torch.manual_seed");
  list.add("sms", arguments.sms,
           "streaming multiprocessors (SMs) of the GPU that drew the weight (H100 PCIe: 114, SXM: 132)");
  list.add_named("mma", arguments.mma, "the tensor core of the FP8 product: " + primer_model_names(), find_primer_model,
                 [](const MmaModel& model) { return model.name; })
      .called("MODEL");
  list.add("in_features", arguments.in_features, "K, a multiple of 16 from 16 to 65536");
  list.add("out_features", arguments.out_features, "N, a multiple of 16 from 16 to 65536");
  list.add("rows", arguments.rows, "M, a multiple of 16 from 16 to 65536");
  list.add("scale_x", arguments.scale_x, "x is multiplied by this before the cast, and the result is divided by it");
  list.add("scale_w", arguments.scale_w, "w is multiplied by this before the cast, and the result is divided by it");
  list.add_threads(arguments.threads);
}

Document run(const PrimerArguments& arguments, const Context& context) {
  return document_of(run_primer(arguments, context.progress));
}

}  // namespace

Document document_of(const PrimerResult& result) {
  const DefaultEnvironment environment;
  const PrimerArguments& arguments = result.arguments;
  Document document;
  if (result.judged) document.passed = result.passed;
  document.sections.emplace_back(Text{
      "intro",
      "",
      {fmt::format("Transformer Engine's FP8 primer: {} x {} inputs, {} outputs, seed {}, {} SMs, {}", arguments.rows,
                   arguments.in_features, arguments.out_features, arguments.seed, arguments.sms, arguments.mma.name),
       "The corners below are computed here, as PyTorch prints them. Where a row differs from what NVIDIA's "
       "documentation prints (H100), the other row follows as expected. Source: Transformer Engine documentation, "
       "Using FP8 with Transformer Engine (fp8_primer.ipynb)."}});
  for (const PrimerTable& table : result.tables) document.sections.emplace_back(corner_table(table, arguments));
  document.sections.emplace_back(matches_table(result));
  document.sections.emplace_back(causes_table(result));
  for (Histograms& section : histograms_of(result)) document.sections.emplace_back(std::move(section));
  document.sections.emplace_back(reading(result));
  document.sections.emplace_back(verdict(result));
  return document;
}

std::vector<Experiment> primer_experiments() {
  return {experiment<PrimerArguments>(
      {.name = "primer",
       .summary = "Reproduce the H100 tables of Transformer Engine's FP8 primer, and explain them",
       .description =
           "A Linear layer in FP8, in TF32, and in TF32 with inputs that E4M3 can represent: the corners of the "
           "outputs that "
           "NVIDIA's documentation prints are computed here from PyTorch's random streams, the E4M3 cast and a "
           "bit-exact model of "
           "the tensor core. Then it is shown what each step contributes to the difference between FP8 and FP32. With "
           "arguments other than the default ones, the counts of matches are shown but not judged.",
       .result =
           "tables `out_fp8`, `out_fp32`, `out_fp8_representable` and `difference` (texts, as PyTorch prints them), "
           "`matches` and `causes`, and histograms of the errors and of the codes; `passed` is None unless the "
           "arguments are the published ones",
       .not_passed = "the default arguments did not reproduce the tables",
       .examples = {{"primer --out results/primer", "tables, causes, histograms; also as JSON and CSV"},
                    {"primer --mma exact", "the same without the tensor core's error"},
                    {"primer --scale-w 16", "a scale that lifts the weight out of E4M3's subnormals"}},
       .small = R"({"in_features": 32, "out_features": 48, "rows": 32})"},
      describe, run)};
}

}  // namespace fp8lab::experiments
