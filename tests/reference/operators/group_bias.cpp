// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/group_bias.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/policy.hpp"
#include "reference/operators/rounded_steps.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

struct GroupedRows {
  std::size_t columns = 37;
  std::vector<std::int64_t> offsets{1, 1, 3, 70, 71};  // nobody's row, an empty group, more rows than blocks
  std::size_t rows = 73;
  std::vector<float> grad = normal_draws(1, rows* columns, 1);
  std::vector<float> scales = normal_draws(2, rows, 1);
  std::vector<float> bias = normal_draws(3, 4 * columns, 1);
  std::vector<float> dbias = normal_draws(4, 4 * columns, 1);
  std::vector<float> dscales = normal_draws(5, rows, 1);

  [[nodiscard]] MatrixView view() const { return {grad, rows, columns}; }
  [[nodiscard]] std::size_t begin(std::size_t group) const { return static_cast<std::size_t>(offsets[group]); }

  /// dbias and the sums of a column of a group: in 32 blocks of rows, then in pairs of blocks.
  template <typename Step>
  [[nodiscard]] std::vector<float> slow_dbias(const Step& step) const {
    std::vector<float> out = dbias;
    for (std::size_t group = 0; group < 4; ++group) {
      const std::size_t count = begin(group + 1) - begin(group);
      const std::size_t of_block = (count + 31) / 32;
      for (std::size_t j = 0; j < columns; ++j) {
        std::vector<float> blocks(32);
        for (std::size_t i = 0; i < count; ++i) blocks[i / of_block] = step(begin(group) + i, j, blocks[i / of_block]);
        out[group * columns + j] = step_sum(out[group * columns + j], in_pairs(blocks));
      }
    }
    return out;
  }
  /// dscales and the products of a row: element j goes to lane j % 32, then pairs of lanes.
  [[nodiscard]] std::vector<float> slow_dscales() const {
    std::vector<float> out = dscales;
    for (std::size_t group = 0; group < 4; ++group) {
      for (std::size_t i = begin(group); i < begin(group + 1); ++i) {
        std::vector<float> lanes(32);
        for (std::size_t j = 0; j < columns; ++j) {
          lanes[j % 32] = step_sum(lanes[j % 32], step_product(grad[i * columns + j], bias[group * columns + j]));
        }
        out[i] = step_sum(out[i], in_pairs(lanes));
      }
    }
    return out;
  }
};

}  // namespace

TEST_CASE("group bias: each group's rows are added in blocks, to what is there") {
  const GroupedRows x;
  const auto expected =
      x.slow_dbias([&](std::size_t i, std::size_t j, float sum) { return step_sum(sum, x.grad[i * x.columns + j]); });
  for (const int threads : {1, 2}) {
    std::vector<float> dbias = x.dbias;
    group_bias_gradient(x.view(), x.offsets, dbias, threads);
    REQUIRE(dbias == expected);
  }
}

TEST_CASE(
    "group bias: with scales each multiply-add is rounded once, and each product with a bias before it is added") {
  const GroupedRows x;
  const auto expected = x.slow_dbias(
      [&](std::size_t i, std::size_t j, float sum) { return step_fused(x.grad[i * x.columns + j], x.scales[i], sum); });
  for (const int threads : {1, 2}) {
    std::vector<float> dbias = x.dbias;
    std::vector<float> dscales = x.dscales;
    scaled_group_bias_gradient(x.view(), x.scales, {x.bias, 4, x.columns}, x.offsets, dbias, dscales, threads);
    REQUIRE(dbias == expected);
    REQUIRE(dscales == x.slow_dscales());
  }
}

TEST_CASE("group bias: rows have their group's bias added, rounded once, and then to the type of the result") {
  const GroupedRows x;
  std::vector<float> plain = x.grad;
  std::vector<float> scaled = x.grad;
  for (std::size_t group = 0; group < 4; ++group) {
    for (std::size_t i = x.begin(group); i < x.begin(group + 1); ++i) {
      for (std::size_t j = 0; j < x.columns; ++j) {
        float& sum = plain[i * x.columns + j];
        sum = step_sum(sum, x.bias[group * x.columns + j]);
        float& product = scaled[i * x.columns + j];
        product = step_fused(x.bias[group * x.columns + j], x.scales[i], product);
      }
    }
  }
  const MatrixView bias(x.bias, 4, x.columns);
  for (const int threads : {1, 2}) {
    std::vector<float> out(x.grad.size());
    add_group_bias(x.view(), bias, x.offsets, {}, std::span(out), threads);
    REQUIRE(out == plain);
    std::vector<float> in_place = x.grad;
    add_group_bias({in_place, x.rows, x.columns}, bias, x.offsets, x.scales, std::span(in_place), threads);
    REQUIRE(in_place == scaled);
    std::vector<BFloat16> halves(x.grad.size());
    add_group_bias(x.view(), bias, x.offsets, x.scales, std::span(halves), threads);
    for (std::size_t i = 0; i < halves.size(); ++i) {
      REQUIRE(halves[i].bits == encode(bfloat16, cuda_nosat_policy, scaled[i]));
    }
  }
}

TEST_CASE("group bias: NaN is one word, and what does not fit is refused") {
  std::vector<float> grad{std::bit_cast<float>(0xFFC12345U), 1, 2, 3};
  std::vector<float> dbias(2);
  const std::vector<std::int64_t> both{0, 2};
  const MatrixView view(grad, 2, 2);
  group_bias_gradient(view, both, dbias);
  REQUIRE(std::bit_cast<std::uint32_t>(dbias[0]) == 0x7FFFFFFFU);
  REQUIRE(dbias[1] == 4);
  grad = {1, std::numeric_limits<float>::infinity(), 2, 3};
  dbias = {std::bit_cast<float>(0xFFC12345U), -std::numeric_limits<float>::infinity()};
  group_bias_gradient(view, both, dbias);
  REQUIRE(std::bit_cast<std::uint32_t>(dbias[0]) == 0x7FFFFFFFU);
  REQUIRE(std::bit_cast<std::uint32_t>(dbias[1]) == 0x7FFFFFFFU);

  const auto refused = [&](std::vector<std::int64_t> offsets, const char* words) {
    REQUIRE_THROWS_WITH(group_bias_gradient(view, offsets, dbias), ContainsSubstring(words));
  };
  refused({0}, "at least 2, not 1");
  refused({0, 3}, "at most the 2 rows");
  refused({-1, 2}, "from 0 or more");
  refused({2, 0}, "must ascend");
  refused({0, 1, 2}, "dbias must have 4 elements, not 2");
  const std::vector<double> doubles(4);
  REQUIRE_THROWS_WITH(group_bias_gradient(MatrixView(doubles, 2, 2), both, dbias), ContainsSubstring("float64"));
  REQUIRE_THROWS_WITH(group_bias_gradient(view, both, std::span(grad).first(2)), ContainsSubstring("overlap"));
  std::vector<float> dscales(2);
  const std::vector<float> scales(2), bias(2);
  REQUIRE_THROWS_WITH(add_group_bias(view, {bias, 2, 1}, both, std::span(scales).first(1), std::span(grad)),
                      ContainsSubstring("scales must have 2 elements, not 1"));
  REQUIRE_THROWS_WITH(add_group_bias(view, {std::span(bias).first(1), 1, 1}, both, {}, std::span(grad)),
                      ContainsSubstring("bias must have 2 elements, not 1"));
  REQUIRE_THROWS_WITH(add_group_bias(view, {bias, 1, 2}, both, {}, std::span(dscales)),
                      ContainsSubstring("out must have 4 elements, not 2"));
  REQUIRE_THROWS_WITH(scaled_group_bias_gradient(view, std::span(scales).first(1), {bias, 1, 2}, both, dbias, dscales),
                      ContainsSubstring("scales must have 2 elements, not 1"));
  REQUIRE_THROWS_WITH(
      scaled_group_bias_gradient(view, scales, {scales, 2, 1}, both, dbias, std::span(dscales).first(1)),
      ContainsSubstring("dscales must have 2 elements, not 1"));
}

}  // namespace fp8lab::tests
