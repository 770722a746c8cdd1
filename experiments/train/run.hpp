// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "train/network.hpp"
#include "train/optimizer.hpp"
#include "train/train.hpp"

namespace fp8lab::experiments {

/// All that a run's next step depends on.
struct RunState {
  std::uint64_t steps = 0;  ///< done
  Network network;
  OptimizerState optimizer;
  std::vector<LayerHistories> histories;  ///< of each layer
};
/// The measurements of a run, step by step.
struct RunLog {
  std::vector<double> losses;
  std::vector<TensorStats> tensors;
  std::vector<GradientError> errors;
};

/// A run of a recipe.
struct Run {
  ChosenLinearRecipe recipe;
  NetworkPlan plan;
  RunState state;
  RunLog log;
};
/// The run before its first step. Throws std::invalid_argument that names the recipe.
[[nodiscard]] Run start_run(const TrainArguments& arguments, const ChosenLinearRecipe& recipe);

/// One step of training: the batch's loss and gradients, and an update of the weights. Throws std::invalid_argument
/// that names the recipe where it does not take the sizes; the state may then be changed in part.
void train_step(const TrainArguments& arguments, Run& run);

/// Goes back to an earlier state: what the log has of later steps is dropped.
void go_back(Run& run, RunState&& state);

/// The loss on examples that no run is trained on, computed in FP32.
[[nodiscard]] double test_loss_of(const TrainArguments& arguments, const Network& network);

/// The histogram of a GradientError, still empty.
[[nodiscard]] Histogram error_histogram();

/// Steps in a row that make a divergence, and whose mean loss is compared.
inline constexpr std::size_t divergence_steps = 20;

/// When a run diverged: the first step whose loss is not finite, or that begins 20 steps in a row whose loss is above
/// `factor` times the lowest mean of 20 steps before (the first 20, the next 20, ...; at first the first loss).
[[nodiscard]] std::optional<Divergence> divergence_of(const std::vector<double>& losses,
                                                      const std::vector<TensorStats>& tensors, std::size_t layers,
                                                      double factor);

}  // namespace fp8lab::experiments
