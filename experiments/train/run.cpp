// SPDX-License-Identifier: Apache-2.0
#include "train/run.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/measure/random.hpp"
#include "train/task.hpp"

namespace fp8lab::experiments {
namespace {

/// The random streams of a seed.
enum class RandomStream : std::uint8_t { training, test, weights, rounding };
std::uint64_t stream_seed(std::uint64_t seed, RandomStream stream) {
  return 4 * seed + static_cast<std::uint64_t>(stream);
}

/// The bytes of the casts of a step: Philox words, the lowest byte first.
RandomBytes random_bytes(std::uint64_t seed, std::uint64_t step) {
  const std::uint64_t key = stream_seed(seed, RandomStream::rounding);
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  return [=](std::size_t layer, std::size_t count) {
    std::vector<std::uint8_t> bytes;
    bytes.reserve(count + 16);
    for (std::uint32_t i = 0; bytes.size() < count; ++i) {
      for (std::uint32_t word : philox4x32({i, low(layer), low(step), low(step >> 32)}, {low(key), low(key >> 32)})) {
        for (int byte = 0; byte < 4; ++byte, word >>= 8) bytes.push_back(static_cast<std::uint8_t>(word));
      }
    }
    bytes.resize(count);
    return bytes;
  };
}

bool is_jumping(const Jump& jump, std::uint64_t step) {
  if (!jump.step) return false;
  const auto first = static_cast<std::uint64_t>(*jump.step);
  return step >= first && step - first < static_cast<std::uint64_t>(jump.length);
}

/// The results of a step before the weights change.
struct StepGradients {
  double loss = 0;
  Network gradients;
  std::vector<TensorStats> facts;
};
StepGradients gradients_of(const TrainArguments& arguments, const NetworkPlan& plan, const Network& network,
                           std::vector<LayerHistories>& histories, std::uint64_t step) {
  const auto rows = static_cast<std::size_t>(arguments.batch);
  Batch batch = draw_batch(stream_seed(arguments.seed, RandomStream::training), (step - 1) * rows, rows,
                           plan.sizes.front(), plan.sizes.back());
  double scale = arguments.gradient_scale;
  if (is_jumping(arguments.jump, step)) {
    const auto factor = static_cast<float>(arguments.jump.factor);
    if (arguments.jump.of == JumpOf::gradients) scale *= arguments.jump.factor;
    if (arguments.jump.of == JumpOf::inputs) {
      for (float& x : batch.x) x *= factor;
    }
  }
  Propagation propagation(plan, network, histories);
  const std::vector<float> y = propagation.forward(batch.x, rows).floats();
  LossOfBatch loss = loss_of(arguments.loss, y, batch, rows, scale);
  Network gradients = propagation.backward(std::move(loss.gradient), random_bytes(arguments.seed, step));
  return {loss.loss, std::move(gradients), propagation.facts()};
}

/// The plan of a network that computes in FP32.
NetworkPlan reference_plan(const TrainArguments& arguments) {
  return plan_of(arguments, find_linear_recipe(train_reference).recipe);
}

void compare_gradients(const TrainArguments& arguments, std::uint64_t step, const Network& gradients, Run& run) {
  const NetworkPlan plan = reference_plan(arguments);
  std::vector<LayerHistories> none(plan.layers.size());
  const Network expected = gradients_of(arguments, plan, run.state.network, none, step).gradients;
  for (std::size_t layer = 0; layer < gradients.size(); ++layer) {
    const std::vector<float>& dw = gradients[layer].w;
    const std::vector<float>& reference = expected[layer].w;
    GradientError error{.step = step, .layer = layer + 1, .histogram = error_histogram()};
    error.totals.add(std::span<const float>(dw), std::span<const float>(reference));
    const double rms = std::sqrt(error.totals.sum_squared_reference / static_cast<double>(error.totals.count));
    for (std::size_t i = 0; i < dw.size(); ++i) {
      checkpoint(i);
      if (dw[i] == 0 && reference[i] != 0) ++error.lost;
      const double difference = static_cast<double>(dw[i]) - static_cast<double>(reference[i]);
      error.histogram.add(difference == 0 ? 0 : std::fabs(difference) / rms);
    }
    run.log.errors.push_back(std::move(error));
  }
}

}  // namespace

Histogram error_histogram() { return Histogram(BinadeBins{-30, 20}); }

Run start_run(const TrainArguments& arguments, const ChosenLinearRecipe& recipe) {
  try {
    Run run{recipe, plan_of(arguments, recipe.recipe), {}, {}};
    run.state.network = initial_network(run.plan.sizes, stream_seed(arguments.seed, RandomStream::weights));
    run.state.optimizer = start_optimizer(run.state.network);
    for (const LayerRecipe& layer : run.plan.layers) run.state.histories.push_back(start_histories(layer));
    return run;
  } catch (const std::invalid_argument& error) {
    refuse(recipe.name, ": ", error.what());
  }
}

void train_step(const TrainArguments& arguments, Run& run) {
  RunState& state = run.state;
  const std::uint64_t step = state.steps + 1;
  StepGradients now;
  try {
    now = gradients_of(arguments, run.plan, state.network, state.histories, step);
  } catch (const std::invalid_argument& error) {
    refuse("sizes, batch: ", run.recipe.name, " does not take them: ", error.what());
  }
  const auto& compared = arguments.error_steps;
  if (run.recipe.name != train_reference && std::ranges::find(compared, static_cast<long long>(step)) != compared.end())
    compare_gradients(arguments, step, now.gradients, run);
  update_weights(arguments, now.gradients, state.optimizer, state.network);
  run.log.losses.push_back(now.loss);
  run.log.tensors.insert(run.log.tensors.end(), now.facts.begin(), now.facts.end());
  state.steps = step;
}

void go_back(Run& run, RunState&& state) {
  run.state = std::move(state);
  const std::uint64_t steps = run.state.steps;
  run.log.losses.resize(std::min<std::size_t>(run.log.losses.size(), steps));
  run.log.tensors.resize(run.log.losses.size() * 3 * run.plan.layers.size());
  std::erase_if(run.log.errors, [=](const GradientError& error) { return error.step > steps; });
}

double test_loss_of(const TrainArguments& arguments, const Network& network) {
  constexpr std::size_t rows = 1024;
  const NetworkPlan plan = reference_plan(arguments);
  const Batch batch =
      draw_batch(stream_seed(arguments.seed, RandomStream::test), 0, rows, plan.sizes.front(), plan.sizes.back());
  std::vector<LayerHistories> none(plan.layers.size());
  Propagation propagation(plan, network, none);
  return loss_of(arguments.loss, propagation.forward(batch.x, rows).floats(), batch, rows, 1).loss;
}

}  // namespace fp8lab::experiments
