// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/scale_layout.hpp"

#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("swizzled scales lie in tiles of 128 x 4, as cuBLAS documents them, and come back") {
  // cuBLAS's picture of a tile: 32 lines of 16 bytes; a line has rows r, r + 32, r + 64 and r + 96, four columns each.
  std::vector<std::uint8_t> scales(std::size_t{128} * 4);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::uint8_t>(random_bits(1, i));
  std::vector<std::uint8_t> tile;
  for (std::size_t line = 0; line < 32; ++line) {
    for (std::size_t row = line; row < 128; row += 32) {
      for (std::size_t column = 0; column < 4; ++column) tile.push_back(scales[row * 4 + column]);
    }
  }
  CHECK(swizzle_scales(scales, 128, 4) == tile);
  // Tiles follow each other along K, then across it; what is missing is zero.
  std::vector<std::uint8_t> odd(std::size_t{130} * 5, 1);
  odd[std::size_t{129} * 5 + 4] = 7;
  const auto swizzled = swizzle_scales(odd, 130, 5);
  CHECK(swizzled.size() == 4 * 512);
  CHECK(swizzled[3 * 512 + 16] == 7);
  CHECK(swizzled[512 + 1] == 0);
  for (const auto& [rows, columns] : {std::pair<std::size_t, std::size_t>{1, 1}, {130, 5}, {256, 12}, {77, 31}}) {
    std::vector<std::uint8_t> any(rows * columns);
    for (std::size_t i = 0; i < any.size(); ++i) any[i] = static_cast<std::uint8_t>(random_bits(2, i));
    CHECK(unswizzle_scales(swizzle_scales(any, rows, columns), rows, columns) == any);
    CHECK(unpad_scales(pad_scales(any, rows, columns), rows, columns) == any);
  }
  CHECK(pad_scales(std::vector<std::uint8_t>{3}, 1, 1).size() == 512);
  CHECK_THROWS_WITH(swizzle_scales(odd, 130, 4), ContainsSubstring("130 x 4 scales must have 520 bytes, not 650"));
  CHECK_THROWS_WITH(unswizzle_scales(odd, 130, 5), ContainsSubstring("130 x 5 scales must have 2048 bytes, not 650"));
}

TEST_CASE("scales of a shape whose size overflows are refused, not read beyond their end") {
  // 2^64 + 512 scales, by the prime factors of 2^55 + 1; and 2^64, which is none.
  const std::size_t rows = std::size_t{128} * 363 * 683 * 2971;
  const std::size_t columns = std::size_t{4} * 48912491;
  REQUIRE(rows * columns == 512);
  const std::vector<std::uint8_t> bytes(512);
  for (const auto layout : {pad_scales, unpad_scales, swizzle_scales, unswizzle_scales}) {
    CHECK_THROWS_WITH(layout(bytes, rows, columns), ContainsSubstring("no room for 94284423552 x 195649964 scales"));
    CHECK_THROWS_WITH(layout({}, std::size_t{1} << 32, std::size_t{1} << 32), ContainsSubstring("no room for"));
    CHECK_THROWS_WITH(layout({}, ~std::size_t{0}, 1), ContainsSubstring("no room for"));
    CHECK(layout({}, 0, 5).empty());
    CHECK(layout({}, 5, 0).empty());
  }
}

}  // namespace fp8lab::tests
