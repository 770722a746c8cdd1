// SPDX-License-Identifier: Apache-2.0
// Registers the experiment `scaling`: one stream of tensors, quantized by every recipe.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "kit/experiment.hpp"
#include "kit/tensor_arguments.hpp"
#include "scaling/scaling.hpp"

namespace fp8lab::experiments {
namespace {

// 1. Recipes.

double share(std::uint64_t count, std::uint64_t all) { return static_cast<double>(count) / static_cast<double>(all); }

Table recipes_table(const ScalingResult& result) {
  const auto share_of = [](const char* name, const char* title) {
    return Head{.name = name, .title = title, .notation = Notation::percent, .digits = 4};
  };
  const auto detail = [](const char* name) { return Head{.name = name, .detail = true}; };
  using M = MeasuredScaling;
  return tabulate(result.measured, {.name = "recipes", .marked = true})
      .column({"recipe"}, &M::name)
      .column({.name = "sqnr_db", .title = "SQNR", .unit = "dB", .notation = Notation::fixed, .digits = 3},
              [](const M& one) {
                return one.totals.count > 0 ? one.totals.sqnr_db() : std::numeric_limits<double>::quiet_NaN();
              })
      .column({.name = "lowest_sqnr_db", .title = "lowest", .unit = "dB", .notation = Notation::fixed, .digits = 3},
              [](const M& one) { return one.steps[one.worst].sqnr_db; })
      .column({.name = "lowest_at_step", .title = "at step"}, &M::worst)
      .column(share_of("saturated_share", "saturated"), [](const M& one) { return share(one.saturated, one.elements); })
      .column(share_of("underflows_share", "underflows"),
              [](const M& one) { return share(one.underflows, one.elements); })
      .column(share_of("clipped_share", "clipped blocks"),
              [](const M& one) { return share(one.clipped_blocks, one.blocks); })
      .column(detail("format"), [](const M& one) { return format_name(one.format); })
      .column(detail("description"), &M::description)
      .column(detail("source"), &M::source)
      .column(detail("rms_error"), [](const M& one) { return one.totals.rms_error(); })
      .column(detail("mean_error"), [](const M& one) { return one.totals.mean_error(); })
      .column(detail("elements"), &M::elements)
      .column(detail("not_finite"), [](const M& one) { return one.totals.not_finite; })
      .column(detail("saturated"), &M::saturated)
      .column(detail("underflows"), &M::underflows)
      .column(detail("blocks"), &M::blocks)
      .column(detail("clipped_blocks"), &M::clipped_blocks);
}

// 2. Steps.

/// The steps worth a line: the first ones, the last, and those around the largest changes of the amax.
std::vector<std::size_t> telling_steps(const std::vector<double>& amaxes) {
  constexpr std::size_t changes = 4;
  std::vector<std::size_t> order(amaxes.size() - 1);
  std::iota(order.begin(), order.end(), std::size_t{1});
  const auto change = [&](std::size_t i) {
    const double ratio = std::abs(std::log2(amaxes[i] / amaxes[i - 1]));
    return std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
  };
  std::ranges::stable_sort(order, [&](std::size_t i, std::size_t j) { return change(i) > change(j); });
  order.resize(std::min(order.size(), changes));
  std::vector<std::size_t> steps{0, 1, 2, amaxes.size() - 1};
  for (const std::size_t i : order) {
    for (const std::size_t near : {i - 1, i, i + 1}) steps.push_back(near);
  }
  std::ranges::sort(steps);
  steps.erase(std::ranges::unique(steps).begin(), steps.end());
  std::erase_if(steps, [&](std::size_t step) { return step >= amaxes.size(); });
  return steps;
}

/// A column for each recipe, under its mark.
Table changes_table(const ScalingResult& result) {
  const std::vector<std::size_t> steps = telling_steps(result.amaxes);
  auto table =
      tabulate(steps, {.name = "changes", .title = "SQNR in dB by step, around the largest changes of the amax"});
  table.column({"step"}, [](std::size_t step) { return step; })
      .column({.name = "amax", .digits = 4}, [&](std::size_t step) { return result.amaxes[step]; });
  for (std::size_t i = 0; i < result.measured.size(); ++i) {
    const MeasuredScaling& one = result.measured[i];
    table.column({.name = histogram_name(i, one.name, "sqnr_db"),
                  .title = {mark_of(i)},
                  .notation = Notation::fixed,
                  .digits = 2},
                 [&](std::size_t step) { return one.steps[step].sqnr_db; });
  }
  return table;
}

Curves errors_by_step(const ScalingResult& result) {
  Curves section{.name = "errors_by_step",
                 .title = "rms error / rms of the tensor against step",
                 .x = {"step", false},
                 .y = {"relative_rms_error"},
                 .labelled = true};
  std::vector<double> steps(result.amaxes.size());
  std::iota(steps.begin(), steps.end(), 0);
  for (const MeasuredScaling& one : result.measured) {
    Curve& line = section.lines.emplace_back(Curve{.label = one.name, .x = steps});
    for (const ScalingStep& step : one.steps) line.y.push_back(step.rms);
  }
  return section;
}

/// A row for each step and recipe.
Table steps_table(const ScalingResult& result) {
  struct Row {
    std::size_t step;
    const MeasuredScaling& recipe;
  };
  std::vector<Row> rows;
  rows.reserve(result.amaxes.size() * result.measured.size());
  for (std::size_t step = 0; step < result.amaxes.size(); ++step) {
    for (const MeasuredScaling& one : result.measured) rows.push_back({step, one});
  }
  const auto of_step = [](auto ScalingStep::* member) {
    return [member](const Row& row) { return row.recipe.steps[row.step].*member; };
  };
  return tabulate(rows, {.name = "steps", .detail = true})
      .column({"step"}, &Row::step)
      .column({"recipe"}, [](const Row& row) { return row.recipe.name; })
      .column({"scale"}, of_step(&ScalingStep::scale))
      .column({.name = "sqnr_db", .unit = "dB"}, of_step(&ScalingStep::sqnr_db))
      .column({"relative_rms_error"}, of_step(&ScalingStep::rms))
      .column({"saturated"}, of_step(&ScalingStep::saturated))
      .column({"underflows"}, of_step(&ScalingStep::underflows));
}

Table tensors_and_amaxes(const ScalingResult& result) {
  Table table = tensors_table(result.tensors);
  table.columns.push_back({{"amax"}, result.amaxes});
  return table;
}

// 3. Histograms.

void add_histograms(const ScalingResult& result, std::vector<Section>& sections) {
  Histograms relative{.name = "relative_errors",
                      .title = "|relative error| by binade, elements (2^0: all of it is lost)",
                      .least = 0.001};
  Histograms ulps{.name = "ulp_errors",
                  .title = "Error of the scaled value in units in the last place of the format",
                  .detail = true};
  for (std::size_t i = 0; i < result.measured.size(); ++i) {
    for (const NamedHistogram& entry : result.measured[i].histograms()) {
      Histograms& section = entry.name == "relative_error" ? relative : ulps;
      section.histograms.push_back(counts_of(entry.histogram, histogram_name(i, result.measured[i].name, entry.name),
                                             entry.title, {mark_of(i)}));
    }
  }
  sections.emplace_back(std::move(relative));
  sections.emplace_back(std::move(ulps));
}

/// Tells the amax of tensors of files and arrays, whose energy it is, and what they are rounded to first.
void add_amaxes(const ScalingResult& result, Text& text) {
  const TensorSource& source = result.arguments.source;
  if (std::holds_alternative<Draws>(source) || std::holds_alternative<Grid>(source)) return;
  const std::vector<std::string> names = names_in_tables(result.tensors);
  if (result.amaxes.size() == 1) text.paragraphs.push_back(fmt::format("The amax: {:.6g}", result.amaxes.front()));
  constexpr std::size_t most_told = 5;
  std::size_t told = 0;
  for (std::size_t i = 0; i < result.tensors.size() && told < most_told; ++i) {
    const auto& concentration = result.concentrations[i];
    if (!concentration) continue;
    const std::string where = names[i].empty() ? "" : names[i] + ": ";
    text.paragraphs.push_back("Warning: " + where + concentration_words(*concentration, result.tensors[i].size()));
    ++told;
  }
  const auto is_float64 = [](const SourceTensor& one) { return one.type == ElementType::float64; };
  if (std::ranges::any_of(result.tensors, is_float64)) {
    text.paragraphs.emplace_back(
        "float64 is rounded to float32 first; fp8lab cast computes it in float64, by other roundings.");
  }
}

Text reading() {
  return {
      "reading",
      "How to read it",
      {"SQNR compares what comes back with what went in. Saturated: elements beyond the format's largest value once "
       "scaled and rounded. Underflows: nonzero elements that came back as zero. Clipped blocks: groups of elements "
       "with one scale whose largest element, scaled, is above the format's largest value.",
       "Delayed scaling casts with the scale of the steps before. After a jump upward it saturates until the new "
       "amax is in its window; after an outlier it underflows until the outlier has left the window."}};
}

// 4. The experiment.

/// The arguments as a user gives them.
struct ScalingOptions {
  ScalingArguments arguments;
  TensorArguments tensors{.draws = {.rows = 256, .columns = 256, .steps = 48, .kind = StreamKind::jump}};
  std::vector<ChosenDelayed> delayed;
  DelayedVersion version = te_current;
  int margin = 0;
  bool backward = false;

  ScalingOptions() {
    for (const char* text : {"max:1024", "max:8", "most_recent:1"}) delayed.push_back({text, choose_delayed(text)});
  }
};

void describe(ScalingOptions& options, ArgumentList& list) {
  ScalingArguments& arguments = options.arguments;
  TensorArguments& tensors = options.tensors;
  tensors.add_arrays(list, "bfloat16 as such, float16 as float32, float64 rounded to float32");
  list.add("recipes", arguments.recipes,
           "recipes without memory (fp8lab recipes lists them), or mx:FORMAT:RULE, or none")
      .or_none();
  list.add("delayed", options.delayed,
           "delayed scaling, each as ALGORITHM:LENGTH (max or most_recent, and the history's steps), or none")
      .or_none();
  list.add("version", options.version, "whose rules delayed scaling follows (fp8lab delayed-versions lists them)");
  list.add("margin", options.margin, "divide the scales of delayed scaling by 2^margin");
  list.add("backward", options.backward, "delayed scaling casts to E5M2, as gradients are");
  tensors.add_stream(list);
  tensors.add_draws(list);
  tensors.add_shape(list);
  tensors.add_grid(list);
  tensors.add_files(list);
  list.add("bfloat16", arguments.bfloat16, "round values to bfloat16 first");
  list.add("out_dtype", arguments.out_dtype,
           "the type of the dequantized values: float32, or source, that of the values");
  list.add_threads(arguments.threads);
}

Document run(const ScalingOptions& options, const Context& context) {
  ScalingArguments arguments = options.arguments;
  arguments.source = options.tensors.source();
  if (options.backward && options.delayed.empty()) refuse("backward goes with delayed scaling, and there is none");
  arguments.pass = options.backward ? Pass::backward : Pass::forward;
  arguments.delayed.clear();
  for (const ChosenDelayed& given : options.delayed) {
    Delayed& delayed = arguments.delayed.emplace_back(given.recipe);
    if (given.text.empty()) continue;
    delayed.version = options.version;
    delayed.margin = options.margin;
  }
  return document_of(run_scaling(arguments, context.progress));
}

}  // namespace

Document document_of(const ScalingResult& result) {
  const DefaultEnvironment environment;
  Document document;
  std::vector<Section>& sections = document.sections;
  const std::string rounded = result.arguments.bfloat16 ? ", rounded to bfloat16" : "";
  Text intro{"intro", "", {"Scaling: " + result.source + rounded}};
  add_amaxes(result, intro);
  sections.emplace_back(std::move(intro));
  sections.emplace_back(recipes_table(result));
  if (result.amaxes.size() > 1) {
    sections.emplace_back(changes_table(result));
    sections.emplace_back(errors_by_step(result));
  }
  add_histograms(result, sections);
  sections.emplace_back(steps_table(result));
  sections.emplace_back(tensors_and_amaxes(result));
  add_left_out(result.left_out, result.tensors.size(), sections);
  sections.emplace_back(reading());
  return document;
}

std::vector<Experiment> scaling_experiments() {
  return {experiment<ScalingOptions>(
      {.name = "scaling",
       .summary = "Quantize one stream of tensors by every recipe: just-in-time, delayed, MX, tiles, NVFP4",
       .description =
           "All recipes see the same tensors in the same order, rows along K. Delayed scaling casts with the scale of "
           "the steps before, the first one with 1, as Transformer Engine does. Version and margin are those of "
           "delayed scaling that is given as ALGORITHM:LENGTH; a Delayed of Python has its own. The stream drift "
           "multiplies step "
           "t by 2^(t / 8), outliers one element of 4096 by 256 in every eighth step, jump the middle third of the "
           "steps by 32.",
       .result = "tables `recipes` (SQNR over all steps and at the worst one, shares and counts of elements and "
                 "blocks), `changes` (SQNR around the largest changes of the amax), `steps` (a row for each step and "
                 "recipe: the scale, NaN where a tensor has more than one, and what it costs) and `tensors` (a row for "
                 "each step, with its amax), curves `errors_by_step`, and two histograms for each recipe, such as "
                 "01_te_current_scaling_relative_error and 01_te_current_scaling_ulp_error; `changes` and "
                 "`errors_by_step` where there are two tensors or more",
       .examples = {{"scaling", "a jump up and down again: how long delayed scaling lags"},
                    {"scaling --stream outliers --delayed max:16,max:1024,most_recent:1", ""},
                    {"scaling --recipes te_mxfp8,ocp_mxfp8_e4m3,mx:e4m3:even --delayed none --grid", ""},
                    {"scaling --file step1.npy step2.npy step3.npy --out DIR", ""}},
       .small = R"({"steps": 6, "rows": 32, "columns": 128, "recipes": ["te_mxfp8", "te_nvfp4"],
"delayed": ["max:4", "most_recent:1"]})"},
      describe, run)};
}

}  // namespace fp8lab::experiments
