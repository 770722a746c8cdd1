// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/matrix_view.hpp"

#include <array>
#include <type_traits>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/widen.hpp"
#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("a matrix has as many elements as rows and columns say, of the type that they have") {
  const std::vector<BFloat16> values(6);
  const MatrixView x(values, 2, 3);
  CHECK(x.rows() == 2);
  CHECK(x.columns() == 3);
  CHECK(x.size() == 6);
  x.visit([&](auto elements) {
    CHECK(std::is_same_v<decltype(elements), std::span<const BFloat16>>);
    CHECK(static_cast<const void*>(elements.data()) == values.data());
  });
  const std::array<float, 4> four{};
  CHECK(MatrixView(std::span(four).first(0), 0, 5).size() == 0);
  CHECK(MatrixView(std::span(four).first(0), 5, 0).rows() == 5);
  CHECK_THROWS_WITH(MatrixView(four, 2, 3), "a matrix must have 2 x 3 elements, not 4");
  CHECK_THROWS_WITH(MatrixView(four, 4, 0), "a matrix must have 4 x 0 elements, not 4");
  constexpr std::size_t half = std::size_t{1} << 63;  // twice it is 0
  CHECK_THROWS_AS(MatrixView(std::span(four).first(0), 2, half), std::invalid_argument);
}

TEST_CASE("every half and bfloat16 is the same number as a float, NaNs with their payloads") {
  for (std::uint32_t word = 0; word < 0x10000; ++word) {
    const auto own = static_cast<std::uint16_t>(word);
    REQUIRE(bits(widened(BFloat16{own})) == word << 16);
    const std::uint32_t fraction = word & 0x3FFU;
    const bool is_nan = (word & 0x7C00U) == 0x7C00U && fraction != 0;
    const std::uint32_t quiet = word >> 15 << 31 | 0x7FC00000U | fraction << 13;
    REQUIRE(bits(widened(Half{own})) == (is_nan ? quiet : bits(decode(binary16, word))));
  }
}

}  // namespace fp8lab::tests
