// SPDX-License-Identifier: Apache-2.0
// Softmaxes give, bit for bit, what their steps give one by one in 50 digits, on every target.
#include "fp8lab/reference/operators/softmax.hpp"

#include <bit>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/widen.hpp"
#include "fp8lab/reference/operators/sum_order.hpp"
#include "rounded_steps.hpp"

namespace fp8lab::tests {
namespace {

float flush_step(float x) { return std::abs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }

/// One row: scores with their masked values, in the lanes of the sum.
std::vector<float> step_softmax(std::vector<float> scores, std::size_t seen, SoftmaxMask kind) {
  const std::size_t keys = scores.size();
  if (kind == SoftmaxMask::aligned_causal) {
    scores.resize(std::bit_ceil(keys));
    std::fill(scores.begin() + static_cast<std::ptrdiff_t>(seen), scores.end(), -10000.0F);
  } else {
    scores.resize(seen);
  }
  const float largest = *std::max_element(scores.begin(), scores.end());
  std::vector<float> lanes(sum_lanes);
  std::vector<float> out;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    out.push_back(flush_step(nearest(exp(Digits(step_difference(scores[j], largest))))));
    lanes[j % sum_lanes] = step_sum(lanes[j % sum_lanes], out[j]);
  }
  float factor = nearest(1 / Digits(in_pairs(lanes)));
  if (kind == SoftmaxMask::given && largest == -10000) factor = 0;
  for (float& value : out) value = flush_step(step_product(value, factor));
  out.resize(seen);
  out.resize(keys);  // zeros
  return out;
}

std::size_t keys_seen(SoftmaxMask kind, const SoftmaxShape& s, std::size_t query) {
  if (kind == SoftmaxMask::upper_triangular) return query + 1;
  if (kind != SoftmaxMask::aligned_causal) return s.keys;
  const auto seen = static_cast<std::ptrdiff_t>(query + s.keys + 1) - static_cast<std::ptrdiff_t>(s.queries);
  return seen > 0 ? static_cast<std::size_t>(seen) : 0;
}

void compare_softmax(const std::vector<float>& actual, const std::vector<float>& expected) {
  Mismatches mismatches;
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) mismatches.compare(i, i, bits(actual[i]), bits(expected[i]), "");
  REQUIRE_NO(mismatches);
}

constexpr std::array all_masks{SoftmaxMask::none, SoftmaxMask::given, SoftmaxMask::upper_triangular,
                               SoftmaxMask::aligned_causal};

TEST_CASE("softmax: the steps' bits on every target") {
  const UnforceTarget unforce;
  const float scale = 0.3F;
  for (const SoftmaxMask kind : all_masks) {
    const std::size_t queries = kind == SoftmaxMask::aligned_causal ? 9 : 7;
    const SoftmaxShape shape{2, 2, queries, kind == SoftmaxMask::none ? 41U : 7U};
    const std::size_t size = 4 * queries * shape.keys;
    const auto x = normal_draws(1, size, 60);
    std::vector<std::uint8_t> mask;
    if (kind == SoftmaxMask::given) {
      for (std::size_t i = 0; i < size / 2; ++i) mask.push_back(static_cast<std::uint8_t>(random_bits(5, i) % 3));
      std::fill_n(mask.begin(), shape.keys, std::uint8_t{1});  // no key of a row
    }
    std::vector<float> expected;
    for (std::size_t row = 0; row < 4 * queries; ++row) {
      std::vector<float> scores;
      for (std::size_t j = 0; j < shape.keys; ++j) {
        const std::size_t at = (row / (2 * queries) * queries + row % queries) * shape.keys + j;
        const bool masked = !mask.empty() && mask[at] == 1;
        scores.push_back(masked ? -10000 : step_product(x[row * shape.keys + j], scale));
      }
      const auto out = step_softmax(scores, keys_seen(kind, shape, row % queries), kind);
      expected.insert(expected.end(), out.begin(), out.end());
    }
    INFO(name_of(kind));
    for (const auto target : targets()) {
      force_target(target);
      INFO(target);
      std::vector<float> out(size, nan);
      softmax(kind, shape, scale, {std::span(x), 1, size}, mask, std::span(out), {.threads = 2});
      compare_softmax(out, expected);
    }
  }
}

TEST_CASE("softmax: the gradient's bits on every target") {
  const UnforceTarget unforce;
  const float scale = 0.3F;
  for (const SoftmaxMask kind : all_masks) {
    const SoftmaxShape shape{1, 2, 9, 9};
    const auto grad = normal_draws(1, 162, 1);
    auto y = normal_draws(2, 162, 1);
    for (float& value : y) value = std::abs(value) * 0.1F;
    std::vector<float> expected;
    for (std::size_t row = 0; row < 18; ++row) {
      const std::size_t seen = keys_seen(kind, shape, row % 9);
      std::vector<float> lanes(sum_lanes);
      std::vector<float> products(9);
      for (std::size_t j = 0; j < seen; ++j) {
        products[j] = step_product(grad[row * 9 + j], y[row * 9 + j]);
        lanes[j] = products[j];
      }
      const float sum = in_pairs(lanes);
      for (std::size_t j = 0; j < 9; ++j) {
        expected.push_back(j < seen ? step_product(scale, step_fused(-sum, y[row * 9 + j], products[j])) : 0);
      }
    }
    for (const auto target : targets()) {
      force_target(target);
      INFO(target);
      std::vector<float> dx(162, nan);
      softmax_backward(kind, shape, scale, {std::span(grad), 18, 9}, {std::span(y), 18, 9}, std::span(dx),
                       {.threads = 2});
      compare_softmax(dx, expected);
    }
  }
}

TEST_CASE("softmax: the scale has the type of the scores, and subnormal weights are zeros") {
  // 1. 0.3 as bfloat16 is 0.30078125.
  const std::vector<BFloat16> x{{0x3F80}, {0x4040}};  // 1, 3
  std::vector<float> out(2);
  softmax(SoftmaxMask::none, {1, 1, 1, 2}, 0.3F, {std::span<const BFloat16>(x), 1, 2}, {}, std::span(out));
  compare_softmax(out, step_softmax({0.30078125F, 0.90234375F}, 2, SoftmaxMask::none));
  // 2. exp(-88) is subnormal.
  const std::vector<float> far{0, -88, -87};
  std::vector<float> weights(3);
  softmax(SoftmaxMask::none, {1, 1, 1, 3}, 1, {std::span(far), 1, 3}, {}, std::span(weights));
  REQUIRE(weights == std::vector<float>{1, 0, nearest(exp(Digits(-87)))});
  // 3. A NaN or an infinite score makes its row NaN.
  for (const float bad : {nan, inf}) {
    const std::vector<float> scores{0, bad, 1};
    softmax(SoftmaxMask::none, {1, 1, 1, 3}, 1, {std::span(scores), 1, 3}, {}, std::span(weights));
    for (const float weight : weights) REQUIRE(bits(weight) == 0x7FFFFFFFU);
  }
  // 4. Where there are more queries than keys, the first ones see none.
  softmax(SoftmaxMask::aligned_causal, {1, 1, 3, 1}, 1, {std::span(far), 3, 1}, {}, std::span(weights));
  REQUIRE(weights == std::vector<float>{0, 0, 1});
}

TEST_CASE("softmax: nothing to do, and what is refused") {
  const std::vector<float> x(12);
  std::vector<float> out(12);
  softmax(SoftmaxMask::none, {0, 1, 3, 4}, 1, {std::span<const float>(), 0, 4}, {}, std::span<float>());
  softmax(SoftmaxMask::none, {1, 1, 3, 0}, 1, {std::span<const float>(), 3, 0}, {}, std::span<float>());
  const MatrixView view{std::span(x), 3, 4};
  const std::vector<std::uint8_t> mask(11);
  REQUIRE_THROWS_WITH(softmax(SoftmaxMask::upper_triangular, {1, 1, 3, 4}, 1, view, {}, std::span(out)),
                      ContainsSubstring("as many queries as keys, not 3 and 4"));
  REQUIRE_THROWS_WITH(softmax(SoftmaxMask::given, {1, 1, 3, 4}, 1, view, mask, std::span(out)),
                      ContainsSubstring("mask must have 12 or 12 bytes, not 11"));
  REQUIRE_THROWS_WITH(softmax(SoftmaxMask::none, {1, 1, 3, 4}, 1, view, mask, std::span(out)),
                      ContainsSubstring("mask goes with the kind given"));
  REQUIRE_THROWS_WITH(softmax(SoftmaxMask::none, {1, 2, 3, 4}, 1, view, {}, std::span(out)),
                      ContainsSubstring("x must have 24 elements, not 12"));
}

}  // namespace
}  // namespace fp8lab::tests
