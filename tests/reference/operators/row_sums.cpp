// SPDX-License-Identifier: Apache-2.0
// The words of a device are compared by tests/python/test_device_bias.py. Here: sums of whole numbers, which every
// order has, an order that a few rows tell, and what is refused.
#include "fp8lab/reference/operators/row_sums.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// A column of `rows` zeros beside itself, with 1 in the first row and 2^-24 in those named.
std::vector<float> two_columns(std::size_t rows, const std::vector<std::size_t>& small) {
  std::vector<float> x(rows * 2);
  for (std::size_t column = 0; column < 2; ++column) {
    x[column] = 1;
    for (const std::size_t row : small) x[row * 2 + column] = std::ldexp(1.0F, -24);
  }
  return x;
}

}  // namespace

TEST_CASE("row sums: whole numbers are added exactly, whatever the shape") {
  for (const std::size_t rows : {1U, 31U, 64U, 300U, 5000U}) {
    for (const std::size_t columns : {2U, 3U, 96U}) {
      std::vector<float> x(rows * columns);
      std::vector<float> expected(columns);
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
        expected[i % columns] += x[i];
      }
      const MatrixView matrix(x, rows, columns);
      REQUIRE(torch_row_sums(matrix) == expected);
      REQUIRE(torch_row_sums(matrix, 1, 7) == expected);
      REQUIRE(cast_transpose_row_sums(matrix) == expected);
      REQUIRE(cast_transpose_row_sums(matrix, {.item_size = 4, .has_activation = true}) == expected);
    }
  }
}

TEST_CASE("row sums: a row that meets 1 alone is lost, two that meet first are not") {
  const float one_more = 1 + std::ldexp(1.0F, -23);
  // 8 rows a thread: rows 8 and 9 are one turn; rows 7 and 8 are two, each of which meets the 1.
  REQUIRE(cast_transpose_row_sums(MatrixView(two_columns(40, {8, 9}), 40, 2))[1] == one_more);
  REQUIRE(cast_transpose_row_sums(MatrixView(two_columns(40, {7, 8}), 40, 2))[1] == 1);
  // 4 rows a thread where there is an activation: rows 4 and 5 are one turn.
  const CastTransposeKernel kernel{.has_activation = true};
  REQUIRE(cast_transpose_row_sums(MatrixView(two_columns(40, {4, 5}), 40, 2), kernel)[1] == one_more);
  REQUIRE(cast_transpose_row_sums(MatrixView(two_columns(40, {4, 5}), 40, 2))[1] == 1);
  // Few rows have one thread with four sums: rows 1 and 5 are one of them, rows 1 and 2 are two.
  REQUIRE(torch_row_sums(MatrixView(two_columns(8, {1, 5}), 8, 2))[1] == one_more);
  REQUIRE(torch_row_sums(MatrixView(two_columns(8, {1, 2}), 8, 2))[1] == 1);
}

TEST_CASE("row sums: what no kernel adds is refused") {
  const std::vector<float> x(6);
  const std::vector<double> doubles(6);
  REQUIRE_THROWS_WITH(torch_row_sums(MatrixView(doubles, 3, 2)), ContainsSubstring("not float64"));
  REQUIRE_THROWS_WITH(torch_row_sums(MatrixView(x, 6, 1)), ContainsSubstring("2 columns or more, not 1"));
  REQUIRE_THROWS_WITH(torch_row_sums(MatrixView(x, 3, 2), 0, 0), ContainsSubstring("must be 1 or more, not 0"));
  REQUIRE_THROWS_WITH(cast_transpose_row_sums(MatrixView(std::vector<float>(), 0, 2)), ContainsSubstring("not 0 x 2"));
  REQUIRE_THROWS_WITH(cast_transpose_row_sums(MatrixView(x, 3, 2), {.item_size = 3}),
                      ContainsSubstring("1, 2 or 4, not 3"));
}

}  // namespace fp8lab::tests
