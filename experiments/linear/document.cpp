// SPDX-License-Identifier: Apache-2.0
// Registers the experiment `linear`: the causes of the error of a Linear layer in FP8.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/named.hpp"
#include "kit/experiment.hpp"
#include "kit/tensor_arguments.hpp"
#include "linear/linear.hpp"

namespace fp8lab::experiments {
namespace {

std::string_view formula_of(LinearPass pass) {
  switch (pass) {
    case LinearPass::fprop: break;
    case LinearPass::dgrad: return "dx = dy w";
    case LinearPass::wgrad: return "dw = dy^T x";
  }
  return "y = x w^T + bias";
}

// 1. Recipes.

Table recipes_table(const LinearResult& result) {
  using M = MeasuredLinear;
  auto table = tabulate(result.measured,
                        {.name = "recipes",
                         .title = "rms of the difference from the real product, over the product's own rms, all steps",
                         .marked = true});
  table.column({"recipe"}, &M::name);
  for (std::size_t i = 0; i < result.passes.size(); ++i) {
    const std::string pass(name_of(result.passes[i]));
    const auto totals = [i](const M& one) -> const SplitTotals& { return one.passes[i].totals; };
    table.column({.name = pass + "_relative_rms", .title = pass, .notation = Notation::percent, .digits = 5},
                 [=](const M& one) { return totals(one).relative_rms(totals(one).total); });
    const bool all_finite =
        std::ranges::all_of(result.measured, [&](const M& one) { return totals(one).not_finite == 0; });
    table.column({.name = pass + "_not_finite", .title = pass + " not finite", .detail = all_finite},
                 [=](const M& one) { return totals(one).not_finite; });
  }
  return table.column({.name = "description", .detail = true}, &M::description)
      .column({.name = "source", .detail = true}, &M::source);
}

// 2. Where the difference comes from.

/// A cause, or the total, of a recipe's pass.
struct CauseRow {
  const MeasuredLinear* recipe;
  const MeasuredPass* pass;
  const SplitTotals* totals;
  std::size_t step;
  std::size_t cause;  ///< of causes_of(); after the last one, the total
  std::string name;
  std::string meaning;

  [[nodiscard]] const PartTotals& part() const {
    return cause < totals->parts.size() ? totals->parts[cause] : totals->total;
  }
};

std::vector<Cause> causes_and_total(LinearPass pass) {
  std::vector<Cause> causes = causes_of(pass);
  causes.push_back({"total", "the output less the real product"});
  return causes;
}

/// The rows of a recipe's pass in these totals.
void add_cause_rows(const MeasuredLinear& recipe, const MeasuredPass& pass, const SplitTotals& totals, std::size_t step,
                    std::vector<CauseRow>& rows) {
  const std::vector<Cause> causes = causes_and_total(pass.pass);
  for (std::size_t i = 0; i < causes.size(); ++i) {
    rows.push_back({&recipe, &pass, &totals, step, i, causes[i].name, causes[i].meaning});
  }
}

/// The places of those causes of a pass that have a part in a recipe, and of the total.
std::vector<std::size_t> telling_causes(const LinearResult& result, std::size_t pass) {
  const std::size_t count = causes_and_total(result.passes[pass]).size();
  std::vector<std::size_t> telling;
  for (std::size_t cause = 0; cause + 1 < count; ++cause) {
    const bool tells = std::ranges::any_of(
        result.measured, [&](const MeasuredLinear& one) { return one.passes[pass].totals.parts[cause].largest > 0; });
    if (tells) telling.push_back(cause);
  }
  telling.push_back(count - 1);
  return telling;
}

Head scientific(const char* name, const char* title) {
  return {.name = name, .title = title, .notation = Notation::scientific, .digits = 3};
}

/// The columns of rms, largest, mean and share.
template <typename Rows>
void add_part_columns(Tabulated<Rows>& table) {
  table.column(scientific("rms_error", "rms error"), [](const CauseRow& row) { return row.totals->rms(row.part()); })
      .column({.name = "relative_rms_error", .title = "of the product's", .notation = Notation::percent, .digits = 5},
              [](const CauseRow& row) { return row.totals->relative_rms(row.part()); })
      .column(scientific("max_absolute_error", "largest"), [](const CauseRow& row) { return row.part().largest; })
      .column(scientific("mean_error", "mean"), [](const CauseRow& row) { return row.totals->mean(row.part()); })
      .column({.name = "share", .notation = Notation::percent, .digits = 3},
              [](const CauseRow& row) { return row.totals->share(row.part()); })
      .column({.name = "growth", .notation = Notation::percent, .digits = 3},
              [](const CauseRow& row) { return row.totals->growth(row.part()); });
}

std::string pass_title(const LinearResult& result, std::size_t pass) {
  return fmt::format("{}, {}: where the difference comes from", name_of(result.passes[pass]),
                     formula_of(result.passes[pass]));
}

/// All numbers of the only recipe.
Table only_recipe_table(const LinearResult& result, std::size_t pass) {
  std::vector<CauseRow> rows;
  const MeasuredLinear& recipe = result.measured.front();
  std::vector<CauseRow> all;
  add_cause_rows(recipe, recipe.passes[pass], recipe.passes[pass].totals, 0, all);
  for (const std::size_t cause : telling_causes(result, pass)) rows.push_back(all[cause]);
  auto table = tabulate(rows, {.name = std::string(name_of(result.passes[pass])), .title = pass_title(result, pass)});
  table.column({"cause"}, &CauseRow::name);
  add_part_columns(table);
  return table.column({"meaning", "what it is"}, &CauseRow::meaning);
}

/// The growths, in a column for each recipe.
Table growths_table(const LinearResult& result, std::size_t pass) {
  const std::vector<Cause> causes = causes_and_total(result.passes[pass]);
  const std::vector<std::size_t> rows = telling_causes(result, pass);
  auto table = tabulate(rows, {.name = std::string(name_of(result.passes[pass])),
                               .title = pass_title(result, pass) + "; what each cause adds to the mean square"});
  table.column({"cause"}, [&](std::size_t cause) { return causes[cause].name; });
  for (std::size_t i = 0; i < result.measured.size(); ++i) {
    const SplitTotals& totals = result.measured[i].passes[pass].totals;
    table.column({.name = histogram_name(i, result.measured[i].name, "growth"),
                  .title = {mark_of(i)},
                  .notation = Notation::percent,
                  .digits = 2},
                 [&](std::size_t cause) {
                   if (cause == totals.parts.size()) return totals.growth(totals.total);
                   const PartTotals& part = totals.parts[cause];
                   return part.largest > 0 ? totals.growth(part) : std::numeric_limits<double>::quiet_NaN();
                 });
  }
  return table.column({.name = "meaning", .detail = true}, [&](std::size_t cause) { return causes[cause].meaning; });
}

/// Every recipe, pass and cause.
Table causes_table(const LinearResult& result) {
  std::vector<CauseRow> rows;
  for (const MeasuredLinear& recipe : result.measured) {
    for (const MeasuredPass& pass : recipe.passes) add_cause_rows(recipe, pass, pass.totals, 0, rows);
  }
  auto table = tabulate(rows, {.name = "causes", .detail = true});
  table.column({"recipe"}, [](const CauseRow& row) { return row.recipe->name; })
      .column({"pass"}, [](const CauseRow& row) { return name_of(row.pass->pass); })
      .column({"cause"}, &CauseRow::name);
  add_part_columns(table);
  return table;
}

// 3. Steps.

/// Every step, recipe, pass and cause.
Table steps_table(const LinearResult& result) {
  std::vector<CauseRow> rows;
  for (std::size_t step = 0; step < result.measured.front().passes.front().steps.size(); ++step) {
    for (const MeasuredLinear& recipe : result.measured) {
      for (const MeasuredPass& pass : recipe.passes) add_cause_rows(recipe, pass, pass.steps[step].totals, step, rows);
    }
  }
  auto table = tabulate(rows, {.name = "steps", .detail = true});
  table.column({"step"}, &CauseRow::step)
      .column({"recipe"}, [](const CauseRow& row) { return row.recipe->name; })
      .column({"pass"}, [](const CauseRow& row) { return name_of(row.pass->pass); })
      .column({"cause"}, &CauseRow::name);
  add_part_columns(table);
  return table;
}

/// The table of what every cast did to its tensor.
Table casts_table(const LinearResult& result) {
  struct Row {
    std::size_t step;
    std::string recipe;
    LinearPass pass;
    CastFacts cast;
  };
  std::vector<Row> rows;
  for (std::size_t step = 0; step < result.measured.front().passes.front().steps.size(); ++step) {
    for (const MeasuredLinear& recipe : result.measured) {
      for (const MeasuredPass& pass : recipe.passes) {
        for (const CastFacts* cast : {&pass.steps[step].a, &pass.steps[step].b}) {
          rows.push_back({step, recipe.name, pass.pass, *cast});
        }
      }
    }
  }
  return tabulate(rows, {.name = "casts", .detail = true})
      .column({"step"}, &Row::step)
      .column({"recipe"}, &Row::recipe)
      .column({"pass"}, [](const Row& row) { return name_of(row.pass); })
      .column({"tensor"}, [](const Row& row) { return name_of(row.cast.tensor); })
      .column({"scale"}, [](const Row& row) { return row.cast.scale; })
      .column({"scale_of_own_amax"}, [](const Row& row) { return row.cast.fresh_scale; })
      .column({"elements"}, [](const Row& row) { return row.cast.elements; })
      .column({"saturated"}, [](const Row& row) { return row.cast.saturated; })
      .column({"underflows"}, [](const Row& row) { return row.cast.underflows; });
}

Curves errors_by_step(const LinearResult& result, std::size_t pass) {
  const std::string name(name_of(result.passes[pass]));
  Curves section{.name = name + "_by_step",
                 .title = name + ": rms of the difference / rms of the product against step",
                 .x = {"step", false},
                 .y = {"relative_rms_error"},
                 .labelled = true};
  for (const MeasuredLinear& one : result.measured) {
    Curve& line = section.lines.emplace_back(Curve{.label = one.name});
    for (const SplitStep& step : one.passes[pass].steps) {
      line.x.push_back(static_cast<double>(line.x.size()));
      line.y.push_back(step.totals.relative_rms(step.totals.total));
    }
  }
  return section;
}

/// A line for each recipe and each cause that has a part in it.
Curves causes_by_step(const LinearResult& result, std::size_t pass) {
  const std::string name(name_of(result.passes[pass]));
  const std::vector<Cause> causes = causes_of(result.passes[pass]);
  Curves section{.name = name + "_causes_by_step",
                 .title = name + ": rms of each part / rms of the product against step",
                 .x = {"step", false},
                 .y = {"relative_rms_error"},
                 .detail = true};
  for (const MeasuredLinear& one : result.measured) {
    const MeasuredPass& measured = one.passes[pass];
    for (std::size_t cause = 0; cause < causes.size(); ++cause) {
      if (!(measured.totals.parts[cause].largest > 0)) continue;
      Curve& line = section.lines.emplace_back(Curve{.label = one.name + " " + causes[cause].name});
      for (const SplitStep& step : measured.steps) {
        line.x.push_back(static_cast<double>(line.x.size()));
        line.y.push_back(step.totals.relative_rms(step.totals.parts[cause]));
      }
    }
  }
  return section;
}

// 4. Histograms.

Histograms errors_of_pass(const LinearResult& result, std::size_t pass) {
  const std::string name(name_of(result.passes[pass]));
  Histograms section{.name = name + "_errors",
                     .title = name + ": |difference| / rms of the step's product by binade, elements",
                     .least = 0.001};
  for (std::size_t i = 0; i < result.measured.size(); ++i) {
    section.histograms.push_back(counts_of(result.measured[i].passes[pass].histogram,
                                           histogram_name(i, result.measured[i].name, name + "_error"),
                                           "|difference| / rms of the step's product", {mark_of(i)}));
  }
  return section;
}

Text reading() {
  return {
      "reading",
      "How to read it",
      {"A chain of computations leads from the real product of the given tensors to the output. Each replaces one "
       "thing in the one before, in the order of the tables: elements that the cast of a tensor saturates, those "
       "that it makes zero, all others rounded; with delayed scaling first as the scale of the tensor's own amax "
       "would cast them, then as the history's scale does (lag); then the tensor core in place of exact sums, the "
       "bias, and the rounding of the output. What a replacement changes is the part of its cause. In every "
       "element the parts add up exactly to the output less the real product.",
       "Growth: by how much the sum of squares of the difference grows where the cause joins those before it in the "
       "chain, over the whole sum. Share: sum of part * difference over sum of difference^2, the covariance with the "
       "whole. Both add up to 100 % over the causes, and are equal where causes have nothing in common. What two "
       "causes have in common counts for the later one in growth, half for each in share. A lagging scale replaces "
       "one rounding by another: growth tells what that costs."}};
}

Table tensors_of(const LinearResult& result) {
  using T = LayerTensorFacts;
  return tabulate(result.tensors, {.name = "tensors", .detail = true})
      .column({"tensor"}, &T::tensor)
      .column({"name"}, [](const T& one) { return one.facts.name; })
      .column({"type"}, [](const T& one) { return name_of(one.facts.type); })
      .column({"shape"}, [](const T& one) { return shape_text(one.facts.shape); });
}

// 5. The experiment.

/// One of the user's tensors: arrays (Python alone) or files.
struct GivenTensor {
  HeldTensors arrays = {};
  std::vector<std::filesystem::path> files = {};
  std::vector<std::string> names = {};

  [[nodiscard]] std::optional<TensorSource> source(const std::string& name) const {
    if (!files.empty()) return StoredTensors{files, names};
    if (arrays.empty()) return {};
    HeldTensors named = arrays;
    for (std::size_t i = 0; i < named.size(); ++i) {
      named[i].name = named.size() == 1 ? name : fmt::format("{}[{}]", name, i);
    }
    return named;
  }
};

/// The arguments as a user gives them.
struct LinearOptionsGiven {
  LinearArguments arguments;
  LayerDraws draws;
  AmaxComputeAlgo algorithm = AmaxComputeAlgo::max;
  std::array<GivenTensor, 4> tensors;  ///< x, w, dy, bias
};
constexpr std::array tensor_names{"x", "w", "dy", "bias"};
constexpr std::array tensor_shapes{"(tokens, in)", "(out, in)", "(tokens, out)", "(out,)"};

void add_tensors(LinearOptionsGiven& options, ArgumentList& list) {
  for (std::size_t i = 0; i < tensor_names.size(); ++i) {
    const std::string name = tensor_names[i];
    Argument& array = list.add(name, options.tensors[i].arrays,
                               fmt::format("{}, {}: one array, or one for each step; or paths, which mean `{}_file`",
                                           name, tensor_shapes[i], name));
    array.by_default("drawn where no tensor is given,").with_repeats().only_python();
    if (i < 2) array.positional();
  }
}

void add_tensor_files(LinearOptionsGiven& options, ArgumentList& list) {
  for (std::size_t i = 0; i < tensor_names.size(); ++i) {
    const std::string name = tensor_names[i];
    const std::string file = name + "_file";
    list.add(file, options.tensors[i].files,
             fmt::format(
                 "read {}, {}, of .npy or .safetensors files or of a folder with them, one for each step or for all",
                 name, tensor_shapes[i]))
        .spelled("--" + name)
        .called("PATH ...")
        .with_repeats()
        .excluding({name.c_str()});
    list.add(name + "_tensor", options.tensors[i].names, "names of the tensors to read of these files, or patterns")
        .called("NAME ...")
        .as_words()
        .needing({file.c_str()});
  }
}

void add_layer_draws(LayerDraws& draws, ArgumentList& list) {
  const auto drawn = [](Argument& argument) {
    argument.excluding({"x", "w", "dy", "bias", "x_file", "w_file", "dy_file", "bias_file"});
  };
  drawn(list.add("tokens", draws.tokens, "rows of a drawn x and dy"));
  drawn(list.add("in_features", draws.in, "columns of a drawn x and w"));
  drawn(list.add("out_features", draws.out, "columns of a drawn dy, rows of w"));
  drawn(list.add("steps", draws.steps, "for how many steps x and dy are drawn"));
  drawn(
      list.add("stream", draws.kind, "how drawn x and dy change from step to step: stationary, drift, outliers, jump"));
  drawn(list.add("distribution", draws.distribution,
                 "the distribution of drawn x and dy (fp8lab distributions lists them)"));
  drawn(list.add("seed", draws.seed, "the seed of drawn x; w, dy and bias have the next ones"));
  drawn(list.add("x_factor", draws.x_factor, "what a drawn x is multiplied by"));
  drawn(list.add("w_factor", draws.w_factor, "what a drawn w, normal, is multiplied by"));
  drawn(list.add("dy_factor", draws.dy_factor, "what a drawn dy is multiplied by"));
  drawn(list.add("bias_factor", draws.bias_factor, "what a drawn bias, normal, is multiplied by; 0: no bias"));
}

void describe(LinearOptionsGiven& options, ArgumentList& list) {
  LinearArguments& arguments = options.arguments;
  add_tensors(options, list);
  list.add("recipes", arguments.recipes, "linear recipes (fp8lab linear-recipes lists them)");
  list.add("passes", arguments.passes, "which of fprop, dgrad and wgrad").by_default("all whose tensors there are");
  add_layer_draws(options.draws, list);
  add_tensor_files(options, list);
  list.add("amax_history_len", arguments.delayed.amax_history_len, "steps of the amax history of delayed scaling");
  list.add("margin", arguments.delayed.margin, "divide the scales of delayed scaling by 2^margin");
  list.add("amax_compute_algo", options.algorithm, "which amax of the history: max or most_recent");
  list.add("version", arguments.delayed.version,
           "whose rules delayed scaling follows (fp8lab delayed-versions lists them)");
  list.add("check_shapes", arguments.check_shapes, "refuse sizes that the recipe's system refuses")
      .switched_off_by("--no-check-shapes", "compute sizes that a recipe's system refuses, where its tensor core can");
  list.add("rounding_seed", arguments.rounding_seed, "the seed of the random bits of stochastic rounding");
  list.add_threads(arguments.threads);
}

Document run(const LinearOptionsGiven& options, const Context& context) {
  LinearArguments arguments = options.arguments;
  arguments.delayed.amax_compute_algo = options.algorithm;
  LayerTensors tensors;
  const std::array members{&tensors.x, &tensors.w, &tensors.dy, &tensors.bias};
  for (std::size_t i = 0; i < members.size(); ++i) *members[i] = options.tensors[i].source(tensor_names[i]);
  if (std::ranges::any_of(members, [](const auto* one) { return one->has_value(); })) {
    arguments.source = tensors;
  } else {
    arguments.source = options.draws;
  }
  return document_of(run_linear(arguments, context.progress));
}

}  // namespace

Document document_of(const LinearResult& result) {
  const DefaultEnvironment environment;
  Document document;
  std::vector<Section>& sections = document.sections;
  sections.emplace_back(Text{"intro", "", {"A Linear layer: " + result.source}});
  sections.emplace_back(recipes_table(result));
  const bool has_steps = result.measured.front().passes.front().steps.size() > 1;
  for (std::size_t pass = 0; pass < result.passes.size(); ++pass) {
    const bool is_only = result.measured.size() == 1;
    sections.emplace_back(is_only ? only_recipe_table(result, pass) : growths_table(result, pass));
  }
  for (std::size_t pass = 0; pass < result.passes.size(); ++pass) {
    if (has_steps) sections.emplace_back(errors_by_step(result, pass));
    sections.emplace_back(errors_of_pass(result, pass));
  }
  sections.emplace_back(causes_table(result));
  sections.emplace_back(steps_table(result));
  sections.emplace_back(casts_table(result));
  for (std::size_t pass = 0; has_steps && pass < result.passes.size(); ++pass) {
    sections.emplace_back(causes_by_step(result, pass));
  }
  sections.emplace_back(tensors_of(result));
  add_left_out(result.left_out, result.tensors.size(), sections);
  sections.emplace_back(reading());
  return document;
}

std::vector<Experiment> linear_experiments() {
  return {experiment<LinearOptionsGiven>(
      {.name = "linear",
       .summary = "Split what differs between a Linear layer in FP8 and its real product by cause",
       .description =
           "The layer's three products, fprop y = x w^T + bias, dgrad dx = dy w and wgrad dw = dy^T x, are computed as "
           "each recipe computes them, bit for bit, and compared with the real products of the given tensors. The "
           "whole difference is split into parts that add up to it exactly in every element: the cast of each tensor "
           "(saturation, underflow, rounding), the lag of delayed scaling's scales, the tensor core, the bias and the "
           "rounding of the output. Recipes tf32_hopper and bf16_hopper are what \"FP32\" and BF16 layers compute on a "
           "GPU. Under delayed scaling every tensor has a history, whose first scale is 1.",
       .result =
           "tables `recipes`, one named after each pass (growth of the mean square by cause and recipe, or "
           "all numbers of the only recipe), `causes` (every recipe, pass and cause: rms, largest and mean error, "
           "share and growth), `steps` "
           "(the same for each step), `casts` (scales, saturated elements and underflows) and `tensors`; curves "
           "such as `fprop_by_step` and `fprop_causes_by_step` where there are two steps or more; and histograms "
           "such as 01_te_delayed_hopper_fprop_error",
       .examples = {{"linear", "delayed, current, MX and NVFP4 scaling, BF16 and TF32 through a jump"},
                    {"linear --recipes te_delayed_hopper --steps 1 --stream stationary",
                     "the first step, whose scales are 1"},
                    {"linear --recipes te_current_scaling_hopper,exact --stream stationary --passes wgrad", ""},
                    {"linear --x x.npy --w w.npy --dy dy.npy --recipes te_mxfp8_blackwell", "a layer of your own"}},
       .small = R"({"tokens": 32, "in_features": 32, "out_features": 64, "steps": 3,
"recipes": ["te_delayed_hopper", "te_mxfp8_blackwell"]})"},
      describe, run)};
}

}  // namespace fp8lab::experiments
