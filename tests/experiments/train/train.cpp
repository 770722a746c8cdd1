// SPDX-License-Identifier: Apache-2.0
// Networks under linear recipes, against plain loops, and what sets recipes apart.
#include "train/train.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "experiments/train/plain_network.hpp"
#include "support.hpp"
#include "train/elementary.hpp"
#include "train/run.hpp"
#include "train/task.hpp"

namespace fp8lab::tests {

using namespace fp8lab::experiments;

namespace {

/// A small network that all recipes take.
TrainArguments small_training(std::vector<ChosenLinearRecipe> recipes = {}) {
  TrainArguments arguments;
  arguments.sizes = {32, 64, 64, 8};
  arguments.batch = 32;
  arguments.steps = 12;
  arguments.error_steps = {5};
  arguments.recipes = std::move(recipes);
  return arguments;
}

std::vector<ChosenLinearRecipe> recipes_of(const std::vector<std::string>& names) {
  std::vector<ChosenLinearRecipe> recipes;
  for (const std::string& name : names) recipes.push_back(choose_linear_recipe(name));
  return recipes;
}

/// Every bit of a run's results.
std::string bits_of(const TrainedRun& run) {
  std::string all;
  const auto add = [&](const auto& values) {
    all.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]);
  };
  add(run.losses);
  add(run.tensors);
  for (const GradientError& error : run.errors) {
    add(std::bit_cast<std::array<std::uint64_t, sizeof(ErrorTotals) / 8>>(error.totals));
    add(error.histogram.counts());
    add(std::array{error.step, error.layer, std::size_t{error.lost}});
  }
  add(std::array{run.final_loss, run.test_loss});
  return all;
}
std::string bits_of(const TrainResult& result) {
  std::string all;
  for (const TrainedRun& run : result.runs) all += bits_of(run);
  return all;
}

}  // namespace

TEST_CASE("exp and log of training are the math library's to an ulp") {
  const auto distance = [](double a, double b) {
    return std::abs(std::bit_cast<std::int64_t>(a) - std::bit_cast<std::int64_t>(b));
  };
  std::int64_t worst_exp = 0;
  std::int64_t worst_log = 0;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const double u = static_cast<double>(random_bits(1, i)) * 0x1p-64;
    const double x = -std::ldexp(1 + u, static_cast<int>(i % 40) - 30);
    if (x > -700) worst_exp = std::max(worst_exp, distance(exp_of(x), std::exp(x)));
    const double y = std::ldexp(1 + u, static_cast<int>(i % 16));
    worst_log = std::max(worst_log, distance(log_of(y), std::log(y)));
  }
  CHECK(worst_exp <= 2);
  CHECK(worst_log <= 2);
  CHECK((exp_of(0) == 1 && log_of(1) == 0 && exp_of(-1000) == 0));
  CHECK((std::isnan(exp_of(NAN)) && std::isnan(log_of(NAN)) && std::isnan(log_of(0))));
}

TEST_CASE("FP32 training is that of plain loops, bit for bit") {
  TrainArguments arguments;
  arguments.sizes = {12, 20, 5};
  arguments.batch = 7;
  arguments.loss = TrainLoss::mse;
  arguments.optimizer = Optimizer::sgd;
  arguments.learning_rate = 0.0625;
  arguments.momentum = 0.875;
  arguments.clip = 0;
  arguments.seed = 3;
  Run run = start_run(arguments, choose_linear_recipe(train_reference));
  PlainNetwork plain(12, 20, 5, 7, 3);
  for (std::size_t step = 0; step < 6; ++step) {
    train_step(arguments, run);
    CHECK(run.log.losses.back() == plain.step(step, 0.0625F, 0.875F));
  }
  CHECK(run.state.network[0].w == plain.w1);
  CHECK(run.state.network[0].b == plain.b1);
  CHECK(run.state.network[1].w == plain.w2);
  CHECK(run.state.network[1].b == plain.b2);
}

TEST_CASE("the loss and its gradient are those of the definition") {
  const Batch batch{{}, {0.5, 2, -1, 3, 3, 0}};
  const std::vector<float> y{1, -2, 0.25F, 10, 9, -30};
  const LossOfBatch mse = loss_of(TrainLoss::mse, y, batch, 2, 8);
  CHECK(mse.loss == (0.25 + 16 + 1.5625 + 49 + 36 + 900) / 6);
  CHECK(mse.gradient[1] == static_cast<float>(2 * -4.0 / 6 * 8));
  const LossOfBatch entropy = loss_of(TrainLoss::cross_entropy, y, batch, 2, 8);
  double loss = 0;
  for (std::size_t row = 0; row < 2; ++row) {
    const std::size_t wanted = row == 0 ? 1 : 0;  // the first of equal ones
    double sum = 0;
    for (std::size_t j = 0; j < 3; ++j) sum += std::exp(static_cast<double>(y[3 * row + j]));
    loss -= std::log(std::exp(static_cast<double>(y[3 * row + wanted])) / sum) / 2;
    for (std::size_t j = 0; j < 3; ++j) {
      const double expected = (std::exp(static_cast<double>(y[3 * row + j])) / sum - (j == wanted ? 1 : 0)) * 4;
      CHECK(std::abs(static_cast<double>(entropy.gradient[3 * row + j]) - expected) <= std::abs(expected) * 0x1p-24);
    }
  }
  CHECK(std::abs(entropy.loss - loss) < 1e-14);
}

TEST_CASE("the scales of delayed scaling are made of the amaxes of the steps before, forward and backward") {
  for (const std::string name : {"te_delayed_hopper", "te_delayed_hopper_e4m3"}) {
    TrainArguments arguments = small_training(recipes_of({name}));
    arguments.amax_history_len = 3;
    arguments.head = HeadPrecision::fp8;
    arguments.sizes.back() = 16;
    const TrainResult result = run_train(arguments);
    const std::vector<TensorStats>& tensors = result.runs[1].tensors;
    const std::size_t a_step = 9;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::size_t step = i / a_step;
      const float largest = i % 3 == 2 && name == "te_delayed_hopper" ? 57344 : 448;
      float amax = 0;
      for (std::size_t before = step > 3 ? step - 3 : 0; before < step; ++before) {
        amax = std::max(amax, tensors[before * a_step + i % a_step].amax);
      }
      INFO("step " << step + 1 << ", tensor " << i % a_step);
      CHECK(tensors[i].scale == (step == 0 ? 1 : largest / amax));
    }
  }
}

TEST_CASE("the first layer's facts are those of its casts") {
  const TrainArguments arguments = small_training();
  Run run = start_run(arguments, choose_linear_recipe("te_delayed_hopper"));
  const std::vector<float> w = run.state.network[0].w;  // scale 1
  train_step(arguments, run);
  const TensorStats& facts = run.log.tensors[1];
  float amax = 0;
  std::uint32_t flushed = 0;
  for (const float one : w) {
    amax = std::max(amax, std::fabs(one));
    flushed += one != 0 && std::fabs(one) <= 0x1p-10F ? 1 : 0;  // halfway to E4M3's least number
  }
  CHECK((facts.amax == amax && facts.flushed == flushed && facts.saturated == 0 && facts.not_finite == 0));
  CHECK((flushed > 0 && facts.nonzero == w.size()));
}

TEST_CASE("training has the same bits with 1, 2 and 4 threads and on every vector target") {
  const TrainArguments arguments =
      small_training(recipes_of({"bf16_hopper", "te_delayed_hopper", "te_current_scaling_hopper_e4m3",
                                 "te_block_hopper", "te_mxfp8_blackwell", "te_nvfp4_blackwell"}));
  const std::string expected = bits_of(run_train(arguments));
  for (const int threads : {2, 4}) {
    TrainArguments threaded = arguments;
    threaded.threads = threads;
    CHECK(bits_of(run_train(threaded)) == expected);
  }
  const UnforceTarget unforce;
  for (const std::string_view target : targets()) {
    force_target(target);
    TrainArguments shorter = arguments;
    shorter.sizes = {32, 32, 32, 8};
    shorter.steps = 2;
    shorter.error_steps = {2};
    static const std::string first = bits_of(run_train(shorter));
    INFO(target);
    CHECK(bits_of(run_train(shorter)) == first);
  }
}

TEST_CASE("the best linear model stays at the loss of chance, which networks leave") {
  // 1. Normal equations of a linear model with a constant, on 4,096 examples with 8 inputs, for each of 4 outputs.
  constexpr std::size_t rows = 4096, inputs = 8, outputs = 4, terms = inputs + 1;
  const Batch train = draw_batch(5, 0, rows, inputs, outputs);
  const Batch test = draw_batch(6, 0, rows, inputs, outputs);
  std::vector<double> matrix(terms * (terms + outputs));
  const auto term = [](const Batch& batch, std::size_t row, std::size_t i) {
    return i == inputs ? 1.0 : static_cast<double>(batch.x[row * inputs + i]);
  };
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < terms; ++i) {
      double* const line = &matrix[i * (terms + outputs)];
      for (std::size_t j = 0; j < terms; ++j) line[j] += term(train, row, i) * term(train, row, j);
      for (std::size_t j = 0; j < outputs; ++j)
        line[terms + j] += term(train, row, i) * train.products[row * outputs + j];
    }
  }
  for (std::size_t i = 0; i < terms; ++i) {  // Gauss and Jordan
    for (std::size_t k = 0; k < terms; ++k) {
      const double factor = matrix[k * (terms + outputs) + i] / matrix[i * (terms + outputs) + i];
      for (std::size_t j = i; k != i && j < terms + outputs; ++j) {
        matrix[k * (terms + outputs) + j] -= factor * matrix[i * (terms + outputs) + j];
      }
    }
  }
  std::vector<float> y(rows * outputs);
  for (std::size_t at = 0; at < y.size(); ++at) {
    double sum = 0;
    for (std::size_t i = 0; i < terms; ++i) {
      const double* const line = &matrix[i * (terms + outputs)];
      sum += term(test, at / outputs, i) * line[terms + at % outputs] / line[i];
    }
    y[at] = static_cast<float>(sum);
  }
  CHECK(loss_of(TrainLoss::mse, y, test, rows, 1).loss > 0.95);
  CHECK(loss_of_chance(TrainLoss::mse, outputs) == 1);
  CHECK(std::abs(loss_of_chance(TrainLoss::cross_entropy, 16) - std::log(16.0)) < 1e-15);
  // 2. A network of that size.
  TrainArguments arguments = small_training();
  arguments.sizes = {inputs, 64, outputs};
  arguments.loss = TrainLoss::mse;
  arguments.learning_rate = 0.01;
  arguments.steps = 400;
  CHECK(run_train(arguments).runs[0].test_loss < 0.3);
}

TEST_CASE("HYBRID learns where a jump of the gradients makes those of E4M3 underflow", "[long]") {
  TrainArguments arguments = small_training(recipes_of({"te_delayed_hopper", "te_delayed_hopper_e4m3"}));
  arguments.loss = TrainLoss::mse;
  arguments.learning_rate = 0.005;
  arguments.steps = 400;
  arguments.error_steps = {100};
  arguments.jump = {.step = 20, .factor = 0x1p20, .of = JumpOf::gradients};
  const TrainResult result = run_train(arguments);
  const TrainedRun& hybrid = result.runs[1];
  const TrainedRun& e4m3_only = result.runs[2];
  CAPTURE(result.runs[0].final_loss, hybrid.final_loss, e4m3_only.final_loss);
  CHECK(hybrid.final_loss < 1.25 * result.runs[0].final_loss);
  CHECK(e4m3_only.final_loss > 2 * hybrid.final_loss);
  // All of dw of the first layer vanishes, and the smallest part of HYBRID's.
  const auto lost = [](const TrainedRun& run) {
    return static_cast<double>(run.errors[0].lost) / static_cast<double>(run.errors[0].totals.count);
  };
  CHECK((lost(e4m3_only) > 0.99 && lost(hybrid) < 0.05));
}

TEST_CASE("delayed scaling diverges on a jump of the inputs that current scaling survives, and the report says why",
          "[long]") {
  TrainArguments arguments =
      small_training(recipes_of({"te_delayed_hopper", "te_current_scaling_hopper", "te_mxfp8_blackwell"}));
  arguments.loss = TrainLoss::mse;
  arguments.learning_rate = 0.005;
  arguments.steps = 400;
  arguments.error_steps = {};
  arguments.jump = {.step = 300, .factor = 0x1p20};
  const TrainResult result = run_train(arguments);
  CAPTURE(result.runs[0].final_loss, result.runs[1].final_loss, result.runs[2].final_loss, result.runs[3].final_loss);
  for (const std::size_t survivor : {0, 2, 3}) {
    CHECK(!result.runs[survivor].divergence);
    CHECK(result.runs[survivor].final_loss < 1.25 * result.runs[0].final_loss);
  }
  REQUIRE(result.runs[1].divergence);
  const Divergence& divergence = *result.runs[1].divergence;
  CHECK(result.runs[1].final_loss > 0.9 * result.chance);
  CHECK(divergence.step == 300);
  REQUIRE(divergence.saturated);
  CHECK((divergence.saturated->step == 300 && divergence.saturated->layer == 1));
  CHECK(divergence.saturated->tensor == LinearTensor::x);
  // The scale is that of inputs up to sqrt 3, the amax that of inputs 2^20 times as large.
  CHECK(std::abs(divergence.saturated->facts.scale - 258.65F) < 0.1F);
  CHECK(std::abs(divergence.saturated->facts.amax / 0x1p20F - 1.732F) < 0.01F);
  REQUIRE(divergence.flushed);
  CHECK((divergence.flushed->step == 301 && divergence.flushed->layer == 1));
  CHECK((divergence.flushed->tensor == LinearTensor::x && divergence.flushed->facts.scale < 1e-3F));
  CHECK(!divergence.not_finite);
}

TEST_CASE("tiny gradients make the scale of Transformer Engine 1.6 infinite, and the report names the tensor") {
  TrainArguments arguments = small_training(recipes_of({"te_delayed_hopper"}));
  arguments.amax_history_len = 1;
  arguments.jump = {.step = 5, .factor = 0x1p-120, .of = JumpOf::gradients};
  arguments.version = te_1_6;
  const TrainResult result = run_train(arguments);
  REQUIRE(result.runs[1].divergence);
  const Divergence& divergence = *result.runs[1].divergence;
  // The infinite scale is that of step 6, whose NaN gradients make NaN of the weights of step 7.
  CHECK(divergence.step == 7);
  CHECK(std::isnan(divergence.loss));
  REQUIRE(divergence.not_finite);
  CHECK((divergence.not_finite->step == 6 && divergence.not_finite->tensor == LinearTensor::dy));
  CHECK(divergence.not_finite->layer == 2);  // the last that is quantized
  CHECK((divergence.not_finite->facts.scale == inf && divergence.not_finite->facts.amax < 1));
  arguments.version = te_current;
  CHECK(!run_train(arguments).runs[1].divergence);
}

TEST_CASE("a divergence is a loss that is not finite, or twenty in a row out of bounds") {
  const std::vector<TensorStats> none(3 * 100);
  std::vector<double> losses(100, 1);
  const auto found = [&] {
    std::vector<TensorStats> tensors(3 * losses.size());
    return divergence_of(losses, tensors, 1, 2);
  };
  CHECK(!found());
  losses[30] = 1e9;  // a spike
  CHECK(!found());
  std::fill(losses.begin() + 50, losses.begin() + 69, 2.5);  // 19
  CHECK(!found());
  losses[69] = 2.5;
  REQUIRE(found());
  CHECK((found()->step == 51 && found()->bound == 2 && found()->loss == 2.5));
  losses.assign(100, 1);
  losses[98] = NAN;
  CHECK(found()->step == 99);
  losses.assign(100, 3);  // a level is no divergence
  CHECK(!found());
}

TEST_CASE("around a divergence, the first cast that meets each trouble is found in the order of computation") {
  constexpr std::size_t layers = 2, step = 40;
  std::vector<double> losses(60, 1);
  std::fill(losses.begin() + step - 1, losses.end(), 9);
  std::vector<TensorStats> tensors(60 * layers * 3, {.amax = 1, .scale = 2, .nonzero = 1000});
  const auto at = [&](std::size_t s, std::size_t layer, LinearTensor tensor) -> TensorStats& {
    return tensors[((s - 1) * layers + layer - 1) * 3 + static_cast<std::size_t>(tensor)];
  };
  at(5, 1, LinearTensor::x).not_finite = 3;  // too early
  at(38, 2, LinearTensor::dy).saturated = 1;
  at(38, 1, LinearTensor::dy).saturated = 700;  // after dy of layer 2
  at(38, 2, LinearTensor::w).flushed = 499;     // less than half
  at(39, 1, LinearTensor::dy).not_finite = 1;
  at(39, 2, LinearTensor::w) = {.amax = 5, .scale = 7, .nonzero = 1000, .not_finite = 2};
  for (std::size_t s = 1; s <= 60; ++s) at(s, 1, LinearTensor::x).flushed = 600;  // all the time
  at(41, 2, LinearTensor::x).flushed = 500;
  const std::optional<Divergence> found = divergence_of(losses, tensors, layers, 2);
  REQUIRE((found && found->saturated && found->not_finite && found->flushed));
  CHECK((found->step == step && found->saturated->step == 38 && found->saturated->layer == 2));
  CHECK((found->not_finite->step == 39 && found->not_finite->layer == 2));
  CHECK((found->not_finite->tensor == LinearTensor::w && found->not_finite->facts.amax == 5));
  CHECK((found->flushed->step == 41 && found->flushed->layer == 2 && found->flushed->tensor == LinearTensor::x));
}

TEST_CASE("gradients are scaled and the scale is divided out, which float32 does not notice") {
  TrainArguments arguments = small_training();
  const std::string expected = bits_of(run_train(arguments).runs[0]);
  arguments.gradient_scale = 1024;
  TrainedRun scaled = run_train(arguments).runs[0];
  for (std::size_t i = 2; i < scaled.tensors.size(); i += 3) scaled.tensors[i].amax /= 1024;  // dy
  CHECK(bits_of(scaled) == expected);
}

TEST_CASE("training refuses what makes no sense") {
  const auto refused = [](const std::string& message, const auto& change) {
    TrainArguments arguments = small_training();
    change(arguments);
    CHECK_THROWS_WITH(run_train(arguments), ContainsSubstring(message));
  };
  refused("the number of sizes must be from 2 to 64, not 1", [](auto& a) { a.sizes = {8}; });
  refused("the first of sizes must be at least twice the last", [](auto& a) { a.sizes = {8, 5}; });
  refused("steps must be from 1 to 1000000, not 0", [](auto& a) { a.steps = 0; });
  refused("learning_rate must be from 0", [](auto& a) { a.learning_rate = NAN; });
  refused("gradient_scale must be from", [](auto& a) { a.gradient_scale = 0; });
  refused("resume needs a checkpoint", [](auto& a) { a.resume = true; });
  refused("recipes must have each entry once", [](auto& a) { a.recipes = recipes_of({"exact", "exact"}); });
  refused("te_mxfp8_blackwell does not take them: layer 3:", [](auto& a) {
    a.head = HeadPrecision::fp8;
    a.recipes = recipes_of({"te_mxfp8_blackwell"});
  });
}

}  // namespace fp8lab::tests
