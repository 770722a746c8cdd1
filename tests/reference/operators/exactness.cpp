// SPDX-License-Identifier: Apache-2.0
// Measures how far operators are from the exact values of their formulas, and holds the table of exactness() against
// it.
#include "fp8lab/reference/operators/exactness.hpp"

#include <functional>
#include <map>
#include <numeric>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/operators/activation.hpp"
#include "fp8lab/reference/operators/cross_entropy.hpp"
#include "fp8lab/reference/operators/group_bias.hpp"
#include "fp8lab/reference/operators/mask_permutation.hpp"
#include "fp8lab/reference/operators/multi_tensor.hpp"
#include "fp8lab/reference/operators/norm.hpp"
#include "fp8lab/reference/operators/optimizer.hpp"
#include "fp8lab/reference/operators/rope.hpp"
#include "fp8lab/reference/operators/router.hpp"
#include "fp8lab/reference/operators/softmax.hpp"
#include "rounded_steps.hpp"

namespace fp8lab::tests::operator_exactness {
namespace {

struct Measured {
  double ulps = 0;
  double flips = 0;
  double device_flips = 0;
};

/// Where a device's result lies: every operation of float32 adds half a unit of the last place at most, and the
/// functions what CUDA's documentation has as their largest error.
struct Range {
  double low, high;

  Range() : Range(0) {}
  Range(double value) : low(value), high(value) {}  // NOLINT(google-explicit-constructor): the formulas mix them
  Range(double from, double to) : low(from), high(to) {}

  friend Range operator-(const Range& a) { return {-a.high, -a.low}; }
  friend Range operator+(const Range& a, const Range& b) { return off({a.low + b.low, a.high + b.high}, 0.5); }
  friend Range operator-(const Range& a, const Range& b) { return a + -b; }
  friend Range operator*(const Range& a, const Range& b) {
    const auto [low, high] = std::minmax({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
    return off({low, high}, 0.5);
  }
  friend Range operator/(const Range& a, const Range& b) {
    const auto [low, high] = std::minmax({a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high});
    return off({low, high}, 0.5);
  }
  Range& operator+=(const Range& b) { return *this = *this + b; }
  friend bool operator>(const Range& a, double b) { return a.low > b; }

  /// Wider at both ends by so many units of the last place, of which one is 2^-23 of the value at most.
  static Range off(const Range& a, double units) {
    const double part = units * 0x1p-23;
    return {a.low - part * std::abs(a.low), a.high + part * std::abs(a.high)};
  }
};

// 2 units is the largest error of these functions in the table of the CUDA C++ Programming Guide, and of a division
// and a root of less than IEEE's precision. That of __expf(x) is 2 + floor(|1.173 x|).
constexpr double library_units = 2;
Range exp(const Range& x) { return Range::off({std::exp(x.low), std::exp(x.high)}, library_units); }
Range tanh(const Range& x) { return Range::off({std::tanh(x.low), std::tanh(x.high)}, library_units); }
Range log(const Range& x) { return Range::off({std::log(x.low), std::log(x.high)}, library_units); }
Range sqrt(const Range& x) { return Range::off({std::sqrt(x.low), std::sqrt(x.high)}, library_units); }
Range sin(const Range& x) { return Range::off(std::sin(x.low), library_units); }  // of numbers that are known
Range cos(const Range& x) { return Range::off(std::cos(x.low), library_units); }

Digits fast_exp(const Digits& x) { return exp(x); }
Range fast_exp(const Range& x) {
  const double units = library_units + std::floor(1.173 * std::max(std::abs(x.low), std::abs(x.high)));
  return Range::off({std::exp(x.low), std::exp(x.high)}, units);
}
Digits fast_quotient(const Digits& a, const Digits& b) { return a / b; }
Range fast_quotient(const Range& a, const Range& b) { return Range::off(a / b, library_units); }

/// A sum in any order: each of the additions is off by half a unit of a partial sum, which is at most that of the
/// magnitudes.
Digits total(const std::vector<Digits>& values) {
  Digits sum = 0;
  for (const Digits& value : values) sum += value;
  return sum;
}
double total(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }
Range total(const std::vector<Range>& values) {
  double low = 0, high = 0, magnitudes = 0;
  for (const Range& value : values) {
    low += value.low;
    high += value.high;
    magnitudes += std::max(std::abs(value.low), std::abs(value.high));
  }
  const double slack = 0x1p-24 * static_cast<double>(values.size()) * magnitudes;
  return {low - slack, high + slack};
}

/// The share of codes that the ranges leave open, by the scale of the amax of their middles.
double share_of_open(const std::vector<Range>& ranges) {
  double amax = 0;
  for (const Range& one : ranges) amax = std::max(amax, std::abs(one.low + one.high) / 2);
  std::size_t open = 0;
  for (const Range& one : ranges) {
    const auto code = [&](double value) { return encode(e4m3, CastPolicy{}, value * (448 / amax) + 0.0); };  // no -0
    open += code(one.low) != code(one.high) ? 1 : 0;
  }
  return static_cast<double>(open) / static_cast<double>(ranges.size());
}

/// fp8lab's own results, whose functions are rounded correctly and whose sums have one order, lie where a device's do.
void check_inside(const std::vector<float>& actual, const std::vector<Range>& ranges) {
  REQUIRE(actual.size() == ranges.size());
  std::size_t outside = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    outside += static_cast<double>(actual[i]) < ranges[i].low || static_cast<double>(actual[i]) > ranges[i].high;
  }
  CHECK(outside == 0);
}

/// What an operator gives, and the exact values or the ranges of its formula.
template <typename Number>
struct Results {
  std::vector<float> actual;
  std::vector<Number> exact;
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

/// The draws of an activation, what it gives, and the exact values. Where each row has a scale, rows have 100 columns,
/// and behind the gradients by x are those by the scales.
template <typename Number>
struct ActivationDraws {
  std::vector<float> actual;
  std::vector<Number> exact;

  ActivationDraws(KernelActivation kind, bool scaled, bool backward, std::size_t count) {
    const std::size_t columns = scaled ? 100 : count, rows = count / columns;
    const std::size_t width = row_of(kind).gated ? 2 * columns : columns;
    const auto x = normal_draws(1, rows * width, 1);
    const auto grad = normal_draws(2, count, 1);
    const auto scales = scaled ? normal_draws(3, rows, 1) : std::vector<float>(rows, 1);
    const MatrixView in{std::span(x), rows, width}, of_result{std::span(grad), rows, columns};
    actual.resize(backward ? x.size() : count);
    std::vector<float> scale_gradient(scaled && backward ? rows : 0);
    if (scaled && backward) {
      scaled_activation_backward(kind, wide_clamp, of_result, in, scales, std::span(actual), scale_gradient);
    } else if (scaled) {
      scaled_activation(kind, wide_clamp, in, scales, std::span(actual));
    } else if (backward) {
      activation_backward(kind, wide_clamp, of_result, in, std::span(actual));
    } else {
      activation(kind, wide_clamp, in, std::span(actual));
    }
    actual.insert(actual.end(), scale_gradient.begin(), scale_gradient.end());
    exact.resize(actual.size());
    for (std::size_t row = 0; row < rows; ++row) {
      std::vector<Number> products;
      for (std::size_t j = 0; j < columns; ++j) {
        const std::size_t first = row * width + j, second = first + columns, i = row * columns + j;
        const bool gated = width > columns;
        const Number own(x[first]);
        const Number gate = gated ? exact_gate(kind, Number(x[second])) : Number(1);
        const Number value = exact_value(kind, own);
        if (!backward) {
          exact[i] = value * gate;
          if (scaled) exact[i] = exact[i] * Number(scales[row]);
          continue;
        }
        const Number factor = scaled ? Number(Number(grad[i]) * Number(scales[row])) : Number(grad[i]);
        exact[first] = exact_gradient(kind, own) * factor * gate;
        if (gated) exact[second] = value * factor * exact_gate_gradient(kind, Number(x[second]));
        products.push_back(Number(grad[i]) * Number(value * gate));
      }
      if (!scale_gradient.empty()) exact[rows * width + row] = total(products);
    }
  }
};

Measured of_activation(KernelActivation kind, bool scaled, bool backward) {
  const ActivationDraws<Digits> few(kind, scaled, backward, 1000);
  const ActivationDraws<double> many(kind, scaled, backward, 100'000);
  const ActivationDraws<Range> ranges(kind, scaled, backward, 100'000);
  check_inside(ranges.actual, ranges.exact);
  return {.ulps = measure(few.actual, few.exact).ulps,
          .flips = share_of_flips(many.actual, many.exact),
          .device_flips = share_of_open(ranges.exact)};
}

/// layernorm, or rmsnorm: the result, or dx.
template <typename Number>
Results<Number> of_norm(bool centers, bool backward) {
  const std::size_t n = 1000;
  const double count = 1000;
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
  const auto own = [](float value) { return Number(value); };
  std::vector<Number> values, squares, normal, of_d, of_dy, exact_y, exact_dx;
  std::ranges::transform(x, std::back_inserter(values), own);
  const Number middle = centers ? Number(total(values) / count) : Number(0);
  for (const Number& value : values) squares.push_back((value - middle) * (value - middle));
  const Number factor = 1 / sqrt(Number(total(squares) / count + Number(1e-5F)));
  for (std::size_t i = 0; i < n; ++i) {
    normal.push_back((values[i] - middle) * factor);
    exact_y.push_back(own(gamma[i]) * normal[i] + (centers ? own(beta[i]) : Number(0)));
    of_d.push_back(own(gamma[i]) * own(grad[i]));
    of_dy.push_back(of_d[i] * normal[i]);
  }
  const Number mean_d = centers ? Number(total(of_d) / count) : Number(0);
  const Number mean_dy = total(of_dy) / count;
  for (std::size_t i = 0; i < n; ++i) exact_dx.push_back(factor * (of_d[i] - mean_d - mean_dy * normal[i]));
  return backward ? Results<Number>{dx, exact_dx} : Results<Number>{y, exact_y};
}

template <typename Number>
Results<Number> of_softmax(bool backward) {
  const std::size_t rows = 32, keys = 64;
  const auto x = normal_draws(1, rows * keys, 3);
  const auto grad = normal_draws(2, rows * keys, 1);
  std::vector<float> y(rows * keys), dx(rows * keys);
  const SoftmaxShape shape{1, 1, rows, keys};
  softmax(SoftmaxMask::none, shape, 1, {std::span(x), rows, keys}, {}, std::span(y));
  softmax_backward(SoftmaxMask::none, shape, 1, {std::span(grad), rows, keys}, {std::span(y), rows, keys},
                   std::span(dx));
  std::vector<Number> exact_y, exact_dx;
  for (std::size_t i = 0; i < rows; ++i) {
    const float most = *std::max_element(&x[i * keys], &x[i * keys] + keys);
    std::vector<Number> powers, products;
    for (std::size_t j = i * keys; j < (i + 1) * keys; ++j) {
      powers.push_back(fast_exp(Number(Number(x[j]) - Number(most))));
      products.push_back(Number(grad[j]) * Number(y[j]));
    }
    const Number sum = total(powers), of_grad = total(products);
    for (const Number& power : powers) exact_y.push_back(fast_quotient(power, sum));
    for (std::size_t j = i * keys; j < (i + 1) * keys; ++j) {
      exact_dx.push_back((Number(grad[j]) - of_grad) * Number(y[j]));
    }
  }
  return backward ? Results<Number>{dx, exact_dx} : Results<Number>{y, exact_y};
}

/// What holds the parameters: float32, FP8 beside a float32 master, or a bfloat16 and the low word of the master.
enum class Parameters : std::uint8_t { whole, fp8, remainder };

template <typename Number>
Results<Number> of_adam(Parameters kind) {
  const std::size_t count = 1000;
  const auto grad = normal_draws(1, count, 1);
  auto param = normal_draws(2, count, 1);
  auto m = normal_draws(3, count, 1);
  auto v = normal_draws(4, count, 1);
  for (float& value : v) value *= value;
  const AdamParameters p{.lr = 0.01F, .weight_decay = 0.1F, .step = 3};
  const Number b1(p.beta1), b2(p.beta2), lr(p.lr), decay(p.weight_decay), eps(p.eps);
  std::vector<Number> exact;
  for (std::size_t i = 0; i < count; ++i) {
    const Number own(param[i]), g(grad[i]);
    const Number new_m = b1 * Number(m[i]) + (1 - b1) * g;
    const Number new_v = b2 * Number(v[i]) + (1 - b2) * g * g;
    const Number corrected = fast_quotient(new_m, Number(1 - b1 * b1 * b1));
    const Number root = sqrt(fast_quotient(new_v, Number(1 - b2 * b2 * b2)));
    const Number update = fast_quotient(corrected, Number(root + eps));
    exact.push_back(own - lr * (update + decay * own));
  }
  if (kind == Parameters::whole) {
    adam_update(p, std::span(grad), std::span(param), std::span(m), std::span(v));
  } else if (kind == Parameters::fp8) {
    std::vector<std::uint8_t> codes(count);
    const float amax = adam_update_fp8(p, std::span(grad), e4m3, 1, 0, codes, std::span(m), std::span(v), param);
    REQUIRE(amax == std::abs(*std::ranges::max_element(param, {}, [](float x) { return std::abs(x); })));
  } else {
    std::vector<BFloat16> high;
    std::vector<std::int16_t> low;
    for (const float value : param) {
      const auto word = std::bit_cast<std::uint32_t>(value);
      low.push_back(static_cast<std::int16_t>(word));
      high.push_back({static_cast<std::uint16_t>((word >> 16) + ((word >> 15) & 1))});
    }
    adam_update_remainder(p, std::span(grad), high, std::span(m), std::span(v), low);
    for (std::size_t i = 0; i < count; ++i) {
      const auto upper = static_cast<std::uint32_t>(high[i].bits - (low[i] < 0 ? 1 : 0));
      param[i] = std::bit_cast<float>(upper << 16 | static_cast<std::uint16_t>(low[i]));
    }
  }
  return {param, exact};
}

template <typename Number>
Results<Number> of_rope(bool beside, bool backward) {
  const std::size_t tokens = 16, size = 64;
  const auto x = normal_draws(1, tokens * size, 1);
  std::vector<float> freqs;
  for (std::uint64_t i = 0; i < tokens * size; ++i) {
    freqs.push_back(static_cast<float>(static_cast<double>(random_bits(2, i) >> 11) * 0x1p-53 * 1000));
  }
  std::vector<float> out(x.size());
  const RopeShape shape{.sequence = tokens, .heads = 1, .size = size, .rotated = size};
  if (!beside) {
    (backward ? rope_backward : rope)(shape, {}, std::span<const float>(x), freqs, std::span(out), {});
  } else {  // the query; the key is the same, and the value is copied
    const RopeQkvShape qkv{.sequence = tokens, .heads = 1, .widths = {size, size, size}, .rotated = size};
    std::vector<float> all(3 * x.size()), key(x.size()), value(x.size());
    const auto side = [&](std::size_t i, std::size_t part) -> float& {
      return all[(3 * (i / size) + part) * size + i % size];
    };
    for (std::size_t i = 0; i < x.size(); ++i) side(i, 0) = side(i, 1) = side(i, 2) = x[i];
    if (backward) {
      const std::span<const float> grad(x);
      rope_qkv_backward(qkv, {}, {grad, grad, grad}, freqs, freqs, std::span(all));
      for (std::size_t i = 0; i < x.size(); ++i) {
        out[i] = side(i, 0);
        key[i] = side(i, 1);
        value[i] = side(i, 2);
      }
    } else {
      rope_qkv(qkv, {}, std::span<const float>(all), freqs, freqs, {std::span(out), std::span(key), std::span(value)});
    }
    REQUIRE((key == out && value == x));
  }
  std::vector<Number> exact;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool is_first = i % size < size / 2;
    const std::size_t other = is_first ? i + size / 2 : i - size / 2;
    const Number sine = sin(Number(freqs[backward ? other : i]));
    const Number turned = is_first != backward ? Number(-sine) : sine;
    exact.push_back(Number(x[i]) * cos(Number(freqs[i])) + Number(x[other]) * turned);
  }
  return {out, exact};
}

template <typename Number>
Results<Number> of_cross_entropy(bool backward) {
  const std::size_t rows = 32, columns = 64;
  const auto x = normal_draws(1, rows * columns, 3);
  const auto grad = normal_draws(2, rows, 1);
  std::vector<std::int64_t> targets;
  for (std::uint64_t i = 0; i < rows; ++i) targets.push_back(static_cast<std::int64_t>(random_bits(3, i) % columns));
  std::vector<float> loss(rows), largest(rows), sums(rows), dx(x.size());
  const MatrixView view{std::span(x), rows, columns};
  cross_entropy({}, view, targets, loss, largest, sums);
  cross_entropy_backward({}, grad, view, targets, largest, sums, std::span(dx));
  std::vector<Number> exact_loss, exact_dx;
  for (std::size_t i = 0; i < rows; ++i) {
    const Number most(largest[i]);
    std::vector<Number> powers;
    for (std::size_t j = 0; j < columns; ++j) powers.push_back(fast_exp(Number(Number(x[i * columns + j]) - most)));
    const Number sum = total(powers);
    const auto target = static_cast<std::size_t>(targets[i]);
    exact_loss.push_back(log(sum) - (Number(x[i * columns + target]) - most));
    for (std::size_t j = 0; j < columns; ++j) {
      const Number share = fast_quotient(powers[j], sum);
      exact_dx.push_back((j == target ? Number(share - 1) : share) * Number(grad[i]));
    }
  }
  return backward ? Results<Number>{dx, exact_dx} : Results<Number>{loss, exact_loss};
}

template <typename Number>
Results<Number> of_l2norm() {
  const auto x = normal_draws(1, 100'000, 1);
  std::vector<Number> squares;
  for (const float value : x) squares.push_back(Number(value) * Number(value));
  return {{l2norm(std::span(x))}, {sqrt(total(squares))}};
}

/// moe_topk(), or where all experts count moe_scores(), of a score; or its gradient.
template <typename Number>
Results<Number> of_router(RouterScore score, bool all, bool backward) {
  const std::size_t rows = 32, columns = 64, topk = 8;
  const auto x = normal_draws(1, rows * columns, 1);
  const auto grad = normal_draws(2, rows * columns, 1);
  std::vector<float> y(x.size()), saved(x.size()), dx(x.size());
  std::vector<std::int32_t> experts(rows * topk);
  const RouterParameters p{.topk = topk, .score = score, .softmax_first = all};
  const MatrixView in{std::span(x), rows, columns};
  const MatrixView of_y{std::span(grad), rows, columns};
  if (all) {
    moe_scores(p, in, y, experts, saved);
    moe_scores_backward(score, saved, of_y, std::span(dx));
  } else {
    moe_topk(p, in, {}, std::span(y), experts, saved);
    moe_topk_backward(p, {.experts = experts}, saved, of_y, std::span(dx));
  }
  const bool is_softmax = score == RouterScore::softmax;
  const auto root = [](const Number& logit) { return Number(sqrt(log(Number(1 + exp(logit))))); };
  std::vector<Number> exact_y(x.size()), exact_dx(x.size());
  for (std::size_t row = 0; row < rows; ++row) {
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < (all ? columns : topk); ++i) {
      chosen.push_back(row * columns + (all ? i : static_cast<std::size_t>(experts[row * topk + i])));
    }
    float most = x[chosen[0]];
    for (const std::size_t i : chosen) most = std::max(most, x[i]);
    const auto value = [&](std::size_t i) {
      if (is_softmax) return Number(exp(Number(Number(x[i]) - Number(most))));
      return score == RouterScore::sigmoid ? exact_sigmoid(Number(x[i])) : root(Number(x[i]));
    };
    const auto s = [&](std::size_t i) {
      return score == RouterScore::sqrtsoftplus ? root(Number(saved[i])) : Number(saved[i]);
    };
    std::vector<Number> values, scores, products;
    for (const std::size_t i : chosen) {
      values.push_back(value(i));
      scores.push_back(s(i));
      products.push_back(Number(grad[i]) * s(i));
    }
    const Number sum = total(values), sum_s = total(scores), sum_gs = total(products);
    for (const std::size_t i : chosen) {
      const Number g(grad[i]);
      exact_y[i] = value(i) / sum;
      const Number n = g / sum_s - sum_gs / (sum_s * sum_s);
      if (is_softmax) {
        exact_dx[i] = s(i) * (g - sum_gs);
      } else if (score == RouterScore::sigmoid) {
        exact_dx[i] = n * s(i) * (1 - s(i));
      } else {
        exact_dx[i] = n * exact_sigmoid(Number(saved[i])) / (2 * s(i));
      }
    }
  }
  return backward ? Results<Number>{dx, exact_dx} : Results<Number>{y, exact_y};
}

template <typename Number>
Results<Number> of_aux_loss() {
  const std::size_t rows = 32, columns = 64;
  const auto x = normal_draws(1, rows * columns, 1);
  std::vector<float> scores(x.size()), saved(x.size()), counts;
  std::vector<std::int32_t> experts(rows);
  moe_scores({}, {std::span(x), rows, columns}, scores, experts, saved);
  for (std::size_t i = 0; i < columns; ++i) counts.push_back(static_cast<float>(i));
  std::vector<Number> products;
  for (std::size_t i = 0; i < x.size(); ++i) products.push_back(Number(scores[i]) * Number(counts[i % columns]));
  const AuxLossParameters p{.experts = columns, .topk = 3, .tokens = 100, .coefficient = 0.01F};
  const AuxLoss found = moe_aux_loss(p, {std::span(scores), rows, columns}, counts);
  return {{found.loss}, {total(products) * Number(64) * Number(0.01F) / Number(3) / Number(100) / Number(100)}};
}

/// The gradients of probabilities: each of 32 tokens goes to each of 8 experts.
template <typename Number>
Results<Number> of_mask_gradient() {
  const std::size_t tokens = 32, experts = 8, columns = 1000, rows = tokens * experts;
  const auto x = normal_draws(1, rows * columns, 1);
  const auto grad = normal_draws(2, tokens * columns, 1);
  const std::vector<float> weights(rows, 1);
  const std::vector<std::uint8_t> mask(rows, 1);
  const auto map = mask_map(mask, tokens);
  std::vector<float> dx(x.size()), found(rows);
  unpermute_rows_by_mask_backward(std::span(grad), std::span(x), columns, {map, experts, {}}, std::span(weights),
                                  std::span(dx), std::span(found));
  std::vector<Number> exact;
  for (std::size_t i = 0; i < rows; ++i) {
    const std::size_t token = i / experts, expert = i % experts;
    std::vector<Number> products;
    for (std::size_t j = 0; j < columns; ++j) {
      products.push_back(Number(x[(expert * tokens + token) * columns + j]) * Number(grad[token * columns + j]));
    }
    exact.push_back(total(products));
  }
  return {found, exact};
}

/// The gradients of a group's bias and, with scales, of these.
template <typename Number>
Results<Number> of_group_bias(bool scaled) {
  const std::size_t rows = 256, columns = 1000;
  const auto grad = normal_draws(1, rows * columns, 1);
  const auto scales = normal_draws(2, rows, 1);
  const auto bias = normal_draws(3, columns, 1);
  const std::vector<std::int64_t> offsets{0, rows};
  std::vector<float> dbias(columns), dscales(scaled ? rows : 0);
  std::vector<Number> exact;
  const auto add = [&](std::size_t count, const auto& product) {
    std::vector<Number> products;
    for (std::size_t k = 0; k < count; ++k) products.push_back(product(k));
    exact.push_back(total(products));
  };
  for (std::size_t j = 0; j < columns; ++j) {
    add(rows, [&](std::size_t i) { return Number(grad[i * columns + j]) * Number(scaled ? scales[i] : 1); });
  }
  if (!scaled) {
    group_bias_gradient({grad, rows, columns}, offsets, dbias);
    return {dbias, exact};
  }
  for (std::size_t i = 0; i < rows; ++i) {
    add(columns, [&](std::size_t j) { return Number(grad[i * columns + j]) * Number(bias[j]); });
  }
  scaled_group_bias_gradient({grad, rows, columns}, scales, {bias, 1, columns}, offsets, dbias, dscales);
  dbias.insert(dbias.end(), dscales.begin(), dscales.end());
  return {dbias, exact};
}

/// `results` gives them of a number: the exact ones, and the ranges.
template <typename Function>
Measured measured(const Function& results) {
  const auto exact = results(Digits());
  Measured found = measure(exact.actual, exact.exact);
  const auto ranges = results(Range());
  check_inside(ranges.actual, ranges.exact);
  found.device_flips = share_of_open(ranges.exact);
  return found;
}

/// The largest of the three scores.
Measured router(bool all, bool backward) {
  Measured most;
  for (const auto& score : router_scores) {
    const Measured found =
        measured([&]<typename Number>(const Number&) { return of_router<Number>(score.value, all, backward); });
    most = {std::max(most.ulps, found.ulps), std::max(most.flips, found.flips),
            std::max(most.device_flips, found.device_flips)};
  }
  return most;
}

const std::map<std::string_view, std::function<Measured()>> others{
    {"moe_topk", [] { return router(false, false); }},
    {"moe_topk_backward", [] { return router(false, true); }},
    {"moe_scores", [] { return router(true, false); }},
    {"moe_scores_backward", [] { return router(true, true); }},
    {"moe_aux_loss", [] { return measured([]<typename N>(const N&) { return of_aux_loss<N>(); }); }},
    {"layernorm", [] { return measured([]<typename N>(const N&) { return of_norm<N>(true, false); }); }},
    {"layernorm_backward", [] { return measured([]<typename N>(const N&) { return of_norm<N>(true, true); }); }},
    {"rmsnorm", [] { return measured([]<typename N>(const N&) { return of_norm<N>(false, false); }); }},
    {"rmsnorm_backward", [] { return measured([]<typename N>(const N&) { return of_norm<N>(false, true); }); }},
    {"softmax", [] { return measured([]<typename N>(const N&) { return of_softmax<N>(false); }); }},
    {"softmax_backward", [] { return measured([]<typename N>(const N&) { return of_softmax<N>(true); }); }},
    {"rope", [] { return measured([]<typename N>(const N&) { return of_rope<N>(false, false); }); }},
    {"rope_backward", [] { return measured([]<typename N>(const N&) { return of_rope<N>(false, true); }); }},
    {"rope_qkv", [] { return measured([]<typename N>(const N&) { return of_rope<N>(true, false); }); }},
    {"rope_qkv_backward", [] { return measured([]<typename N>(const N&) { return of_rope<N>(true, true); }); }},
    {"cross_entropy", [] { return measured([]<typename N>(const N&) { return of_cross_entropy<N>(false); }); }},
    {"cross_entropy_backward", [] { return measured([]<typename N>(const N&) { return of_cross_entropy<N>(true); }); }},
    {"moe_mask_unpermute_backward",
     [] { return measured([]<typename N>(const N&) { return of_mask_gradient<N>(); }); }},
    {"group_bias_gradient", [] { return measured([]<typename N>(const N&) { return of_group_bias<N>(false); }); }},
    {"scaled_group_bias_gradient",
     [] { return measured([]<typename N>(const N&) { return of_group_bias<N>(true); }); }},
    {"adam_update", [] { return measured([]<typename N>(const N&) { return of_adam<N>(Parameters::whole); }); }},
    {"adam_update_fp8", [] { return measured([]<typename N>(const N&) { return of_adam<N>(Parameters::fp8); }); }},
    {"adam_update_remainder",
     [] { return measured([]<typename N>(const N&) { return of_adam<N>(Parameters::remainder); }); }},
    {"l2norm", [] { return measured([]<typename N>(const N&) { return of_l2norm<N>(); }); }},
};

TEST_CASE("exactness: the table has what is measured") {
  std::size_t number = 0;
  for (const Exactness& row : exactness()) {
    INFO(row.function << ' ' << row.name);
    if (row.exact) {
      REQUIRE((row.ulps == 0 && row.flips == 0 && row.device_flips == 0));
      continue;
    }
    if (number++ % 3 != 0 && !exhaustive()) continue;
    Measured found;
    if (row.name.empty()) {
      found = others.at(row.function)();
    } else {
      found = of_activation(find_named(kernel_activations, "name", row.name).value, row.function.starts_with("scaled"),
                            row.function.ends_with("backward"));
    }
    // The table has two digits.
    CAPTURE(found.ulps, found.flips, found.device_flips);
    CHECK(std::abs(found.ulps - row.ulps) <= 0.06 * found.ulps);
    CHECK(std::abs(found.flips - row.flips) <= 0.06 * found.flips);
    CHECK(std::abs(found.device_flips - row.device_flips) <= 0.06 * found.device_flips);
    CHECK(found.device_flips >= found.flips);
  }
}

TEST_CASE("exactness: every activation has two rows, one for each direction, and two with scales where it takes them") {
  for (const ActivationRow& one : kernel_activations) {
    const auto rows = std::ranges::count_if(exactness(), [&](const Exactness& row) { return row.name == one.name; });
    REQUIRE(rows == (one.scaled ? 4 : 2));
  }
}

}  // namespace
}  // namespace fp8lab::tests::operator_exactness
