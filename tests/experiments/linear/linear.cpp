// SPDX-License-Identifier: Apache-2.0
// What `fp8lab linear` says of a layer, beside plain sums, histories kept by hand, and messages for what is refused.
#include "linear/linear.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "experiments/documents.hpp"
#include "experiments/npy.hpp"
#include "fp8lab/reference/linear/linear.hpp"
#include "kit/render.hpp"
#include "scratch.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using namespace fp8lab::experiments;

LinearArguments small(std::initializer_list<const char*> recipes, long long steps = 4) {
  LinearArguments arguments;
  arguments.source = LayerDraws{.tokens = 32, .in = 48, .out = 64, .steps = steps};
  arguments.recipes.clear();
  for (const char* name : recipes) arguments.recipes.push_back(choose_linear_recipe(name));
  return arguments;
}

HeldTensor held(const std::vector<float>& values, std::size_t rows, std::size_t columns, const char* name) {
  return {MatrixView(values, rows, columns), {}, name};
}

/// The sections, without what says when and where they were made.
nlohmann::json sections_of_result(const LinearResult& result) {
  return nlohmann::json::parse(json_of(document_of(result))).at("sections");
}

}  // namespace

TEST_CASE("linear: sums of a bfloat16 layer are those of the layer itself") {
  const std::size_t tokens = 16, in = 24, out = 32;
  std::vector<float> x, w, dy;
  for (std::size_t i = 0; i < tokens * in; ++i) x.push_back(static_cast<float>(random_bits(1, i) % 2001) / 1000 - 1);
  for (std::size_t i = 0; i < out * in; ++i) w.push_back(static_cast<float>(random_bits(2, i) % 2001) / 1000 - 1);
  for (std::size_t i = 0; i < tokens * out; ++i) dy.push_back(static_cast<float>(random_bits(3, i) % 2001) / 1000 - 1);
  LinearArguments arguments = small({"bf16_hopper"});
  arguments.source = LayerTensors{HeldTensors{held(x, tokens, in, "x")},
                                  HeldTensors{held(w, out, in, "w")},
                                  HeldTensors{held(dy, tokens, out, "dy")},
                                  {}};
  const LinearResult result = run_linear(arguments);
  REQUIRE(result.passes == std::vector{LinearPass::fprop, LinearPass::dgrad, LinearPass::wgrad});
  // dw, whose output is float32: its real product in long double, from the sums' definition.
  std::vector<float> dw(out * in);
  linear_wgrad(arguments.recipes[0].recipe, MatrixView(dy, tokens, out), MatrixView(x, tokens, in), std::span(dw));
  long double squares = 0;
  long double sum = 0;
  long double reals = 0;
  double largest = 0;
  for (std::size_t i = 0; i < out; ++i) {
    for (std::size_t j = 0; j < in; ++j) {
      long double real = 0;
      for (std::size_t k = 0; k < tokens; ++k) {
        real += static_cast<long double>(dy[k * out + i]) * static_cast<long double>(x[k * in + j]);
      }
      const long double error = static_cast<long double>(dw[i * in + j]) - real;
      squares += error * error;
      sum += error;
      reals += real * real;
      largest = std::max(largest, static_cast<double>(std::abs(error)));
    }
  }
  const SplitTotals& totals = result.measured[0].passes[2].totals;
  const auto count = static_cast<double>(out * in);
  CHECK(totals.count == out * in);
  CHECK(totals.rms(totals.total) == Approx(std::sqrt(static_cast<double>(squares) / count)).epsilon(1e-9));
  CHECK(totals.relative_rms(totals.total) == Approx(std::sqrt(static_cast<double>(squares / reals))).epsilon(1e-9));
  CHECK(totals.mean(totals.total) == Approx(static_cast<double>(sum) / count).epsilon(1e-6));
  CHECK(totals.total.largest == Approx(largest).epsilon(1e-9));
  CHECK(result.measured[0].passes[2].histogram.total() == out * in);
}

TEST_CASE("linear: shares and growths of the causes add up to 1") {
  const LinearResult result =
      run_linear(small({"te_delayed_hopper", "te_current_scaling_blackwell", "bf16_hopper", "tf32_hopper", "exact"}));
  for (const MeasuredLinear& recipe : result.measured) {
    for (const MeasuredPass& pass : recipe.passes) {
      CAPTURE(recipe.name, name_of(pass.pass));
      double share = 0;
      double growth = 0;
      for (const PartTotals& part : pass.totals.parts) {
        share += pass.totals.share(part);
        growth += pass.totals.growth(part);
      }
      CHECK(share == Approx(1).epsilon(1e-12));
      CHECK(growth == Approx(1).epsilon(1e-12));
      CHECK(pass.totals.share(pass.totals.total) == 1);
    }
  }
}

TEST_CASE("linear: delayed scales are those of histories kept by hand") {
  LinearArguments arguments = small({"te_delayed_blackwell"}, 6);
  arguments.delayed.amax_history_len = 2;
  arguments.delayed.margin = 1;
  const LinearResult result = run_linear(arguments);
  // x of step t: the draws of `fp8lab scaling` with that seed; the middle third is multiplied by 32.
  float scale = 1;
  float before = 0;
  for (std::size_t step = 0; step < 6; ++step) {
    std::vector<float> x(32 * 48);
    sample(find_distribution("normal"), 1, step * x.size(), x);
    float amax = 0;
    for (const float value : x) amax = std::max(amax, std::abs(value));
    if (step == 2 || step == 3) amax *= 32;
    const SplitStep& fprop = result.measured[0].passes[0].steps[step];
    CAPTURE(step);
    CHECK(fprop.a.scale == static_cast<double>(scale));
    CHECK(fprop.a.fresh_scale == static_cast<double>(224 / amax));
    CHECK(result.measured[0].passes[2].steps[step].b.scale == fprop.a.scale);
    scale = 224 / std::max(amax, before);
    before = amax;
  }
  // The jump: what lags saturates, and makes almost all of the difference.
  const std::vector<Cause> causes = causes_of(LinearPass::fprop);
  const auto saturation =
      static_cast<std::size_t>(std::ranges::find(causes, "x_lag_saturation", &Cause::name) - causes.begin());
  const SplitTotals& jump = result.measured[0].passes[0].steps[2].totals;
  CHECK(jump.growth(jump.parts[saturation]) > 0.9);
  CHECK(result.measured[0].passes[0].steps[2].a.saturated > 0);
  const SplitTotals& after = result.measured[0].passes[0].steps[3].totals;
  CHECK(after.parts[saturation].largest == 0);
}

TEST_CASE("linear: neither threads nor other recipes change a bit") {
  LinearArguments arguments = small({"te_delayed_hopper", "te_nvfp4_blackwell", "te_block_hopper"}, 2);
  std::get<LayerDraws>(arguments.source).in = 64;
  const nlohmann::json one = sections_of_result(run_linear(arguments));
  arguments.threads = 3;
  CHECK(sections_of_result(run_linear(arguments)) == one);
  const LinearResult both = run_linear(arguments);
  arguments.recipes.erase(arguments.recipes.begin(), arguments.recipes.begin() + 2);
  const LinearResult alone = run_linear(arguments);
  for (std::size_t pass = 0; pass < 3; ++pass) {
    CHECK(alone.measured[0].passes[pass].totals.total.sum_squares ==
          both.measured[2].passes[pass].totals.total.sum_squares);
  }
}

TEST_CASE("linear: a NaN and an infinity leave out the elements that they reach") {
  std::vector<float> x(8 * 16, 1), w(4 * 16, 0.5F);
  x[3 * 16 + 5] = nan;
  x[6 * 16] = inf;
  LinearArguments arguments = small({"bf16_hopper"});
  arguments.source = LayerTensors{HeldTensors{held(x, 8, 16, "x")}, HeldTensors{held(w, 4, 16, "w")}, {}, {}};
  const LinearResult result = run_linear(arguments);
  REQUIRE(result.passes == std::vector{LinearPass::fprop});
  CHECK(result.measured[0].passes[0].totals.not_finite == 2 * 4);
  CHECK(result.measured[0].passes[0].totals.count == 6 * 4);
  CHECK(column_of<Integers>(document_of(result), "recipes", "fprop_not_finite")[0] == 8);
}

TEST_CASE("linear: tensors of files are those of arrays, one for all steps or one for each") {
  const Scratch scratch;
  std::vector<float> x(2 * 8 * 16), w(4 * 16), bias(4);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random_bits(1, i) % 97) - 48;
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(random_bits(2, i) % 97) / 97;
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i) / 3;
  const std::vector<float> first(x.begin(), x.begin() + 128);
  const std::vector<float> second(x.begin() + 128, x.end());
  write_npy(scratch.path / "x0.npy", "<f4", "(2, 4, 16)", first);  // two dimensions of tokens
  write_npy(scratch.path / "x1.npy", "<f4", "(8, 16)", second);
  write_npy(scratch.path / "w.npy", "<f8", "(4, 16)", std::vector<double>(w.begin(), w.end()));
  write_npy(scratch.path / "bias.npy", "<f4", "(4,)", bias);
  LinearArguments arguments = small({"te_delayed_hopper", "tf32_hopper"});
  arguments.check_shapes = false;
  HeldTensor of_bias = held(bias, 1, 4, "bias");
  of_bias.shape = {4};
  arguments.source = LayerTensors{HeldTensors{held(first, 8, 16, "x[0]"), held(second, 8, 16, "x[1]")},
                                  HeldTensors{held(w, 4, 16, "w")},
                                  {},
                                  HeldTensors{of_bias}};
  const LinearResult of_arrays = run_linear(arguments);
  arguments.source = LayerTensors{StoredTensors{{scratch.path / "x0.npy", scratch.path / "x1.npy"}, {}},
                                  StoredTensors{{scratch.path / "w.npy"}, {}},
                                  {},
                                  StoredTensors{{scratch.path / "bias.npy"}, {}}};
  const LinearResult of_files = run_linear(arguments);
  REQUIRE(of_files.measured[0].passes[0].steps.size() == 2);
  for (const char* table : {"causes", "steps", "casts"}) {
    const auto named = [&](const LinearResult& result) {
      for (const auto& section : sections_of_result(result)) {
        if (section.at("name") == table) return section;
      }
      return nlohmann::json();
    };
    CHECK(named(of_files) == named(of_arrays));
  }
}

TEST_CASE("linear: what does not fit is refused with the tensor and the dimension") {
  const std::vector<float> values(64 * 64, 1);
  const auto layer = [&](std::size_t x_in, std::size_t w_in, std::size_t dy_tokens, std::size_t dy_out,
                         std::size_t bias_out) {
    const HeldTensor bias{MatrixView(std::span(values).first(bias_out), 1, bias_out),
                          std::vector<std::uint64_t>{bias_out}, "bias"};
    const auto matrix = [&](std::size_t rows, std::size_t columns, const char* name) {
      return HeldTensors{{MatrixView(std::span(values).first(rows * columns), rows, columns), {}, name}};
    };
    LinearArguments arguments = small({"bf16_hopper"});
    arguments.source =
        LayerTensors{matrix(16, x_in, "x"), matrix(32, w_in, "w"), matrix(dy_tokens, dy_out, "dy"), HeldTensors{bias}};
    return arguments;
  };
  CHECK_NOTHROW(run_linear(layer(48, 48, 16, 32, 32)));
  CHECK_THROWS_WITH(run_linear(layer(48, 40, 16, 32, 32)),
                    ContainsSubstring("x has 48 columns (in) and w has 40 columns (in); they must be as many"));
  CHECK_THROWS_WITH(run_linear(layer(48, 48, 8, 32, 32)),
                    ContainsSubstring("dy has 8 rows (tokens) and x has 16 rows (tokens)"));
  CHECK_THROWS_WITH(run_linear(layer(48, 48, 16, 24, 32)),
                    ContainsSubstring("dy has 24 columns (out) and w has 32 rows (out)"));
  CHECK_THROWS_WITH(run_linear(layer(48, 48, 16, 32, 5)),
                    ContainsSubstring("bias has 5 elements (out) and w has 32 rows (out)"));
  SECTION("dimensions of a tensor") {
    LinearArguments arguments = layer(48, 48, 16, 32, 32);
    auto& tensors = std::get<LayerTensors>(arguments.source);
    std::get<HeldTensors>(*tensors.w)[0].shape = {2, 16, 48};
    CHECK_THROWS_WITH(run_linear(arguments),
                      ContainsSubstring("w\": must have two dimensions, (out, in), not shape (2, 16, 48)"));
    tensors.w = {};
    std::get<HeldTensors>(*tensors.bias)[0].shape = {1, 32};
    CHECK_THROWS_WITH(run_linear(arguments), ContainsSubstring("must have one dimension, (out,), not shape (1, 32)"));
  }
  SECTION("steps") {
    LinearArguments arguments = layer(48, 48, 16, 32, 32);
    auto& tensors = std::get<LayerTensors>(arguments.source);
    auto& x = std::get<HeldTensors>(*tensors.x);
    x = {x[0], x[0], x[0]};
    CHECK(run_linear(arguments).measured[0].passes[0].steps.size() == 3);
    auto& w = std::get<HeldTensors>(*tensors.w);
    w = {w[0], w[0]};
    CHECK_THROWS_WITH(run_linear(arguments), ContainsSubstring("w has 2 tensors and x has 3; each needs one"));
  }
  SECTION("passes") {
    LinearArguments arguments = layer(48, 48, 16, 32, 32);
    std::get<LayerTensors>(arguments.source).dy = {};
    CHECK(run_linear(arguments).passes == std::vector{LinearPass::fprop});
    arguments.passes = {LinearPass::wgrad};
    CHECK_THROWS_WITH(run_linear(arguments), ContainsSubstring("wgrad needs dy and x, and dy is missing"));
    arguments.passes = {LinearPass::fprop, LinearPass::fprop};
    CHECK_THROWS_WITH(run_linear(arguments), ContainsSubstring("passes must have each entry once"));
    std::get<LayerTensors>(arguments.source).w = {};
    arguments.passes = {};
    CHECK_THROWS_WITH(run_linear(arguments), ContainsSubstring("two of the tensors x, w and dy are needed"));
  }
  SECTION("recipes and draws") {
    LinearArguments arguments = small({"te_mxfp8_blackwell"});
    CHECK_THROWS_WITH(run_linear(arguments),
                      ContainsSubstring("te_mxfp8_blackwell: x: in (columns) must be a multiple of 32, not 48"));
    arguments.check_shapes = false;
    CHECK_THROWS_WITH(run_linear(arguments), ContainsSubstring("te_mxfp8_blackwell: fprop: x: columns must be"));
    arguments.check_shapes = true;
    arguments.recipes.clear();
    CHECK_THROWS_WITH(run_linear(arguments), ContainsSubstring("recipes must have at least one entry"));
    arguments = small({"exact", "exact"});
    CHECK_THROWS_WITH(run_linear(arguments), ContainsSubstring("recipes must have each entry once"));
    arguments = small({"exact"});
    auto& draws = std::get<LayerDraws>(arguments.source);
    draws.tokens = 0;
    CHECK_THROWS_WITH(run_linear(arguments), ContainsSubstring("tokens must be from 1 to 2^26, not 0"));
    draws.tokens = 1 << 21;
    CHECK_THROWS_WITH(run_linear(arguments), ContainsSubstring("tokens * in_features must be at most 2^26"));
    draws = {.tokens = 16, .in = 16, .out = 16, .steps = 0};
    CHECK_THROWS_WITH(run_linear(arguments), ContainsSubstring("steps must be from 1"));
    draws = {.tokens = 16, .in = 16, .out = 16, .steps = 1, .w_factor = -1};
    CHECK_THROWS_WITH(run_linear(arguments), ContainsSubstring("w_factor must be positive and finite"));
    draws.w_factor = 1;
    draws.bias_factor = 0;
    CHECK_NOTHROW(run_linear(arguments));
    arguments.delayed.amax_history_len = 0;
    CHECK_THROWS_WITH(run_linear(arguments), ContainsSubstring("amax_history_len"));
  }
  SECTION("a run can be stopped") {
    CHECK_THROWS_WITH(run_linear(small({"exact"}), [](double) { throw std::runtime_error("stop"); }), "stop");
  }
}

}  // namespace fp8lab::tests
