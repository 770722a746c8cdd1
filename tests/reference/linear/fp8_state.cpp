// SPDX-License-Identifier: Apache-2.0
// When scales are made, of which amaxes: each claim about Transformer Engine's autocast is a test that is named for it.
// The numbers are amaxes of powers of two, so that a scale is 448 / amax, or 57344 / amax for gradients.
#include "fp8lab/reference/linear/fp8_state.hpp"

#include <limits>
#include <stdexcept>

#include "reference/linear/fp8_run.hpp"

namespace fp8lab::tests {
namespace {

const Delayed window_of_3{.amax_history_len = 3};

TEST_CASE("every scale of the first iteration is 1, forward scales change at the region's exit, backward ones later") {
  Fp8Run run(1);
  run.state.is_traced = true;
  enter_autocast(run.state, delayed_region(window_of_3));
  const LinearCall call = run.forward_amaxes(0, 2, 1);
  CHECK((run.x_scale() == 1 && run.w_scale() == 1 && run.dy_scale() == 1));
  exit_autocast(run.state);
  CHECK((run.x_scale() == 224 && run.w_scale() == 448 && run.dy_scale() == 1));
  run.backward_amax(call, 4);
  CHECK((run.x_scale() == 224 && run.w_scale() == 448 && run.dy_scale() == 14336));
  // Saved codes keep the scale_inv that they were made with.
  CHECK(call.weight->rowwise.scale_inv == std::vector<float>{1});
  CHECK(call.x_columnwise->scale_inv == std::vector<float>{1});
  std::vector<std::string> told;
  for (const StateEvent& event : run.state.trace) told.push_back(event.name + " " + event.tensor + " " + event.action);
  CHECK(told == std::vector<std::string>{"forward x cast", "forward w cast", "exit_autocast x update",
                                         "exit_autocast w update", "backward dy cast", "backward w read",
                                         "backward dy update"});
}

TEST_CASE("the scales of published traces, an amax of 0 and an infinite one included") {
  struct Published {
    const char* rules;
    DelayedVersion version;
    std::vector<float> amaxes, scales;  // after each step
  };
  constexpr float inf = std::numeric_limits<float>::infinity();
  for (const Published& one :
       {Published{"te_2_8", te_current, {2, 0, 4, inf, 1, 1, 1}, {224, 224, 112, 112, 112, 112, 448}},
        Published{"te_2_8", te_current_unfused, {2, 0, 4, inf, 1, 1, 1}, {224, 224, 112, 112, 112, 112, 448}},
        Published{"te_2_8", te_current, {4, 0, 0, 0, 1, 1, 1}, {112, 112, 112, 112, 112, 112, 448}},
        Published{"te_2_8", te_current_unfused, {4, 0, 0, 0, 1, 1, 1}, {112, 112, 112, 112, 448, 448, 448}}}) {
    Fp8Run run(1, one.rules);
    std::vector<float> scales;
    for (const float amax : one.amaxes) {
      run.step({.amax_history_len = 3, .version = one.version}, amax, 1, 1);
      scales.push_back(run.x_scale());
    }
    CHECK(scales == one.scales);
  }
}

TEST_CASE("a layer that is called several times in a region has one entry in its history, the largest") {
  Fp8Run run(1);
  enter_autocast(run.state, delayed_region(window_of_3));
  for (const float amax : {2.0F, 8.0F, 4.0F}) (void)run.forward_amaxes(0, amax, 1);
  exit_autocast(run.state);
  CHECK(run.state.layers[0].forward.x.amaxes == std::vector<float>{0, 0, 8});
  CHECK(run.x_scale() == 56);
}

TEST_CASE("an inner region's exit makes no scales, and under an outer one that is disabled none are ever made") {
  Fp8Run run(1);
  enter_autocast(run.state, delayed_region(window_of_3));
  enter_autocast(run.state, delayed_region(window_of_3));
  (void)run.forward_amaxes(0, 2, 1);
  exit_autocast(run.state);
  CHECK(run.x_scale() == 1);
  exit_autocast(run.state);
  CHECK(run.x_scale() == 224);
  Fp8Run other(1);
  for (int step = 0; step < 3; ++step) {
    enter_autocast(other.state, delayed_region(window_of_3, false));
    enter_autocast(other.state, delayed_region(window_of_3));
    (void)other.forward_amaxes(0, 2, 1);
    exit_autocast(other.state);
    exit_autocast(other.state);
  }
  CHECK(other.x_scale() == 1);
}

TEST_CASE("an evaluation without gradients leaves its amax to the next training step") {
  Fp8Run run(1);
  run.step(window_of_3, 2, 1, 1);
  run.state.grad_enabled = false;
  enter_autocast(run.state, delayed_region(window_of_3));
  (void)run.forward_amaxes(0, 64, 1);
  exit_autocast(run.state);
  run.state.grad_enabled = true;
  CHECK(run.x_scale() == 224);
  CHECK(run.state.layers[0].forward.x.amaxes == std::vector<float>{64, 0, 2});
  run.step(window_of_3, 2, 1, 1);
  CHECK(run.x_scale() == 7);
}

TEST_CASE("a region that is disabled collects nothing") {
  Fp8Run run(1);
  enter_autocast(run.state, delayed_region(window_of_3, false));
  (void)run.forward_amaxes(0, 2, 1);
  exit_autocast(run.state);
  CHECK_FALSE(run.state.layers[0].recipe.has_value());
}

TEST_CASE("the exit of a region makes the scales of every layer that was ever run in FP8") {
  Fp8Run run(2);
  enter_autocast(run.state, delayed_region(window_of_3));
  (void)run.forward_amaxes(0, 2, 1);
  exit_autocast(run.state);
  run.state.grad_enabled = false;
  enter_autocast(run.state, delayed_region(window_of_3));
  (void)run.forward_amaxes(0, 16, 1);
  exit_autocast(run.state);
  run.state.grad_enabled = true;
  enter_autocast(run.state, delayed_region({.margin = 1, .amax_history_len = 3}));
  (void)run.forward_amaxes(1, 2, 1);
  exit_autocast(run.state);
  CHECK(run.x_scale(0) == 28);
  CHECK(run.x_scale(1) == 112);
}

TEST_CASE("a layer stays registered under its first recipe, and a recipe of the same key replaces the one before") {
  Fp8Run run(1);
  run.step(window_of_3, 2, 1, 1);
  run.step({.margin = 3, .amax_history_len = 3}, 2, 1, 1);
  CHECK(run.x_scale() == 224);
  CHECK(run.state.buffers.size() == 1);
  // Which amax makes the scale is no part of the key.
  run.step(window_of_3, 8, 1, 1);
  run.step({.amax_history_len = 3, .amax_compute_algo = AmaxComputeAlgo::most_recent}, 2, 1, 1);
  CHECK(run.x_scale() == 224);
  CHECK(run.state.buffers.size() == 1);
}

TEST_CASE("the backward of the first layer that a gradient comes back to makes the backward scales of all") {
  Fp8Run run(3);
  enter_autocast(run.state, delayed_region(window_of_3));
  const LinearCall frozen = run.forward_amaxes(0, 1, 1, {.requires_grad = false});
  const LinearCall first = run.forward_amaxes(1, 1, 1);
  const LinearCall second = run.forward_amaxes(2, 1, 1);
  exit_autocast(run.state);
  CHECK_FALSE(frozen.has_grad);
  CHECK((first.updates_backward && !second.updates_backward));
  run.backward_amax(second, 2);
  CHECK(run.dy_scale(2) == 1);
  run.backward_amax(first, 4);
  CHECK((run.dy_scale(1) == 14336 && run.dy_scale(2) == 28672));
}

TEST_CASE("sibling regions inside of one each have a first layer, unless one ran before them") {
  for (const bool runs_before : {false, true}) {
    Fp8Run run(3);
    enter_autocast(run.state, delayed_region(window_of_3));
    if (runs_before) (void)run.forward_amaxes(2, 1, 1);
    std::vector<bool> updates;
    for (const std::size_t layer : {0U, 1U}) {
      enter_autocast(run.state, delayed_region(window_of_3));
      updates.push_back(run.forward_amaxes(layer, 1, 1).updates_backward);
      exit_autocast(run.state);
    }
    exit_autocast(run.state);
    CHECK(updates == std::vector<bool>{!runs_before, !runs_before});
  }
}

TEST_CASE("before 1.6 a layer's scales are made when it runs again, also after an evaluation since 0.4") {
  Fp8Run run(1, "te_0_3");
  const Delayed old{.amax_history_len = 3, .version = te_1_4};
  run.step(old, 2, 1, 4);
  CHECK((run.x_scale() == 1 && run.dy_scale() == 1));
  run.step(old, 8, 1, 4);
  CHECK((run.x_scale() == 224 && run.dy_scale() == 14336));
  for (const char* rules : {"te_0_1", "te_0_3"}) {
    Fp8Run evaluated(1, rules);
    evaluated.state.grad_enabled = false;
    enter_autocast(evaluated.state, delayed_region(old));
    (void)evaluated.forward_amaxes(0, 2, 1);
    (void)evaluated.forward_amaxes(0, 2, 1);
    exit_autocast(evaluated.state);
    CHECK(evaluated.x_scale() == (std::string_view(rules) == "te_0_1" ? 1 : 224));
  }
}

TEST_CASE(
    "ranks share the largest of their amaxes in any order, drop a NaN that not all have, and wait for each other") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const auto scales_of = [](const std::vector<float>& amaxes, const Delayed& delayed) {
    std::vector<Fp8State> ranks;
    std::vector<LinearCall> calls;
    for (const float amax : amaxes) {
      Fp8Run run(1, "te_2_8", static_cast<int>(amaxes.size()));
      enter_autocast(run.state, delayed_region(delayed));
      std::vector<float> x = with_amax(1);
      x[5] = amax;
      std::vector<std::uint16_t> y(256);
      calls.push_back(forward(run.state, 0, square(x), square(with_amax(1)), std::span(y)));
      exit_autocast(run.state);
      CHECK(run.x_scale() == 1);
      CHECK_THROWS_AS(enter_autocast(run.state, delayed_region(delayed)), std::logic_error);
      ranks.push_back(run.state);
    }
    reduce_and_update(ranks);
    std::vector<float> scales;
    for (const Fp8State& rank : ranks) scales.push_back(rank.layers[0].forward.x.scale);
    return scales;
  };
  CHECK(scales_of({2, 8, 4}, window_of_3) == std::vector<float>{56, 56, 56});
  CHECK(scales_of({8, 4, 2}, window_of_3) == std::vector<float>{56, 56, 56});
  CHECK(scales_of({2, 8, 4}, {.amax_history_len = 3, .reduce_amax = false}) == std::vector<float>{224, 56, 112});
  CHECK(scales_of({nan, 8}, window_of_3) == std::vector<float>{56, 56});
  std::vector<Fp8State> apart{Fp8Run(1, "te_2_8", 2).state, Fp8Run(1, "te_2_8", 2).state};
  apart[0].forward_is_due = true;
  CHECK_THROWS_WITH(reduce_and_update(apart),
                    "all ranks must wait for the same update; one of them has not come so far");
  apart.pop_back();
  CHECK_THROWS_WITH(reduce_and_update(apart), "there must be 2 states, for one of them has as many ranks, not 1");
}

TEST_CASE("the recipes of another system, of a function and of other formats are refused") {
  Fp8State state = start_fp8_state(1);
  const auto refused = [&](const Autocast& region, const char* message) {
    const Fp8State before = state;
    CHECK_THROWS_WITH(enter_autocast(state, region), message);
    CHECK(equal_states(before, state));
  };
  refused(delayed_region({.version = ms_amp}),
          "the version of delayed scaling must be one of Transformer Engine, not ms_amp");
  refused(delayed_region({.amax_compute_algo = [](std::span<const float>) { return 1.0F; }}),
          "amax_compute_algo must be max or most_recent, not a function: a state is a value");
  refused(delayed_region({.fp8_format = Fp8Format::e4m3_only}),
          "the linear recipe casts dy to e5m2, but fp8_format e4m3 to e4m3");
  CHECK_THROWS_AS(exit_autocast(state), std::logic_error);
  CHECK_THROWS_WITH(start_fp8_state(0), "layers must be at least 1, not 0");
  CHECK_THROWS_WITH(start_fp8_state(1, find_state_rules("te_0_3"), 2),
                    "the rules te_0_3 are modelled for one rank, not 2");
  CHECK_THROWS(find_state_rules("te_9"));
}

}  // namespace
}  // namespace fp8lab::tests
