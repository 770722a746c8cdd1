// SPDX-License-Identifier: Apache-2.0
// Quantizing by delayed scaling, and the history that it leaves.
#include <chrono>
#include <cmath>
#include <stdexcept>

#include "fp8lab/formats/interruption.hpp"
#include "plain_quantize.hpp"

namespace fp8lab::tests::quantization {

TEST_CASE("delayed scaling casts with the history's scale and leaves its amax there, both directions at once or not") {
  Delayed recipe;
  recipe.amax_history_len = 3;
  AmaxHistory history = start_history(recipe);
  AmaxHistory plain = history;
  for (const float factor : {2.0F, 0.0F, 0.1F, 8.0F}) {
    std::vector<float> x = values(std::size_t{6} * 10, 2, true);
    for (float& value : x) value *= factor;
    x[3] = NAN;  // which the kernel's maximum drops
    float amax = 0;
    for (const float value : x) amax = std::fmax(amax, std::fabs(value));
    record_amax(recipe, Pass::backward, plain, amax);
    const GivenScale given{e5m2, plain.scale};
    Quantized rowwise;
    Quantized columnwise;
    quantize_both({x, 6, 10}, recipe, Pass::backward, history, rowwise, columnwise);
    CHECK(rowwise.recipe == Recipe(given));
    CHECK(rowwise.codes == quantize({x, 6, 10}, given).codes);
    CHECK(columnwise.codes == quantize({x, 6, 10}, given, Direction::columnwise).codes);
    CHECK(bits(rowwise.scale_inv[0]) == bits(1 / plain.scale));
    CHECK(rowwise.amax == amax);
    CHECK(columnwise.amax == amax);
    CHECK(history.amaxes == plain.amaxes);
    quantize({as_bfloats(x), 6, 10}, recipe, Pass::backward, history, Direction::rowwise, rowwise, {.threads = 2});
    CHECK(rowwise.codes == quantize({as_bfloats(x), 6, 10}, given).codes);
    CHECK(history.amaxes == plain.amaxes);  // which keeps the larger of the two
    update_scale(recipe, Pass::backward, plain);
    update_scale(recipe, Pass::backward, history);
    CHECK(history.scale == plain.scale);
  }
}

TEST_CASE("delayed scaling by versions whose scales run off, and whose maximum counts NaN") {
  const auto cast = [](const DelayedVersion& version, AmaxHistory& history, std::vector<float> x) {
    Delayed recipe;
    recipe.amax_history_len = history.amaxes.size();
    recipe.version = version;
    Quantized q;
    quantize({x, 1, x.size()}, recipe, Pass::forward, history, Direction::rowwise, q);
    update_scale(recipe, Pass::forward, history);
    std::vector<float> back(x.size());
    dequantize(q, back);
    return std::pair(q.codes, back);
  };
  using Bytes = Buffer<std::uint8_t>;
  AmaxHistory history{.amaxes = {0}};
  cast(te_1_6, history, {1e-40F});
  CHECK(history.scale == inf);
  const auto overflowed = cast(te_1_6, history, {1, -1e-30F, 0});
  CHECK(overflowed.first == Bytes{0x7E, 0xFE, 0x7F});
  CHECK(overflowed.second[0] == 0);  // 448 times the inverse, 0
  history = {.amaxes = {0, 0}};
  CHECK(cast(torchao_delayed, history, {inf, 1}).first == Bytes{0x7F, 0x00});  // a scale of 0 of its own
  history = {.amaxes = {0, 0}};
  CHECK(cast(torchao_delayed, history, {2, 1}).first == Bytes{0x7E, 0x76});
  cast(torchao_delayed, history, {2, NAN});
  CHECK(std::isnan(history.scale));
  history = {.amaxes = {0, 0}, .scale = 4};
  cast(ms_amp, history, {2, NAN});  // just in time: the amax is NaN, which keeps the scale and is dropped in the end
  CHECK(history.scale == 4);
  CHECK(history.position == 0);
  history = {.amaxes = {0, 3}, .scale = 4, .position = 2};
  cast(ms_amp, history, {2, NAN});  // delayed: the amax is 2
  CHECK(history.amaxes == std::vector<float>{0, 2});
  CHECK(history.scale == 128);
}

TEST_CASE("what delayed scaling cannot cast leaves the history as it was") {
  const std::vector<float> x(12, 2.0F);
  Delayed recipe;
  recipe.amax_history_len = 2;
  AmaxHistory history = start_history(recipe);
  Quantized q;
  const auto refused = [&](std::size_t rows, const Delayed& with, const QuantizeOptions& options, const char* why) {
    CHECK_THROWS_WITH(quantize({x, rows, 4}, with, Pass::forward, history, Direction::rowwise, q, options),
                      ContainsSubstring(why));
    CHECK(history.amaxes == std::vector<float>{0, 0});
  };
  refused(2, recipe, {}, "x must have 2 x 4 elements, not 12");
  refused(3, recipe, {.threads = 0}, "threads must be from 1 to 1024");
  refused(3, recipe, {.input_type = e4m3}, "input_type must be float32, float16 or bfloat16");
  refused(3, recipe, {.input_type = bfloat16, .amax_before_rounding = true},
          "amax_before_rounding is for one scale of the tensor");
  refused(3, Delayed{}, {}, "the history has 2 amaxes, and the recipe's amax_history_len is 1024");
  Delayed none = recipe;
  none.amax_history_len = 0;
  refused(3, none, {}, "amax_history_len must be from 1 to 1048576, not 0");
  CHECK_THROWS_WITH(quantize_both({x, 3, 4}, recipe, Pass::forward, history, q, q),
                    ContainsSubstring("rowwise and columnwise must not be the same Quantized"));
  CHECK_THROWS_WITH(quantize_both({x, 3, 4}, JustInTime{}, q, q), ContainsSubstring("must not be the same Quantized"));
}

TEST_CASE("a cast that is interrupted leaves the history as it was, and one that is not leaves its amax there") {
  Delayed recipe;
  recipe.amax_history_len = 2;
  const std::vector<float> x(1 << 18, 2.0F);
  for (int polls = 1; polls <= 8; ++polls) {
    AmaxHistory history = start_history(recipe);
    Quantized rowwise;
    Quantized columnwise;
    int left = polls;
    const auto poll = [&] {
      if (--left == 0) throw std::runtime_error("interrupted");
    };
    const Interruptible scope(poll, std::chrono::steady_clock::duration::zero());
    bool interrupted = false;
    try {
      quantize_both({x, 512, 512}, recipe, Pass::forward, history, rowwise, columnwise, {.threads = 2});
    } catch (const std::runtime_error&) {
      interrupted = true;
    }
    CHECK(history.amaxes == (interrupted ? std::vector<float>{0, 0} : std::vector<float>{2, 0}));
    CHECK((interrupted || left > 0));
  }
}

}  // namespace fp8lab::tests::quantization
