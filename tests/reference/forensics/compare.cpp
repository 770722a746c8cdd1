// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/forensics/compare.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using forensics::compare;
using forensics::Comparison;
using forensics::ElementType;

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

/// The values of a format in order, each once: its distances are those of the places in this list.
std::vector<double> values_in_order(const Format& format) {
  std::vector<double> values;
  for (std::uint32_t code = 0; code < 1U << format.bits(); ++code) {
    const double value = decode(format, code);
    if (!std::isnan(value)) values.push_back(value);
  }
  std::ranges::sort(values);
  values.erase(std::ranges::unique(values).begin(), values.end());
  return values;
}

}  // namespace

TEST_CASE("compare counts every pair of codes as the sorted list of values has it") {
  for (const Format& format : {e4m3, e5m2, e2m1, e8m0, e4m3fnuz, ue4m3}) {
    const std::vector<double> values = values_in_order(format);
    std::vector<std::uint8_t> a;
    std::vector<std::uint8_t> b;
    std::uint64_t zero_signs = 0;
    std::uint64_t nan_words = 0;
    std::uint64_t nan_in_a = 0;
    std::uint64_t opposite = 0;
    std::map<long, std::uint64_t> distances;
    const std::uint32_t codes = 1U << format.bits();
    for (std::uint32_t x = 0; x < codes; ++x) {
      for (std::uint32_t y = 0; y < codes; ++y) {
        a.push_back(static_cast<std::uint8_t>(x));
        b.push_back(static_cast<std::uint8_t>(y));
        const double value_x = decode(format, x);
        const double value_y = decode(format, y);
        if (x == y) continue;
        if (std::isnan(value_x) || std::isnan(value_y)) {
          nan_words += std::isnan(value_x) && std::isnan(value_y) ? 1 : 0;
          nan_in_a += std::isnan(value_x) && !std::isnan(value_y) ? 1 : 0;
          continue;
        }
        if (value_x == value_y) ++zero_signs;
        opposite += value_x == -value_y && value_x != 0 ? 1 : 0;
        if (value_x != value_y) {
          ++distances[std::ranges::lower_bound(values, value_y) - std::ranges::lower_bound(values, value_x)];
        }
      }
    }
    const Comparison found = compare({format}, bytes_of(a), bytes_of(b), {.columns = codes, .most_shown = 3});
    CHECK(found.elements == a.size());
    CHECK(found.differing == a.size() - codes);
    CHECK(found.zero_signs == zero_signs);
    CHECK(found.nan_words == nan_words);
    CHECK(found.nan_in_a == nan_in_a);
    CHECK(found.nan_in_b == nan_in_a);
    CHECK(found.opposite_values == opposite);
    forensics::Distances expected;
    constexpr std::array edges{1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32, 64, 128};
    for (const auto& [distance, count] : distances) {
      const auto bin =
          static_cast<std::size_t>(std::ranges::upper_bound(edges, std::abs(distance)) - edges.begin()) - 1;
      (distance > 0 ? expected.above : expected.below)[bin] += count;
    }
    CHECK(found.distances.above == expected.above);
    CHECK(found.distances.below == expected.below);
    CHECK(found.distances.largest == values.size() - 1);
    CHECK(found.first == std::vector<forensics::Mismatch>{{1, 0, 1}, {2, 0, 2}, {3, 0, 3}});
  }
}

TEST_CASE("compare of floats counts units in the last place across zero and binades, as nextafter steps") {
  const float tiny = std::numeric_limits<float>::denorm_min();
  std::vector<float> a{1.0F, 1.0F, -tiny, 0.0F, std::numeric_limits<float>::max(), 2.0F};
  std::vector<float> b{std::nextafter(1.0F, 2.0F),
                       std::nextafter(std::nextafter(1.0F, 0.0F), 0.0F),
                       tiny,
                       -0.0F,
                       std::numeric_limits<float>::infinity(),
                       2.0F};
  const Comparison found = compare({binary32}, bytes_of(a), bytes_of(b));
  CHECK(found.differing == 5);
  CHECK(found.zero_signs == 1);
  CHECK(found.distances.above[0] == 2);  // 1 and the largest
  CHECK(found.distances.above[1] == 1);  // two steps over zero
  CHECK(found.distances.below[1] == 1);
  CHECK(found.opposite_signs == 1);
}

TEST_CASE("Bins of distances lie side by side") {
  using forensics::Distances;
  static_assert(Distances::first_of(0) == 1 && Distances::last_of(7) == 8);
  static_assert(Distances::first_of(8) == 9 && Distances::last_of(8) == 15);
  static_assert(Distances::last_of(Distances::bins - 1) == ~std::uint64_t{0});
  for (std::size_t bin = 0; bin < Distances::bins; ++bin) {
    CHECK(Distances::bin_of(Distances::first_of(bin)) == bin);
    CHECK(Distances::bin_of(Distances::last_of(bin)) == bin);
    if (bin != 0) CHECK(Distances::first_of(bin) == Distances::last_of(bin - 1) + 1);
  }
}

TEST_CASE("compare says which element of a pair of FP4 codes differs, an odd number of them included") {
  const std::vector<std::uint8_t> a{0x21, 0x43, 0x05};
  std::vector<std::uint8_t> b = a;
  b[1] = 0x63;
  b[2] = 0x75;  // the seventh element is not there
  const std::vector<std::byte> bytes_a(bytes_of(a).begin(), bytes_of(a).end());
  forensics::Comparer comparer({e2m1, true}, 5);
  comparer.add(bytes_of(a), bytes_of(b));
  CHECK(comparer.result().differing == 1);
  CHECK(comparer.result().first == std::vector<forensics::Mismatch>{{3, 4, 6}});
}

TEST_CASE("compare gives the same of arrays that come in pieces") {
  std::vector<std::uint16_t> a(30'000);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<std::uint16_t>(random_bits(3, i));
  std::vector<std::uint16_t> b = a;
  for (std::size_t i = 7; i < b.size(); i += 1 + static_cast<std::size_t>(random_bits(4, i) % 900)) b[i] ^= 0x8001;
  const Comparison whole = compare({bfloat16}, bytes_of(a), bytes_of(b), {.columns = 300});
  CHECK(whole.differing > 20);
  forensics::Comparer comparer({bfloat16}, a.size(), {.columns = 300});
  for (std::size_t at = 0; at < a.size() * 2; at += 1002) {
    const std::size_t size = std::min<std::size_t>(1002, a.size() * 2 - at);
    comparer.add(bytes_of(a).subspan(at, size), bytes_of(b).subspan(at, size));
  }
  const Comparison pieces = comparer.result();
  CHECK(pieces.differing == whole.differing);
  CHECK(pieces.first == whole.first);
  CHECK(pieces.rows.counts == whole.rows.counts);
  CHECK(pieces.columns.counts == whole.columns.counts);
  CHECK(pieces.distances.below == whole.distances.below);
}

TEST_CASE("findings name where the differences lie and of which kind they are") {
  using Sentences = std::vector<std::string>;
  const auto of = [](std::size_t columns, const auto& change) {
    std::vector<std::uint8_t> a(columns * 8, 0x38);
    std::vector<std::uint8_t> b = a;
    change(a, b);
    return findings(compare({e4m3}, bytes_of(a), bytes_of(b), {.columns = columns}));
  };
  CHECK(of(64, [](auto&, auto&) {}).empty());
  CHECK(of(64,
           [](auto& a, auto& b) {
             a[70] = 0x80;
             b[70] = 0x00;
           }) ==
        Sentences{"They differ in the sign of zero alone.", "All lie in row 1 of 8.", "All lie in column 6 of 64."});
  CHECK(of(100,
           [](auto&, auto& b) {
             for (std::size_t i = 0; i < 800; ++i) b[i] = i % 100 >= 96 ? 0 : b[i];
           }) == Sentences{"Every one is zero in b and not in a.", "All lie in columns 96 to 99 of 100, to the end.",
                           "These are the last 4 columns, which no whole tile of 32 has."});
  CHECK(of(64,
           [](auto&, auto& b) {
             for (std::size_t i = 1; i < 512; i += 2) b[i] = 0x39;
           }) == Sentences{"Every time b lies above a, by one value of the format.",
                           "All lie in columns whose index modulo 2 is 1."});
}

TEST_CASE("compare refuses what cannot be compared") {
  const std::vector<std::uint8_t> three(3);
  const std::vector<std::uint8_t> four(4);
  REQUIRE_THROWS_WITH(compare({e4m3}, bytes_of(three), bytes_of(four)), "a has 3 bytes, b 4");
  REQUIRE_THROWS_WITH(compare({binary16}, bytes_of(three), bytes_of(three)),
                      "3 bytes end within an element of 2 bytes");
  REQUIRE_THROWS_WITH(compare({e4m3}, bytes_of(four), bytes_of(four), {.columns = 3}),
                      "4 elements are no whole number of rows of 3");
  REQUIRE_THROWS_WITH(compare({e4m3, true}, bytes_of(four), bytes_of(four)),
                      "pairs are of formats of 4 bits; e4m3 has 8");
  REQUIRE_THROWS_WITH(compare({e2m1}, bytes_of(four), bytes_of(std::vector<std::uint8_t>{0, 0, 0x10, 0})),
                      "element 2 has bits beyond the 4 of e2m1");
  forensics::Comparer comparer({e4m3}, 3);
  REQUIRE_THROWS_WITH(comparer.add(bytes_of(four), bytes_of(four)),
                      "4 bytes are more than the 3 elements that are left");
  CHECK_THROWS_AS(comparer.result(), std::logic_error);
}

TEST_CASE("compare counts the tiles that have differing elements, in any pieces, as a walk over all elements does") {
  for (const auto& [rows, columns] : {std::pair<std::size_t, std::size_t>{1, 1000}, {40, 72}, {256, 384}, {130, 131}}) {
    std::vector<std::uint8_t> a(rows * columns, 0x38);
    std::vector<std::uint8_t> b = a;
    for (std::size_t i = 0; i < 20; ++i) b[random_bits(rows, i) % b.size()] = 0x40;
    forensics::Comparer comparer({e4m3}, a.size(), {.columns = columns});
    for (std::size_t at = 0; at < a.size();) {
      const std::size_t size = std::min<std::size_t>(a.size() - at, 1 + random_bits(4, at) % 300);
      comparer.add(bytes_of(a).subspan(at, size), bytes_of(b).subspan(at, size));
      at += size;
    }
    const Comparison found = comparer.result();
    CHECK(!found.tiles.empty());
    for (const forensics::Tiles& tiles : found.tiles) {
      INFO(rows << " x " << columns << ", tiles of " << tiles.rows << " x " << tiles.columns);
      const std::size_t across = (columns + tiles.columns - 1) / tiles.columns;
      std::vector<bool> touched((rows + tiles.rows - 1) / tiles.rows * across);
      for (std::size_t i = 0; i < a.size(); ++i) {
        if (a[i] != b[i]) touched[i / columns / tiles.rows * across + i % columns / tiles.columns] = true;
      }
      CHECK(tiles.count == touched.size());
      CHECK(tiles.touched == static_cast<std::uint64_t>(std::ranges::count(touched, true)));
      CHECK(tiles.first == static_cast<std::uint64_t>(std::ranges::find(touched, true) - touched.begin()));
    }
  }
}

TEST_CASE("findings name the tiles that differ as a whole") {
  constexpr std::size_t rows = 256;
  constexpr std::size_t columns = 512;
  const auto sentences = [](std::size_t row, std::size_t high, std::size_t column, std::size_t wide) {
    std::vector<std::uint8_t> a(rows * columns, 0x38);
    std::vector<std::uint8_t> b = a;
    for (std::size_t r = row; r < row + high; ++r) {
      for (std::size_t c = column; c < column + wide; ++c) b[r * columns + c] = 0x40;
    }
    std::string all;
    for (const std::string& sentence : findings(compare({e4m3}, bytes_of(a), bytes_of(b), {.columns = columns}))) {
      all += sentence + " ";
    }
    return all;
  };
  CHECK_THAT(sentences(5, 1, 64, 32), ContainsSubstring("1 of 4096 tiles of 1 x 32, of whose elements 100 % differ"));
  CHECK_THAT(sentences(5, 1, 64, 32), ContainsSubstring("in row 5, column 2 of the tiles"));
  CHECK_THAT(sentences(5, 1, 128, 128), ContainsSubstring("1 of 1024 tiles of 1 x 128"));
  CHECK_THAT(sentences(128, 128, 256, 128), ContainsSubstring("1 of 8 tiles of 128 x 128"));
  CHECK_THAT(sentences(32, 16, 48, 16), ContainsSubstring("1 of 512 tiles of 16 x 16"));
  CHECK_THAT(sentences(7, 1, 9, 1), !ContainsSubstring("tiles"));
}

}  // namespace fp8lab::tests
