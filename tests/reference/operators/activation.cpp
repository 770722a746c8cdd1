// SPDX-License-Identifier: Apache-2.0
// Activations give, bit for bit, what their formulas give operation by operation in 50 digits, on every target.
#include "fp8lab/reference/operators/activation.hpp"

#include <numeric>
#include <stdexcept>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/operators/sum_order.hpp"
#include "rounded_steps.hpp"

namespace fp8lab::tests {
namespace {

// The formulas, written once more: with which operations are fused.
float step_gelu(float x) {
  const float inner = step_fused(x, step_product(x, 0.03567741F), 0.79788456F);
  return step_product(x, step_fused(step_tanh(step_product(x, inner)), 0.5F, 0.5F));
}
float step_gelu_gradient(float x) {
  const float inner = step_fused(x, step_product(x, 0.044715F), 1);
  const float t = step_tanh(step_product(step_product(0.79788456F, x), inner));
  const float slope = step_fused(-t, t, 1);
  const float factor = step_fused(x, step_product(x, 0.1070322243F), 0.79788456F);
  const float first = step_product(step_product(0.5F, x), step_product(slope, factor));
  return step_fused(step_sum(1, t), 0.5F, first);
}
float step_swish(float x, float alpha) { return step_product(x, step_sigmoid(step_product(alpha, x))); }
float step_swish_gradient(float x, float alpha) {
  const float u = step_product(alpha, x);
  const float s = step_sigmoid(u);
  return step_fused(u, step_product(s, step_difference(1, s)), s);
}
float step_scaled_swish_gradient(float x, float alpha) {
  const float u = step_product(alpha, x);
  const float s = step_sigmoid(u);
  return step_fused(step_product(u, s), step_difference(1, s), s);
}

float step_tanh_gradient(float t) { return step_fused(-t, t, 1); }
float step_situ_gradient(float x, float beta) {
  const float t = step_tanh(step_quotient(x, beta));
  const float s = step_sigmoid(x);
  const float rest = step_product(step_product(step_product(beta, t), s), step_difference(1, s));
  return step_fused(step_tanh_gradient(t), s, rest);
}

float step_value(KernelActivation kind, const ActivationParameters& p, float x) {
  switch (kind) {
    case KernelActivation::gelu:
    case KernelActivation::geglu: return step_gelu(x);
    case KernelActivation::qgelu:
    case KernelActivation::qgeglu: return step_swish(x, 1.702F);
    case KernelActivation::relu:
    case KernelActivation::reglu: return x > 0 ? x : 0;
    case KernelActivation::srelu:
    case KernelActivation::sreglu: return x > 0 ? step_product(x, x) : 0;
    case KernelActivation::silu:
    case KernelActivation::swiglu: return step_swish(x, 1);
    case KernelActivation::glu: return step_sigmoid(x);
    case KernelActivation::clamped_swiglu: return step_swish(std::min(x, p.limit), p.alpha);
    case KernelActivation::situglu:
      return step_product(step_product(p.beta1, step_tanh(step_quotient(x, p.beta1))), step_sigmoid(x));
  }
  return nan;
}
float step_gradient(KernelActivation kind, const ActivationParameters& p, float x, bool scaled) {
  const auto swish_gradient = scaled ? step_scaled_swish_gradient : step_swish_gradient;
  switch (kind) {
    case KernelActivation::gelu:
    case KernelActivation::geglu: return step_gelu_gradient(x);
    case KernelActivation::qgelu:
    case KernelActivation::qgeglu: return step_swish_gradient(x, 1.702F);
    case KernelActivation::relu:
    case KernelActivation::reglu: return x > 0 ? 1 : 0;
    case KernelActivation::srelu:
    case KernelActivation::sreglu: return x > 0 ? step_product(2, x) : 0;
    case KernelActivation::silu:
    case KernelActivation::swiglu: return swish_gradient(x, 1);
    case KernelActivation::glu: {
      const float s = step_sigmoid(x);
      return step_product(s, step_difference(1, s));
    }
    case KernelActivation::clamped_swiglu: return x <= p.limit ? swish_gradient(x, p.alpha) : 0;
    case KernelActivation::situglu: return step_situ_gradient(x, p.beta1);
  }
  return nan;
}
float step_gate(KernelActivation kind, const ActivationParameters& p, float gate) {
  if (!row_of(kind).gated) return 1;
  if (kind == KernelActivation::situglu) return step_product(p.beta2, step_tanh(step_quotient(gate, p.beta2)));
  if (kind != KernelActivation::clamped_swiglu) return gate;
  return step_sum(std::clamp(gate, -p.limit, p.limit), p.offset);
}
float step_gate_gradient(KernelActivation kind, const ActivationParameters& p, float gate) {
  if (kind == KernelActivation::situglu) return step_tanh_gradient(step_tanh(step_quotient(gate, p.beta2)));
  return kind == KernelActivation::clamped_swiglu && std::abs(gate) > p.limit ? 0 : 1;
}

constexpr ActivationParameters clamp{.limit = 1.5F, .alpha = 1.702F, .offset = 0.75F, .beta1 = 3, .beta2 = 0.7F};

/// Rows of x, of odd lengths, with gradients.
struct Drawn {
  std::size_t rows = 3;
  std::size_t columns;
  std::vector<float> x, grad, scales;

  explicit Drawn(KernelActivation kind, std::size_t of_result = 37) : columns(of_result) {
    const std::size_t columns_in = row_of(kind).gated ? 2 * columns : columns;
    x = normal_draws(1, rows * columns_in, 2);
    grad = normal_draws(2, rows * columns, 1);
    scales = normal_draws(3, rows, 1);
    x[0] = 0;
    x[1] = -0.0F;
    x[2] = 30;
    x[3] = -30;
    x[4] = 0x1p-140F;
  }
  [[nodiscard]] MatrixView view_x() const { return {std::span(x), rows, x.size() / rows}; }
  [[nodiscard]] MatrixView view_grad() const { return {std::span(grad), rows, columns}; }
  [[nodiscard]] float a(KernelActivation kind, std::size_t i) const {
    return row_of(kind).gated ? x[i / columns * 2 * columns + i % columns] : x[i];
  }
  [[nodiscard]] float gate(KernelActivation kind, std::size_t i) const {
    return row_of(kind).gated ? x[i / columns * 2 * columns + columns + i % columns] : 1;
  }
};

/// Calls run(name of a target) on all of them.
template <typename Run>
void on_all_targets(const Run& run) {
  const UnforceTarget unforce;
  for (const auto target : targets()) {
    force_target(target);
    INFO(target);
    run();
  }
}

/// The same words, of zeros too.
void require_equal(const std::vector<float>& actual, const std::vector<float>& expected) {
  Mismatches mismatches;
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) mismatches.compare(i, i, bits(actual[i]), bits(expected[i]), "");
  REQUIRE_NO(mismatches);
}

std::vector<float> expected_values(KernelActivation kind, const Drawn& drawn, bool scaled) {
  std::vector<float> expected(drawn.rows * drawn.columns);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    float y = step_value(kind, clamp, drawn.a(kind, i));
    if (row_of(kind).gated) y = step_product(y, step_gate(kind, clamp, drawn.gate(kind, i)));
    expected[i] = scaled ? step_product(y, drawn.scales[i / drawn.columns]) : y;
  }
  return expected;
}

std::vector<float> expected_gradients(KernelActivation kind, const Drawn& drawn, bool scaled) {
  std::vector<float> expected(drawn.x.size());
  for (std::size_t i = 0; i < drawn.rows * drawn.columns; ++i) {
    const float a = drawn.a(kind, i);
    const float gate = step_gate(kind, clamp, drawn.gate(kind, i));
    const float gate_slope = step_gate_gradient(kind, clamp, drawn.gate(kind, i));
    const float slope = step_gradient(kind, clamp, a, scaled);
    const float value = step_value(kind, clamp, a);
    const float grad = drawn.grad[i];
    const float scaled_grad = scaled ? step_product(grad, drawn.scales[i / drawn.columns]) : grad;
    const float dx =
        scaled ? step_product(scaled_grad, step_product(slope, gate)) : step_product(step_product(slope, grad), gate);
    const float dgate = scaled ? step_product(scaled_grad, step_product(value, gate_slope))
                               : step_product(step_product(gate_slope, grad), value);
    const std::size_t row = i / drawn.columns;
    const std::size_t at = row_of(kind).gated ? i + row * drawn.columns : i;
    expected[at] = dx;
    if (row_of(kind).gated) expected[at + drawn.columns] = dgate;
  }
  return expected;
}

TEST_CASE("activations: the formula's bits on every target") {
  for (const ActivationRow& row : kernel_activations) {
    const Drawn drawn(row.value);
    const auto expected = expected_values(row.value, drawn, false);
    INFO(row.name);
    on_all_targets([&] {
      std::vector<float> out(drawn.rows * drawn.columns, nan);
      activation(row.value, clamp, drawn.view_x(), std::span(out), {.threads = 2});
      require_equal(out, expected);
    });
  }
}

TEST_CASE("activations: the gradient's bits on every target, and its sums over rows") {
  for (const ActivationRow& row : kernel_activations) {
    const Drawn drawn(row.value);
    const auto expected = expected_gradients(row.value, drawn, false);
    const std::size_t columns = drawn.x.size() / drawn.rows;
    std::vector<float> sums(columns);  // 3 rows lie in blocks 0, 1 and 2: blocks 0 and 2 are added first
    for (std::size_t i = 0; i < columns; ++i) {
      const auto block = [&](std::size_t b) { return step_sum(0, expected[b * columns + i]); };
      sums[i] = step_sum(step_sum(block(0), block(2)), block(1));
    }
    INFO(row.name);
    on_all_targets([&] {
      std::vector<float> dx(drawn.x.size(), nan);
      std::vector<float> bias(columns, nan);
      activation_backward(row.value, clamp, drawn.view_grad(), drawn.view_x(), std::span(dx), bias, {.threads = 2});
      require_equal(dx, expected);
      require_equal(bias, sums);
      std::vector<float> without(drawn.x.size(), nan);
      activation_backward(row.value, clamp, drawn.view_grad(), drawn.view_x(), std::span(without));
      require_equal(without, expected);
    });
  }
}

TEST_CASE("activations: rows that are scaled") {
  for (const ActivationRow& row : kernel_activations) {
    if (!row.scaled) continue;
    const Drawn drawn(row.value);
    std::vector<float> of_scales;
    for (std::size_t i = 0; i < drawn.rows; ++i) {
      std::vector<float> lanes(sum_lanes);
      for (std::size_t j = 0; j < drawn.columns; ++j) {
        const std::size_t at = i * drawn.columns + j;
        const float value = step_product(step_value(row.value, clamp, drawn.a(row.value, at)),
                                         step_gate(row.value, clamp, drawn.gate(row.value, at)));
        lanes[j % sum_lanes] = step_fused(drawn.grad[at], value, lanes[j % sum_lanes]);
      }
      of_scales.push_back(in_pairs(lanes));
    }
    INFO(row.name);
    on_all_targets([&] {
      std::vector<float> out(drawn.rows * drawn.columns, nan);
      scaled_activation(row.value, clamp, drawn.view_x(), drawn.scales, std::span(out));
      require_equal(out, expected_values(row.value, drawn, true));
      std::vector<float> dx(drawn.x.size(), nan);
      std::vector<float> scale_gradient(drawn.rows, nan);
      scaled_activation_backward(row.value, clamp, drawn.view_grad(), drawn.view_x(), drawn.scales, std::span(dx),
                                 scale_gradient);
      require_equal(dx, expected_gradients(row.value, drawn, true));
      require_equal(scale_gradient, of_scales);
    });
  }
}

TEST_CASE("activations: interleaved halves are the same numbers elsewhere") {
  const Drawn drawn(KernelActivation::swiglu, 64);
  std::vector<float> interleaved(drawn.x.size());
  const auto place = [](std::size_t i) {  // of element i of a row of 128
    const std::size_t column = i % 64;
    return column / 32 * 64 + i / 64 * 32 + column % 32;
  };
  for (std::size_t i = 0; i < drawn.x.size(); ++i) interleaved[i / 128 * 128 + place(i % 128)] = drawn.x[i];
  std::vector<float> plain(3 * 64);
  std::vector<float> out(3 * 64);
  scaled_activation(KernelActivation::swiglu, clamp, drawn.view_x(), drawn.scales, std::span(plain));
  scaled_activation(KernelActivation::swiglu, clamp, {std::span(interleaved), 3, 128}, drawn.scales, std::span(out),
                    {32});
  require_equal(out, plain);
  std::vector<float> dx_plain(drawn.x.size());
  std::vector<float> dx(drawn.x.size());
  std::vector<float> scale_gradient(3);
  scaled_activation_backward(KernelActivation::swiglu, clamp, drawn.view_grad(), drawn.view_x(), drawn.scales,
                             std::span(dx_plain), {});
  scaled_activation_backward(KernelActivation::swiglu, clamp, drawn.view_grad(), {std::span(interleaved), 3, 128},
                             drawn.scales, std::span(dx), scale_gradient, {32});
  std::vector<float> back(dx.size());
  for (std::size_t i = 0; i < dx.size(); ++i) back[i] = dx[i / 128 * 128 + place(i % 128)];
  require_equal(back, dx_plain);
}

TEST_CASE("activations: pieces, threads and types change no bit") {
  const std::size_t count = 3001;
  const auto wide = normal_draws(7, 2 * count, 3);
  std::vector<BFloat16> x;
  for (const float value : wide) x.push_back({static_cast<std::uint16_t>(encode(bfloat16, ieee_policy, value))});
  for (const KernelActivation kind : {KernelActivation::gelu, KernelActivation::swiglu}) {
    const std::size_t size = row_of(kind).gated ? count : 2 * count;
    std::vector<float> unrounded(size);
    activation(kind, {}, {std::span<const BFloat16>(x), 1, x.size()}, std::span(unrounded));
    for (const int threads : {1, 3}) {
      std::vector<BFloat16> out(size);
      activation(kind, {}, {std::span<const BFloat16>(x), 1, x.size()}, std::span(out), {.threads = threads});
      Mismatches mismatches;
      for (std::size_t i = 0; i < size; ++i) {
        mismatches.compare(i, i, out[i].bits, encode(bfloat16, cuda_nosat_policy, unrounded[i]), "");
      }
      REQUIRE_NO(mismatches);
    }
  }
}

TEST_CASE("activations: NaN, infinities and the clamp") {
  on_all_targets([] {
    const std::vector<float> x{nan, inf, -inf, -0.0F};
    const auto run = [&](KernelActivation kind, const std::vector<float>& in) {
      std::vector<float> out(row_of(kind).gated ? in.size() / 2 : in.size());
      activation(kind, clamp, {std::span(in), 1, in.size()}, std::span(out));
      return out;
    };
    const float all_ones = from_bits(0x7FFFFFFFU);
    require_equal(run(KernelActivation::relu, x), {0, inf, 0, 0});                    // fmaxf drops a NaN
    require_equal(run(KernelActivation::srelu, x), {0, inf, 0, 0});                   // and so does a comparison
    require_equal(run(KernelActivation::silu, x), {all_ones, inf, all_ones, -0.0F});  // -inf sigmoid(-inf) is -inf 0
    require_equal(run(KernelActivation::gelu, x), {all_ones, inf, all_ones, -0.0F});
    require_equal(
        run(KernelActivation::situglu, {inf, -inf, nan, 1, 1, 1, inf, nan}),
        {step_product(clamp.beta1, step_gate(KernelActivation::situglu, clamp, 1)), -0.0F, all_ones, all_ones});
    // clamped: a NaN in a counts as the limit, in b as -limit.
    const float at_limit = step_swish(clamp.limit, clamp.alpha);
    require_equal(run(KernelActivation::clamped_swiglu, {nan, 9, 1, nan}),
                  {step_product(at_limit, 1 + clamp.offset), step_product(at_limit, clamp.offset - clamp.limit)});
    const std::vector<float> grad{1, 1};
    std::vector<float> dx(4);
    const std::vector<float> in{nan, 1, 1, nan};
    activation_backward(KernelActivation::clamped_swiglu, clamp, {std::span(grad), 1, 2}, {std::span(in), 1, 4},
                        std::span(dx));
    REQUIRE(dx[0] == 0);
    REQUIRE(dx[3] == 0);  // a NaN lies outside of the limits
    const std::vector<float> one{1};
    scaled_activation_backward(KernelActivation::clamped_swiglu, clamp, {std::span(grad), 1, 2}, {std::span(in), 1, 4},
                               one, std::span(dx), {});
    REQUIRE(dx[3] == step_swish(1, clamp.alpha));  // and inside where rows are scaled
  });
}

TEST_CASE("activations: nothing to do, and what is refused") {
  const std::vector<float> x(6);
  std::vector<float> out(6);
  const std::vector<double> doubles(6);
  const auto run = [&](KernelActivation kind, const MatrixView& in, std::span<float> to) {
    activation(kind, {}, in, to);
  };
  run(KernelActivation::gelu, {std::span<const float>(), 0, 5}, {});
  run(KernelActivation::swiglu, {std::span<const float>(), 3, 0}, {});
  std::vector<float> sums(6, nan);
  activation_backward(KernelActivation::gelu, {}, {std::span<const float>(), 0, 6}, {std::span<const float>(), 0, 6},
                      std::span<float>(), sums);
  REQUIRE(sums == std::vector<float>(6));
  const MatrixView one{std::span(x), 2, 3};
  REQUIRE_THROWS_WITH(run(KernelActivation::swiglu, one, out),
                      ContainsSubstring("x must have an even number of columns for swiglu, not 3"));
  REQUIRE_THROWS_WITH(run(KernelActivation::gelu, one, std::span(out).first(5)),
                      ContainsSubstring("out must have 6 elements, not 5"));
  REQUIRE_THROWS_WITH(run(KernelActivation::gelu, {std::span(doubles), 2, 3}, out),
                      ContainsSubstring("x must be of float32"));
  REQUIRE_THROWS_WITH(activation(KernelActivation::gelu, {}, one, std::span(out),
                                 {.functions = Functions::hopper, .function_words = 1}),
                      "function_words must be 0 with functions of hopper, not 1");
  REQUIRE_THROWS_WITH(
      activation(KernelActivation::situglu, {.beta2 = inf}, {std::span(x), 1, 6}, std::span(out).first(3)),
      ContainsSubstring("beta2 must be positive and finite, not inf"));
  REQUIRE_THROWS_WITH(
      activation(KernelActivation::clamped_swiglu, {.limit = 0}, {std::span(x), 1, 6}, std::span(out).first(3)),
      ContainsSubstring("limit must be positive"));
  REQUIRE_THROWS_WITH(run(KernelActivation::gelu, {std::span(out).first(5), 1, 5}, std::span(out).last(5)),
                      ContainsSubstring("overlap"));
  REQUIRE_THROWS_WITH(activation_backward(KernelActivation::gelu, {}, {std::span(x), 3, 2}, one, std::span(out)),
                      ContainsSubstring("grad must be 2 x 3"));
  REQUIRE_THROWS_WITH(scaled_activation(KernelActivation::gelu, {}, one, std::span(x).first(2), std::span(out)),
                      ContainsSubstring("no kernel scales the rows of gelu"));
  REQUIRE_THROWS_WITH(scaled_activation(KernelActivation::srelu, {}, one, std::span(x).first(3), std::span(out)),
                      ContainsSubstring("scales must have 2 elements, not 3"));
  activation(KernelActivation::relu, {}, {std::span(out), 2, 3}, std::span(out));  // in place
}

}  // namespace
}  // namespace fp8lab::tests
