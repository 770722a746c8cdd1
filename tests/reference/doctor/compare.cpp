// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/doctor/compare.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using doctor::compare;
using doctor::Comparison;
using doctor::ElementType;

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

/// Two arrays of words: how they are made, by the share of elements that differ and by how much.
struct Dumps {
  std::vector<std::byte> a, b;
};

/// Words of random bits of a format, of which `every`-th on the average differs in b: by one bit, by one, by the sign,
/// or in all bits; NaNs, infinities and zeros are among them.
Dumps dumps_of(const Format& format, std::size_t bytes, std::size_t elements, std::uint64_t every, std::uint64_t seed) {
  const std::uint64_t mask = format.bits() == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << format.bits()) - 1;
  Dumps dumps{std::vector<std::byte>(elements * bytes), std::vector<std::byte>(elements * bytes)};
  const auto word = [&](std::uint64_t i) {
    const std::uint64_t random = random_bits(seed, i);
    switch (random % 8) {
      case 0: return std::uint64_t{0};
      case 1: return format.sign_mask();
      case 2: return format.magnitude_mask();
      case 3: return format.max_code() + (random >> 8) % 3 * (format.magnitude_mask() != format.max_code() ? 1 : 0);
      default: return random_bits(seed + 1, i);
    }
  };
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint64_t random = random_bits(seed + 2, i);
    const std::uint64_t a = word(i) & mask;
    std::uint64_t b = a;
    if (random % every == 0) {
      const std::uint64_t bit = std::uint64_t{1} << (random >> 32) % static_cast<std::uint64_t>(format.bits());
      const std::array<std::uint64_t, 6> others{a ^ bit, a + 1, a - 1, a ^ format.sign_mask(), word(i + elements), 0};
      b = others[(random >> 16) % others.size()] & mask;
    }
    std::memcpy(dumps.a.data() + i * bytes, &a, bytes);
    std::memcpy(dumps.b.data() + i * bytes, &b, bytes);
  }
  return dumps;
}

/// What two words are, by their values alone.
void count_pair(Comparison& counts, std::uint64_t a, std::uint64_t b) {
  const double x = value_of(counts.type, a);
  const double y = value_of(counts.type, b);
  if (std::isnan(x) || std::isnan(y)) {
    ++(std::isnan(x) && std::isnan(y) ? counts.nan_words : std::isnan(x) ? counts.nan_in_a : counts.nan_in_b);
    return;
  }
  if (x == y) {
    ++counts.zero_signs;
    return;
  }
  ++counts.numbers;
  counts.opposite_signs += (x < 0 && y > 0) || (x > 0 && y < 0) ? 1 : 0;
  counts.opposite_values += x == -y ? 1 : 0;
  counts.became_zero += y == 0 ? 1 : 0;
  counts.was_zero += x == 0 ? 1 : 0;
  const Format& format = counts.type.format;
  const std::uint64_t steps_a = a & format.magnitude_mask();  // from zero
  const std::uint64_t steps_b = b & format.magnitude_mask();
  const bool is_across = ((a ^ b) & format.sign_mask()) != 0;
  const std::uint64_t apart = std::max(steps_a, steps_b) - std::min(steps_a, steps_b);
  const std::uint64_t distance = is_across ? steps_a + steps_b : apart;
  std::size_t bin = 0;
  while (doctor::Distances::last_of(bin) < distance) ++bin;
  ++(y > x ? counts.distances.above : counts.distances.below)[bin];
  counts.distances.largest = std::max(counts.distances.largest, distance);
}

/// Two codes of 4 bits in each byte, the first in its lower half.
std::vector<std::byte> packed(const std::vector<std::byte>& codes) {
  std::vector<std::byte> pairs(codes.size() / 2);
  for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i] = codes[2 * i] | codes[2 * i + 1] << 4;
  return pairs;
}

/// Counts of one dimension, by one index after the other.
void count_place(doctor::Places& places, std::uint64_t index, bool is_first) {
  ++places.counts[index / places.indices_per_bin];
  places.first = is_first ? index : std::min(places.first, index);
  places.last = is_first ? index : std::max(places.last, index);
}

/// One element after the other; bins and kinds of tiles are as `found` has them.
Comparison compared_plainly(const ElementType& type, const Dumps& dumps, std::size_t columns, const Comparison& found) {
  const auto bytes = static_cast<std::size_t>(type.bits()) / 8;
  const std::size_t elements = dumps.a.size() / bytes;
  Comparison all;
  all.type = type;
  all.elements = elements;
  all.rows = found.rows;
  all.columns = found.columns;
  for (doctor::Places* places : {&all.rows, &all.columns}) {
    std::ranges::fill(places->counts, 0U);
    places->first = places->last = 0;
  }
  std::vector<std::uint64_t> differing;
  for (std::size_t i = 0; i < elements; ++i) {
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    std::memcpy(&a, dumps.a.data() + i * bytes, bytes);
    std::memcpy(&b, dumps.b.data() + i * bytes, bytes);
    if (a == b) continue;
    if (all.first.size() < 10) all.first.push_back({i, a, b});
    count_pair(all, a, b);
    count_place(all.rows, i / columns, differing.empty());
    count_place(all.columns, i % columns, differing.empty());
    differing.push_back(i);
  }
  all.differing = differing.size();
  for (const doctor::Tiles& kind : found.tiles) {
    const std::size_t across = (columns + kind.columns - 1) / kind.columns;
    std::vector<bool> touched(kind.count);
    for (const std::uint64_t i : differing)
      touched[i / columns / kind.rows * across + i % columns / kind.columns] = true;
    doctor::Tiles& own = all.tiles.emplace_back(kind);
    own.touched = static_cast<std::uint64_t>(std::ranges::count(touched, true));
    own.first = own.touched == 0 ? 0 : static_cast<std::uint64_t>(std::ranges::find(touched, true) - touched.begin());
    own.missing = own.touched * kind.rows * kind.columns;
    for (std::size_t i = 0; i < touched.size(); ++i) {
      const std::size_t rows_left = elements / columns - i / across * kind.rows;
      const std::size_t columns_left = columns - i % across * kind.columns;
      if (touched[i]) own.missing -= std::min(rows_left, kind.rows) * std::min(columns_left, kind.columns);
    }
  }
  return all;
}

void require_same(const Comparison& found, const Comparison& expected) {
  const auto counts = [](const Comparison& one) {
    return std::vector<std::uint64_t>{one.elements,        one.differing,   one.zero_signs,    one.nan_words,
                                      one.nan_in_a,        one.nan_in_b,    one.numbers,       one.opposite_signs,
                                      one.opposite_values, one.became_zero, one.was_zero,      one.distances.largest,
                                      one.rows.first,      one.rows.last,   one.columns.first, one.columns.last};
  };
  REQUIRE(counts(found) == counts(expected));
  REQUIRE(found.distances.above == expected.distances.above);
  REQUIRE(found.distances.below == expected.distances.below);
  REQUIRE(found.rows.counts == expected.rows.counts);
  REQUIRE(found.columns.counts == expected.columns.counts);
  REQUIRE(found.tiles == expected.tiles);
  REQUIRE(found.first == expected.first);
}

/// Compares parts one by one, and joins them; gives how many there were, too.
std::pair<Comparison, std::size_t> compared_in_parts(const ElementType& type, const Dumps& dumps, std::size_t columns,
                                                     std::size_t most) {
  const auto bytes = static_cast<std::size_t>(type.bits()) / 8;
  doctor::Comparer whole(type, dumps.a.size() / bytes, {.columns = columns});
  const std::vector<doctor::ElementRange> ranges = whole.parts(most);
  for (const auto& [first, last] : ranges) {
    doctor::Comparer part = whole.part({first, last});
    const std::size_t size = static_cast<std::size_t>(last - first) * bytes;
    part.add(std::span(dumps.a).subspan(static_cast<std::size_t>(first) * bytes, size),
             std::span(dumps.b).subspan(static_cast<std::size_t>(first) * bytes, size));
    whole.append(std::move(part));
  }
  return {whole.result(), ranges.size()};
}

}  // namespace

TEST_CASE("compare counts random dumps on every vector target as a walk over their values does") {
  const UnforceTarget unforce;
  // Without a name comes the best one: this code has one more than others have.
  std::vector<std::string_view> all_targets = targets();
  all_targets.emplace_back();
  const Format odd{3, 2, 3, false, true, Specials::nan_at_all_ones};
  const Format wide{5, 9, 16, true, true, Specials::nan_at_negative_zero};
  const std::array formats{e4m3, e5m2, e8m0,     e4m3fnuz, ue4m3,    e2m3,    e2m1,
                           odd,  wide, binary16, bfloat16, binary32, binary64};
  // Rows narrower than a vector, wider than a piece, and columns whose bins have several.
  const std::array<std::pair<std::size_t, std::size_t>, 6> shapes{
      {{700, 1}, {130, 7}, {64, 256}, {3, 1234}, {1, 5000}, {2, 70'000}}};
  std::uint64_t seed = 0;
  for (const Format& format : formats) {
    const ElementType type{format};
    const auto bytes = static_cast<std::size_t>(type.bits()) / 8;
    for (const auto& [rows, columns] : shapes) {
      if (columns == 70'000 && format != e4m3 && format != binary16 && format != binary32) continue;
      ++seed;
      const Dumps dumps = dumps_of(format, bytes, rows * columns, std::array{1, 3, 900}[seed % 3], seed);
      std::optional<Comparison> expected;
      for (const std::string_view target : all_targets) {
        force_target(target);
        INFO(format_name(format) << ", " << rows << " x " << columns << ", " << target);
        const Comparison found = compare(type, dumps.a, dumps.b, {.columns = columns});
        if (!expected) expected = compared_plainly(type, dumps, columns, found);
        require_same(found, *expected);
        if (format != e2m1) continue;
        INFO("pairs");
        require_same(compare({e2m1, true}, packed(dumps.a), packed(dumps.b), {.columns = columns}), *expected);
      }
    }
  }
}

TEST_CASE("compare counts elements that all differ alike on every vector target") {
  const UnforceTarget unforce;
  // More than a byte counts, of each kind.
  constexpr std::size_t size = 70'000;
  const std::vector<std::byte> a(size, std::byte{0x22});
  const std::vector<std::byte> b(size, std::byte{0x33});
  std::vector<std::string_view> all_targets = targets();
  all_targets.emplace_back();
  for (const std::string_view target : all_targets) {
    force_target(target);
    INFO(target);
    const Comparison codes = compare({e4m3}, a, b);
    CHECK(codes.differing == size);
    CHECK(codes.distances.above[9] == size);  // 17 apart
    const Comparison pairs = compare({e2m1, true}, b, a);
    CHECK(pairs.differing == 2 * size);
    CHECK(pairs.distances.below[0] == 2 * size);
  }
}

TEST_CASE("compare finds the same in one, two and three parts as a walk over all values does") {
  // The shapes of the walk on every target, pairs of codes in odd rows, rows of which tiles have several, and whole
  // words of segments that end in an incomplete tile.
  const std::array<std::pair<std::size_t, std::size_t>, 9> shapes{
      {{700, 1}, {130, 7}, {64, 256}, {3, 1234}, {1, 5000}, {2, 70'000}, {300, 130}, {40, 72}, {40, 2044}}};
  std::uint64_t seed = 100;
  for (const Format& format : {e4m3, binary16, binary32, binary64}) {
    const ElementType type{format};
    const auto bytes = static_cast<std::size_t>(type.bits()) / 8;
    for (const auto& [rows, columns] : shapes) {
      // Nearly all differ, some do, and a few in one place alone.
      for (const std::uint64_t every : {1, 3, 2000}) {
        INFO(format_name(format) << ", " << rows << " x " << columns << ", every " << every);
        const Dumps dumps = dumps_of(format, bytes, rows * columns, every, ++seed);
        const Comparison whole = compare(type, dumps.a, dumps.b, {.columns = columns});
        const Comparison expected = compared_plainly(type, dumps, columns, whole);
        for (const std::size_t count : {1, 2, 3}) {
          const auto [found, parts] = compared_in_parts(type, dumps, columns, count);
          require_same(found, expected);
          // Tiles of several rows are not cut: 64 rows are two of 32, 300 begin with two of 128, 40 with one of 32.
          const std::size_t most = rows == 40 ? 1 : rows == 64 || rows == 300 ? 2 : 3;
          REQUIRE(parts == std::min(count, most));
        }
      }
    }
  }
}

TEST_CASE("compare finds the same in narrow rows, of which it takes some at once, as a walk over all values does") {
  // Bins of 2 to 16 rows, with tiles and without; the last rows fill no bin.
  const std::array<std::pair<std::size_t, std::size_t>, 3> shapes{{{140'001, 8}, {530'003, 2}, {66'001, 32}}};
  std::uint64_t seed = 500;
  for (const auto& [rows, columns] : shapes) {
    for (const std::uint64_t every : {1, 700}) {
      INFO(rows << " x " << columns << ", every " << every);
      const ElementType type{e4m3};
      const Dumps dumps = dumps_of(e4m3, 1, rows * columns, every, ++seed);
      doctor::Comparer pieces(type, rows * columns, {.columns = columns});
      for (std::size_t at = 0; at < dumps.a.size(); at += 99'991) {
        const std::size_t size = std::min<std::size_t>(99'991, dumps.a.size() - at);
        pieces.add(std::span(dumps.a).subspan(at, size), std::span(dumps.b).subspan(at, size));
      }
      const Comparison found = pieces.result();
      require_same(found, compared_plainly(type, dumps, columns, found));
      require_same(compared_in_parts(type, dumps, columns, 3).first, found);
    }
  }
  // One column alone differs, and one in later rows alone.
  std::vector<std::uint8_t> a(530'000 * 16);
  std::vector<std::uint8_t> b = a;
  for (const std::size_t row : {70, 71, 400'000}) b[row * 16 + 5] = 1;
  const Comparison found = compare({e4m3}, bytes_of(a), bytes_of(b), {.columns = 16});
  CHECK(std::pair(found.columns.first, found.columns.last) == std::pair<std::uint64_t, std::uint64_t>(5, 5));
  CHECK(std::pair(found.rows.first, found.rows.last) == std::pair<std::uint64_t, std::uint64_t>(70, 400'000));
  CHECK(found.tiles[0].first == 70);
  CHECK(found.tiles[0].touched == 3);
  CHECK(found.tiles[1].first == 4);  // 16 x 16
  CHECK(found.tiles[1].touched == 2);
}

TEST_CASE("compare finds the same on one, two and three threads") {
  // Enough bytes for a thread each.
  const std::array<std::pair<std::size_t, std::size_t>, 2> shapes{{{1536, 1025}, {1, 1'600'000}}};
  for (const auto& [rows, columns] : shapes) {
    const Dumps dumps = dumps_of(binary16, 2, rows * columns, 2, rows);
    REQUIRE(doctor::useful_threads(3, dumps.a.size()) == 3);
    const Comparison expected = compare({binary16}, dumps.a, dumps.b, {.columns = columns});
    for (const int threads : {2, 3}) {
      require_same(compare({binary16}, dumps.a, dumps.b, {.columns = columns, .threads = threads}), expected);
    }
  }
}

TEST_CASE("compare cuts pairs of codes between bytes, and takes no parts that do not follow each other") {
  // Rows of an odd number of codes: every second one begins within a byte.
  std::vector<std::uint8_t> a(9 * 5);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<std::uint8_t>(random_bits(9, i));
  const std::vector<std::uint8_t> b(a.rbegin(), a.rend());
  const doctor::Comparer whole({e2m1, true}, 90, {.columns = 9});
  const Comparison expected = compare({e2m1, true}, bytes_of(a), bytes_of(b), {.columns = 9});
  CHECK(expected.differing > 30);
  const std::vector<doctor::ElementRange> ranges = whole.parts(3);
  REQUIRE(ranges.size() == 3);
  std::vector<doctor::Comparer> parts;
  for (const auto& [first, last] : ranges) {
    REQUIRE(first % 2 == 0);
    parts.push_back(whole.part({first, last}));
    parts.back().add(bytes_of(a).subspan(first / 2, (last - first) / 2),
                     bytes_of(b).subspan(first / 2, (last - first) / 2));
  }
  doctor::Comparer joined = whole;
  CHECK_THROWS_AS(joined.append(parts[1]), std::logic_error);
  CHECK_THROWS_AS(joined.append(whole.part(ranges[0])), std::logic_error);
  CHECK_THROWS_AS(parts[0].result(), std::logic_error);
  for (const doctor::Comparer& part : parts) joined.append(part);
  require_same(joined.result(), expected);
}

TEST_CASE("compare counts rows by the thousand in columns, also of arrays that lie on no boundary") {
  // More rows than a byte counts, between others that are equal; a memory that begins within a word.
  for (const std::size_t columns : {3, 64, 1030}) {
    const std::size_t rows = 300'000 / columns;
    std::vector<std::byte> bytes(2 * (rows * columns * 2) + 2);
    const auto a = std::span(bytes).subspan(1, rows * columns * 2);
    const auto b = std::span(bytes).subspan(1 + rows * columns * 2, rows * columns * 2);
    for (std::size_t i = 0; i < b.size(); i += 2) b[i] = std::byte{i / 2 % columns != 1 && i / 2 / columns / 10 != 1};
    const Comparison found = compare({binary16}, a, b, {.columns = columns});
    const std::uint64_t differing_rows = rows - 10;
    std::vector<std::uint64_t> expected(columns, differing_rows);
    expected[1] = 0;
    CHECK(found.columns.counts == expected);
    CHECK(found.differing == differing_rows * (columns - 1));
    const Comparison of_bytes = compare({e4m3}, a, b, {.columns = 2 * columns});
    std::vector<std::uint64_t> lower(2 * columns);
    for (std::size_t i = 0; i < columns; ++i) lower[2 * i] = expected[i];
    CHECK(of_bytes.columns.counts == lower);
  }
}

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
    doctor::Distances expected;
    constexpr std::array edges{1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32, 64, 128};
    for (const auto& [distance, count] : distances) {
      const auto bin =
          static_cast<std::size_t>(std::ranges::upper_bound(edges, std::abs(distance)) - edges.begin()) - 1;
      (distance > 0 ? expected.above : expected.below)[bin] += count;
    }
    CHECK(found.distances.above == expected.above);
    CHECK(found.distances.below == expected.below);
    CHECK(found.distances.largest == values.size() - 1);
    CHECK(found.first == std::vector<doctor::Mismatch>{{1, 0, 1}, {2, 0, 2}, {3, 0, 3}});
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
  using doctor::Distances;
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
  doctor::Comparer comparer({e2m1, true}, 5);
  comparer.add(bytes_of(a), bytes_of(b));
  CHECK(comparer.result().differing == 1);
  CHECK(comparer.result().first == std::vector<doctor::Mismatch>{{3, 4, 6}});
}

TEST_CASE("compare gives the same of arrays that come in pieces") {
  std::vector<std::uint16_t> a(30'000);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<std::uint16_t>(random_bits(3, i));
  std::vector<std::uint16_t> b = a;
  for (std::size_t i = 7; i < b.size(); i += 1 + static_cast<std::size_t>(random_bits(4, i) % 900)) b[i] ^= 0x8001;
  const Comparison whole = compare({bfloat16}, bytes_of(a), bytes_of(b), {.columns = 300});
  CHECK(whole.differing > 20);
  doctor::Comparer comparer({bfloat16}, a.size(), {.columns = 300});
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
  CHECK(of(64, [](auto&, auto& b) { b[70] = 0x39, b[71] = 0x37, b[72] = 0x37; }) ==
        Sentences{"b lies above a 1 time and below it 2 times, by one value of the format.", "All lie in row 1 of 8.",
                  "All lie in columns 6 to 8 of 64."});
}

TEST_CASE("findings tell a remainder of indices where chance makes one in less than 1 of 100 dumps") {
  constexpr std::size_t rows = 64;
  constexpr std::size_t columns = 256;
  for (std::size_t count = 2; count <= 12; ++count) {
    std::size_t told = 0;
    for (std::size_t dump = 0; dump < 1000; ++dump) {
      const std::vector<std::uint8_t> a(rows * columns, 0x38);
      std::vector<std::uint8_t> b = a;
      for (std::size_t i = 0; i < count; ++i) b[random_bits(count, 1000 * i + dump) % b.size()] = 0x39;
      for (const std::string& finding : findings(compare({e4m3}, bytes_of(a), bytes_of(b), {.columns = columns}))) {
        told += finding.find("modulo") != std::string::npos ? 1 : 0;
      }
    }
    CHECK(told <= 13);  // of 1000; up to 8 are expected
  }
}

TEST_CASE("findings tell the ends of what differs also where a bin has several rows or columns") {
  using Sentences = std::vector<std::string>;
  constexpr std::size_t length = 200'001;  // bins of 4 indices
  const auto of = [](std::size_t columns, std::size_t first, std::size_t end, std::size_t step) {
    const std::vector<std::uint8_t> a(length, 0x38);
    std::vector<std::uint8_t> b = a;
    for (std::size_t i = first; i < end; i += step) b[i] = 0x39;
    const std::vector<std::string> all = findings(compare({e4m3}, bytes_of(a), bytes_of(b), {.columns = columns}));
    return Sentences(all.begin() + 1, all.end());  // the first is of the kind
  };
  CHECK(of(1, 7, 8, 1) == Sentences{"All lie in row 7 of 200001."});
  CHECK(of(1, 1001, 1500, 1) == Sentences{"All lie in rows 1001 to 1499 of 200001."});
  CHECK(of(1, 199'999, length, 1) == Sentences{"All lie in rows 199999 to 200000 of 200001, to the end."});
  CHECK(of(1, 5, 100'000, 9000) == Sentences{"They lie in rows from 5 to 99005 of 200001."});
  CHECK(of(1, 0, length, 1).empty());
  CHECK(of(1, 0, length, 100).empty());
  CHECK(of(length, length - 1, length, 1) ==
        Sentences{"All lie in column 200000 of 200001.", "This is the last column, which no whole tile of 64 has."});
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
  const std::vector<std::byte> large(std::size_t{3} << 20);
  std::vector<std::byte> wrong = large;
  for (const std::size_t at : {std::size_t{5}, wrong.size() - 1}) wrong[at] = std::byte{0x10};
  REQUIRE_THROWS_WITH(compare({e2m1}, large, wrong, {.threads = 3}), "element 5 has bits beyond the 4 of e2m1");
  REQUIRE_THROWS_WITH(compare({e2m1}, large, wrong, {.threads = 0}), "threads must be from 1 to 1024, not 0");
  doctor::Comparer comparer({e4m3}, 3);
  REQUIRE_THROWS_WITH(comparer.add(bytes_of(four), bytes_of(four)),
                      "4 bytes are more than the 3 elements that are left");
  CHECK_THROWS_AS(comparer.result(), std::logic_error);
}

TEST_CASE("compare counts the tiles that have differing elements, in any pieces, as a walk over all elements does") {
  for (const auto& [rows, columns] : {std::pair<std::size_t, std::size_t>{1, 1000}, {40, 72}, {256, 384}, {130, 131}}) {
    std::vector<std::uint8_t> a(rows * columns, 0x38);
    std::vector<std::uint8_t> b = a;
    for (std::size_t i = 0; i < 20; ++i) b[random_bits(rows, i) % b.size()] = 0x40;
    doctor::Comparer comparer({e4m3}, a.size(), {.columns = columns});
    for (std::size_t at = 0; at < a.size();) {
      const std::size_t size = std::min<std::size_t>(a.size() - at, 1 + random_bits(4, at) % 300);
      comparer.add(bytes_of(a).subspan(at, size), bytes_of(b).subspan(at, size));
      at += size;
    }
    const Comparison found = comparer.result();
    CHECK(!found.tiles.empty());
    for (const doctor::Tiles& tiles : found.tiles) {
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

TEST_CASE("findings count the elements that tiles at the ends have") {
  const auto sentence = [](std::size_t rows, std::size_t columns, std::size_t row, std::size_t column) {
    const std::vector<std::uint8_t> a(rows * columns, 0x38);
    std::vector<std::uint8_t> b = a;
    for (std::size_t i = 0; i < b.size(); ++i) {
      if (i / columns >= row && i % columns >= column) b[i] = 0x40;
    }
    return findings(compare({e4m3}, bytes_of(a), bytes_of(b), {.columns = columns})).back();
  };
  // 1. Of a whole row of two tiles and a half; of the last rows.
  CHECK_THAT(sentence(8, 40, 7, 0), ContainsSubstring("2 of 16 tiles of 1 x 32, of whose elements 100 % differ"));
  CHECK_THAT(sentence(8, 40, 7, 1), ContainsSubstring("2 of 16 tiles of 1 x 32, of whose elements 97 % differ"));
  CHECK_THAT(sentence(138, 256, 128, 0), ContainsSubstring("2 of 4 tiles of 128 x 128, of whose elements 100 %"));
  // 2. Of the last tile, but for a column; all of it is told as columns alone, where no smaller tile is whole.
  CHECK_THAT(sentence(138, 296, 128, 257), ContainsSubstring("1 of 6 tiles of 128 x 128, of whose elements 97 %"));
  CHECK_THAT(sentence(138, 264, 128, 256), ContainsSubstring("last 8 columns, which no whole tile of 256 has"));
}

}  // namespace fp8lab::tests
