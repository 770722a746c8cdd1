// SPDX-License-Identifier: Apache-2.0
// The cross entropy is, bit for bit, what its steps give one by one in 50 digits, on every target.
#include "fp8lab/reference/operators/cross_entropy.hpp"

#include "fp8lab/reference/operators/sum_order.hpp"
#include "rounded_steps.hpp"

namespace fp8lab::tests {
namespace {

float exponential_step(float x) {
  const float e = nearest(exp(Digits(x)));
  return e < 0x1p-126F ? 0 : e;
}

TEST_CASE("cross entropy: the steps' bits on every target") {
  const UnforceTarget unforce;
  const std::size_t rows = 5, columns = 77;
  const auto x = normal_draws(1, rows * columns, 20);
  const auto grad = normal_draws(2, rows, 1);
  const std::vector<std::int64_t> targets{0, 76, -100, 40, 77};  // the last one has no column
  for (const float smoothing : {0.0F, 0.1F}) {
    const CrossEntropyParameters parameters{.label_smoothing = smoothing};
    const float eps = nearest(Digits(smoothing) / columns);
    const float rest = step_difference(1, smoothing);
    std::vector<float> losses, largest, sums, gradients;
    for (std::size_t i = 0; i < rows; ++i) {
      const std::vector<float> row(x.begin() + static_cast<std::ptrdiff_t>(i * columns),
                                   x.begin() + static_cast<std::ptrdiff_t>((i + 1) * columns));
      const float most = *std::max_element(row.begin(), row.end());
      std::vector<float> lanes(sum_lanes), all(sum_lanes), e;
      for (std::size_t j = 0; j < columns; ++j) {
        e.push_back(exponential_step(step_difference(row[j], most)));
        lanes[j % sum_lanes] = step_sum(lanes[j % sum_lanes], e[j]);
        all[j % sum_lanes] = step_sum(all[j % sum_lanes], row[j]);
      }
      const float total = in_pairs(lanes);
      const float log_total = nearest(log(Digits(total)));
      const bool ignored = targets[i] == -100;
      const bool known = targets[i] >= 0 && targets[i] < 77;
      float loss = inf;
      if (known) loss = -step_difference(step_difference(row[static_cast<std::size_t>(targets[i])], most), log_total);
      if (known && smoothing > 0) {
        const float smooth =
            step_sum(step_product(-eps, in_pairs(all)), step_product(smoothing, step_sum(most, log_total)));
        loss = step_sum(step_product(loss, rest), smooth);
      }
      losses.push_back(ignored ? 0 : loss);
      largest.push_back(most);
      sums.push_back(total);
      for (std::size_t j = 0; j < columns; ++j) {
        float share = step_difference(nearest(Digits(e[j]) / total), eps);
        if (known && static_cast<std::size_t>(targets[i]) == j) share = step_difference(share, rest);
        gradients.push_back(ignored ? 0 : step_product(share, grad[i]));
      }
    }
    for (const auto target : fp8lab::targets()) {
      force_target(target);
      INFO(target);
      std::vector<float> loss(rows), own_largest(rows), own_sums(rows), dx(x.size());
      const MatrixView view{std::span(x), rows, columns};
      cross_entropy(parameters, view, targets, loss, own_largest, own_sums, {.threads = 2});
      cross_entropy_backward(parameters, grad, view, targets, own_largest, own_sums, std::span(dx), {.threads = 2});
      Mismatches mismatches;
      for (std::size_t i = 0; i < rows; ++i) {
        mismatches.compare(i, i, bits(loss[i]), bits(losses[i]), "loss");
        mismatches.compare(i, i, bits(own_largest[i]), bits(largest[i]), "largest");
        mismatches.compare(i, i, bits(own_sums[i]), bits(sums[i]), "sum");
      }
      for (std::size_t i = 0; i < dx.size(); ++i) mismatches.compare(i, i, bits(dx[i]), bits(gradients[i]), "dx");
      REQUIRE_NO(mismatches);
    }
  }
}

TEST_CASE("cross entropy: what is refused") {
  const std::vector<float> x(6);
  std::vector<float> out(2);
  const std::vector<std::int64_t> targets(2);
  const MatrixView view{std::span(x), 2, 3};
  REQUIRE_THROWS_WITH(cross_entropy({.label_smoothing = 1}, view, targets, out, out, out),
                      ContainsSubstring("label_smoothing must be from 0 to below 1, not 1"));
  REQUIRE_THROWS_WITH(cross_entropy({}, {std::span(x), 3, 2}, targets, out, out, out),
                      ContainsSubstring("targets must have 3 elements, not 2"));
  REQUIRE_THROWS_WITH(cross_entropy({}, {std::span<const float>(), 2, 0}, targets, out, out, out),
                      ContainsSubstring("x must have columns"));
}

}  // namespace
}  // namespace fp8lab::tests
