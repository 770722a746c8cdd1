// SPDX-License-Identifier: Apache-2.0
// Permutations bring every row where its expert wants it, and back with the arithmetic of the rows' type.
#include "fp8lab/reference/operators/permutation.hpp"

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/widen.hpp"
#include "fp8lab/reference/operators/sum_order.hpp"
#include "rounded_steps.hpp"

namespace fp8lab::tests {
namespace {

/// The code of bfloat16 nearest to 50 digits, ties to even: of three neighbours the one that is.
std::uint16_t nearest_bfloat16(const Digits& x) {
  const auto near = static_cast<std::uint16_t>(encode(bfloat16, ieee_policy, x.convert_to<double>()));
  std::uint16_t best = near;
  const auto distance = [&](std::uint16_t code) { return Digits(abs(Digits(widened(BFloat16{code})) - x)); };
  for (const int step : {-1, 1}) {
    const auto other = static_cast<std::uint16_t>(near + step);
    if (distance(other) < distance(best) || (distance(other) == distance(best) && other % 2 == 0)) best = other;
  }
  return best;
}
float as_bfloat16(const Digits& x) { return widened(BFloat16{nearest_bfloat16(x)}); }

TEST_CASE("permutation: rows lie by expert, then by token") {
  const std::vector<std::int32_t> experts{2, 0, 1, 2, 0, 1};  // of 3 tokens
  // In order: token 0's second, token 2's first; token 1's first, token 2's second; token 0's first, token 1's second.
  REQUIRE(permutation_map(experts, 3, 6) == std::vector<std::int32_t>{4, 2, 1, 0, 5, 3});
  REQUIRE(permutation_map(experts, 3, 4) == std::vector<std::int32_t>{-1, 2, 1, 0, -1, 3});
  REQUIRE(permutation_map({}, 0, 0).empty());
  const std::vector<std::byte> x{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}, std::byte{6}};
  std::vector<std::byte> out(8);
  permute_rows(x, 2, permutation_map(experts, 3, 4), out, 2);
  const std::vector<int> expected{1, 2, 5, 6, 3, 4, 5, 6};
  for (std::size_t i = 0; i < 8; ++i) REQUIRE(std::to_integer<int>(out[i]) == expected[i]);
}

TEST_CASE("permutation: sums of float32 rows, each product fused") {
  const auto x = normal_draws(1, 6 * 5, 1);
  const auto p = normal_draws(2, 6, 1);
  const std::vector<std::int32_t> map{4, -1, 1, 0, 5, 3};
  std::vector<float> out(15);
  unpermute_rows(std::span<const float>(x), 5, map, p, std::span(out), 2);
  for (std::size_t j = 0; j < 5; ++j) {
    REQUIRE(bits(out[j]) == bits(step_fused(x[j], p[1], step_product(x[20 + j], p[0]))));
    REQUIRE(bits(out[5 + j]) == bits(step_fused(x[25 + j], p[3], 0)));  // its first row was dropped
    REQUIRE(bits(out[10 + j]) == bits(step_fused(x[15 + j], p[5], step_product(x[5 + j], p[4]))));
  }
  unpermute_rows(std::span<const float>(x), 5, map, {}, std::span(out));
  for (std::size_t j = 0; j < 5; ++j) REQUIRE(bits(out[j]) == bits(step_sum(x[20 + j], x[j])));
}

TEST_CASE("permutation: sums of bfloat16 rows are rounded at each step") {
  const std::size_t columns = 300;
  std::vector<BFloat16> x;
  for (const float value : normal_draws(1, 3 * columns, 1)) x.push_back({nearest_bfloat16(value)});
  // 7 * 37 is a tie of bfloat16, which -2^-30 decides: below what float32 keeps of the sum.
  x[0] = {0xB080};
  x[columns] = {0x40E0};
  std::vector<float> p = normal_draws(2, 3, 1);
  p[0] = 1;
  p[1] = 37;
  const std::vector<std::int32_t> map{0, 1, 2};  // one token of three experts
  std::vector<BFloat16> out(columns);
  unpermute_rows(std::span<const BFloat16>(x), columns, map, p, std::span(out));
  const auto number = [&](std::size_t row, std::size_t j) { return Digits(widened(x[row * columns + j])); };
  for (std::size_t j = 0; j < columns; ++j) {
    float sum = as_bfloat16(number(0, j) * as_bfloat16(p[0]));
    for (std::size_t k = 1; k < 3; ++k) sum = as_bfloat16(number(k, j) * as_bfloat16(p[k]) + sum);
    REQUIRE(out[j].bits == nearest_bfloat16(sum));
  }
}

TEST_CASE("permutation: gradients of rows and of probabilities") {
  const std::size_t columns = 300;
  std::vector<BFloat16> x, grad;
  for (const float value : normal_draws(1, 2 * columns, 1)) x.push_back({nearest_bfloat16(value)});
  for (const float value : normal_draws(2, columns, 1)) grad.push_back({nearest_bfloat16(value)});
  const std::vector<float> p{0.3F, -0.7F, 0.5F};
  const std::vector<std::int32_t> map{1, -1, 0};
  std::vector<BFloat16> dx(2 * columns);
  std::vector<float> dp(3, nan);
  unpermute_rows_backward(std::span<const BFloat16>(grad), std::span<const BFloat16>(x), columns, map, p, std::span(dx),
                          dp, 2);
  for (const std::size_t k : {0, 2}) {
    const std::size_t row = k == 0 ? 1 : 0;
    std::vector<float> lanes(sum_lanes);
    for (std::size_t j = 0; j < columns; ++j) {
      const Digits g(widened(grad[j]));
      const Digits value(widened(x[row * columns + j]));
      REQUIRE(dx[row * columns + j].bits == nearest_bfloat16(g * as_bfloat16(p[k])));
      float& lane = lanes[j / 8 % sum_lanes];  // 8 elements are 16 bytes
      lane = step_sum(lane, as_bfloat16(g * value));
    }
    REQUIRE(bits(dp[k]) == bits(in_pairs(lanes)));
  }
  REQUIRE(dp[1] == 0);
}

TEST_CASE("permutation: groups of rows are filled up, and back") {
  std::vector<std::byte> x(2 * 5, std::byte{7});
  const std::vector<std::size_t> counts{3, 0, 2};
  REQUIRE(padded_count(counts, 4) == 8);
  std::vector<std::byte> out(16, std::byte{1});
  pad_rows(x, 2, counts, 4, out);
  for (std::size_t i = 0; i < 16; ++i) REQUIRE(std::to_integer<int>(out[i]) == (i < 6 || (i >= 8 && i < 12) ? 7 : 0));
  std::vector<std::byte> back(10);
  unpad_rows(out, 2, counts, 4, back);
  REQUIRE(back == x);
}

TEST_CASE("permutation: what is refused") {
  const std::vector<float> x(6);
  std::vector<float> out(4);
  std::vector<Half> halves(4);
  const std::vector<std::int32_t> map{0, 3};
  REQUIRE_THROWS_WITH(unpermute_rows(std::span<const float>(x), 2, map, {}, std::span(out)),
                      ContainsSubstring("map has row 3, and there are 3"));
  const std::vector<std::int32_t> fit{0, 2};
  REQUIRE_THROWS_WITH(unpermute_rows(std::span<const float>(x), 2, fit, {}, std::span(halves)),
                      ContainsSubstring("out must have the element type of x"));
  REQUIRE_THROWS_WITH(unpermute_rows(std::span<const float>(x), 4, fit, {}, std::span(out)),
                      ContainsSubstring("x must be of whole rows of 4, not"));
  REQUIRE_THROWS_WITH(unpermute_rows(std::span<const float>(x), 2, fit, std::span(x).first(3), std::span(out)),
                      ContainsSubstring("probabilities must have 2 elements, not 3"));
  const std::vector<std::int32_t> negative{0, -1};
  REQUIRE_THROWS_WITH(permutation_map(negative, 2, 2), ContainsSubstring("must not be negative"));
  REQUIRE_THROWS_WITH(padded_count({}, 0), ContainsSubstring("multiple must not be 0"));
}

}  // namespace
}  // namespace fp8lab::tests
