// SPDX-License-Identifier: Apache-2.0
// The parts of a difference by cause, beside the same chain in exact rationals, and beside the layer itself.
#include "linear/split.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/linear/linear.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "reference/rational.hpp"
#include "reference/scaling/plain_quantize.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using namespace fp8lab::experiments;

constexpr std::size_t tokens = 128, in = 128, out = 128;  // deepseek_v3_hopper takes multiples of 128

/// Values over many binades, so that casts round, underflow and saturate; some are zero.
std::vector<float> wide_values(std::uint64_t seed, std::size_t count, int binades, int top) {
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t word = random_bits(seed, i);
    const float magnitude = std::ldexp(1 + static_cast<float>(word % 8388608) / 8388608,
                                       top - static_cast<int>((word >> 32) % static_cast<unsigned>(binades)));
    values.push_back(word >> 63 != 0 ? -magnitude : magnitude);
    if (i % 29 == 3) values.back() = 0;
  }
  return values;
}

struct TestLayer {
  std::vector<float> x = wide_values(1, tokens* in, 20, 6);
  std::vector<float> w = wide_values(2, out* in, 12, -3);
  std::vector<float> dy = wide_values(3, tokens* out, 24, 12);
  std::vector<float> bias = wide_values(4, out, 6, 1);
  std::vector<std::uint8_t> random;

  TestLayer() {
    for (std::size_t i = 0; i < tokens * out; ++i) random.push_back(static_cast<std::uint8_t>(random_bits(5, i)));
  }
  [[nodiscard]] MatrixView view(LinearTensor tensor) const {
    switch (tensor) {
      case LinearTensor::x: break;
      case LinearTensor::w: return {w, out, in};
      case LinearTensor::dy: return {dy, tokens, out};
    }
    return {x, tokens, in};
  }
};

constexpr float old_scale = 3.75F;  // of histories: for x too large, so that elements saturate; for w too small

/// A pass of the layer, split; and its parts, element by element.
struct SplitPass {
  SplitGemm split;
  RealProducts real;
  Buffer<float> output;
  std::map<std::string, std::vector<double>> parts;  // those that a cause has
  std::vector<double> total, real_values;
  AmaxHistory a_history, b_history;
  Delayed delayed{.amax_history_len = 4};

  SplitPass(const TestLayer& layer, const LinearRecipe& recipe, LinearPass pass, bool with_bias, int threads = 1) {
    const LinearGemm& gemm = gemm_of(recipe, pass);
    const LinearFactors factors = factors_of(pass);
    split = {.pass = pass, .gemm = gemm, .real = &real, .threads = threads};
    split.a = cast(layer, factors.a, gemm.a, gemm.recipe.model, a_history, threads);
    split.b = cast(layer, factors.b, gemm.b, gemm.recipe.model, b_history, threads);
    if (pass == LinearPass::fprop && with_bias) split.bias = layer.bias;
    real = real_products({split.a.given, split.a.rows, split.a.depth}, {split.b.given, split.b.rows, split.b.depth},
                         threads);
    const std::vector<Cause> causes = causes_of(pass);
    const auto add = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    split_gemm(
        split, {},
        [&](const SplitBand& band) {
          REQUIRE(band.first_row * split.b.rows == total.size());
          REQUIRE(band.parts.size() == causes.size());
          for (std::size_t i = 0; i < causes.size(); ++i) {
            if (!band.parts[i].empty()) add(parts[causes[i].name], band.parts[i]);
          }
          add(total, band.total);
          add(real_values, band.real);
        },
        output);
  }

 private:
  SplitOperand cast(const TestLayer& layer, const LinearFactor& factor, const LinearCast& cast, const MmaModel& model,
                    AmaxHistory& history, int threads) {
    SplitCast how{.factor = factor, .cast = cast, .threads = threads};
    if (const auto* recipe = std::get_if<Recipe>(&cast)) {
      if (is_given(*recipe)) {
        if (recipe->format == e4m3 && factor.tensor == LinearTensor::dy) delayed.fp8_format = Fp8Format::e4m3_only;
        history = start_history(delayed);
        history.scale = factor.tensor == LinearTensor::w ? 1 : old_scale;
        how.delayed = &delayed;
        how.history = &history;
      }
      if (is_stochastic(*recipe)) how.random = RandomSource{std::span(layer.random), 8};
    } else {
      how.rounds_to_tf32 = std::ranges::find(model.operands, tf32) != model.operands.end();
    }
    return cast_operand(layer.view(factor.tensor), how);
  }
};

Rational rational(float x) { return Rational(static_cast<double>(x)); }

/// The chain of one element in rationals: the value after each cause, by the definition of split.hpp.
class SlowChain {
 public:
  SlowChain(const SplitPass& pass, std::size_t row, std::size_t column)
      : pass_(pass), row_(row), column_(column), a_(factor(pass.split.a, row)), b_(factor(pass.split.b, column)) {
    const SplitOperand& a = pass.split.a;
    const SplitOperand& b = pass.split.b;
    const std::string left(name_of(a.tensor));
    const std::string right(name_of(b.tensor));
    values_.emplace_back("", products());
    if (!a.turned.empty()) {
      replace(a_, a, row, a.turned);
      replace(b_, b, column, b.turned);
      values_.emplace_back("hadamard", products());
    }
    replace_by_cast(a_, a, row, a.fresh, left + "_");
    replace_by_cast(b_, b, column, b.fresh, right + "_");
    if (a.is_delayed()) replace_by_cast(a_, a, row, a.lagging, left + "_lag_");
    if (b.is_delayed()) replace_by_cast(b_, b, column, b.lagging, right + "_lag_");
  }
  void add(const std::string& cause, const Rational& value) { values_.emplace_back(cause, value); }
  [[nodiscard]] const std::vector<std::pair<std::string, Rational>>& values() const { return values_; }

 private:
  static std::vector<float> factor(const SplitOperand& operand, std::size_t row) {
    const auto first = operand.given.begin() + static_cast<std::ptrdiff_t>(row * operand.depth);
    return {first, first + static_cast<std::ptrdiff_t>(operand.depth)};
  }
  static void replace(std::vector<float>& factor, const SplitOperand& operand, std::size_t row,
                      const Buffer<float>& by) {
    for (std::size_t k = 0; k < factor.size(); ++k) factor[k] = by[row * operand.depth + k];
  }
  /// Whether an element saturates or underflows is found here anew, from what came back and the format's values.
  void replace_by_cast(std::vector<float>& factor, const SplitOperand& operand, std::size_t row, const CastValues& cast,
                       const std::string& prefix) {
    const Buffer<float>& source = operand.turned.empty() ? operand.given : operand.turned;
    for (const char* what : {"saturation", "underflow", "rounding"}) {
      for (std::size_t k = 0; k < factor.size(); ++k) {
        const std::size_t i = row * operand.depth + k;
        const float before = source[i];
        const float after = cast.values[i];
        std::string outcome = "rounding";
        // What is rounded to nearest moves by at most 1/16 of itself in E4M3, 1/8 in E5M2, 1/2 in E2M1 where that is
        // normal. What loses more, and did not become zero or come near it, is saturated.
        if (before != 0 && after == 0) outcome = "underflow";
        if (is_saturated(operand, cast, before, after)) outcome = "saturation";
        if (outcome == what) factor[k] = after;
      }
      values_.emplace_back(prefix + what, products());
    }
  }
  /// One scale for all: beyond the largest value and half a unit in its last place, in rationals.
  static bool is_saturated(const SplitOperand& operand, const CastValues& cast, float before, float after) {
    const auto* q = std::get_if<Quantized>(&operand.source);
    if (q == nullptr || std::isnan(cast.scale) || before == 0) return false;
    const float scale_inv = 1 / static_cast<float>(cast.scale);
    const Rational largest(max_value(q->format));
    const Rational half_unit(q->format == e4m3 ? 16 : 4096);
    const Rational scaled = abs(rational(before)) / rational(scale_inv);
    return scaled >= largest + half_unit && after != 0;
  }
  [[nodiscard]] Rational products() const {
    Rational sum = 0;
    for (std::size_t k = 0; k < a_.size(); ++k) sum += rational(a_[k]) * rational(b_[k]);
    if (!pass_.split.bias.empty()) sum += rational(pass_.split.bias[column_]);
    return sum;
  }

  const SplitPass& pass_;
  std::size_t row_, column_;
  std::vector<float> a_, b_;
  std::vector<std::pair<std::string, Rational>> values_;
};

/// What linear() and its like compute, as float32.
std::vector<float> layer_output(const SplitPass& pass, const Format& output, bool with_bias) {
  LinearGemm gemm = pass.split.gemm;
  gemm.recipe.output = output;
  const LinearRecipe recipe{gemm, gemm, gemm};
  const SplitGemm& split = pass.split;
  const auto run = [&](auto values) {
    LinearOptions options;
    if (with_bias) options.bias = split.bias;
    if (split.pass == LinearPass::fprop) linear(recipe, split.a.input(), split.b.input(), values, options);
    if (split.pass == LinearPass::dgrad) linear_dgrad(recipe, split.a.input(), split.b.input(), values, options);
    if (split.pass == LinearPass::wgrad) linear_wgrad(recipe, split.a.input(), split.b.input(), values, options);
  };
  std::vector<float> values(split.a.rows * split.b.rows);
  if (output == binary32) {
    run(std::span(values));
    return values;
  }
  std::vector<std::uint16_t> codes(values.size());
  run(std::span(codes));
  std::ranges::transform(codes, values.begin(), [&](std::uint16_t code) { return decode(output, code); });
  return values;
}

/// Compares the parts of some elements with the chain in rationals.
void require_parts(const SplitPass& pass) {
  const SplitGemm& split = pass.split;
  const std::vector<float> accumulated = layer_output(pass, binary32, false);
  const std::size_t columns = split.b.rows;
  for (std::size_t i = 5; i < pass.total.size(); i += sanitized ? 9973 : 3331) {
    CAPTURE(i);
    SlowChain chain(pass, i / columns, i % columns);
    const Rational bias = split.bias.empty() ? Rational(0) : rational(split.bias[i % columns]);
    chain.add("accumulator", rational(accumulated[i]) + bias);
    if (!split.bias.empty()) {
      const float rounded = decode(bias_format_of(split.gemm),
                                   encode(bias_format_of(split.gemm), cuda_nosat_policy, split.bias[i % columns]));
      chain.add("bias", rational(accumulated[i] + rounded));
    }
    chain.add("output_rounding", rational(pass.output[i]));
    // Every value lies within the largest deviation from the output.
    Rational largest = 0;
    for (const auto& [cause, value] : chain.values()) {
      largest = std::max(largest, Rational(abs(Rational(value - rational(pass.output[i])))));
    }
    const Rational bound = largest * 2 * power_of_two(-46);
    for (std::size_t link = 1; link < chain.values().size(); ++link) {
      const auto& [cause, value] = chain.values()[link];
      CAPTURE(cause);
      const auto found = pass.parts.find(cause);
      const double part = found == pass.parts.end() ? 0 : found->second[i];
      REQUIRE(abs(Rational(Rational(part) - (value - chain.values()[link - 1].second))) <= bound);
    }
    REQUIRE(abs(Rational(Rational(pass.total[i]) - (rational(pass.output[i]) - chain.values()[0].second))) <= bound);
    const Rational real = chain.values()[0].second;
    REQUIRE(abs(Rational(Rational(pass.real_values[i]) - real)) <=
            std::max(bound, Rational(abs(real) * power_of_two(-51))));
  }
}

/// Adds the parts of every element in several orders, in plain doubles: it is the total each time.
void require_exact_sums(const SplitPass& pass) {
  std::vector<const std::vector<double>*> parts;
  for (const auto& [cause, values] : pass.parts) parts.push_back(&values);
  std::mt19937 generator(1);
  for (int order = 0; order < 4; ++order) {
    std::uint64_t differ = 0;
    for (std::size_t i = 0; i < pass.total.size(); ++i) {
      double sum = 0;
      for (const auto* part : parts) sum += (*part)[i];
      if (sum != pass.total[i]) ++differ;
    }
    CHECK(differ == 0);
    std::ranges::shuffle(parts, generator);
  }
}

}  // namespace

TEST_CASE("linear split: every recipe's parts are those of a chain in rationals, and add up to the bit") {
  const TestLayer layer;
  std::size_t number = 0;
  for (const NamedLinearRecipe& named : linear_recipes()) {
    if (number++ % 3 != 0 && !exhaustive()) continue;
    for (const LinearPass pass : {LinearPass::fprop, LinearPass::dgrad, LinearPass::wgrad}) {
      CAPTURE(named.name, name_of(pass));
      const SplitPass split(layer, named.recipe, pass, true);
      require_exact_sums(split);
      require_parts(split);
    }
  }
}

TEST_CASE("linear split: the output is the layer's, bit for bit, with a bias and without") {
  const TestLayer layer;
  std::size_t number = 0;
  for (const NamedLinearRecipe& named : linear_recipes()) {
    if (number++ % 2 != 0 && !exhaustive()) continue;
    for (const LinearPass pass : {LinearPass::fprop, LinearPass::dgrad, LinearPass::wgrad}) {
      for (const bool with_bias : {false, true}) {
        CAPTURE(named.name, name_of(pass), with_bias);
        const SplitPass split(layer, named.recipe, pass, with_bias);
        const std::vector<float> expected = layer_output(split, gemm_of(named.recipe, pass).recipe.output, with_bias);
        REQUIRE(std::ranges::equal(split.output, expected));
      }
    }
  }
}

TEST_CASE("linear split: factors that are not quantized are rounded as tensor cores get them") {
  const TestLayer layer;
  const SplitPass split(layer, find_linear_recipe("tf32_hopper").recipe, LinearPass::fprop, true);
  std::uint64_t changed = 0;
  for (std::size_t i = 0; i < layer.x.size(); ++i) {
    // TF32 has 10 of 23 bits; ties away from zero.
    REQUIRE(bits(split.split.a.fresh.values[i]) == ((bits(layer.x[i]) + 0x1000U) & 0xFFFFE000U));
    changed += split.split.a.fresh.values[i] != layer.x[i] ? 1 : 0;
  }
  CHECK(changed > layer.x.size() / 2);
  // NVFP4 turns both factors of wgrad, and rounds them to bfloat16.
  const SplitPass turned(layer, find_linear_recipe("te_nvfp4_blackwell").recipe, LinearPass::wgrad, true);
  const std::vector<float> expected = quantization::turned_columns(layer.x, tokens, in);
  for (std::size_t i = 0; i < layer.x.size(); ++i) {
    REQUIRE(turned.split.b.turned[i % in * tokens + i / in] ==
            decode(bfloat16, encode(bfloat16, cuda_nosat_policy, expected[i])));
  }
  const SplitPass transposed(layer, find_linear_recipe("bf16_hopper").recipe, LinearPass::wgrad, true);
  for (std::size_t i = 0; i < layer.x.size(); ++i) {
    const float value = transposed.split.b.fresh.values[i % in * tokens + i / in];
    REQUIRE(value == decode(bfloat16, encode(bfloat16, cuda_nosat_policy, layer.x[i])));
    REQUIRE(transposed.split.b.given[i % in * tokens + i / in] == layer.x[i]);
  }
}

TEST_CASE("linear split: threads change no bit") {
  const TestLayer layer;
  for (const char* name : {"te_delayed_hopper", "te_nvfp4_blackwell"}) {
    const LinearRecipe& recipe = find_linear_recipe(name).recipe;
    const SplitPass one(layer, recipe, LinearPass::wgrad, true);
    const SplitPass four(layer, recipe, LinearPass::wgrad, true, 4);
    CHECK(one.parts == four.parts);
    CHECK(one.total == four.total);
  }
}

TEST_CASE("linear split: without a cause there is no part") {
  TestLayer layer;
  const LinearRecipe& recipe = find_linear_recipe("exact").recipe;
  const auto largest_part = [](const SplitPass& split) {
    std::map<std::string, double> largest;
    for (const auto& [cause, values] : split.parts) {
      for (const double part : values) largest[cause] = std::max(largest[cause], std::abs(part));
    }
    return largest;
  };
  // Float32 values are not cast; what is left is the rounding of the real sum to float32, and of the bias' addition.
  for (const auto& [cause, largest] : largest_part(SplitPass(layer, recipe, LinearPass::fprop, true))) {
    CAPTURE(cause);
    CHECK((largest > 0) == (cause == "accumulator" || cause == "bias"));
  }
  // Small whole numbers: every sum is a float32.
  for (std::vector<float>* values : {&layer.x, &layer.w, &layer.dy, &layer.bias}) {
    for (std::size_t i = 0; i < values->size(); ++i) (*values)[i] = static_cast<float>(random_bits(9, i) % 31) - 15;
  }
  for (const LinearPass pass : {LinearPass::fprop, LinearPass::dgrad, LinearPass::wgrad}) {
    for (const auto& [cause, largest] : largest_part(SplitPass(layer, recipe, pass, true))) {
      CAPTURE(cause);
      CHECK(largest == 0);
    }
  }
}

TEST_CASE("linear split: parts that are known beforehand") {
  // By the scale of its own amax, 0.448, x comes back as 448 / 0.448 and 0.875 / 0.448, for 2 * 0.448 = 0.896 rounds to
  // 0.875; at the history's scale, 1, 1000 is cut to 448 and 2 stays. By its own scale, 448, w comes back as 1 and
  // 128 / 448, for 0.3 * 448 = 134.4 rounds to 128; at the scale 1 as 1 and 0.3125.
  const std::vector<float> x{1000, 2};
  const std::vector<float> w{1, 0.3F};
  const Delayed delayed{.amax_history_len = 1};
  AmaxHistory x_history = start_history(delayed);
  AmaxHistory w_history = start_history(delayed);
  const LinearGemm gemm{
      .recipe = {.model = hopper_wgmma_fp8, .output = bfloat16}, .a = GivenScale{}, .b = GivenScale{}};
  SplitGemm split{.pass = LinearPass::fprop, .gemm = gemm};
  const LinearFactors factors = factors_of(LinearPass::fprop);
  split.a = cast_operand({x, 1, 2}, {.factor = factors.a, .cast = gemm.a, .delayed = &delayed, .history = &x_history});
  split.b = cast_operand({w, 1, 2}, {.factor = factors.b, .cast = gemm.b, .delayed = &delayed, .history = &w_history});
  const RealProducts real = real_products({x, 1, 2}, {w, 1, 2}, 1);
  split.real = &real;
  std::map<std::string, double> parts;
  Buffer<float> output;
  split_gemm(
      split, {},
      [&](const SplitBand& band) {
        const std::vector<Cause> causes = causes_of(LinearPass::fprop);
        for (std::size_t i = 0; i < causes.size(); ++i) {
          if (!band.parts[i].empty()) parts[causes[i].name] = band.parts[i][0];
        }
      },
      output);
  CHECK(split.a.used().scale == 1);
  CHECK(split.a.fresh.scale == static_cast<double>(448.0F / 1000));
  CHECK(split.a.used().saturated == 1);
  const auto scale_inv = static_cast<double>(1 / (448.0F / 1000));
  const double x0 = static_cast<float>(448 * scale_inv);
  const double x1 = static_cast<float>(0.875 * scale_inv);
  const double w1 = static_cast<float>(128 * static_cast<double>(1.0F / 448));
  const double w0 = static_cast<float>(448 * static_cast<double>(1.0F / 448));
  const double given = w[1];
  CHECK(parts.at("x_rounding") == Approx(x0 - 1000 + (x1 - 2) * given).margin(1e-9));
  CHECK(parts.at("w_rounding") == Approx(x0 * (w0 - 1) + x1 * (w1 - given)).margin(1e-9));
  CHECK(parts.at("x_lag_saturation") == Approx((448 - x0) * w0).margin(1e-9));
  CHECK(parts.at("x_lag_rounding") == Approx((2 - x1) * w1).margin(1e-9));
  CHECK(parts.at("w_lag_rounding") == Approx(448 * (1 - w0) + 2 * (0.3125 - w1)).margin(1e-9));
  CHECK(parts.at("output_rounding") == 448 - 448.625);  // bfloat16 has 8 bits: 448.625 becomes 448
  CHECK(output[0] == 448);
  CHECK(parts.find("bias") == parts.end());
}

TEST_CASE("linear split: real products are exact where terms cancel") {
  // 2^60 + 1 - 2^60, with factors of 24 bits, in an order that a double sum loses.
  const std::vector<float> a{0x1p100F, 1.5F, -0x1p100F, 0x1p-60F, 0x1.fffffep0F};
  const std::vector<float> b{0x1p20F, 0x1p-40F, 0x1p20F, 0x1p-60F, 0x1.fffffep-90F};
  const RealProducts real = real_products({a, 1, 5}, {b, 1, 5}, 1);
  Rational sum = 0;
  for (std::size_t k = 0; k < a.size(); ++k) sum += rational(a[k]) * rational(b[k]);
  const Rational found = Rational(real.high[0]) + Rational(real.low[0]);
  CHECK(real.high[0] == static_cast<double>(sum));
  CHECK(abs(Rational(found - sum)) <= abs(sum) * power_of_two(-90));
  // Infinities and NaNs give elements that are not finite.
  const std::vector<float> c{inf, 1, 0, 0, nan};
  CHECK_FALSE(std::isfinite(real_products({c, 1, 5}, {b, 1, 5}, 1).high[0]));
}

}  // namespace fp8lab::tests
