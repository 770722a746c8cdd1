// SPDX-License-Identifier: Apache-2.0
// Finds what the differences of two arrays have in common.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compare/places.hpp"
#include "fp8lab/doctor/compare.hpp"
#include "fp8lab/formats/text_stream.hpp"

namespace fp8lab::doctor {
namespace {

template <typename... Parts>
std::string text(const Parts&... parts) {
  TextStream stream;
  (stream << ... << parts);
  return stream.str();
}

std::uint64_t touched(const Places& places) {
  return static_cast<std::uint64_t>(std::ranges::count_if(places.counts, [](std::uint64_t n) { return n != 0; }));
}

/// The remainder that all touched indices have modulo `period`, if they have one.
std::optional<std::uint64_t> common_remainder(const Places& places, std::uint64_t period) {
  for (std::uint64_t i = places.first; i <= places.last; ++i) {
    if (places.counts[i] != 0 && i % period != places.first % period) return std::nullopt;
  }
  return places.first % period;
}

/// Whether every index from the first touched one to the last is touched, or every bin of indices.
bool is_one_range(const Places& places) {
  return touched(places) == places.last / places.indices_per_bin - places.first / places.indices_per_bin + 1;
}

/// How likely so many indices of a dimension, drawn at random, all have one remainder modulo `period`.
double chance_of_remainder(const Places& places, std::uint64_t period, std::uint64_t count) {
  const auto length = static_cast<double>(places.length);
  const double alike = std::ceil(length / static_cast<double>(period));
  double chance = 1;
  for (std::uint64_t i = 1; i < count && chance > 0; ++i) {
    chance *= std::max(alike - static_cast<double>(i), 0.0) / (length - static_cast<double>(i));
  }
  return chance;
}

/// "rows 3 to 5 of 8", where that says less than all of them.
std::optional<std::string> range_of(const Places& places, std::string_view plural, std::string_view one) {
  constexpr double rare = 0.005;  // in one of two dimensions
  const bool has_both_ends = places.first == 0 && places.last + 1 == places.length;
  if (has_both_ends && (is_one_range(places) || places.indices_per_bin != 1)) return std::nullopt;
  if (places.first == places.last) return text("All lie in ", one, " ", places.first, " of ", places.length, ".");
  if (is_one_range(places)) {
    const char* const end = places.last + 1 == places.length ? ", to the end." : ".";
    return text("All lie in ", plural, " ", places.first, " to ", places.last, " of ", places.length, end);
  }
  if (places.indices_per_bin != 1) {
    return text("They lie in ", plural, " from ", places.first, " to ", places.last, " of ", places.length, ".");
  }
  const std::uint64_t count = touched(places);
  for (const std::uint64_t period : {128, 64, 32, 16, 8, 4, 2}) {
    if (chance_of_remainder(places, period, count) > rare) continue;
    if (const auto remainder = common_remainder(places, period)) {
      return text("All lie in ", plural, " whose index modulo ", period, " is ", *remainder, ".");
    }
  }
  return text("They lie in ", count, " of ", places.length, " ", plural, ", from ", places.first, " to ", places.last,
              ".");
}

/// The incomplete tile at the end of the columns where the differences begin: the shortest, of the largest tile.
std::optional<std::string> tail_of(const Places& columns) {
  std::uint64_t shortest = columns.length;
  std::uint64_t its_tile = 0;
  for (const std::uint64_t tile : {4, 8, 16, 32, 64, 128, 256}) {
    const std::uint64_t tail = columns.length % tile;
    if (tail == 0 || tail > shortest || tail == columns.length || columns.first != columns.length - tail) continue;
    shortest = tail;
    its_tile = tile;
  }
  if (its_tile == 0) return std::nullopt;
  if (shortest == 1) return text("This is the last column, which no whole tile of ", its_tile, " has.");
  return text("These are the last ", shortest, " columns, which no whole tile of ", its_tile, " has.");
}

/// "They fill 3 of 4096 tiles of 1 x 32", where a few tiles have most of their elements different: a wrong scale, a
/// tile that was not written or that is another's. Of several kinds the largest tiles that are as full; incomplete ones
/// at the end of the columns are not told where tail_of() tells them.
std::optional<std::string> tiles_of(const Comparison& comparison) {
  const auto density = [&](const Tiles& tiles) {
    const std::uint64_t elements = tiles.touched * tiles.rows * tiles.columns - tiles.missing;
    return static_cast<double>(comparison.differing) / static_cast<double>(elements);
  };
  const bool has_tail = tail_of(comparison.columns).has_value();
  const auto is_tail = [&](const Tiles& tiles) {
    const std::uint64_t whole = comparison.columns.length / tiles.columns * tiles.columns;
    return has_tail && comparison.columns.first >= whole;
  };
  const Tiles* best = nullptr;
  for (const Tiles& tiles : comparison.tiles) {
    if (tiles.touched * 2 > tiles.count || density(tiles) < 0.5 || is_tail(tiles)) continue;
    if (best == nullptr || density(tiles) >= 0.9 * density(*best)) best = &tiles;
  }
  if (best == nullptr || comparison.differing < 4) return std::nullopt;
  const auto percent = static_cast<int>(100 * density(*best));
  const std::uint64_t across = (comparison.columns.length + best->columns - 1) / best->columns;
  return text("They lie in ", best->touched, " of ", best->count, " tiles of ", best->rows, " x ", best->columns,
              ", of whose elements ", percent, " % differ; the first of these tiles is in row ", best->first / across,
              ", column ", best->first % across, " of the tiles.");
}

/// A kind of difference, with the sentence that is said where all differing elements are of it.
struct Kind {
  std::uint64_t Comparison::* count;
  std::string_view sentence;
};
constexpr std::array kinds{
    Kind{&Comparison::zero_signs, "They differ in the sign of zero alone."},
    Kind{&Comparison::nan_words, "They differ in the words of NaNs alone."},
    Kind{&Comparison::nan_in_a, "Every one is a NaN in a and a number in b."},
    Kind{&Comparison::nan_in_b, "Every one is a number in a and a NaN in b."},
    Kind{&Comparison::opposite_values, "Every one has the opposite sign and the same magnitude."},
    Kind{&Comparison::became_zero, "Every one is zero in b and not in a."},
    Kind{&Comparison::was_zero, "Every one is zero in a and not in b."},
};

/// How far numbers are apart, where all of them have that in common.
std::optional<std::string> distance_of(const Comparison& comparison) {
  const Distances& distances = comparison.distances;
  if (comparison.numbers != comparison.differing || comparison.opposite_signs != 0) return std::nullopt;
  const auto sum = [](const auto& counts) {
    std::uint64_t total = 0;
    for (const std::uint64_t count : counts) total += count;
    return total;
  };
  const std::uint64_t above = sum(distances.above);
  const std::uint64_t below = sum(distances.below);
  const auto times = [](std::uint64_t count) { return text(count, count == 1 ? " time" : " times"); };
  std::string which = text("b lies above a ", times(above), " and below it ", times(below));
  if (below == 0) which = "Every time b lies above a";
  if (above == 0) which = "Every time b lies below a";
  if (distances.largest != 1) return text(which, ", by up to ", distances.largest, " values.");
  return text(which, ", by one value of the format.");
}

}  // namespace

std::vector<std::string> places_of(const Comparison& comparison) {
  std::vector<std::string> all;
  for (const auto& sentence :
       {range_of(comparison.rows, "rows", "row"), range_of(comparison.columns, "columns", "column"),
        tail_of(comparison.columns), tiles_of(comparison)}) {
    if (sentence) all.push_back(*sentence);
  }
  return all;
}

std::vector<std::string> findings(const Comparison& comparison) {
  std::vector<std::string> all;
  const auto add = [&](std::optional<std::string> sentence) {
    if (sentence) all.push_back(std::move(*sentence));
  };
  if (comparison.equal()) return all;
  const auto* const kind =
      std::ranges::find_if(kinds, [&](const Kind& one) { return comparison.*one.count == comparison.differing; });
  add(kind == kinds.end() ? distance_of(comparison) : std::optional(std::string(kind->sentence)));
  for (std::string& place : places_of(comparison)) all.push_back(std::move(place));
  return all;
}

}  // namespace fp8lab::doctor
