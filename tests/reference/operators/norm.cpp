// SPDX-License-Identifier: Apache-2.0
// Norms give, bit for bit, what their formulas give operation by operation in 50 digits, on every target, and lie
// within the bound of their roundings from the exact values.
#include "fp8lab/reference/operators/norm.hpp"

#include <stdexcept>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/operators/sum_order.hpp"
#include "rounded_steps.hpp"

namespace fp8lab::tests {
namespace {

/// The lanes of a row's sum of products a[j] b[j], each fused, in pairs.
float step_dot(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> lanes(sum_lanes);
  for (std::size_t j = 0; j < a.size(); ++j) lanes[j % sum_lanes] = step_fused(a[j], b[j], lanes[j % sum_lanes]);
  return in_pairs(lanes);
}
float step_total(const std::vector<float>& a) { return step_dot(a, std::vector<float>(a.size(), 1)); }

struct NormCase {
  std::size_t rows, columns;
  bool zero_centered;
  std::vector<float> x, grad, gamma, beta, add;

  NormCase(std::size_t row_count, std::size_t column_count, bool centered)
      : rows(row_count), columns(column_count), zero_centered(centered) {
    x = normal_draws(1, rows * columns, 2);
    for (float& value : x) value += 0.5F;
    grad = normal_draws(2, rows * columns, 1);
    gamma = normal_draws(3, columns, 0.5);
    beta = normal_draws(4, columns, 0.5);
    add = normal_draws(5, rows * columns, 1);
  }
  [[nodiscard]] MatrixView view(const std::vector<float>& values) const {
    return {std::span(values), values.size() / columns, columns};
  }
  [[nodiscard]] NormParameters parameters() const { return {1e-5F, zero_centered}; }
  [[nodiscard]] float weight(std::size_t j) const { return zero_centered ? step_sum(gamma[j], 1) : gamma[j]; }
  [[nodiscard]] std::vector<float> row(const std::vector<float>& values, std::size_t i) const {
    return {values.begin() + static_cast<std::ptrdiff_t>(i * columns),
            values.begin() + static_cast<std::ptrdiff_t>((i + 1) * columns)};
  }
};

struct NormResults {
  std::vector<float> y, mean, rsigma, dx, dgamma, dbeta;
};

/// Adds a row's part to the sums of its block.
void add_to_block(std::vector<std::vector<float>>& blocks, std::size_t block, const std::vector<float>& a,
                  const std::vector<float>& b) {
  for (std::size_t j = 0; j < a.size(); ++j) blocks[j][block] = step_fused(a[j], b[j], blocks[j][block]);
}
std::vector<float> block_totals(const std::vector<std::vector<float>>& blocks) {
  std::vector<float> totals;
  for (const auto& sums : blocks) totals.push_back(in_pairs(sums));
  return totals;
}

NormResults expected_layernorm(const NormCase& c) {
  NormResults r;
  const float inverse = nearest(1 / Digits(c.columns));
  std::vector<std::vector<float>> of_gamma(c.columns, std::vector<float>(sum_blocks));
  auto of_beta = of_gamma;
  const std::size_t of_block = (c.rows + sum_blocks - 1) / sum_blocks;
  for (std::size_t i = 0; i < c.rows; ++i) {
    const auto x = c.row(c.x, i);
    const auto grad = c.row(c.grad, i);
    const float mean = step_product(step_total(x), inverse);
    std::vector<float> d, y, dy;
    for (const float value : x) d.push_back(step_difference(value, mean));
    const float rsigma = nearest(1 / sqrt(Digits(step_fused(step_dot(d, d), inverse, 1e-5F))));
    for (std::size_t j = 0; j < c.columns; ++j) {
      y.push_back(step_product(rsigma, d[j]));
      r.y.push_back(step_fused(c.weight(j), y[j], c.beta[j]));
      dy.push_back(step_product(c.weight(j), grad[j]));
    }
    const float of_dy = step_total(dy);
    const float of_dy_y = step_product(step_dot(dy, y), inverse);
    for (std::size_t j = 0; j < c.columns; ++j) {
      const float both = step_fused(of_dy, inverse, step_product(of_dy_y, y[j]));
      r.dx.push_back(step_product(rsigma, step_difference(dy[j], both)));
    }
    add_to_block(of_gamma, i / of_block, grad, y);
    add_to_block(of_beta, i / of_block, grad, std::vector<float>(c.columns, 1));
    r.mean.push_back(mean);
    r.rsigma.push_back(rsigma);
  }
  r.dgamma = block_totals(of_gamma);
  r.dbeta = block_totals(of_beta);
  return r;
}

NormResults expected_rmsnorm(const NormCase& c, bool adds) {
  NormResults r;
  const float inverse = nearest(1 / Digits(c.columns));
  std::vector<std::vector<float>> of_gamma(c.columns, std::vector<float>(sum_blocks));
  const std::size_t of_block = (c.rows + sum_blocks - 1) / sum_blocks;
  for (std::size_t i = 0; i < c.rows; ++i) {
    const auto x = c.row(c.x, i);
    const auto grad = c.row(c.grad, i);
    const auto add = c.row(c.add, i);
    const float rsigma = nearest(1 / sqrt(Digits(step_fused(step_dot(x, x), inverse, 1e-5F))));
    std::vector<float> y, dy;
    for (std::size_t j = 0; j < c.columns; ++j) {
      y.push_back(step_product(rsigma, x[j]));
      r.y.push_back(step_product(c.weight(j), y[j]));
      dy.push_back(step_product(c.weight(j), grad[j]));
    }
    const float of_dy_y = step_product(step_dot(dy, y), inverse);
    for (std::size_t j = 0; j < c.columns; ++j) {
      const float inner = step_fused(-of_dy_y, y[j], dy[j]);
      r.dx.push_back(adds ? step_fused(rsigma, inner, add[j]) : step_product(rsigma, inner));
    }
    add_to_block(of_gamma, i / of_block, grad, y);
    r.rsigma.push_back(rsigma);
  }
  r.dgamma = block_totals(of_gamma);
  return r;
}

void compare_norms(const std::vector<float>& actual, const std::vector<float>& expected, const char* what) {
  Mismatches mismatches;
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) mismatches.compare(i, i, bits(actual[i]), bits(expected[i]), what);
  REQUIRE_NO(mismatches);
}

NormResults layernorm_of(const NormCase& c, int threads) {
  NormResults r{std::vector<float>(c.x.size(), nan), std::vector<float>(c.rows, nan),
                std::vector<float>(c.rows, nan),     std::vector<float>(c.x.size(), nan),
                std::vector<float>(c.columns, nan),  std::vector<float>(c.columns, nan)};
  const OperatorOptions options{.threads = threads};
  layernorm(c.parameters(), c.view(c.x), c.view(c.gamma), c.view(c.beta), std::span(r.y), r.mean, r.rsigma, options);
  layernorm_backward(c.parameters(), c.view(c.grad), c.view(c.x), r.mean, r.rsigma, c.view(c.gamma), std::span(r.dx),
                     std::span(r.dgamma), std::span(r.dbeta), options);
  return r;
}
NormResults rmsnorm_of(const NormCase& c, bool adds, int threads) {
  NormResults r{std::vector<float>(c.x.size(), nan), {},
                std::vector<float>(c.rows, nan),     std::vector<float>(c.x.size(), nan),
                std::vector<float>(c.columns, nan),  {}};
  const OperatorOptions options{.threads = threads};
  const MatrixView add = c.view(c.add);
  rmsnorm(c.parameters(), c.view(c.x), c.view(c.gamma), std::span(r.y), r.rsigma, options);
  rmsnorm_backward(c.parameters(), c.view(c.grad), c.view(c.x), r.rsigma, c.view(c.gamma), adds ? &add : nullptr,
                   std::span(r.dx), std::span(r.dgamma), options);
  return r;
}

void compare_results(const NormResults& actual, const NormResults& expected) {
  compare_norms(actual.y, expected.y, "y");
  compare_norms(actual.mean, expected.mean, "mean");
  compare_norms(actual.rsigma, expected.rsigma, "rsigma");
  compare_norms(actual.dx, expected.dx, "dx");
  compare_norms(actual.dgamma, expected.dgamma, "dgamma");
  compare_norms(actual.dbeta, expected.dbeta, "dbeta");
}

TEST_CASE("norms: the formula's bits on every target") {
  const UnforceTarget unforce;
  for (const auto& c : {NormCase(2, 1, false), NormCase(3, 45, true), NormCase(37, 70, false)}) {
    const NormResults of_layernorm = expected_layernorm(c);
    const NormResults of_rmsnorm = expected_rmsnorm(c, false);
    const NormResults of_sum = expected_rmsnorm(c, true);
    for (const auto target : targets()) {
      force_target(target);
      INFO(target);
      compare_results(layernorm_of(c, 1), of_layernorm);
      compare_results(layernorm_of(c, 3), of_layernorm);
      compare_results(rmsnorm_of(c, false, 2), of_rmsnorm);
      compare_results(rmsnorm_of(c, true, 1), of_sum);
    }
  }
}

// The bound of a row's roundings, to first order in u = 2^-24, with one part in 50 for the rest. A sum has at most
// n / 32 + 6 additions behind each of its terms, D; so the mean is off by (D + 2) u mean|x| (the sum, fl(1 / n), the
// product), the variance by a relative (D + 6) u (the differences twice, the fused products in the sum, fl(1 / n), the
// fused sum with eps) and the square of the mean's error over the variance, rsigma by half of that and u. What follows
// has three roundings and the one of the result.
TEST_CASE("norms: the exact value within the bound of the roundings") {
  const NormCase c(4, 1000, false);
  const NormResults r = layernorm_of(c, 2);
  const Digits u = ldexp(Digits(1), -24);
  const double additions = 1000.0 / 32 + 6;
  for (std::size_t i = 0; i < c.rows; ++i) {
    Digits mean = 0, magnitude = 0, variance = 0;
    const auto x = c.row(c.x, i);
    for (const float value : x) {
      mean += Digits(value) / 1000;
      magnitude += abs(Digits(value)) / 1000;
    }
    for (const float value : x) variance += (value - mean) * (value - mean) / 1000;
    const Digits rsigma = 1 / sqrt(variance + Digits(1e-5F));
    const Digits of_mean = (additions + 2) * u * magnitude;
    const Digits of_rsigma = (additions + 6) / 2 * u + of_mean * of_mean * rsigma * rsigma + u;
    REQUIRE(abs(r.mean[i] - mean) <= of_mean * 1.02);
    REQUIRE(abs(r.rsigma[i] - rsigma) <= rsigma * of_rsigma * 1.02);
    for (std::size_t j = 0; j < c.columns; ++j) {
      const Digits d = x[j] - mean;
      const Digits y = Digits(c.gamma[j]) * d * rsigma + c.beta[j];
      const Digits part = abs(Digits(c.gamma[j])) * rsigma * (abs(d) * (of_rsigma + 2 * u) + of_mean);
      REQUIRE(abs(r.y[i * c.columns + j] - y) <= (part + u * abs(y)) * 1.02);
    }
  }
}

TEST_CASE("norms: special values, nothing to do, types and what is refused") {
  // 1. A row with a NaN or an infinity is NaN, and no other row is; a constant row is beta.
  std::vector<float> x{1, 2, nan, 3, 3, 3, inf, 0, 0};
  const std::vector<float> ones(3, 1);
  const std::vector<float> beta{0.5F, 0.25F, 0};
  std::vector<float> y(9), mean(3), rsigma(3);
  const auto row = [](const std::vector<float>& values) { return MatrixView(std::span(values), 1, values.size()); };
  layernorm({}, {std::span(x), 3, 3}, row(ones), row(beta), std::span(y), mean, rsigma);
  for (const std::size_t i : {0, 1, 2, 6, 7, 8}) REQUIRE(bits(y[i]) == 0x7FFFFFFFU);
  REQUIRE(std::vector<float>(y.begin() + 3, y.begin() + 6) == beta);
  REQUIRE(mean[1] == 3);
  REQUIRE(rsigma[1] == nearest(1 / sqrt(Digits(1e-5F))));
  // 2. Parameters of another type are widened, results rounded.
  const std::vector<BFloat16> weights{{0x3F80}, {0x4000}, {0xBF80}};  // 1, 2, -1
  std::vector<Half> halves(3);
  std::vector<float> unrounded(3), factor(1);
  const MatrixView two(std::span<const float>(x).subspan(3, 3), 1, 3);
  rmsnorm({}, two, {std::span<const BFloat16>(weights), 1, 3}, std::span(unrounded), factor);
  rmsnorm({}, two, {std::span<const BFloat16>(weights), 1, 3}, std::span(halves), factor);
  for (std::size_t i = 0; i < 3; ++i) REQUIRE(halves[i].bits == encode(binary16, cuda_nosat_policy, unrounded[i]));
  // 3. No rows.
  std::vector<float> dgamma(3, nan);
  rmsnorm_backward({}, {std::span<const float>(), 0, 3}, {std::span<const float>(), 0, 3}, {}, row(ones), nullptr,
                   std::span<float>(), std::span(dgamma));
  REQUIRE(dgamma == std::vector<float>(3));
  // 4. What is refused.
  const MatrixView whole{std::span(x), 3, 3};
  REQUIRE_THROWS_WITH(layernorm({}, whole, row(x), row(beta), std::span(y), mean, rsigma),
                      ContainsSubstring("gamma must have 3 elements, not 9"));
  REQUIRE_THROWS_WITH(layernorm({}, whole, row(ones), row(beta), std::span(y).first(8), mean, rsigma),
                      ContainsSubstring("out must have 9 elements, not 8"));
  REQUIRE_THROWS_WITH(rmsnorm({}, whole, row(ones), std::span(y), std::span(rsigma).first(2)),
                      ContainsSubstring("rsigma must have 3 elements, not 2"));
  REQUIRE_THROWS_WITH(rmsnorm({}, {std::span<const float>(), 0, 0}, row(ones), std::span<float>(), {}),
                      ContainsSubstring("x must have columns"));
  REQUIRE_THROWS_WITH(layernorm_backward({}, row(x), whole, mean, rsigma, row(ones), std::span(y), std::span(dgamma),
                                         std::span(dgamma)),
                      ContainsSubstring("grad must be 3 x 3"));
}

}  // namespace
}  // namespace fp8lab::tests
