// SPDX-License-Identifier: Apache-2.0
// What a layer's forward and backward compute on an Fp8State: bits against linear() of what is quantized by hand,
// cached weights, weights in FP8 only, recomputation, and calls that fail.
#include "fp8lab/reference/linear/fp8_layer.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "reference/linear/fp8_run.hpp"

namespace fp8lab::tests {
namespace {

/// A tensor of draws.
std::vector<float> drawn(std::size_t count, std::uint64_t seed, float factor = 1) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto word = static_cast<std::uint32_t>(random_bits(seed, i));
    values[i] = std::bit_cast<float>((word & 0x81FFFFFFU) + 0x3E000000U) * factor;
  }
  return values;
}

struct Sizes {
  std::size_t tokens, in, out;
};
constexpr Sizes layer_sizes{128, 256, 128};

/// Results of a step: words of y and dx, bits of dw.
struct StepBits {
  std::vector<std::uint16_t> y, dx;
  std::vector<float> dw;

  explicit StepBits(const Sizes& of) : y(of.tokens * of.out), dx(of.tokens * of.in), dw(of.out * of.in) {}
  bool operator==(const StepBits&) const = default;
};

struct StepTensors {
  std::vector<float> x = drawn(layer_sizes.tokens * layer_sizes.in, 1, 3),
                     w = drawn(layer_sizes.out * layer_sizes.in, 2, 0.05F),
                     dy = drawn(layer_sizes.tokens * layer_sizes.out, 3, 1e-3F), bias = drawn(layer_sizes.out, 4);
  [[nodiscard]] MatrixView x_view() const { return {x, layer_sizes.tokens, layer_sizes.in}; }
  [[nodiscard]] MatrixView w_view() const { return {w, layer_sizes.out, layer_sizes.in}; }
  [[nodiscard]] MatrixView dy_view() const { return {dy, layer_sizes.tokens, layer_sizes.out}; }
};

StepBits step_of_state(Fp8State& state, const Autocast& region, const StepTensors& tensors,
                       const std::vector<std::uint8_t>& random, int threads) {
  StepBits bits(layer_sizes);
  enter_autocast(state, region);
  const LinearCall call = forward(state, 0, tensors.x_view(), tensors.w_view(), std::span(bits.y),
                                  {.bias = tensors.bias, .threads = threads});
  exit_autocast(state);
  BackwardOptions options{.threads = threads};
  if (!random.empty()) options.random = RandomSource{std::span(random), 8};
  backward(state, call, tensors.dy_view(), std::span(bits.dx), std::span(bits.dw), options);
  return bits;
}

TEST_CASE("a step is linear(), linear_dgrad() and linear_wgrad() of the same tensors, under every recipe and thread") {
  const StepTensors tensors;
  for (const NamedLinearRecipe& named : linear_recipes()) {
    const LinearRecipe& recipe = named.recipe;
    if (recipe.fprop.recipe.output != bfloat16) continue;
    const auto* cast = std::get_if<Recipe>(&recipe.dgrad.a);
    std::vector<std::uint8_t> random;
    if (cast != nullptr && is_stochastic(*cast)) random.resize(tensors.dy.size(), 77);
    LinearOptions options{.threads = 2};
    StepBits expected(layer_sizes);
    options.bias = tensors.bias;
    linear(recipe, tensors.x_view(), tensors.w_view(), std::span(expected.y), options);
    options.bias = {};
    if (!random.empty()) options.random = RandomSource{std::span(random), 8};
    linear_dgrad(recipe, tensors.dy_view(), tensors.w_view(), std::span(expected.dx), options);
    linear_wgrad(recipe, tensors.dy_view(), tensors.x_view(), std::span(expected.dw), options);
    for (const int threads : {1, 2, 4}) {
      Fp8State state = start_fp8_state(1);
      Delayed delayed;
      if (cast != nullptr && cast->format == e4m3) delayed.fp8_format = Fp8Format::e4m3_only;
      INFO(named.name);
      CHECK((step_of_state(state, {.recipe = recipe, .delayed = delayed}, tensors, random, threads) == expected));
    }
  }
}

TEST_CASE("under delayed scaling a step multiplies what each history's scale makes of the tensor") {
  const LinearRecipe& recipe = find_linear_recipe("te_delayed_hopper").recipe;
  const Delayed delayed{.amax_history_len = 2};
  AmaxHistory x_history = start_history(delayed), w_history = x_history, dy_history = x_history;
  Fp8State state = start_fp8_state(1);
  for (std::uint64_t step = 0; step < 4; ++step) {
    StepTensors tensors;
    tensors.x = drawn(tensors.x.size(), 10 + step, step == 2 ? 9.0F : 1.5F);
    StepBits expected(layer_sizes);
    Quantized x, x_columnwise, w, w_columnwise, dy, dy_columnwise;
    quantize_both(tensors.x_view(), delayed, Pass::forward, x_history, x, x_columnwise);
    quantize_both(tensors.w_view(), delayed, Pass::forward, w_history, w, w_columnwise);
    quantize_both(tensors.dy_view(), delayed, Pass::backward, dy_history, dy, dy_columnwise);
    linear(recipe, std::cref(x), std::cref(w), std::span(expected.y), {.bias = tensors.bias});
    linear_dgrad(recipe, std::cref(dy), std::cref(w_columnwise), std::span(expected.dx));
    linear_wgrad(recipe, std::cref(dy_columnwise), std::cref(x_columnwise), std::span(expected.dw));
    CHECK((step_of_state(state, delayed_region(delayed), tensors, {}, 1) == expected));
    update_scale(delayed, Pass::forward, x_history);
    update_scale(delayed, Pass::forward, w_history);
    update_scale(delayed, Pass::backward, dy_history);
    CHECK(state.layers[0].forward.x.scale == x_history.scale);
  }
}

/// y of microbatches with the same x and w, while the weight's scale changes in between; and the exact product.
struct Microbatches {
  std::vector<std::vector<double>> y;
  std::vector<float> inverses;  // which scale_inv the GEMM takes for the weight
  double worst = 0;             // the largest |y - y of the first microbatch in high precision| over its largest |y|
};
Microbatches run_microbatches(std::string_view rules, const DelayedVersion& version) {
  const StepTensors tensors;
  std::vector<float> exact_y(layer_sizes.tokens * layer_sizes.out);
  linear(find_linear_recipe("exact").recipe, tensors.x_view(), tensors.w_view(), std::span(exact_y));
  float largest = 0;
  for (const float y : exact_y) largest = std::max(largest, std::abs(y));
  Fp8State state = start_fp8_state(1, find_state_rules(rules));
  const Delayed delayed{.amax_history_len = 4, .version = version};
  Microbatches result;
  for (const std::optional<bool> first : {std::optional(true), std::optional(false), std::optional(false)}) {
    std::vector<std::uint16_t> y(exact_y.size());
    enter_autocast(state, delayed_region(delayed));
    const LinearCall call =
        forward(state, 0, tensors.x_view(), tensors.w_view(), std::span(y), {.is_first_microbatch = first});
    exit_autocast(state);
    result.inverses.push_back(call.weight->rowwise.scale_inv.front());
    double worst = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(decode(bfloat16, y[i])) - static_cast<double>(exact_y[i])));
    }
    result.worst = std::max(result.worst, worst / static_cast<double>(largest));
  }
  return result;
}

TEST_CASE(
    "cached weights keep their scale_inv, but in 1.6 and 1.7 take that of the newest scale: an error of order 1") {
  // The weight is small for a scale of 1, so that right microbatches are coarse, too, but not off by a factor.
  const Microbatches right = run_microbatches("te_2_8", te_current);
  CHECK(right.inverses == std::vector<float>{1, 1, 1});
  CHECK(right.worst < 0.3);
  const Microbatches cured = run_microbatches("te_1_8", te_1_7);
  CHECK(cured.inverses == right.inverses);
  CHECK(cured.worst == right.worst);
  const Microbatches faulty = run_microbatches("te_1_6", te_1_7);
  CHECK(faulty.inverses[0] == 1);
  CHECK(faulty.inverses[1] < 0.01F);
  CHECK(faulty.worst > 0.9);
}

TEST_CASE("a cached weight records no amax, and None neither reads nor writes the cache") {
  Fp8Run run(1);
  const Delayed delayed{.amax_history_len = 3};
  const auto amaxes = [&](std::optional<bool> first, float w) {
    enter_autocast(run.state, delayed_region(delayed));
    (void)run.forward_amaxes(0, 1, w, {.is_first_microbatch = first});
    exit_autocast(run.state);
    return run.state.layers[0].forward.w.amaxes;
  };
  CHECK(amaxes(true, 2) == std::vector<float>{0, 0, 2});
  CHECK(amaxes(false, 64) == std::vector<float>{0, 0, 2});
  const auto cached = run.state.layers[0].cached;
  CHECK(amaxes(std::nullopt, 4) == std::vector<float>{0, 2, 4});
  CHECK(run.state.layers[0].cached == cached);
  CHECK(amaxes(true, 8) == std::vector<float>{0, 4, 8});
  CHECK(run.state.layers[0].cached != cached);
}

TEST_CASE(
    "a cache that was filled without gradients is quantized anew since 2.6, and transposed or unreadable before") {
  const Delayed delayed{.amax_history_len = 3};
  for (const char* rules : {"te_2_6", "te_2_4", "te_2_0"}) {
    Fp8Run run(1, rules);
    run.step(delayed, 1, 2, 1);
    run.state.grad_enabled = false;
    enter_autocast(run.state, delayed_region(delayed));
    (void)run.forward_amaxes(0, 1, 2, {.is_first_microbatch = true});
    CHECK_FALSE(run.state.layers[0].cached->columnwise.has_value());
    run.state.grad_enabled = true;
    if (std::string_view(rules) == "te_2_0") {
      CHECK_THROWS_WITH(run.forward_amaxes(0, 1, 4, {.is_first_microbatch = false}),
                        "w was cached without gradients, and by the rules te_2_0 its backward reads memory that "
                        "nothing wrote");
      continue;
    }
    const LinearCall call = run.forward_amaxes(0, 1, 4, {.is_first_microbatch = false});
    CHECK(call.weight->rowwise.amax == (std::string_view(rules) == "te_2_6" ? 4 : 2));
    const Quantized expected =
        quantize(square(with_amax(call.weight->rowwise.amax)), call.weight->rowwise.recipe, Direction::columnwise);
    CHECK(call.weight->columnwise->codes == expected.codes);
    CHECK(call.weight->columnwise->transposed == expected.transposed);
  }
}

TEST_CASE("a cache that is filled again reaches the backward of earlier calls, or makes it fail") {
  const Delayed delayed{.amax_history_len = 3};
  const auto dx_after_refill = [&](const char* rules, const DelayedVersion& version) {
    Fp8Run run(1, rules);
    Delayed recipe = delayed;
    recipe.version = version;
    enter_autocast(run.state, delayed_region(recipe));
    const LinearCall call = run.forward_amaxes(0, 1, 2, {.is_first_microbatch = true});
    (void)run.forward_amaxes(0, 1, 4, {.is_first_microbatch = true});
    exit_autocast(run.state);
    std::vector<std::uint16_t> dx(256);
    std::vector<float> dy(256, 1);
    backward(run.state, call, square(dy), std::span(dx), std::span<float>());
    return decode(bfloat16, dx[5]);
  };
  CHECK(dx_after_refill("te_2_8", te_current) == -4);
  CHECK(dx_after_refill("te_1_6", te_1_7) == -4);
  CHECK_THROWS_WITH(
      dx_after_refill("te_2_0", te_current),
      "the cached weight of this call was filled again since, and by the rules te_2_0 its backward fails");
}

TEST_CASE("before 1.0 a forward without is_first_microbatch fills the cache, and its update makes an older one wrong") {
  const auto inverses = [](const char* rules, const DelayedVersion& version) {
    Fp8Run run(1, rules);
    std::vector<float> found;
    for (const std::optional<bool> first : {std::optional(true), std::optional<bool>(), std::optional(false)}) {
      enter_autocast(run.state, delayed_region({.amax_history_len = 3, .version = version}));
      found.push_back(run.forward_amaxes(0, 1, 2, {.is_first_microbatch = first}).weight->rowwise.scale_inv.front());
      exit_autocast(run.state);
    }
    found.push_back(run.state.layers[0].cached->rowwise.recipe.given_scale);
    return found;
  };
  // The last number is the scale of the codes: of the second forward, or still of the first.
  CHECK(inverses("te_0_7", te_0_13) == std::vector<float>{1, 1.0F / 224, 1.0F / 224, 224});
  CHECK(inverses("te_1_0", te_1_4) == std::vector<float>{1, 1.0F / 224, 1.0F / 224, 1});
  CHECK(inverses("te_1_8", te_1_7) == std::vector<float>{1, 1.0F / 224, 1, 1});
}

TEST_CASE("cached and fresh weights are the same bits where a recipe keeps no state") {
  const StepTensors tensors;
  for (const char* name : {"te_current_scaling_hopper", "te_mxfp8_blackwell", "te_block_hopper"}) {
    Fp8State state = start_fp8_state(1);
    std::vector<std::vector<std::uint16_t>> results;
    for (const std::optional<bool> first : {std::optional<bool>(), std::optional(true), std::optional(false)}) {
      std::vector<std::uint16_t> y(layer_sizes.tokens * layer_sizes.out);
      enter_autocast(state, {.recipe = find_linear_recipe(name).recipe});
      (void)forward(state, 0, tensors.x_view(), tensors.w_view(), std::span(y), {.is_first_microbatch = first});
      exit_autocast(state);
      results.push_back(y);
    }
    CHECK(results[0] == results[1]);
    CHECK(results[0] == results[2]);
  }
}

TEST_CASE("a weight in FP8 only keeps its bytes until it is written, with the scale of that moment") {
  const Delayed delayed{.amax_history_len = 3};
  const auto step = [&](Fp8State& state) {
    std::vector<std::uint16_t> y(256), dx(256);
    std::vector<float> dw(256);
    enter_autocast(state, delayed_region(delayed));
    const LinearCall call = forward(state, 0, square(with_amax(1)), std::nullopt, std::span(y));
    exit_autocast(state);
    backward(state, call, square(with_amax(1)), std::span(dx), std::span(dw));
    return call.weight->rowwise.scale_inv.front();
  };
  for (const char* rules : {"te_2_8", "te_1_8"}) {
    Fp8State state = start_fp8_state(1, find_state_rules(rules));
    write_weight(state, 0, square(with_amax(2)), delayed_region(delayed));
    const bool is_old = std::string_view(rules) == "te_1_8";
    // From 1.4 to 1.13 the first cast leaves no amax.
    CHECK(state.layers[0].forward.w.amaxes.front() == (is_old ? 0 : 2));
    CHECK(step(state) == 1);
    const float scale = is_old ? 1 : 224;
    CHECK(state.layers[0].forward.w.scale == scale);
    CHECK(step(state) == 1);  // a new scale, the old bytes
    write_weight(state, 0, square(with_amax(4)), delayed_region(delayed));
    CHECK(state.layers[0].parameter->rowwise.scale_inv.front() == 1 / scale);
    // Up to 1.12 the last write of a step makes the scale at once.
    CHECK(state.layers[0].forward.w.scale == (is_old ? 112 : 224));
    CHECK(step(state) == 1 / scale);
    CHECK(state.layers[0].forward.w.scale == 112);
    CHECK_THROWS_WITH(forward(state, 0, square(with_amax(1)), square(with_amax(1)), LinearOutput{}),
                      "layer 0 keeps its weight in FP8 only: w must not be given");
  }
}

TEST_CASE("outside of FP8 a weight in FP8 only is dequantized and multiplied in high precision") {
  const StepTensors tensors;
  Fp8State state = start_fp8_state(1);
  write_weight(state, 0, tensors.w_view(), {.recipe = find_linear_recipe("te_current_scaling_hopper").recipe});
  std::vector<float> w(tensors.w.size());
  dequantize(state.layers[0].parameter->rowwise, w);
  std::vector<std::uint16_t> y(layer_sizes.tokens * layer_sizes.out), expected(y);
  LinearCall call = forward(state, 0, tensors.x_view(), std::nullopt, std::span(y));
  linear(state.high_precision, tensors.x_view(), MatrixView{w, layer_sizes.out, layer_sizes.in}, std::span(expected));
  CHECK(y == expected);
  std::vector<std::uint16_t> dx(layer_sizes.tokens * layer_sizes.in), expected_dx(dx);
  backward(state, call, tensors.dy_view(), std::span(dx), std::span<float>());
  linear_dgrad(state.high_precision, tensors.dy_view(), MatrixView{w, layer_sizes.out, layer_sizes.in},
               std::span(expected_dx));
  CHECK(dx == expected_dx);
}

TEST_CASE("a recomputed layer repeats the scales of its first forward, and its amax counts once") {
  const Delayed delayed{.amax_history_len = 3};
  for (const char* rules : {"te_2_4", "te_2_0", "te_1_8"}) {
    Fp8Run run(1, rules);
    run.step(delayed, 2, 1, 1);
    enter_autocast(run.state, delayed_region(delayed));
    run.state.grad_enabled = false;
    (void)run.forward_amaxes(0, 8, 1, {.recompute = Recompute::first});
    const std::vector<std::uint16_t> first_words = run.words;
    run.state.grad_enabled = true;
    exit_autocast(run.state);
    CHECK(run.x_scale() == 56);
    enter_autocast(run.state, delayed_region(delayed));
    const LinearCall call = run.forward_amaxes(0, 8, 1, {.recompute = Recompute::second});
    CHECK(call.x_columnwise->scale_inv.front() == 1.0F / 224);
    CHECK(run.words == first_words);
    const bool loses = std::string_view(rules) == "te_2_0";
    CHECK(run.x_scale() == (loses ? 224 : 56));
    CHECK(run.state.layers[0].forward.x.amaxes == (loses ? std::vector<float>{8, 0, 2} : std::vector<float>{0, 2, 8}));
    CHECK(run.state.is_first_layer == (std::string_view(rules) != "te_1_8"));
    exit_autocast(run.state);
    CHECK_THROWS_WITH(
        [&] {
          enter_autocast(run.state, delayed_region(delayed));
          (void)run.forward_amaxes(0, 8, 1, {.recompute = Recompute::second});
        }(),
        "layer 0 has no first forward under recomputation that a second one could repeat");
  }
}

TEST_CASE("a second forward outside of regions runs in FP8 as the first did, and is its region's first layer again") {
  for (const char* rules : {"te_2_8", "te_1_8"}) {
    Fp8Run run(2, rules);
    enter_autocast(run.state, delayed_region({.amax_history_len = 3}));
    run.state.grad_enabled = false;
    (void)run.forward_amaxes(0, 2, 1, {.recompute = Recompute::first});
    const std::vector<std::uint16_t> first = run.words;
    run.state.grad_enabled = true;
    (void)run.forward_amaxes(1, 2, 1);
    exit_autocast(run.state);
    const LinearCall call = run.forward_amaxes(0, 2, 1, {.recompute = Recompute::second});
    CHECK(run.words == first);
    CHECK(call.delayed.has_value());
    CHECK(call.updates_backward == (std::string_view(rules) == "te_2_8"));
  }
}

TEST_CASE("a layer's fp8_format cannot change in the middle of a run") {
  Fp8Run run(1);
  run.step({.amax_history_len = 3}, 2, 1, 1);
  enter_autocast(run.state, {.recipe = find_linear_recipe("te_delayed_hopper_e4m3").recipe,
                             .delayed = {.fp8_format = Fp8Format::e4m3_only, .amax_history_len = 3}});
  CHECK_THROWS_WITH(run.forward_amaxes(0, 1, 1),
                    "layer 0 has run with fp8_format hybrid, which cannot become e4m3 in the middle of a run");
}

TEST_CASE("another history length keeps the oldest amaxes, but up to 0.6 any change of the recipe begins anew") {
  Fp8Run run(1);
  for (const float amax : {2.0F, 4.0F, 8.0F}) run.step({.amax_history_len = 4}, amax, 1, 1);
  run.step({.amax_history_len = 2}, 1, 1, 1);
  CHECK(run.state.layers[0].forward.x.amaxes == std::vector<float>{0, 1});
  run.step({.amax_history_len = 3}, 16, 1, 1);
  CHECK(run.state.layers[0].forward.x.amaxes == std::vector<float>{0, 0, 16});
  for (const char* rules : {"te_0_3", "te_0_7"}) {
    Fp8Run old(1, rules);
    old.step({.amax_history_len = 3, .version = te_0_13}, 2, 1, 1);
    old.step({.margin = 1, .amax_history_len = 3, .version = te_0_13}, 2, 1, 1);
    CHECK(old.x_scale() == (std::string_view(rules) == "te_0_7" ? 112 : 1));
  }
}

TEST_CASE("a call that fails leaves the state as it was") {
  Fp8Run run(1);
  const Delayed delayed{.amax_history_len = 3};
  run.step(delayed, 2, 1, 1);
  enter_autocast(run.state, delayed_region(delayed));
  const LinearCall call = run.forward_amaxes(0, 2, 1);
  const Fp8State before = run.state;
  std::vector<std::uint16_t> y(256), dx(256);
  std::vector<float> dw(256), wide(512);
  const auto fails = [&](const auto& f) {
    CHECK_THROWS_AS(f(), std::invalid_argument);
    CHECK(equal_states(before, run.state));
  };
  const std::vector<float> x = with_amax(1);
  fails([&] { (void)forward(run.state, 1, square(x), square(x), std::span(y)); });
  fails([&] { (void)forward(run.state, 0, square(x), std::nullopt, std::span(y)); });
  fails([&] { (void)forward(run.state, 0, square(x), MatrixView{wide, 16, 32}, std::span(y)); });
  fails([&] { (void)forward(run.state, 0, square(x), square(x), std::span(dw)); });
  fails([&] { (void)forward(run.state, 0, square(x), square(x), std::span(y).first(255)); });
  fails([&] { backward(run.state, call, MatrixView{wide, 16, 32}, std::span(dx), std::span(dw)); });
  fails([&] { backward(run.state, call, square(x), std::span(dx), std::span(dw).first(255)); });
  fails([&] { backward(run.state, call, square(x), LinearOutput{}, LinearOutput{}); });
  fails([&] {
    LinearCall evaluated = call;
    evaluated.has_grad = false;
    backward(run.state, evaluated, square(x), std::span(dx), std::span(dw));
  });
}

TEST_CASE("equal states go on equally, and each difference of a call shows") {
  Fp8Run run(2);
  const Delayed delayed{.amax_history_len = 3};
  run.step(delayed, 2, 1, 1);
  Fp8Run other = run;
  CHECK(equal_states(run.state, other.state));
  run.step(delayed, 4, 1, 1);
  CHECK_FALSE(equal_states(run.state, other.state));
  other.step(delayed, 4, 1, 1);
  CHECK(equal_states(run.state, other.state));
  (void)run.forward_amaxes(1, 1, 1, {.is_first_microbatch = true});
  CHECK(equal_states(run.state, other.state));  // in high precision nothing is kept
  other.state.layers[0].backward.amaxes[1] = 3;
  CHECK_FALSE(equal_states(run.state, other.state));
}

}  // namespace
}  // namespace fp8lab::tests
