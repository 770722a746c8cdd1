// SPDX-License-Identifier: Apache-2.0
#include "train/train.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "kit/lists.hpp"
#include "train/checkpoint.hpp"
#include "train/run.hpp"
#include "train/task.hpp"

namespace fp8lab::experiments {
namespace {

void check_between(std::string_view name, double value, double least, double most) {
  if (std::isnan(value) || value < least || value > most)
    refuse(name, " must be from ", least, " to ", most, ", not ", value);
}
void check_between(std::string_view name, long long value, long long least, long long most) {
  if (value < least || value > most) refuse(name, " must be from ", least, " to ", most, ", not ", value);
}

void check_sizes(const std::vector<long long>& sizes) {
  check_between("the number of sizes", static_cast<long long>(sizes.size()), 2, 64);
  for (const long long size : sizes) check_between("each of sizes", size, 1, 65536);
  if (sizes.back() < 2) refuse("the last of sizes must be at least 2, not ", sizes.back());
  if (sizes.front() >= 2 * sizes.back()) return;
  refuse("the first of sizes must be at least twice the last, for each output is of a pair of inputs: ", sizes.front(),
         " is less than 2 * ", sizes.back());
}

void check_train(const TrainArguments& arguments) {
  check_sizes(arguments.sizes);
  std::vector<std::string> names(arguments.recipes.size());
  std::ranges::transform(arguments.recipes, names.begin(), [](const auto& one) { return std::string(one.name); });
  check_list("recipes", names);
  for (const ChosenLinearRecipe& one : arguments.recipes) {
    if (one.name == train_reference && describe(one.recipe) != describe(choose_linear_recipe(train_reference).recipe)) {
      refuse("recipes: ", train_reference, " is the name of the FP32 run");
    }
  }
  check_between("batch", arguments.batch, 1, 65536);
  check_between("steps", arguments.steps, 1, 1000000);
  check_between("learning_rate", arguments.learning_rate, 0, 1e30);
  check_between("momentum", arguments.momentum, 0, 1);
  check_between("clip", arguments.clip, 0, 1e30);
  check_between("gradient_scale", arguments.gradient_scale, 1e-30, 1e30);
  check_between("amax_history_len", arguments.amax_history_len, 1, static_cast<long long>(longest_amax_history));
  check_between("jump_factor", arguments.jump.factor, -1e30, 1e30);
  check_between("jump_length", arguments.jump.length, 1, 1000000);
  if (arguments.jump.step) check_between("jump_step", *arguments.jump.step, 1, 1000000);
  check_list("error_steps", arguments.error_steps);
  for (const long long step : arguments.error_steps) check_between("each of error_steps", step, 1, 1000000);
  check_between("divergence", arguments.divergence, 1, 1e30);
  if (arguments.resume && !arguments.checkpoint) refuse("resume needs a checkpoint to go on from");
  check_threads(arguments.threads);
}

/// How many steps a run takes between looks at the clock: some 10^9 multiplications, 20 steps at most.
std::uint64_t steps_of_round(const TrainArguments& arguments) {
  double products = 0;
  for (std::size_t i = 0; i + 1 < arguments.sizes.size(); ++i) {
    products += 3.0 * static_cast<double>(arguments.batch * arguments.sizes[i] * arguments.sizes[i + 1]);
  }
  return static_cast<std::uint64_t>(std::clamp(1e9 / products, 1.0, 20.0));
}

/// Trains all runs, and saves their state now and then.
class Training {
 public:
  Training(const TrainArguments& arguments, const Context& context) : arguments_(arguments), context_(context) {
    runs_.push_back(start_run(arguments, choose_linear_recipe(train_reference)));
    for (const ChosenLinearRecipe& recipe : arguments.recipes) {
      if (recipe.name != train_reference) runs_.push_back(start_run(arguments, recipe));
    }
    if (!arguments.checkpoint) return;
    if (arguments.resume) {
      load_checkpoint(*arguments.checkpoint, arguments, runs_);
    } else if (std::filesystem::exists(*arguments.checkpoint)) {
      refuse("checkpoint: ", arguments.checkpoint->native(), " is there already; resume goes on from it");
    }
    save();  // what cannot be written is told before the work
  }

  std::vector<Run> finish() {
    const auto last = static_cast<std::uint64_t>(arguments_.steps);
    const std::uint64_t round = steps_of_round(arguments_);
    try {
      while (runs_.front().state.steps < last) {
        advance(std::min(last, runs_.front().state.steps + round));
        tell();
      }
    } catch (const std::invalid_argument&) {
      // A recipe does not take the sizes: there is nothing to save, and the corrected command finds no checkpoint.
      if (arguments_.checkpoint && !arguments_.resume && runs_.front().state.steps == 0) {
        std::filesystem::remove(*arguments_.checkpoint);
      }
      throw;
    } catch (...) {
      save();
      tell_what_is_kept();
      throw;
    }
    save();
    return std::move(runs_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// Trains all runs up to that step. What ends it leaves the runs as they were.
  void advance(std::uint64_t step) {
    std::vector<RunState> before(runs_.size());
    std::ranges::transform(runs_, before.begin(), &Run::state);
    try {
      parallel_for(runs_.size(), arguments_.threads, [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i) {
          for (; runs_[i].state.steps < step; checkpoint()) train_step(arguments_, runs_[i]);
        }
      });
    } catch (...) {
      for (std::size_t i = 0; i < runs_.size(); ++i) go_back(runs_[i], std::move(before[i]));
      throw;
    }
  }

  void tell() {
    const std::uint64_t step = runs_.front().state.steps;
    if (context_.progress) context_.progress(static_cast<double>(step) / static_cast<double>(arguments_.steps));
    const auto now = Clock::now();
    if (now - saved_ > std::chrono::minutes(1)) save();
    if (!context_.note || now - told_ < std::chrono::seconds(20)) return;
    told_ = now;
    TextStream line;
    line << "step " << step << " of " << arguments_.steps << ":";
    for (const Run& run : runs_) line << ' ' << run.recipe.name << ' ' << run.log.losses.back();
    context_.note(line.str());
  }

  /// Says where a run ended early, what is kept of it, and how to go on.
  void tell_what_is_kept() const {
    if (!context_.kept) return;
    const std::string where =
        "stopped after step " + std::to_string(runs_.front().state.steps) + " of " + std::to_string(arguments_.steps);
    context_.kept(arguments_.checkpoint ? where + ", which " + arguments_.checkpoint->native() +
                                              " has; the same command goes on with --resume"
                                        : where + "; nothing is kept (--checkpoint FILE keeps the state)");
  }

  /// Saves the runs where the arguments ask for it.
  void save() {
    if (arguments_.checkpoint) save_checkpoint(*arguments_.checkpoint, arguments_, runs_);
    saved_ = Clock::now();
  }

  const TrainArguments& arguments_;
  const Context& context_;
  std::vector<Run> runs_;
  Clock::time_point saved_, told_ = Clock::now();
};

double mean_of_last(const std::vector<double>& losses) {
  const std::size_t count = std::min(losses.size(), divergence_steps);
  return std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(count), losses.end(), 0.0) /
         static_cast<double>(count);
}

}  // namespace

TrainResult run_train(const TrainArguments& arguments, const Context& context) {
  const DefaultEnvironment environment;
  check_train(arguments);
  TrainResult result{arguments, loss_of_chance(arguments.loss, static_cast<std::size_t>(arguments.sizes.back())), {}};
  for (Run& run : Training(arguments, context).finish()) {
    TrainedRun& trained = result.runs.emplace_back();
    trained.recipe = run.recipe;
    trained.divergence = divergence_of(run.log.losses, run.log.tensors, result.layers(), arguments.divergence);
    trained.final_loss = mean_of_last(run.log.losses);
    trained.test_loss = test_loss_of(arguments, run.state.network);
    trained.losses = std::move(run.log.losses);
    trained.tensors = std::move(run.log.tensors);
    trained.errors = std::move(run.log.errors);
  }
  return result;
}

}  // namespace fp8lab::experiments
