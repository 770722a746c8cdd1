// SPDX-License-Identifier: Apache-2.0
// What the window of amaxes of delayed scaling holds after each step, and the scale that is made of it.
#include <algorithm>
#include <limits>

#include "fp8lab/reference/scaling/delayed_scaling.hpp"
#include "reference/scaling/delayed_runs.hpp"
#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("a window of three through zero and infinity: the histories and scales of both updates") {
  const Floats amaxes{2, 0, 4, inf, 1, 1, 1};
  const Floats scales{224, 224, 112, 112, 112, 112, 448};
  const Run fused = run_of(te_current, 3, amaxes);
  CHECK(fused.after == scales);
  CHECK(fused.used == Floats{1, 224, 224, 112, 112, 112, 112});
  CHECK(fused.histories ==
        std::vector<Floats>{{0, 0, 2}, {0, 0, 2}, {0, 2, 4}, {0, 4, inf}, {0, inf, 1}, {0, 1, 1}, {0, 1, 1}});
  const Run unfused = run_of(te_current_unfused, 3, amaxes);
  CHECK(unfused.after == scales);
  CHECK(unfused.histories ==
        std::vector<Floats>{{0, 0, 2}, {0, 2, 0}, {0, 0, 4}, {0, 4, inf}, {0, inf, 1}, {0, 1, 1}, {0, 1, 1}});
}

TEST_CASE("an amax of zero moves into the window of every version but the fused ones since 1.6") {
  const Floats amaxes{4, 0, 0, 0, 1, 1, 1};
  for (const DelayedVersion& version : {te_1_6, te_1_7, te_current}) {
    CHECK(run_of(version, 3, amaxes).after == Floats{112, 112, 112, 112, 112, 112, 448});
  }
  for (const DelayedVersion& version :
       {te_0_13, te_1_4, te_1_6_unfused, te_1_7_unfused, te_1_7_single, te_current_unfused, te_current_single}) {
    CHECK(run_of(version, 3, amaxes).after == Floats{112, 112, 112, 112, 448, 448, 448});
  }
  for (const DelayedVersion& version : {te_0_1, te_0_5}) {
    CHECK(run_of(version, 3, amaxes).after == Floats{64, 64, 64, 64, 256, 256, 256});
  }
}

TEST_CASE("one infinite amax freezes the scale for as many updates as the window is long") {
  for (const std::size_t length : {1U, 2U, 16U}) {
    Floats amaxes{1, inf};
    amaxes.resize(2 + length, 2);
    const Floats after = run_of(te_current, length, amaxes).after;
    CHECK(std::ranges::count(after, 448.0F) == static_cast<std::ptrdiff_t>(length) + 1);
    CHECK(after.back() == 224);
  }
}

TEST_CASE("NaN: the kernels' maximum ignores it, torch's keeps the old scale while it is in the window") {
  const Floats amaxes{1, nan, 2, 2, 2};
  CHECK(run_of(te_current, 3, amaxes).after == Floats{448, 448, 224, 224, 224});
  CHECK(run_of(te_current_unfused, 3, amaxes).after == Floats{448, 448, 448, 448, 224});
  Delayed recipe = recipe_of(te_current, 3);
  recipe.amax_compute_algo = AmaxComputeAlgo::most_recent;
  CHECK(run_of(recipe, amaxes).after == Floats{448, 448, 224, 224, 224});
  CHECK(run_of(te_current, 1, {nan, nan}).after == Floats{1, 1});
}

TEST_CASE("MS-AMP's window: just in time for 16 steps, then delayed, and anew after an infinite amax") {
  Floats amaxes(16, 1);
  amaxes[3] = 50;
  for (const float amax : {100.0F, 1.0F, 2.0F, 1.0F, 1.0F, 1.0F, inf}) amaxes.push_back(amax);
  amaxes.resize(44, 1);
  const Floats used = run_of(ms_amp, 16, amaxes).used;
  Floats expected(16, 256);
  expected[3] = 8;
  expected.push_back(8);                  // of the 50 that is in the window, and too large for the 100
  expected.insert(expected.end(), 6, 4);  // the infinite amax too is cast with a scale of 4
  expected.resize(44, 256);
  // After 16 steps just in time the window has ones alone, for the 100 left it.
  CHECK(used == expected);
  SECTION("a window of 1 is always just in time") {
    CHECK(run_of(ms_amp, 1, {1, 2, 4, 8}).used == Floats{256, 128, 64, 32});
  }
  SECTION("which slots a step leaves") {
    CHECK(run_of(ms_amp, 3, {1, 2, 3, 5}).histories == std::vector<Floats>{{0, 1, 0}, {0, 2, 1}, {0, 3, 2}, {0, 5, 3}});
    CHECK(run_of(ms_amp, 3, {1, nan, 3}).histories == std::vector<Floats>{{0, 1, 0}, {0, 0, 1}, {0, 3, 0}});
  }
  SECTION("NaN is nothing to the kernel's maximum of a delayed cast") {
    Delayed recipe = recipe_of(ms_amp, 2);
    AmaxHistory history = start_history(recipe);
    for (const float amax : {1.0F, 1.0F}) {
      record_amax(recipe, Pass::forward, history, amax);
      update_scale(recipe, Pass::forward, history);
    }
    record_amax(recipe, Pass::forward, history, 4);
    record_amax(recipe, Pass::forward, history, nan);
    CHECK(history.amaxes == Floats{4, 1});
    CHECK(history.position == 2);
  }
}

TEST_CASE("MS-AMP 0.1 keeps an amax that is not finite in the window") {
  // NaN in the window keeps the scale of the cast, and infinity turns it around.
  CHECK(run_of(ms_amp_0_1, 2, {1, nan, 2, 4, 8, 1}).after == Floats{256, 256, 128, 64, 32, 32});
  CHECK(run_of(ms_amp_0_1, 3, {1, inf, 3}).histories == std::vector<Floats>{{0, 1, 0}, {0, inf, 1}, {0, 3, inf}});
  CHECK(run_of(ms_amp_0_1, 3, {4, inf, 0.5F}).after == Floats{64, 1 / 64.0F, 1 / 512.0F});
  CHECK(run_of(ms_amp, 3, {4, inf, 0.5F}).after == Floats{64, 64, 64});
}

TEST_CASE("torchao: the first cast has its own scale, later ones that of the first and the newest amax") {
  // As torchao 0.9.0 runs, with history_len 3 and 1.
  for (const DelayedVersion& version : {torchao_0_4, torchao_delayed}) {
    CHECK(run_of(version, 3, {2, 8, 1, 1, 1}).used == Floats{224, 224, 56, 224, 224});
    CHECK(run_of(version, 1, {2, 8, 1, 1, 1}).used == Floats{224, 224, 56, 448, 448});
    CHECK(run_of(version, 3, {2, 8, 1}).histories == std::vector<Floats>{{2, 2, 0}, {8, 2, 0}, {1, 2, 0}});
    CHECK(run_of(version, 2, {1, inf, 1, 1}).after == Floats{448, 0, 448, 448});
    CHECK(run_of(version, 2, {inf, 1, 1}).after == Floats{0, 0, 0});
    const Floats used = run_of(version, 2, {1, nan, 1, 1}).used;
    CHECK(std::isnan(used[2]));
    CHECK(used[3] == 448);
    CHECK(std::isnan(run_of(version, 2, {nan, 1, 1, 1}).after[3]));
  }
  CHECK(bits(run_of(torchao_delayed, 1, {0}).used[0]) == 0x57CBBA10);  // 448 / 1e-12
  CHECK(bits(run_of(torchao_delayed, 1, {1e-20F}).used[0]) == 0x57CBBA10);
  CHECK(bits(run_of(torchao_delayed, 1, {3}).after[0]) == 0x43155555);
  CHECK(bits(run_of(torchao_0_4, 1, {3}).after[0]) == 0x43155556);
  CHECK(run_of(torchao_0_4_float16, 1, {0.00683F}).after[0] == 65504);
  CHECK(run_of(torchao_0_6_float16, 1, {0.0078125F}).after[0] == 57344);
  CHECK(run_of(torchao_delayed, 1, {500}).after[0] == 0.896F);
}

TEST_CASE("max and most_recent are the same with a window of 1, and most_recent whatever the window is") {
  const Floats amaxes{2, 0, 4, inf, 1, nan, 8, 1e-40F, 3};
  for (const DelayedVersion& version : delayed_versions) {
    if (!version.has_options()) continue;
    INFO(version.name);
    Delayed recipe = recipe_of(version);
    const Run largest = run_of(recipe, amaxes);
    recipe.amax_compute_algo = AmaxComputeAlgo::most_recent;
    CHECK(run_of(recipe, amaxes).after == largest.after);
    recipe.amax_history_len = 5;
    CHECK(run_of(recipe, amaxes).after == largest.after);
  }
}

TEST_CASE("the scale of a maximum is that of the window's largest amax, the running one included") {
  // Without zero, infinity and NaN all of Transformer Engine's versions have the same window.
  for (const std::size_t length : {1U, 2U, 7U, 64U}) {
    Floats amaxes;
    for (std::uint64_t i = 0; i < 300; ++i) amaxes.push_back(1 + static_cast<float>(random_bits(length, i) % 1000));
    Floats expected;
    for (std::size_t i = 0; i < amaxes.size(); ++i) {
      const auto end = amaxes.begin() + static_cast<std::ptrdiff_t>(i) + 1;
      expected.push_back(448 / *std::max_element(end - static_cast<std::ptrdiff_t>(std::min(i + 1, length)), end));
    }
    for (const DelayedVersion& version : {te_1_4, te_1_6, te_1_7_single, te_current, te_current_single}) {
      CHECK(run_of(version, length, amaxes).after == expected);
    }
  }
}

TEST_CASE("several casts in a step leave the largest amax, of torchao_delayed and just in time the last") {
  const auto after_two = [](const DelayedVersion& version) {
    const Delayed recipe = recipe_of(version, 2);
    AmaxHistory history = start_history(recipe);
    record_amax(recipe, Pass::forward, history, 4);
    record_amax(recipe, Pass::forward, history, 2);
    return history;
  };
  CHECK(after_two(te_current).amaxes == Floats{4, 0});
  CHECK(after_two(te_current).scale == 1);
  CHECK(after_two(torchao_delayed).scale == 224);
  CHECK(after_two(ms_amp).scale == 128);
  // By their bits: NaN is the largest.
  const Delayed recipe = recipe_of(te_current);
  AmaxHistory history = start_history(recipe);
  for (const float amax : {nan, inf}) record_amax(recipe, Pass::forward, history, amax);
  CHECK(std::isnan(history.amaxes[0]));
}

TEST_CASE("a NaN with a sign and a negative zero are no negative amaxes") {
  for (const DelayedVersion& version : delayed_versions) {
    INFO(version.name);
    const Floats plain = run_of(version, 2, {1, nan, 2, 0, 0, 0}).after;
    const Floats with_signs = run_of(version, 2, {1, -nan, 2, -0.0F, -0.0F, -0.0F}).after;
    CHECK(std::ranges::equal(plain, with_signs, [](float a, float b) { return bits(a) == bits(b); }));
  }
  const Delayed recipe = recipe_of(te_current);
  AmaxHistory history = start_history(recipe);
  for (const float amax : {-nan, 3.0F}) record_amax(recipe, Pass::forward, history, amax);
  CHECK(bits(history.amaxes[0]) == bits(nan));  // the largest by its bits
}

TEST_CASE("scale_inv is written with the data up to 0.4, with the new scale up to 1.10, with the data since") {
  const auto inverses = [](const DelayedVersion& version) {
    const Delayed recipe = recipe_of(version);
    AmaxHistory history = start_history(recipe);
    Floats all;
    for (int step = 0; step < 2; ++step) {
      record_amax(recipe, Pass::forward, history, 1.75F);
      all.push_back(history.scale_inv);
      update_scale(recipe, Pass::forward, history);
      all.push_back(history.scale_inv);
    }
    return all;
  };
  for (const DelayedVersion& version : {te_0_1, te_current, te_current_single}) {
    CHECK(inverses(version) == Floats{1, 1, 0x1p-8F, 0x1p-8F});
  }
  for (const DelayedVersion& version : {te_0_5, te_1_4, te_1_6, te_1_7, te_1_7_single}) {
    CHECK(inverses(version) == Floats{1, 0x1p-8F, 0x1p-8F, 0x1p-8F});
  }
}

TEST_CASE("a function for the amax sees the history and takes the unfused path") {
  Delayed recipe = recipe_of(te_current, 3);
  std::vector<Floats> seen;
  recipe.amax_compute_algo = AmaxFunction([&](std::span<const float> history) {
    seen.emplace_back(history.begin(), history.end());
    return 2 * history.front();
  });
  CHECK(run_of(recipe, {1, 0, 2}).after == Floats{224, 224, 112});
  CHECK(seen == std::vector<Floats>{{1, 0, 0}, {0, 0, 1}, {2, 1, 0}});
  recipe.margin = 4;
  CHECK(run_of(recipe, {std::ldexp(448.0F, -130)}).after[0] == std::numeric_limits<float>::max());
}

TEST_CASE("a row that a function for the amax has chosen is read before the window moves, or after it") {
  const auto after = [](const DelayedVersion& version, std::size_t length, std::size_t row) {
    Delayed recipe = recipe_of(version, length);
    recipe.amax_compute_algo = AmaxFunction([row](std::span<const float>) { return AmaxRow{row}; });
    return run_of(recipe, {2, 4, 1, 8}).after;
  };
  for (const DelayedVersion& version : {te_1_6, te_1_6_unfused, te_1_7, te_1_7_unfused, te_1_7_single, te_current,
                                        te_current_unfused, te_current_single}) {
    INFO(version.name);
    CHECK(after(version, 1, 0) == Floats{1, 1, 1, 1});
    CHECK(after(version, 3, 0) == Floats{1, 1, 1, 1});
    CHECK(after(version, 3, 2) == Floats{224, 112, 448, 56});  // where the running step's has moved to
  }
  for (const DelayedVersion& version : {te_0_13, te_1_4}) {
    INFO(version.name);
    CHECK(after(version, 1, 0) == Floats{1, 1, 1, 1});
    CHECK(after(version, 3, 0) == Floats{224, 112, 448, 56});
    CHECK(after(version, 3, 2) == Floats{1, 224, 112, 448});
  }
  CHECK(after(te_0_1, 1, 0) == Floats{128, 64, 256, 32});
  CHECK(after(te_0_1, 3, 0) == Floats{128, 64, 256, 32});
  CHECK(after(te_0_5, 1, 0) == Floats{1, 1, 1, 1});
  CHECK(after(te_0_5, 3, 0) == Floats{128, 64, 256, 32});
  CHECK_THROWS_WITH(after(te_current, 3, 3), ContainsSubstring("must be a row of the 3 amaxes, not 3"));
}

TEST_CASE("a function for the amax that throws leaves the history as it was") {
  Delayed recipe = recipe_of(te_1_7, 3);
  AmaxHistory history = start_history(recipe);
  for (const float amax : {4.0F, 2.0F}) {
    record_amax(recipe, Pass::forward, history, amax);
    update_scale(recipe, Pass::forward, history);
  }
  record_amax(recipe, Pass::forward, history, 1);
  const AmaxHistory before = history;
  const auto is_as_before = [&] {
    return history.amaxes == before.amaxes && history.scale == before.scale && history.scale_inv == before.scale_inv &&
           history.position == before.position;
  };
  recipe.amax_compute_algo = AmaxFunction([](std::span<const float>) -> float { throw std::runtime_error("no amax"); });
  CHECK_THROWS_WITH(update_scale(recipe, Pass::forward, history), "no amax");
  CHECK(is_as_before());
  recipe.amax_compute_algo = AmaxFunction([](std::span<const float>) { return AmaxRow{7}; });
  CHECK_THROWS_AS(update_scale(recipe, Pass::forward, history), std::invalid_argument);
  CHECK(is_as_before());
}

TEST_CASE("a shorter history keeps the oldest amaxes, a longer one has zeros at the end") {
  Delayed recipe = recipe_of(te_current, 4);
  AmaxHistory history = start_history(recipe);
  for (const float amax : {8.0F, 4.0F, 2.0F}) {
    record_amax(recipe, Pass::forward, history, amax);
    update_scale(recipe, Pass::forward, history);
  }
  CHECK(history.amaxes == Floats{0, 8, 4, 2});
  AmaxHistory shorter = history;
  resize_history(shorter, 2);
  CHECK(shorter.amaxes == Floats{0, 8});
  CHECK(shorter.scale == 56);
  resize_history(history, 6);
  CHECK(history.amaxes == Floats{0, 8, 4, 2, 0, 0});
  recipe.amax_history_len = 6;
  record_amax(recipe, Pass::forward, history, 1);
  update_scale(recipe, Pass::forward, history);
  CHECK(history.amaxes == Floats{0, 4, 2, 0, 0, 1});
  CHECK(history.scale == 56);
  recipe.amax_history_len = 5;
  CHECK_THROWS_WITH(record_amax(recipe, Pass::forward, history, 1),
                    ContainsSubstring("the history has 6 amaxes, and the recipe's amax_history_len is 5"));
  CHECK_THROWS_WITH(update_scale(recipe, Pass::forward, history), ContainsSubstring("resize it"));
  CHECK_THROWS_WITH(resize_history(history, 0), ContainsSubstring("amax_history_len must be from 1 to 1048576, not 0"));
}

TEST_CASE("ranks share the largest of their amaxes") {
  CHECK(reduced_amax(Floats{1, 3, 2}) == 3);
  CHECK(reduced_amax(Floats{0}) == 0);
  CHECK(reduced_amax(Floats{nan, 2, 1}) == 2);
  CHECK(reduced_amax(Floats{1, inf, nan}) == inf);
  CHECK(std::isnan(reduced_amax(Floats{nan, nan})));
  CHECK_THROWS_WITH(reduced_amax({}), ContainsSubstring("at least one"));
}

TEST_CASE("a recipe has Transformer Engine's defaults, and is checked") {
  const Delayed defaults;
  CHECK(describe(defaults) ==
        "delayed scaling of te_current: fp8_format hybrid (E4M3 forward, E5M2 backward), margin 0, amax_history_len "
        "1024, "
        "amax_compute_algo max, reduce_amax on");
  CHECK(defaults.interval == 1);
  CHECK(fp8_max(defaults, Pass::forward) == 448);
  CHECK(fp8_max(defaults, Pass::backward) == 57344);
  Delayed e4m3_only;
  e4m3_only.fp8_format = find_value<Fp8Format>("fp8_format", "e4m3");
  CHECK(fp8_max(e4m3_only, Pass::backward) == 448);
  const AmaxHistory history = start_history(defaults);
  CHECK(history.amaxes == Floats(1024, 0));
  CHECK(history.scale == 1);
  CHECK(history.scale_inv == 1);
  const auto refused = [](auto change, const std::string& why) {
    Delayed recipe;
    change(recipe);
    CHECK_THROWS_WITH(start_history(recipe), ContainsSubstring(why));
  };
  using R = Delayed;
  refused([](R& r) { r.amax_history_len = 0; }, "amax_history_len must be from 1 to 1048576, not 0");
  refused([](R& r) { r.margin = 63; }, "margin must be from -62 to 62, not 63");
  refused([](R& r) { r.margin = std::numeric_limits<int>::min(); }, "not -2147483648");
  refused([](R& r) { r.interval = 0; }, "interval must be at least 1, not 0");
  refused([](R& r) { r.override_linear_precision.fprop = true; }, "wgrad alone");
  refused([](R& r) { r.amax_compute_algo = AmaxFunction(); }, "max, most_recent or a function");
  refused([](R& r) { r.version = torchao_delayed, r.margin = 1; }, "torchao has no margin");
  refused([](R& r) { r.version = ms_amp, r.amax_compute_algo = AmaxComputeAlgo::most_recent; }, "must be max");
  AmaxHistory negative = history;
  CHECK_THROWS_WITH(record_amax(defaults, Pass::forward, negative, -1), ContainsSubstring("must not be negative"));
  CHECK_THROWS_WITH(
      find_delayed_version("te_9"),
      ContainsSubstring("unknown version of delayed scaling 'te_9'; known: te_0_1, te_0_5, te_1_4, te_1_6"));
  CHECK_THROWS_WITH(find_value<AmaxComputeAlgo>("amax_compute_algo", "mean"),
                    ContainsSubstring("known: max, most_recent"));
  CHECK_THROWS_WITH(find_value<Fp8Format>("fp8_format", "e5m2"), ContainsSubstring("known: hybrid, e4m3"));
  for (const DelayedVersion& version : delayed_versions) {
    CHECK(find_delayed_version(version.name).description == version.description);
    CHECK_FALSE(version.source.empty());
  }
}

}  // namespace fp8lab::tests
