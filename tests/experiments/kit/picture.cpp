// SPDX-License-Identifier: Apache-2.0
#include "kit/picture.hpp"

#include <cmath>

#include "support.hpp"

namespace fp8lab::tests {

using namespace fp8lab::experiments;

TEST_CASE("lines are drawn where their points are") {
  const std::string picture = draw_lines({{'a', {1, 100}, {1, 0.01}}, {'b', {1, 10}, {1, 0.1}}, {'c', {10}, {0}}},
                                         {.unicode = false, .width = 39});
  // 21 columns and 7 lines: a column is a tenth of a decade, so that column c of the line lies in row c * 3 / 10.
  CHECK(picture ==
        "1e0      |*.\n"
        "         |  ...\n"
        "         |     ....\n"
        "1e-1     |         .b.\n"
        "         |            ...\n"
        "         |               ....\n"
        "1e-2     |                   .a\n"
        "         +---------------------\n"
        "          1         10        100\n");
  // Linear, with zero on it: 20 columns from one point to the next.
  CHECK(draw_lines({{'a', {0, 1}, {1, 0.1}}}, {.unicode = false, .width = 39}, AxisOfX::linear) ==
        "1e0      |a...\n"
        "         |    ......\n"
        "         |          .......\n"
        "1e-1     |                 ...a\n"
        "         +---------------------\n"
        "          0                   1\n");
  // Six lines a decade, each with its label, from the lowest point to the highest: column c lies
  // in row 6 (1/2 - log10(3) + c / 20 log10(2)), rounded.
  CHECK(draw_lines({{'a', {0, 1}, {3, 1.5}}}, {.unicode = false, .width = 39}, AxisOfX::linear, 6) ==
        "3.2      |a....\n"
        "2.2      |     ...........\n"
        "1.5      |                ....a\n"
        "         +---------------------\n"
        "          0                   1\n");
  CHECK(draw_lines({{'a', {1}, {std::nan("")}}}, {}).empty());
  CHECK(draw_lines({{'a', {5}, {7}}}, {.unicode = false, .width = 39}).starts_with("1e1      |a\n         |\n"));
}

}  // namespace fp8lab::tests
