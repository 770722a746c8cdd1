// SPDX-License-Identifier: Apache-2.0
// Measures how far operators are from the exact values of their formulas, and holds the table of exactness() against
// it.
#include "fp8lab/reference/operators/exactness.hpp"

#include <functional>
#include <map>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/operators/activation.hpp"
#include "fp8lab/reference/operators/cross_entropy.hpp"
#include "fp8lab/reference/operators/multi_tensor.hpp"
#include "fp8lab/reference/operators/norm.hpp"
#include "fp8lab/reference/operators/optimizer.hpp"
#include "fp8lab/reference/operators/rope.hpp"
#include "fp8lab/reference/operators/router.hpp"
#include "fp8lab/reference/operators/softmax.hpp"
#include "rounded_steps.hpp"

namespace fp8lab::tests {
namespace {

struct Measured {
  double ulps = 0;
  double flips = 0;
};

/// The share of codes that differ: of each value, and of the exact one. A product with the scale as float64 decides as
/// all of its digits would, but within 2^-52 of a tie.
template <typename Number>
double share_of_flips(const std::vector<float>& actual, const std::vector<Number>& exact) {
  Number amax = 0;
  for (const Number& value : exact) amax = std::max(amax, Number(abs(value)));
  const Number scale = 448 / amax;
  std::size_t flips = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const auto code = [&](const Number& value) {
      return encode(e4m3, CastPolicy{}, static_cast<double>(Number(value * scale)));
    };
    flips += code(Number(actual[i])) != code(exact[i]) ? 1 : 0;
  }
  return static_cast<double>(flips) / static_cast<double>(exact.size());
}

Measured measure(const std::vector<float>& actual, const std::vector<Digits>& exact) {
  Measured found{.flips = share_of_flips(actual, exact)};
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const int exponent = exact[i] == 0 ? -126 : std::max(-126, static_cast<int>(ilogb(exact[i])));
    const Digits unit = ldexp(Digits(1), exponent - 23);
    found.ulps = std::max(found.ulps, Digits(abs(actual[i] - exact[i]) / unit).convert_to<double>());
  }
  return found;
}

// The formulas, for 50 digits and for float64, with the constants that float32 has.
using std::abs;
using std::exp;
using std::tanh;

template <typename Number>
Number exact_sigmoid(const Number& x) {
  return 1 / (1 + exp(-x));
}
template <typename Number>
Number exact_value(KernelActivation kind, const Number& x) {
  switch (kind) {
    case KernelActivation::gelu:
    case KernelActivation::geglu:
      return x * (0.5 + 0.5 * tanh(Number(x * (Number(0.79788456F) + Number(0.03567741F) * x * x))));
    case KernelActivation::qgelu:
    case KernelActivation::qgeglu:
    case KernelActivation::clamped_swiglu: return x * exact_sigmoid(Number(Number(1.702F) * x));
    case KernelActivation::relu:
    case KernelActivation::reglu: return x > 0 ? x : Number(0);
    case KernelActivation::srelu:
    case KernelActivation::sreglu: return x > 0 ? Number(x * x) : Number(0);
    case KernelActivation::silu:
    case KernelActivation::swiglu: return x * exact_sigmoid(x);
    case KernelActivation::glu: return exact_sigmoid(x);
    case KernelActivation::situglu: return 4 * tanh(Number(x / 4)) * exact_sigmoid(x);
  }
  return 0;
}
template <typename Number>
Number exact_gradient(KernelActivation kind, const Number& x) {
  const auto swish = [&](const Number& alpha) {
    const Number s = exact_sigmoid(Number(alpha * x));
    return Number(alpha * x * s * (1 - s) + s);
  };
  switch (kind) {
    case KernelActivation::gelu:
    case KernelActivation::geglu: {
      const Number t = tanh(Number(Number(0.79788456F) * x * (1 + Number(0.044715F) * x * x)));
      return 0.5 * x * ((1 - t * t) * (Number(0.79788456F) + Number(0.1070322243F) * x * x)) + 0.5 * (1 + t);
    }
    case KernelActivation::qgelu:
    case KernelActivation::qgeglu:
    case KernelActivation::clamped_swiglu: return swish(Number(1.702F));
    case KernelActivation::relu:
    case KernelActivation::reglu: return x > 0 ? 1 : 0;
    case KernelActivation::srelu:
    case KernelActivation::sreglu: return x > 0 ? Number(2 * x) : Number(0);
    case KernelActivation::silu:
    case KernelActivation::swiglu: return swish(Number(1));
    case KernelActivation::glu: return exact_sigmoid(x) * (1 - exact_sigmoid(x));
    case KernelActivation::situglu: {
      const Number t = tanh(Number(x / 4));
      const Number s = exact_sigmoid(x);
      return (1 - t * t) * s + 4 * t * s * (1 - s);
    }
  }
  return 0;
}

/// What the second half multiplies with, and its derivative.
template <typename Number>
Number exact_gate(KernelActivation kind, const Number& gate) {
  if (kind == KernelActivation::situglu) return 25 * tanh(Number(gate / 25));
  return Number(gate + (kind == KernelActivation::clamped_swiglu ? 1 : 0));
}
template <typename Number>
Number exact_gate_gradient(KernelActivation kind, const Number& gate) {
  if (kind != KernelActivation::situglu) return 1;
  const Number t = tanh(Number(gate / 25));
  return 1 - t * t;
}

constexpr ActivationParameters wide_clamp{.limit = 100};  // which no draw reaches

/// The draws of an activation, what it gives, and the exact values.
template <typename Number>
struct ActivationDraws {
  std::vector<float> actual;
  std::vector<Number> exact;

  ActivationDraws(KernelActivation kind, bool backward, std::size_t count) {
    const bool gated = row_of(kind).gated;
    const auto x = normal_draws(1, gated ? 2 * count : count, 1);
    const auto grad = normal_draws(2, count, 1);
    const MatrixView in{std::span(x), 1, x.size()};
    actual.resize(backward ? x.size() : count);
    if (backward) {
      activation_backward(kind, wide_clamp, {std::span(grad), 1, count}, in, std::span(actual));
    } else {
      activation(kind, wide_clamp, in, std::span(actual));
    }
    for (std::size_t i = 0; i < count; ++i) {
      const Number gate = gated ? exact_gate(kind, Number(x[count + i])) : Number(1);
      const Number own(x[i]);
      exact.push_back(backward ? Number(exact_gradient(kind, own) * grad[i] * gate)
                               : Number(exact_value(kind, own) * gate));
    }
    for (std::size_t i = 0; backward && gated && i < count; ++i) {
      const Number slope = exact_gate_gradient(kind, Number(x[count + i]));
      exact.push_back(Number(exact_value(kind, Number(x[i])) * grad[i] * slope));
    }
  }
};

Measured of_activation(KernelActivation kind, bool backward) {
  const ActivationDraws<Digits> few(kind, backward, 1000);
  const ActivationDraws<double> many(kind, backward, 100'000);
  return {.ulps = measure(few.actual, few.exact).ulps, .flips = share_of_flips(many.actual, many.exact)};
}

/// layernorm, or rmsnorm: the result, or dx.
Measured of_norm(bool centers, bool backward) {
  const std::size_t n = 1000;
  const auto x = normal_draws(1, n, 1);
  const auto gamma = normal_draws(2, n, 1);
  const auto beta = normal_draws(3, n, 1);
  const auto grad = normal_draws(4, n, 1);
  const auto row = [](const std::vector<float>& values) { return MatrixView(std::span(values), 1, values.size()); };
  std::vector<float> y(n), mean(1), rsigma(1), dx(n), dgamma(n), dbeta(n);
  if (centers) {
    layernorm({}, row(x), row(gamma), row(beta), std::span(y), mean, rsigma);
    layernorm_backward({}, row(grad), row(x), mean, rsigma, row(gamma), std::span(dx), std::span(dgamma),
                       std::span(dbeta));
  } else {
    rmsnorm({}, row(x), row(gamma), std::span(y), rsigma);
    rmsnorm_backward({}, row(grad), row(x), rsigma, row(gamma), nullptr, std::span(dx), std::span(dgamma));
  }
  Digits middle = 0, variance = 0, of_d = 0, of_dy = 0;
  for (const float value : x) middle += centers ? Digits(value) / n : Digits(0);
  for (const float value : x) variance += (value - middle) * (value - middle) / n;
  const Digits factor = 1 / sqrt(variance + Digits(1e-5F));
  std::vector<Digits> exact_y, exact_dx, normal;
  for (std::size_t i = 0; i < n; ++i) {
    normal.push_back((x[i] - middle) * factor);
    exact_y.push_back(gamma[i] * normal[i] + (centers ? Digits(beta[i]) : Digits(0)));
    const Digits d = Digits(gamma[i]) * grad[i];
    of_d += centers ? Digits(d / n) : Digits(0);
    of_dy += d * normal[i] / n;
  }
  for (std::size_t i = 0; i < n; ++i) {
    exact_dx.push_back(factor * (Digits(gamma[i]) * grad[i] - of_d - of_dy * normal[i]));
  }
  return backward ? measure(dx, exact_dx) : measure(y, exact_y);
}

Measured of_softmax(bool backward) {
  const std::size_t rows = 32, keys = 64;
  const auto x = normal_draws(1, rows * keys, 3);
  const auto grad = normal_draws(2, rows * keys, 1);
  std::vector<float> y(rows * keys), dx(rows * keys);
  const SoftmaxShape shape{1, 1, rows, keys};
  softmax(SoftmaxMask::none, shape, 1, {std::span(x), rows, keys}, {}, std::span(y));
  softmax_backward(SoftmaxMask::none, shape, 1, {std::span(grad), rows, keys}, {std::span(y), rows, keys},
                   std::span(dx));
  std::vector<Digits> exact_y, exact_dx;
  for (std::size_t i = 0; i < rows; ++i) {
    Digits sum = 0, of_grad = 0;
    for (std::size_t j = 0; j < keys; ++j) sum += exp(Digits(x[i * keys + j]));
    for (std::size_t j = 0; j < keys; ++j) exact_y.push_back(exp(Digits(x[i * keys + j])) / sum);
    for (std::size_t j = 0; j < keys; ++j) of_grad += Digits(grad[i * keys + j]) * y[i * keys + j];
    for (std::size_t j = 0; j < keys; ++j) exact_dx.push_back((grad[i * keys + j] - of_grad) * y[i * keys + j]);
  }
  return backward ? measure(dx, exact_dx) : measure(y, exact_y);
}

Measured of_adam() {
  const std::size_t count = 1000;
  const auto grad = normal_draws(1, count, 1);
  auto param = normal_draws(2, count, 1);
  auto m = normal_draws(3, count, 1);
  auto v = normal_draws(4, count, 1);
  for (float& value : v) value *= value;
  const AdamParameters p{.lr = 0.01F, .weight_decay = 0.1F, .step = 3};
  const Digits b1(p.beta1), b2(p.beta2);
  std::vector<Digits> exact;
  for (std::size_t i = 0; i < count; ++i) {
    const Digits new_m = b1 * m[i] + (1 - b1) * grad[i];
    const Digits new_v = b2 * v[i] + (1 - b2) * grad[i] * grad[i];
    const Digits update = new_m / (1 - b1 * b1 * b1) / (sqrt(new_v / (1 - b2 * b2 * b2)) + Digits(p.eps));
    exact.push_back(param[i] - Digits(p.lr) * (update + Digits(p.weight_decay) * param[i]));
  }
  adam_update(p, std::span(grad), std::span(param), std::span(m), std::span(v));
  return measure(param, exact);
}

Measured of_rope(bool backward) {
  const std::size_t tokens = 16, size = 64;
  const auto x = normal_draws(1, tokens * size, 1);
  std::vector<float> freqs;
  for (std::uint64_t i = 0; i < tokens * size; ++i) {
    freqs.push_back(static_cast<float>(static_cast<double>(random_bits(2, i) >> 11) * 0x1p-53 * 1000));
  }
  std::vector<float> out(x.size());
  const RopeShape shape{.sequence = tokens, .heads = 1, .size = size, .rotated = size};
  (backward ? rope_backward : rope)(shape, {}, std::span<const float>(x), freqs, std::span(out), {});
  std::vector<Digits> exact;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool is_first = i % size < size / 2;
    const std::size_t other = is_first ? i + size / 2 : i - size / 2;
    const Digits sine = sin(Digits(freqs[backward ? other : i]));
    exact.push_back(x[i] * cos(Digits(freqs[i])) + x[other] * (is_first != backward ? Digits(-sine) : sine));
  }
  return measure(out, exact);
}

Measured of_cross_entropy(bool backward) {
  const std::size_t rows = 32, columns = 64;
  const auto x = normal_draws(1, rows * columns, 3);
  const auto grad = normal_draws(2, rows, 1);
  std::vector<std::int64_t> targets;
  for (std::uint64_t i = 0; i < rows; ++i) targets.push_back(static_cast<std::int64_t>(random_bits(3, i) % columns));
  std::vector<float> loss(rows), largest(rows), sums(rows), dx(x.size());
  const MatrixView view{std::span(x), rows, columns};
  cross_entropy({}, view, targets, loss, largest, sums);
  cross_entropy_backward({}, grad, view, targets, largest, sums, std::span(dx));
  std::vector<Digits> exact_loss, exact_dx;
  for (std::size_t i = 0; i < rows; ++i) {
    Digits sum = 0;
    for (std::size_t j = 0; j < columns; ++j) sum += exp(Digits(x[i * columns + j]));
    const auto target = static_cast<std::size_t>(targets[i]);
    exact_loss.push_back(log(sum) - x[i * columns + target]);
    for (std::size_t j = 0; j < columns; ++j) {
      exact_dx.push_back((exp(Digits(x[i * columns + j])) / sum - (j == target ? 1 : 0)) * grad[i]);
    }
  }
  return backward ? measure(dx, exact_dx) : measure(loss, exact_loss);
}

Measured of_l2norm() {
  const auto x = normal_draws(1, 100'000, 1);
  Digits sum = 0;
  for (const float value : x) sum += Digits(value) * value;
  return measure({l2norm(std::span(x))}, {sqrt(sum)});
}

/// The largest distance of the three scores, in moe_topk(), or where all experts count in moe_scores(); or in its
/// gradient.
Measured of_router(bool all, bool backward) {
  const std::size_t rows = 32, columns = 64, topk = 8;
  const auto x = normal_draws(1, rows * columns, 1);
  const auto grad = normal_draws(2, rows * columns, 1);
  Measured most;
  for (const auto& score : router_scores) {
    std::vector<float> y(x.size()), saved(x.size()), dx(x.size());
    std::vector<std::int32_t> experts(rows * topk);
    const RouterParameters p{.topk = topk, .score = score.value, .softmax_first = all};
    const MatrixView in{std::span(x), rows, columns};
    const MatrixView of_y{std::span(grad), rows, columns};
    if (all) {
      moe_scores(p, in, y, experts, saved);
      moe_scores_backward(score.value, saved, of_y, std::span(dx));
    } else {
      moe_topk(p, in, {}, std::span(y), experts, saved);
      moe_topk_backward(p, {.experts = experts}, saved, of_y, std::span(dx));
    }
    const bool is_softmax = score.value == RouterScore::softmax;
    const auto root = [](const Digits& logit) { return Digits(sqrt(log(Digits(1 + exp(logit))))); };
    std::vector<Digits> exact_y(x.size()), exact_dx(x.size());
    for (std::size_t row = 0; row < rows; ++row) {
      std::vector<std::size_t> chosen;
      for (std::size_t i = 0; i < (all ? columns : topk); ++i) {
        chosen.push_back(row * columns + (all ? i : static_cast<std::size_t>(experts[row * topk + i])));
      }
      const auto value = [&](std::size_t i) {
        if (is_softmax) return Digits(exp(Digits(x[i])));
        return score.value == RouterScore::sigmoid ? exact_sigmoid(Digits(x[i])) : root(Digits(x[i]));
      };
      const auto s = [&](std::size_t i) {
        return score.value == RouterScore::sqrtsoftplus ? root(Digits(saved[i])) : Digits(saved[i]);
      };
      Digits sum = 0, sum_s = 0, sum_gs = 0;
      for (const std::size_t i : chosen) {
        sum += value(i);
        sum_s += s(i);
        sum_gs += grad[i] * s(i);
      }
      for (const std::size_t i : chosen) {
        exact_y[i] = value(i) / sum;
        const Digits n = grad[i] / sum_s - sum_gs / (sum_s * sum_s);
        if (is_softmax) {
          exact_dx[i] = s(i) * (grad[i] - sum_gs);
        } else if (score.value == RouterScore::sigmoid) {
          exact_dx[i] = n * s(i) * (1 - s(i));
        } else {
          exact_dx[i] = n * exact_sigmoid(Digits(saved[i])) / (2 * s(i));
        }
      }
    }
    const Measured found = backward ? measure(dx, exact_dx) : measure(y, exact_y);
    most = {std::max(most.ulps, found.ulps), std::max(most.flips, found.flips)};
  }
  return most;
}

Measured of_aux_loss() {
  const std::size_t rows = 32, columns = 64;
  const auto x = normal_draws(1, rows * columns, 1);
  std::vector<float> scores(x.size()), saved(x.size()), counts;
  std::vector<std::int32_t> experts(rows);
  moe_scores({}, {std::span(x), rows, columns}, scores, experts, saved);
  Digits sum = 0;
  for (std::size_t i = 0; i < columns; ++i) counts.push_back(static_cast<float>(i));
  for (std::size_t i = 0; i < x.size(); ++i) sum += Digits(scores[i]) * counts[i % columns];
  const AuxLossParameters p{.experts = columns, .topk = 3, .tokens = 100, .coefficient = 0.01F};
  const AuxLoss found = moe_aux_loss(p, {std::span(scores), rows, columns}, counts);
  return measure({found.loss}, {sum * columns * Digits(0.01F) / 3 / 100 / 100});
}

const std::map<std::string_view, std::function<Measured()>> others{
    {"moe_topk", [] { return of_router(false, false); }},
    {"moe_topk_backward", [] { return of_router(false, true); }},
    {"moe_scores", [] { return of_router(true, false); }},
    {"moe_scores_backward", [] { return of_router(true, true); }},
    {"moe_aux_loss", of_aux_loss},
    {"layernorm", [] { return of_norm(true, false); }},
    {"layernorm_backward", [] { return of_norm(true, true); }},
    {"rmsnorm", [] { return of_norm(false, false); }},
    {"rmsnorm_backward", [] { return of_norm(false, true); }},
    {"softmax", [] { return of_softmax(false); }},
    {"softmax_backward", [] { return of_softmax(true); }},
    {"rope", [] { return of_rope(false); }},
    {"rope_backward", [] { return of_rope(true); }},
    {"cross_entropy", [] { return of_cross_entropy(false); }},
    {"cross_entropy_backward", [] { return of_cross_entropy(true); }},
    {"adam_update", of_adam},
    {"l2norm", of_l2norm},
};

TEST_CASE("exactness: the table has what is measured") {
  for (const Exactness& row : exactness()) {
    INFO(row.function << ' ' << row.name);
    if (row.exact) {
      REQUIRE((row.ulps == 0 && row.flips == 0));
      continue;
    }
    Measured found;
    if (row.name.empty()) {
      found = others.at(row.function)();
    } else {
      found =
          of_activation(find_named(kernel_activations, "name", row.name).value, row.function == "activation_backward");
    }
    // The table has two digits.
    CAPTURE(found.ulps, found.flips);
    CHECK(std::abs(found.ulps - row.ulps) <= 0.06 * found.ulps);
    CHECK(std::abs(found.flips - row.flips) <= 0.06 * found.flips);
  }
}

TEST_CASE("exactness: every activation has two rows, one for each direction") {
  for (const ActivationRow& one : kernel_activations) {
    const auto rows = std::ranges::count_if(exactness(), [&](const Exactness& row) { return row.name == one.name; });
    REQUIRE(rows == 2);
  }
}

}  // namespace
}  // namespace fp8lab::tests
