// SPDX-License-Identifier: Apache-2.0
// Optimizers give, bit for bit, what their steps give one by one in 50 digits with subnormal numbers flushed, on every
// target.
#include "fp8lab/reference/operators/optimizer.hpp"

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/widen.hpp"
#include "fp8lab/reference/operators/multi_tensor.hpp"
#include "fp8lab/reference/operators/sum_order.hpp"
#include "fp8lab/reference/units/special_function.hpp"
#include "rounded_steps.hpp"

namespace fp8lab::tests {
namespace {

float zero_if_small(float x) { return std::abs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }
float fast_sum(float a, float b) { return zero_if_small(step_sum(zero_if_small(a), zero_if_small(b))); }
float fast_product(float a, float b) { return zero_if_small(step_product(zero_if_small(a), zero_if_small(b))); }
float fast_fused(float a, float b, float c) {
  return zero_if_small(step_fused(zero_if_small(a), zero_if_small(b), zero_if_small(c)));
}
float fast_reciprocal(float x) { return zero_if_small(nearest(1 / Digits(x))); }
Half half_of(float x) { return {static_cast<std::uint16_t>(encode(binary16, cuda_nosat_policy, x))}; }
float half_rounded(float x) { return widened(half_of(x)); }

/// Numbers of every magnitude: also subnormal ones, and some whose products are.
std::vector<float> of_all_sizes(std::uint64_t seed, std::size_t count, double deviation) {
  auto values = normal_draws(seed, count, deviation);
  for (std::size_t i = 0; i < count; i += 5) values[i] *= 0x1p-120F;
  for (std::size_t i = 1; i < count; i += 7) values[i] *= 0x1p-127F;
  values[2] = 0;
  values[3] = -0.0F;
  return values;
}

void compare_words(const std::vector<float>& actual, const std::vector<float>& expected, const char* what) {
  Mismatches mismatches;
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) mismatches.compare(i, i, bits(actual[i]), bits(expected[i]), what);
  REQUIRE_NO(mismatches);
}

template <typename Run>
void on_each_target(const Run& run) {
  const UnforceTarget unforce;
  for (const auto target : targets()) {
    force_target(target);
    INFO(target);
    run();
  }
}

struct SgdResult {
  float gradient, momentum;  // the gradient that lr multiplies
};
SgdResult step_sgd(const SgdParameters& p, float grad, float param, float momentum) {
  float g = fast_product(grad, p.scale);
  if (p.weight_decay != 0 && !p.weight_decay_after_momentum) g = fast_fused(p.weight_decay, param, g);
  if (p.momentum != 0) {
    momentum = p.first_run ? g : fast_fused(momentum, p.momentum, fast_product(step_difference(1, p.dampening), g));
    g = p.nesterov ? fast_fused(p.momentum, momentum, g) : momentum;
  }
  if (p.weight_decay != 0 && p.weight_decay_after_momentum) g = fast_fused(p.weight_decay, param, g);
  return {g, momentum};
}

const std::array sgd_cases{
    SgdParameters{.lr = 0.1F},
    SgdParameters{.lr = 0.1F, .weight_decay = 0.01F, .momentum = 0.9F, .dampening = 0.1F, .scale = 0.5F},
    SgdParameters{
        .lr = 0.3F, .weight_decay = 0.01F, .momentum = 0.9F, .nesterov = true, .weight_decay_after_momentum = true},
    SgdParameters{.lr = 0.3F, .momentum = 0.9F, .first_run = true},
};

TEST_CASE("optimizers: sgd in float32") {
  const std::size_t count = 1100;
  for (const SgdParameters& p : sgd_cases) {
    const auto grad = of_all_sizes(1, count, 1);
    const auto param = of_all_sizes(2, count, 1);
    const auto momentum = of_all_sizes(3, count, 1);
    std::vector<float> expected, moments;
    for (std::size_t i = 0; i < count; ++i) {
      const SgdResult r = step_sgd(p, grad[i], param[i], momentum[i]);
      expected.push_back(fast_fused(-r.gradient, p.lr, param[i]));
      moments.push_back(r.momentum);
    }
    on_each_target([&] {
      auto own_param = param;
      auto own_momentum = momentum;
      std::vector<Half> model(count);
      sgd_update(p, std::span(grad), std::span(own_param), std::span(own_momentum), model, 2);
      compare_words(own_param, expected, "param");
      compare_words(own_momentum, moments, "momentum");
      for (std::size_t i = 0; i < count; ++i) REQUIRE(model[i].bits == half_of(expected[i]).bits);
    });
  }
}

TEST_CASE("optimizers: sgd in float16") {
  const std::size_t count = 70;
  for (const SgdParameters& p : sgd_cases) {
    std::vector<Half> grad, param, momentum;
    for (const float x : normal_draws(1, count, 1)) grad.push_back(half_of(x));
    for (const float x : normal_draws(2, count, 1)) param.push_back(half_of(x));
    for (const float x : normal_draws(3, count, 0x1p-16)) momentum.push_back(half_of(x));
    auto own_param = param;
    auto own_momentum = momentum;
    sgd_update(p, std::span<const Half>(grad), std::span(own_param), std::span(own_momentum));
    for (std::size_t i = 0; i < count; ++i) {
      const float before = widened(param[i]);
      const SgdResult r = step_sgd(p, widened(grad[i]), before, widened(momentum[i]));
      const float change = half_rounded(-fast_product(p.lr, r.gradient));
      // A sum of float16 numbers is exact in float64, of which the code is rounded once.
      const auto sum = encode(binary16, cuda_nosat_policy, static_cast<double>(before) + static_cast<double>(change));
      REQUIRE(own_param[i].bits == sum);
      REQUIRE(own_momentum[i].bits == half_of(r.momentum).bits);
    }
  }
}

struct AdamResult {
  float param, m, v;
};
/// The functions of an update that are not IEEE 754's, and whether lr times the update is not rounded.
struct AdamSteps {
  float (*reciprocal)(float);
  float (*root)(float);
  bool is_step_fused;
};
float rounded_root(float x) { return nearest(sqrt(Digits(x))); }
float unit_on_hopper(SpecialFunction function, float x) { return special_function(function, Subnormals::flushed, x); }
constexpr AdamSteps rounded_steps{fast_reciprocal, rounded_root, true};
constexpr AdamSteps hopper_steps{[](float x) { return unit_on_hopper(SpecialFunction::rcp, x); },
                                 [](float x) { return unit_on_hopper(SpecialFunction::sqrt, x); }, true};
constexpr AdamSteps hopper_steps_of_graphs{hopper_steps.reciprocal, hopper_steps.root, false};

AdamResult step_adam(const AdamParameters& p, const AdamSteps& steps, float c1, float c2, float g, float param, float m,
                     float v) {
  if (p.mode == AdamMode::l2) g = fast_fused(p.weight_decay, param, g);
  m = fast_fused(p.beta1, m, fast_product(step_difference(1, p.beta1), g));
  v = fast_fused(p.beta2, v, fast_product(fast_product(step_difference(1, p.beta2), g), g));
  const float root = steps.root(fast_product(v, steps.reciprocal(c2)));
  float u = fast_product(fast_product(m, steps.reciprocal(c1)), steps.reciprocal(fast_sum(root, p.eps)));
  if (p.mode == AdamMode::decoupled) u = fast_fused(p.weight_decay, param, u);
  return {steps.is_step_fused ? fast_fused(-p.lr, u, param) : fast_sum(fast_product(-p.lr, u), param), m, v};
}

struct AdamCase {
  AdamParameters parameters;
  float c1, c2;
  std::vector<float> grad, param, m, v;
  std::vector<float> new_param, new_m, new_v;

  AdamCase(AdamMode mode, std::uint32_t step, bool corrects, const AdamSteps& steps = rounded_steps) {
    parameters = {.lr = 0.01F, .weight_decay = 0.1F, .step = step, .bias_correction = corrects, .mode = mode};
    const auto correction = [&](float beta) { return corrects ? nearest(1 - pow(Digits(beta), step)) : 1; };
    c1 = correction(parameters.beta1);
    c2 = correction(parameters.beta2);
    const std::size_t count = 1100;
    grad = of_all_sizes(1, count, 1);
    param = of_all_sizes(2, count, 1);
    m = of_all_sizes(3, count, 1);
    v = of_all_sizes(4, count, 1);
    for (float& value : v) value = std::abs(value);
    for (std::size_t i = 0; i < count; ++i) {
      const AdamResult r = step_adam(parameters, steps, c1, c2, grad[i], param[i], m[i], v[i]);
      new_param.push_back(r.param);
      new_m.push_back(r.m);
      new_v.push_back(r.v);
    }
  }
};

TEST_CASE("optimizers: adam") {
  for (const auto& c : {AdamCase(AdamMode::l2, 1, true), AdamCase(AdamMode::decoupled, 1000, true),
                        AdamCase(AdamMode::decoupled, 3, false)}) {
    on_each_target([&] {
      auto param = c.param;
      auto m = c.m;
      auto v = c.v;
      adam_update(c.parameters, std::span(c.grad), std::span(param), std::span(m), std::span(v), {}, {.threads = 2});
      compare_words(param, c.new_param, "param");
      compare_words(m, c.new_m, "m");
      compare_words(v, c.new_v, "v");
    });
  }
}

TEST_CASE("optimizers: adam with a Hopper chip's functions") {
  for (const auto& c :
       {AdamCase(AdamMode::l2, 1, true, hopper_steps), AdamCase(AdamMode::decoupled, 9, true, hopper_steps),
        AdamCase(AdamMode::decoupled, 3, false, hopper_steps)}) {
    on_each_target([&] {
      auto param = c.param, m = c.m, v = c.v;
      adam_update(c.parameters, std::span(c.grad), std::span(param), std::span(m), std::span(v), {},
                  {.functions = Functions::hopper, .threads = 2});
      compare_words(param, c.new_param, "param");
      compare_words(m, c.new_m, "m");
      compare_words(v, c.new_v, "v");
    });
  }
  const AdamCase c(AdamMode::decoupled, 2, true, hopper_steps_of_graphs);
  auto grad = c.grad, param = c.param, m = c.m, v = c.v;
  adam_update_unscaling(c.parameters, 1, std::span(grad), std::span(param), std::span(m), std::span(v), {},
                        {.functions = Functions::hopper});
  compare_words(param, c.new_param, "param of graphs");
}

TEST_CASE("optimizers: adam's masters") {
  const AdamCase c(AdamMode::decoupled, 5, true);
  const std::size_t count = c.grad.size();
  const auto fresh = [&] { return std::pair(c.m, c.v); };
  // 1. A copy of another type.
  auto [m, v] = fresh();
  auto master = c.param;
  std::vector<BFloat16> copy(count);
  adam_update(c.parameters, std::span(c.grad), std::span(copy), std::span(m), std::span(v), master);
  compare_words(master, c.new_param, "master");
  for (std::size_t i = 0; i < count; ++i) {
    REQUIRE(copy[i].bits == encode(bfloat16, cuda_nosat_policy, c.new_param[i]));
  }
  // 2. FP8 codes with their amax.
  std::tie(m, v) = fresh();
  master = c.param;
  std::vector<std::uint8_t> codes(count);
  const float amax =
      adam_update_fp8(c.parameters, std::span(c.grad), e4m3, 64, 0.25F, codes, std::span(m), std::span(v), master);
  float largest = 0.25F;
  for (std::size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::abs(c.new_param[i]));
    REQUIRE(codes[i] == encode(e4m3, CastPolicy{}, fast_product(c.new_param[i], 64)));
  }
  REQUIRE(amax == largest);
  // 3. Two words: the value is what they stand for, the bfloat16 the nearer of its neighbours, half away.
  std::tie(m, v) = fresh();
  std::vector<BFloat16> high;
  std::vector<std::int16_t> low;
  for (const float x : c.param) {
    const std::uint32_t word = bits(x);
    low.push_back(static_cast<std::int16_t>(word & 0xFFFFU));
    high.push_back({static_cast<std::uint16_t>((word + 0x8000U) >> 16)});
  }
  adam_update_remainder(c.parameters, std::span(c.grad), high, std::span(m), std::span(v), low);
  for (std::size_t i = 0; i < count; ++i) {
    REQUIRE(static_cast<std::uint16_t>(low[i]) == (bits(c.new_param[i]) & 0xFFFFU));
    REQUIRE(high[i].bits == (bits(c.new_param[i]) + 0x8000U) >> 16);
  }
}

TEST_CASE("optimizers: adam with gradients that are unscaled first") {
  const AdamCase c(AdamMode::l2, 4, true);
  const std::size_t count = c.grad.size();
  const float inverse_scale = 0.3F;
  std::vector<BFloat16> grad;
  std::vector<float> unscaled;
  for (const float x : c.grad) {
    grad.push_back({static_cast<std::uint16_t>(encode(bfloat16, cuda_nosat_policy, x))});
    unscaled.push_back(fast_product(from_bits(std::uint32_t{grad.back().bits} << 16), inverse_scale));
  }
  // What follows is Adam of the products as they are; grad gets them rounded.
  auto param = c.param, m = c.m, v = c.v, master = c.param;
  adam_update(c.parameters, std::span(std::as_const(unscaled)), std::span(param), std::span(m), std::span(v));
  auto own_m = c.m, own_v = c.v;
  std::vector<Half> copy(count);
  adam_update_unscaling(c.parameters, inverse_scale, std::span(grad), std::span(copy), std::span(own_m),
                        std::span(own_v), master, {.threads = 2});
  compare_words(master, param, "master");
  compare_words(own_m, m, "m");
  compare_words(own_v, v, "v");
  for (std::size_t i = 0; i < count; ++i) {
    REQUIRE(grad[i].bits == encode(bfloat16, cuda_nosat_policy, unscaled[i]));
    REQUIRE(copy[i].bits == encode(binary16, cuda_nosat_policy, param[i]));
  }
}

TEST_CASE("optimizers: scale, l2norm and scales of amaxes") {
  const auto x = of_all_sizes(1, 70'000, 1);
  std::vector<float> expected;
  for (const float value : x) expected.push_back(fast_product(value, 0x1p-3F));
  on_each_target([&] {
    std::vector<float> out(x.size());
    REQUIRE(scale_tensor(std::span(x), 0x1p-3F, std::span(out), 3));
    compare_words(out, expected, "scaled");
    float sum = 0;
    const float norm = l2norm(std::span(x), &sum, 2);
    REQUIRE(norm == l2norm(std::span(x)));
    // A sum of squares in which no rounding errs by more than half a unit: 2^-24 for each of the additions behind a
    // term, 65536 / 32 + 5 of its chunk and 6 of chunks, and once for the root.
    Digits exact = 0;
    for (const float value : x) exact += Digits(value) * value;
    REQUIRE(abs(norm - sqrt(exact)) <= sqrt(exact) * ((65536.0 / 32 + 11) / 2 + 1) * 0x1p-24);
    REQUIRE(norm == nearest(sqrt(Digits(sum))));
    REQUIRE(l2norm_of_sums(std::vector<float>{9, 16}) == 5);
    const std::vector<FloatSpan> tensors{std::span(x), std::span(x).first(5)};
    const TensorNorms norms = l2norms(tensors, {.threads = 2});
    float rest = 0;
    REQUIRE(norms.each == std::vector<float>{norm, l2norm(tensors[1], &rest)});
    REQUIRE(norms.total == l2norm_of_sums(std::vector<float>{sum, rest}));
    // Another order of the same additions, of which a Hopper chip's unit is 1 word off at most.
    const TensorNorms on_hopper = l2norms(tensors, {.functions = Functions::hopper, .threads = 2});
    REQUIRE(abs(on_hopper.each[0] - sqrt(exact)) <= sqrt(exact) * ((65536.0 / 2048 + 14) / 2 + 2) * 0x1p-24);
    REQUIRE(on_hopper.each == l2norms(tensors, {.functions = Functions::hopper}).each);
  });
  std::vector<float> with_nan{1, nan, -inf};
  REQUIRE(!scale_tensor(std::span<const float>(with_nan), 2, std::span(with_nan)));
  REQUIRE(bits(with_nan[1]) == 0x7FFFFFFFU);
  // 448 / 3, and its inverse.
  const AmaxScale pair = scale_of_amax(3, 448);
  REQUIRE(pair.scale == nearest(Digits(448) / 3));
  REQUIRE(pair.scale_inv == nearest(1 / Digits(pair.scale)));
  REQUIRE(scale_of_amax(3, 448, true).scale == 128);
  for (const float amax : {0.0F, inf, nan, 0x1p-127F}) REQUIRE(scale_of_amax(amax, 448).scale == 1);
  REQUIRE(scale_of_amax(0x1p-126F, 448).scale == std::numeric_limits<float>::max());
  REQUIRE(scale_of_amax(0x1p-126F, 448).scale_inv == 0);  // 2^-128 is flushed
  REQUIRE(scale_of_amax(0, 448, false, 0.5F).scale == 896);
}

TEST_CASE("optimizers: what is refused") {
  std::vector<float> a(3), b(3), c(2);
  std::vector<Half> halves(3);
  REQUIRE_THROWS_WITH(sgd_update({}, std::span<const float>(a), std::span(b), std::span(c)),
                      ContainsSubstring("momentum must have 3 elements, not 2"));
  REQUIRE_THROWS_WITH(sgd_update({}, std::span<const Half>(halves), std::span(a), std::span(b)),
                      ContainsSubstring("float16 with a model"));
  REQUIRE_THROWS_WITH(adam_update({.step = 0}, std::span<const float>(a), std::span(b), std::span(a), std::span(b)),
                      ContainsSubstring("step must be at least 1"));
  REQUIRE_THROWS_WITH(adam_update({}, std::span<const float>(a), std::span(c), std::span(a), std::span(b)),
                      ContainsSubstring("param must have 3 elements, not 2"));
  const std::vector<double> doubles(3);
  REQUIRE_THROWS_WITH(l2norm(std::span<const double>(doubles)), ContainsSubstring("not float64"));
  sgd_update({}, std::span<const float>(), std::span<float>(), std::span<float>());
  REQUIRE(l2norm(std::span<const float>()) == 0);
}

}  // namespace
}  // namespace fp8lab::tests
