// SPDX-License-Identifier: Apache-2.0
// Registers the experiment `train`: where and why training under FP8 recipes parts from FP32.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "kit/experiment.hpp"
#include "train/arguments.hpp"
#include "train/train.hpp"

namespace fp8lab::experiments {
namespace {

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

/// The share that a count is of the elements that are not zero.
double share_of(std::uint32_t count, const TensorStats& facts) {
  return facts.nonzero == 0 ? 0 : static_cast<double>(count) / static_cast<double>(facts.nonzero);
}

// 1. The runs.

/// Means of consecutive losses, at most 30 of them.
Curve curve_of(const TrainedRun& run) {
  constexpr std::size_t most = 30;
  Curve curve{std::string(run.recipe.name)};
  const std::size_t steps = run.losses.size();
  const std::size_t length = (steps + most - 1) / most;
  for (std::size_t first = 0; first < steps; first += length) {
    const std::size_t last = std::min(steps, first + length);
    double sum = 0;
    for (std::size_t i = first; i < last; ++i) sum += run.losses[i];
    curve.x.push_back(static_cast<double>(last));
    curve.y.push_back(sum / static_cast<double>(last - first));
  }
  return curve;
}

Curves loss_curves(const TrainResult& result) {
  Curves curves{.name = "loss",
                .title = "Loss against step, means of consecutive steps",
                .x = {"step", false},
                .y = {"loss"},
                .labelled = true};
  double lowest = std::numeric_limits<double>::infinity();
  double highest = 0;
  for (const TrainedRun& run : result.runs) {
    for (const double y : curves.lines.emplace_back(curve_of(run)).y) {
      if (!std::isfinite(y) || y <= 0) continue;
      lowest = std::min(lowest, y);
      highest = std::max(highest, y);
    }
  }
  const double decades = highest > 0 ? std::log10(highest / lowest) : 0;
  if (decades < 3) curves.y.rows_a_decade = 6;
  if (decades < 1.5) curves.y.rows_a_decade = 12;
  return curves;
}

Table runs_table(const TrainResult& result) {
  const Head loss{.name = "loss", .notation = Notation::general, .digits = 4};
  const auto head = [&](const char* name, const char* title) {
    Head named = loss;
    named.name = name;
    named.title = title;
    return named;
  };
  const double reference = result.runs.front().final_loss;
  return tabulate(result.runs, {.name = "runs", .title = "Losses", .marked = true})
      .column({"recipe"}, [](const TrainedRun& run) { return run.recipe.name; })
      .column(head("final_loss", "last 20 steps"), &TrainedRun::final_loss)
      .column(head("over_fp32", "over FP32's"), [=](const TrainedRun& run) { return run.final_loss / reference; })
      .column(head("test_loss", "of new data"), &TrainedRun::test_loss)
      .column({"diverged_at", "diverged at step"},
              [](const TrainedRun& run) {
                return run.divergence ? std::optional(run.divergence->step) : std::optional<std::size_t>();
              })
      .column({.name = "description", .detail = true},
              [](const TrainedRun& run) { return fp8lab::describe(run.recipe.recipe); });
}

Table losses_table(const TrainResult& result) {
  std::vector<std::size_t> steps(result.runs.front().losses.size());
  for (std::size_t i = 0; i < steps.size(); ++i) steps[i] = i;
  auto table = tabulate(steps, {.name = "losses", .detail = true});
  table.column({"step"}, [](std::size_t i) { return i + 1; });
  for (const TrainedRun& run : result.runs) {
    table.column({std::string(run.recipe.name)}, [&](std::size_t i) { return run.losses[i]; });
  }
  return table;
}

// 2. Why runs diverged.

/// The first event of a kind, as the document tells it.
struct ToldEvent {
  const TrainedRun* run;
  const char* what;
  const TensorEvent* event;
  std::uint32_t count;
};

std::vector<ToldEvent> events_of(const TrainedRun& run, const Divergence& divergence) {
  std::vector<ToldEvent> events;
  const auto add = [&](const char* what, const std::optional<TensorEvent>& event, std::uint32_t TensorStats::* count) {
    if (event) events.push_back({&run, what, &*event, event->facts.*count});
  };
  add("not finite", divergence.not_finite, &TensorStats::not_finite);
  add("saturated", divergence.saturated, &TensorStats::saturated);
  add("flushed to zero", divergence.flushed, &TensorStats::flushed);
  std::ranges::stable_sort(events, {}, [](const ToldEvent& one) { return one.event->step; });
  return events;
}

Table divergence_table(const TrainResult& result) {
  std::vector<ToldEvent> events;
  for (const TrainedRun& run : result.runs) {
    if (!run.divergence) continue;
    for (const ToldEvent& event : events_of(run, *run.divergence)) events.push_back(event);
  }
  return tabulate(events, {.name = "divergence",
                           .title = "What happened first to tensors around a divergence (20 steps before and after)"})
      .column({"recipe"}, [](const ToldEvent& one) { return one.run->recipe.name; })
      .column({"diverged_at", "diverged"}, [](const ToldEvent& one) { return one.run->divergence->step; })
      .column({"what"}, [](const ToldEvent& one) { return one.what; })
      .column({"step"}, [](const ToldEvent& one) { return one.event->step; })
      .column({"layer"}, [](const ToldEvent& one) { return one.event->layer; })
      .column({"tensor"}, [](const ToldEvent& one) { return fp8lab::name_of(one.event->tensor); })
      .column({.name = "share", .notation = Notation::percent, .digits = 2},
              [](const ToldEvent& one) { return share_of(one.count, one.event->facts); })
      .column({.name = "amax", .digits = 4}, [](const ToldEvent& one) { return one.event->facts.amax; })
      .column({.name = "scale", .digits = 4}, [](const ToldEvent& one) { return one.event->facts.scale; });
}

/// A sentence for each run that diverged.
Text reasons(const TrainResult& result) {
  Text text{.name = "reasons"};
  for (const TrainedRun& run : result.runs) {
    if (!run.divergence) continue;
    const Divergence& divergence = *run.divergence;
    std::string line =
        fmt::format("{} diverged at step {}: its loss was {:.4g}", run.recipe.name, divergence.step, divergence.loss);
    if (std::isfinite(divergence.loss)) {
      line += fmt::format(", and stayed above {:.4g} for 20 steps", divergence.bound);
    }
    const std::vector<ToldEvent> events = events_of(run, divergence);
    if (events.empty()) {
      line += ". No tensor was saturated, flushed to zero or not finite around it.";
    } else {
      const auto& [of_run, what, event, count] = events.front();
      line += fmt::format(". First, at step {}, {:.3g} % of {} of layer {} were {}: amax {:.4g}", event->step,
                          100 * share_of(count, event->facts), fp8lab::name_of(event->tensor), event->layer, what,
                          event->facts.amax);
      if (!std::isnan(event->facts.scale)) line += fmt::format(", scale {:.4g}", event->facts.scale);
      line += '.';
    }
    text.paragraphs.push_back(line);
  }
  if (text.paragraphs.empty()) text.paragraphs.emplace_back("No run diverged.");
  return text;
}

// 3. What casts met, a row for each run, layer and tensor.

struct CastHistory {
  const TrainedRun& run;
  std::size_t layer;
  LinearTensor tensor;
  std::vector<TensorStats> facts;  // a step

  /// The index of the step with the most of it.
  [[nodiscard]] std::size_t most(std::uint32_t TensorStats::* count) const {
    const auto share = [&](const TensorStats& one) { return share_of(one.*count, one); };
    return static_cast<std::size_t>(std::ranges::max_element(facts, {}, share) - facts.begin());
  }
  [[nodiscard]] std::size_t steps_with(std::uint32_t TensorStats::* count) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(facts, [&](const TensorStats& one) { return one.*count > 0; }));
  }
};

std::vector<CastHistory> tensor_histories(const TrainResult& result) {
  std::vector<CastHistory> all;
  for (const TrainedRun& run : result.runs) {
    for (std::size_t i = 0; i < 3 * result.layers(); ++i) {
      checkpoint();
      CastHistory& history = all.emplace_back(
          CastHistory{run, i / 3 + 1, static_cast<LinearTensor>(static_cast<std::uint8_t>(i % 3)), {}});
      for (std::size_t at = i; at < run.tensors.size(); at += 3 * result.layers()) {
        history.facts.push_back(run.tensors[at]);
      }
    }
  }
  return all;
}

Table tensors_table(const TrainResult& result) {
  const std::vector<CastHistory> all = tensor_histories(result);
  auto table = tabulate(all, {.name = "tensors", .detail = true});
  table.column({"recipe"}, [](const CastHistory& one) { return one.run.recipe.name; })
      .column({"layer"}, &CastHistory::layer)
      .column({"tensor"}, [](const CastHistory& one) { return fp8lab::name_of(one.tensor); });
  for (const auto& [name, count] :
       {std::pair{"saturated", &TensorStats::saturated}, std::pair{"flushed", &TensorStats::flushed},
        std::pair{"not_finite", &TensorStats::not_finite}}) {
    table
        .column({fmt::format("{}_steps", name)},
                [count = count](const CastHistory& one) { return one.steps_with(count); })
        .column({fmt::format("most_{}", name)},
                [count = count](const CastHistory& one) {
                  const TensorStats& facts = one.facts[one.most(count)];
                  return share_of(facts.*count, facts);
                })
        .column({fmt::format("most_{}_step", name)},
                [count = count](const CastHistory& one) { return one.most(count) + 1; });
  }
  const auto amax = [](const TensorStats& facts) { return facts.amax; };
  table
      .column({"largest_amax"},
              [=](const CastHistory& one) { return std::ranges::max_element(one.facts, {}, amax)->amax; })
      .column({"last_amax"}, [](const CastHistory& one) { return one.facts.back().amax; })
      .column({"last_scale"}, [](const CastHistory& one) { return one.facts.back().scale; });
  return table;
}

// 4. Gradient errors.

/// A run's error of a layer at a step.
struct RunError {
  const TrainedRun* run;
  std::size_t index;  ///< of the run
  const GradientError* error;

  [[nodiscard]] double sqnr() const { return error->totals.count == 0 ? no_number : error->totals.sqnr_db(); }
  [[nodiscard]] double lost() const {
    return static_cast<double>(error->lost) / static_cast<double>(error->totals.count + error->totals.not_finite);
  }
};

std::vector<RunError> run_errors(const TrainResult& result) {
  std::vector<RunError> all;
  for (std::size_t i = 0; i < result.runs.size(); ++i) {
    for (const GradientError& error : result.runs[i].errors) all.push_back({&result.runs[i], i, &error});
  }
  return all;
}

Table errors_table(const std::vector<RunError>& all) {
  return tabulate(all, {.name = "errors", .detail = true})
      .column({"recipe"}, [](const RunError& one) { return one.run->recipe.name; })
      .column({"step"}, [](const RunError& one) { return one.error->step; })
      .column({"layer"}, [](const RunError& one) { return one.error->layer; })
      .column({.name = "sqnr_db", .unit = "dB"}, &RunError::sqnr)
      .column({"rms_error"}, [](const RunError& one) { return one.error->totals.rms_error(); })
      .column({"rms_fp32"},
              [](const RunError& one) {
                const ErrorTotals& totals = one.error->totals;
                return std::sqrt(totals.sum_squared_reference / static_cast<double>(totals.count));
              })
      .column({"lost_share"}, &RunError::lost)
      .column({"not_finite"}, [](const RunError& one) { return one.error->totals.not_finite; });
}

/// A row for each run, with the errors of its last compared step by layer.
Table gradients_table(const TrainResult& result, const std::vector<RunError>& all, std::size_t step) {
  std::vector<std::vector<RunError>> rows;
  for (const RunError& one : all) {
    if (one.error->step != step) continue;
    if (one.error->layer == 1) rows.emplace_back();
    rows.back().push_back(one);
  }
  auto table = tabulate(rows, {.name = "gradients",
                               .title = fmt::format("dw at step {} against FP32's of the same weights and batch: SQNR "
                                                    "in dB, and elements that became zero, by layer",
                                                    step)});
  table.column({"recipe"}, [](const auto& row) { return row.front().run->recipe.name; });
  for (std::size_t layer = 0; layer < result.layers(); ++layer) {
    table.column({.name = fmt::format("sqnr_{}_db", layer + 1),
                  .title = fmt::format("dw{}", layer + 1),
                  .notation = Notation::fixed,
                  .digits = 1},
                 [=](const auto& row) { return row[layer].sqnr(); });
  }
  for (std::size_t layer = 0; layer < result.layers(); ++layer) {
    table.column({.name = fmt::format("lost_{}", layer + 1),
                  .title = fmt::format("lost{}", layer + 1),
                  .notation = Notation::percent,
                  .digits = 1},
                 [=](const auto& row) { return row[layer].lost(); });
  }
  return table;
}

/// Histograms of the first layer at the step are drawn, as far as they fit side by side.
void add_histograms(const std::vector<RunError>& all, std::size_t step, std::vector<Section>& sections) {
  constexpr std::size_t most = 6;
  Histograms drawn{.name = "error_histograms",
                   .title = fmt::format("|error| of dw1 at step {} over the rms of FP32's dw1, by binade", step),
                   .least = 0.01};
  Histograms others{.name = "other_histograms", .title = "Of other layers, steps and recipes", .detail = true};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const RunError& one = all[i];
    const bool is_drawn = one.error->step == step && one.error->layer == 1 && drawn.histograms.size() < most;
    (is_drawn ? drawn : others)
        .histograms.push_back(counts_of(
            one.error->histogram,
            histogram_name(i, one.run->recipe.name, fmt::format("step{}_layer{}", one.error->step, one.error->layer)),
            fmt::format("{}, step {}, layer {}: |error| of dw over the rms of FP32's", one.run->recipe.name,
                        one.error->step, one.error->layer),
            fmt::format("{} dw{}", mark_of(one.index), one.error->layer)));
  }
  sections.emplace_back(std::move(drawn));
  if (!others.histograms.empty()) sections.emplace_back(std::move(others));
}

Text intro(const TrainResult& result) {
  const TrainArguments& arguments = result.arguments;
  std::string text = fmt::format(
      "A network of {} trained for {} steps of {} examples by {}, rate {}, to {}: without the inputs, or by a linear "
      "model, the loss is {:.4g} at best",
      fmt::join(arguments.sizes, "-"), arguments.steps, arguments.batch, name_of(arguments.optimizer),
      arguments.learning_rate,
      arguments.loss == TrainLoss::mse ? "find products of pairs of inputs"
                                       : "find which product of a pair of inputs is the largest",
      result.chance);
  const Jump& jump = arguments.jump;
  if (jump.step) {
    const std::string when = jump.length == 1
                                 ? fmt::format("At step {}", *jump.step)
                                 : fmt::format("From step {} to {}", *jump.step, *jump.step + jump.length - 1);
    text += fmt::format(". {} {} are multiplied by {}", when, name_of(jump.of), jump.factor);
  }
  return {"intro", "", {text}};
}

Text reading_of_training() {
  return {"reading",
          "How to read it",
          {"All runs begin with the same weights and take the same examples in the same order. fp32_cdna3 is FP32: one "
           "fused multiply-add after the other. Losses are those of the step's batch; of new data: of 1,024 others, "
           "computed in FP32 with the run's last weights.",
           "Diverged: a loss is not finite, or 20 losses in a row are above the bound. Saturated: rounded to more than "
           "the format's largest value; flushed: not zero, and became zero; shares are of the elements that are not "
           "zero.",
           "x, w, dy of a layer are its input, its weight and its output's gradient; dw is its weight's gradient."}};
}

Document run(const TrainArguments& arguments, const Context& context) {
  return document_of(run_train(arguments, context));
}

}  // namespace

Document document_of(const TrainResult& result) {
  const DefaultEnvironment environment;
  Document document;
  std::vector<Section>& sections = document.sections;
  sections = sections_of(intro(result), runs_table(result), loss_curves(result), reasons(result));
  const bool has_diverged =
      std::ranges::any_of(result.runs, [](const TrainedRun& one) { return one.divergence.has_value(); });
  Table divergence = divergence_table(result);
  divergence.detail = !has_diverged;
  sections.emplace_back(std::move(divergence));
  const std::vector<RunError> errors = run_errors(result);
  if (!errors.empty()) {
    std::size_t step = 0;
    for (const RunError& one : errors) step = std::max(step, one.error->step);
    sections.emplace_back(gradients_table(result, errors, step));
    add_histograms(errors, step, sections);
  }
  for (Table& table : std::array{errors_table(errors), losses_table(result), tensors_table(result)}) {
    sections.emplace_back(std::move(table));
  }
  sections.emplace_back(reading_of_training());
  return document;
}

std::vector<Experiment> train_experiments() {
  return {experiment<TrainArguments>(
      {.name = "train",
       .summary = "Train a small network under linear recipes and in FP32, and see where and why they part",
       .description =
           "A multilayer perceptron with relu learns products of pairs of its inputs, of which a linear model learns "
           "nothing. Each linear recipe and FP32 train it from the same weights on the same examples. Weights are "
           "float32; activations between layers have the type that the recipe's products have. Recipes of delayed "
           "scaling keep a history of amaxes for x, w and dy of each layer, with Transformer Engine's order of "
           "updates. "
           "The result depends neither on threads nor on the processor nor on interruptions.",
       .result =
           "tables `runs` (losses, divergence), `divergence` (which tensor saturated, vanished or was not finite "
           "first), `gradients` and `errors` (dw against FP32's of the same weights and batch, by layer and step), "
           "`losses` (a row for each step), `tensors` (what casts met), curves `loss`, and a histogram of gradient "
           "errors for each recipe, layer and compared step",
       .examples = {{"train", "seven recipes and FP32"},
                    {"train --recipes te_delayed_hopper,te_current_scaling_hopper --jump-step 500", "one wild batch"},
                    {"train --recipes te_delayed_hopper,te_delayed_hopper_e4m3 --jump-step 100 --jump-of gradients",
                     "gradients that underflow"},
                    {"train --steps 100000 --checkpoint FILE", "then --resume"}},
       .small =
           R"({"sizes": [32, 32, 16], "recipes": ["te_delayed_hopper", "te_mxfp8_blackwell"], "batch": 32, "steps": 3})",
       .saves_when_stopped = true},
      describe_train, run)};
}

}  // namespace fp8lab::experiments
