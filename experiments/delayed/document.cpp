// SPDX-License-Identifier: Apache-2.0
// Registers the experiment `delayed`: the scales that versions of delayed scaling give to a trace of amaxes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "delayed/delayed.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "kit/experiment.hpp"

namespace fp8lab::experiments {

/// A trace as it is given: a file that is still to be read, or the amaxes.
struct GivenTrace {
  std::variant<std::filesystem::path, AmaxTrace> from;
};
template <>
struct ArgumentType<GivenTrace> {
  static constexpr Kind kind = Kind::trace;
  static GivenTrace from(const Entry& entry) {
    if (const auto* trace = std::get_if<AmaxTrace>(&entry)) return {*trace};
    return {ArgumentType<std::filesystem::path>::from(entry)};
  }
  static Json json(const GivenTrace& value) {
    if (const auto* trace = std::get_if<AmaxTrace>(&value.from)) return trace->source;
    return ArgumentType<std::filesystem::path>::json(std::get<std::filesystem::path>(value.from));
  }
};

namespace {

// 1. The variants of a tensor that never part: one line of tables and pictures.

/// At least one variant of a tensor.
using Group = std::vector<std::size_t>;

/// Whether no cast of the trace tells them apart.
bool are_equal(const ReplayedScales& a, const ReplayedScales& b) {
  return std::equal(a.scales.begin(), a.scales.end() - 1, b.scales.begin(),
                    [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

std::vector<Group> groups_of(const DelayedResult& result, const ReplayedTensor& tensor) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < tensor.variants.size(); ++i) {
    const auto same = std::ranges::find_if(groups, [&](const Group& group) {
      return result.variants[group.front()].pass == result.variants[i].pass &&
             are_equal(tensor.variants[group.front()], tensor.variants[i]);
    });
    if (same != groups.end()) {
      same->push_back(i);
    } else {
      groups.push_back({i});
    }
  }
  return groups;
}

std::string names_of(const DelayedResult& result, const Group& group) {
  std::vector<std::string> names;
  for (const std::size_t i : group) names.push_back(result.variants[i].name());
  return fmt::format("{}", fmt::join(names, ", "));
}

// 2. What the tables of groups and of variants tell of scales.

/// A column of partings, empty where the scales never part.
template <typename Rows, typename ScalesOf, typename Value>
void parting_column(Tabulated<Rows>& table, const Head& head, const ScalesOf& scales_of, const Value& value_of) {
  using Result = std::invoke_result_t<Value, const Parting&>;
  table.column(head, [&](const auto& row) {
    const std::optional<Parting>& parting = scales_of(row).parting;
    return parting ? std::optional<Result>(value_of(*parting)) : std::nullopt;
  });
}

/// The columns that rows of both kinds have; scales_of(row) are the scales that a row is about.
template <typename Rows, typename ScalesOf>
void add_measures(const DelayedResult& result, Tabulated<Rows>& table, const ScalesOf& scales_of) {
  const auto step = [&](std::size_t i) { return result.arguments.trace.steps[i]; };
  parting_column(table, {.name = "parts_at_step", .title = "parts at step"}, scales_of,
                 [&](const Parting& parting) { return step(parting.first); });
  parting_column(table, {.name = "factor", .title = "by", .digits = 4}, scales_of,
                 [](const Parting& parting) { return parting.factor; });
  parting_column(table, {.name = "widest_factor", .title = "at most by", .digits = 4}, scales_of,
                 [](const Parting& parting) { return parting.widest_factor; });
  parting_column(table, {.name = "widest_step", .title = "at step"}, scales_of,
                 [&](const Parting& parting) { return step(parting.widest); });
  table
      .column({"steps_apart", "steps apart"},
              [&](const auto& row) {
                const std::optional<Parting>& parting = scales_of(row).parting;
                return parting ? parting->count : 0;
              })
      .column({"clipped_steps", "clipped steps"}, [&](const auto& row) { return scales_of(row).clipped; })
      .column({.name = "unused_binades", .title = "unused binades", .notation = Notation::fixed, .digits = 2},
              [&](const auto& row) { return scales_of(row).unused_binades; });
}

// 3. One tensor.

Table groups_table(const DelayedResult& result, const ReplayedTensor& tensor, const std::vector<Group>& groups,
                   const std::string& name) {
  auto table = tabulate(
      groups,
      {.name = name + "_variants", .title = tensor.name + ", variants with the same scales together", .marked = true});
  table.column({"variants"}, [&](const Group& group) { return names_of(result, group); });
  add_measures(result, table,
               [&](const Group& group) -> const ReplayedScales& { return tensor.variants[group.front()]; });
  return table;
}

/// The steps worth a line: the first ones, and those around a parting or a widest one.
std::vector<std::size_t> steps_to_show(const ReplayedTensor& tensor, const std::vector<Group>& groups) {
  constexpr std::size_t most = 20;
  std::vector<std::size_t> steps{0, 1, 2};
  for (const Group& group : groups) {
    const auto& parting = tensor.variants[group.front()].parting;
    if (!parting) continue;
    for (const std::size_t step : {parting->first, parting->widest}) {
      if (step > 0) steps.push_back(step - 1);
      steps.push_back(step);
      steps.push_back(step + 1);
    }
  }
  std::ranges::sort(steps);
  steps.erase(std::ranges::unique(steps).begin(), steps.end());
  std::erase_if(steps, [&](std::size_t step) { return step >= tensor.amaxes.size(); });
  steps.resize(std::min(steps.size(), most));
  return steps;
}

/// Scales side by side.
Table steps_table(const DelayedResult& result, const ReplayedTensor& tensor, const std::vector<Group>& groups,
                  const std::string& name) {
  const std::vector<std::size_t> steps = steps_to_show(tensor, groups);
  auto table = tabulate(steps, {.name = name + "_steps",
                                .title = tensor.name + ", the first steps, and those where scales begin to differ"});
  table.column({"step"}, [&](std::size_t step) { return result.arguments.trace.steps[step]; })
      .column({"amax"}, [&](std::size_t step) { return tensor.amaxes[step]; });
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::vector<float>& scales = tensor.variants[groups[i].front()].scales;
    table.column({fmt::format("scale_{}", i + 1), fmt::format("scale {}", mark_of(i))},
                 [&](std::size_t step) { return scales[step]; });
  }
  return table;
}

/// Where a line bends: its ends, and the points with a neighbour of another scale.
Curve bends_of(const std::string& label, const std::vector<std::uint64_t>& steps, const std::vector<float>& scales) {
  Curve line{label};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const bool is_inside = i > 0 && i + 1 < steps.size();
    if (is_inside && scales[i] == scales[i - 1] && scales[i] == scales[i + 1]) continue;
    line.x.push_back(static_cast<double>(steps[i]));
    line.y.push_back(static_cast<double>(scales[i]));
  }
  return line;
}

/// Removes the points that fail the test; whether there are such.
template <typename Test>
bool keep_points(std::vector<Curve>& lines, const Test& test) {
  bool leaves_out = false;
  for (Curve& line : lines) {
    Curve kept{line.label};
    for (std::size_t i = 0; i < line.y.size(); ++i) {
      if (!test(line.y[i])) continue;
      kept.x.push_back(line.x[i]);
      kept.y.push_back(line.y[i]);
    }
    leaves_out = leaves_out || kept.y.size() < line.y.size();
    line = std::move(kept);
  }
  return leaves_out;
}

/// Scales further from the median of all than 8 decades would leave no room for the others.
Curves scale_curves(const DelayedResult& result, const ReplayedTensor& tensor, const std::vector<Group>& groups,
                    const std::string& name) {
  constexpr double furthest = 1e8;
  Curves section{.name = name + "_scales", .x = {"step", false}, .y = {"scale"}, .labelled = true};
  std::vector<double> all;
  for (const Group& group : groups) {
    const Curve& line = section.lines.emplace_back(
        bends_of(names_of(result, group), result.arguments.trace.steps, tensor.variants[group.front()].scales));
    std::ranges::copy_if(line.y, std::back_inserter(all), [](double y) { return std::isfinite(y) && y > 0; });
  }
  double middle = 1;
  if (!all.empty()) {
    const auto place = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::ranges::nth_element(all, place);
    middle = *place;
  }
  const bool leaves_out =
      keep_points(section.lines, [&](double y) { return y < middle * furthest && y > middle / furthest; });
  section.title = std::string("Scale against step, marked where it changes") +
                  (leaves_out ? "; without 0, inf, NaN, 8 decades away" : "");
  return section;
}

// 4. Everything.

Table variants_table(const DelayedResult& result) {
  return tabulate(result.variants, {.name = "variants", .detail = true})
      .column({"name"}, [](const DelayedVariant& variant) { return variant.name(); })
      .column({"version"}, [](const DelayedVariant& variant) { return variant.recipe.version.name; })
      .column({"format"}, [](const DelayedVariant& variant) { return variant.pass == Pass::forward ? "e4m3" : "e5m2"; })
      .column({"amax_history_len"}, [](const DelayedVariant& variant) { return variant.recipe.amax_history_len; })
      .column({"amax_compute_algo"},
              [](const DelayedVariant& variant) {
                return name_of(std::get<AmaxComputeAlgo>(variant.recipe.amax_compute_algo));
              })
      .column({"margin"}, [](const DelayedVariant& variant) { return variant.recipe.margin; });
}

/// A row for each tensor and variant.
Table summary_table(const DelayedResult& result) {
  struct Row {
    const ReplayedTensor& tensor;
    std::size_t variant;
  };
  std::vector<Row> rows;
  for (const ReplayedTensor& tensor : result.tensors) {
    for (std::size_t i = 0; i < tensor.variants.size(); ++i) rows.push_back({tensor, i});
  }
  const auto scales_of = [](const Row& row) -> const ReplayedScales& { return row.tensor.variants[row.variant]; };
  auto table = tabulate(rows, {.name = "summary", .detail = true});
  table.column({"tensor"}, [](const Row& row) { return row.tensor.name; }).column({"variant"}, [&](const Row& row) {
    return result.variants[row.variant].name();
  });
  add_measures(result, table, scales_of);
  parting_column(table, {"parts_at_index"}, scales_of, [](const Parting& parting) { return parting.first; });
  parting_column(table, {"widest_index"}, scales_of, [](const Parting& parting) { return parting.widest; });
  table.column({"next_scale"}, [&](const Row& row) { return scales_of(row).scales.back(); });
  return table;
}

/// A row for each tensor and step, a column for each variant.
Table scales_table(const DelayedResult& result) {
  struct Row {
    const ReplayedTensor& tensor;
    std::size_t step;
  };
  std::vector<Row> rows;
  for (const ReplayedTensor& tensor : result.tensors) {
    for (std::size_t step = 0; step < tensor.amaxes.size(); ++step) rows.push_back({tensor, step});
  }
  auto table = tabulate(rows, {.name = "scales", .detail = true});
  table.column({"tensor"}, [](const Row& row) { return row.tensor.name; })
      .column({"step"}, [&](const Row& row) { return result.arguments.trace.steps[row.step]; })
      .column({"amax"}, [](const Row& row) { return row.tensor.amaxes[row.step]; });
  for (std::size_t i = 0; i < result.variants.size(); ++i) {
    checkpoint();
    std::string name = result.variants[i].name();
    std::ranges::replace(name, ' ', '_');
    table.column({name}, [&](const Row& row) { return row.tensor.variants[i].scales[row.step]; });
  }
  return table;
}

// 5. The experiment.

struct DelayedOptions {
  DelayedArguments arguments;
  std::optional<GivenTrace> trace;
};

void describe(DelayedOptions& options, ArgumentList& list) {
  DelayedArguments& arguments = options.arguments;
  list.add("trace", options.trace,
           "the amaxes: a CSV file with the header step,tensor,... and one line per step. With several ranks, columns "
           "are "
           "called tensor@rank. Python also takes a mapping from names of tensors to float32 arrays, one amax per step")
      .spelled("--amax", "the trace: a CSV file of amaxes, as described below")
      .called("CSV")
      .by_default("a built-in one")
      .positional();
  list.add("formats", arguments.formats, "formats that are scaled for: e4m3, e5m2");
  list.add("versions", arguments.versions, "versions whose rules are replayed (fp8lab delayed-versions lists them)");
  list.add("algorithms", arguments.algorithms,
           "which amax of the history makes the scale: max, most_recent; ms_amp and torchao have only max");
  list.add("history", arguments.histories, "lengths of the amax history in steps");
  list.add("margin", arguments.margin, "divide scales by 2^margin, in versions that have a margin");
  list.add("reduce_amax", arguments.reduce_amax,
           "all ranks use their largest amax; otherwise each rank has its own scales")
      .switched_off_by("--no-reduce", "give each rank its own scales (reduce_amax off)");
}

Document run(const DelayedOptions& options, const Context& context) {
  DelayedArguments arguments = options.arguments;
  if (options.trace) {
    const auto* file = std::get_if<std::filesystem::path>(&options.trace->from);
    arguments.trace = file != nullptr ? read_amax_trace(*file) : std::get<AmaxTrace>(options.trace->from);
  }
  return document_of(run_delayed(arguments, context.progress));
}

}  // namespace

Document document_of(const DelayedResult& result) {
  const DefaultEnvironment environment;
  constexpr std::size_t most_told = 8;  // tensors
  Document document;
  std::vector<Section>& sections = document.sections;
  sections.emplace_back(
      Text{"intro",
           "",
           {fmt::format("Delayed scaling, replayed from the amaxes of {}: {} steps, {} tensors, {} variants",
                        result.arguments.trace.source, result.arguments.trace.steps.size(), result.tensors.size(),
                        result.variants.size())}});
  for (std::size_t i = 0; i < std::min(most_told, result.tensors.size()); ++i) {
    const ReplayedTensor& tensor = result.tensors[i];
    const std::vector<Group> groups = groups_of(result, tensor);
    const std::string name = fmt::format("tensor{}", i + 1);
    sections.emplace_back(groups_table(result, tensor, groups, name));
    sections.emplace_back(steps_table(result, tensor, groups, name));
    sections.emplace_back(scale_curves(result, tensor, groups, name));
  }
  if (result.tensors.size() > most_told) {
    sections.emplace_back(
        Text{"more", "", {fmt::format("These are the first {} tensors; summary and scales have all.", most_told)}});
  }
  sections.emplace_back(Text{
      "reading",
      "How to read it",
      {"A scale is that of the step's cast, made of earlier steps' amaxes; \"max 16\" is the largest of 16.",
       "Parts at step: the first step whose scale differs from that of variant a, or of the first variant of the same "
       "format; by: this scale over that one, there; at most by: the largest such factor, either way.",
       "Clipped: amax * scale rounds to more than the format's largest value. Unused: how far below it the "
       "largest value lies, in powers of two, on average over the steps."}});
  for (Table& table : std::array{variants_table(result), summary_table(result), scales_table(result)}) {
    sections.emplace_back(std::move(table));
  }
  return document;
}

std::vector<Experiment> delayed_experiments() {
  return {experiment<DelayedOptions>(
      {.name = "delayed",
       .summary = "Replay the scales of delayed scaling from a run's amaxes, every version side by side",
       .description =
           "The scales of a run depend on its amaxes alone. A log of them is therefore enough to see what another "
           "version, history length or algorithm would have done. One cast per tensor and step is replayed for every "
           "combination of format, version, algorithm and history length. most_recent does not depend on the length "
           "and is replayed once per version. ms_amp and torchao always take the maximum, and have no margin. The "
           "trace is a CSV file with the header step,layer1,layer2 or, with several ranks, step,layer1@0,layer1@1, "
           "and one line per step, such as 1,3.5,0.25.",
       .result = "tables `variants`, `summary` (a row for each tensor and variant: where its scales part from the "
                 "format's first variant, what is clipped, the scale after the last step) and `scales` (a row for each "
                 "tensor and step, a column for each variant), and for each of the first 8 tensors the tables "
                 "`tensor1_variants` and `tensor1_steps` and the curves `tensor1_scales`",
       .examples = {{"delayed", "a built-in trace: a drift, an outlier, a jump, zeros"},
                    {"delayed --amax trace.csv --history 1,16,1024", "how long a history"},
                    {"delayed --amax trace.csv --versions te_0_1,te_1_6,te_current --algorithms most_recent", ""},
                    {"delayed --amax trace.csv --formats e5m2 --margin 1 --out DIR", ""}},
       .small = R"({"history": [4]})"},
      describe, run)};
}

}  // namespace fp8lab::experiments
