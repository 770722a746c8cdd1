// SPDX-License-Identifier: Apache-2.0
// The amaxes of tiles, asked for one by one or all at once, beside a loop over all elements.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include "catch.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "quantize/kernel_model.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using doctor::AmaxKey;
using doctor::AmaxPart;

constexpr std::size_t rows_of_tiles = 96;
constexpr std::size_t columns_of_tiles = 208;

/// Whether the element with this number of those of a row of a tile counts.
bool is_in_part(AmaxPart part, std::size_t i, std::size_t count) {
  if (count < 2) return true;
  switch (part) {
    case AmaxPart::all: return true;
    case AmaxPart::without_first: return i > 0;
    case AmaxPart::without_last: return i + 1 < count;
    case AmaxPart::first_half: return i < count / 2;
    case AmaxPart::second_half: return i >= count / 2;
    case AmaxPart::even: return i % 2 == 0;
    case AmaxPart::odd: return i % 2 == 1;
  }
  return false;
}

float amax_one_by_one(const std::vector<float>& x, const doctor::Amaxes& tiles, std::size_t tile_row,
                      std::size_t tile_column) {
  const auto [begin, end] = tiles.counted_columns(tile_column);
  float amax = 0;
  for (std::size_t row = tile_row * tiles.across; row < std::min((tile_row + 1) * tiles.across, rows_of_tiles); ++row) {
    for (std::size_t column = begin; column < end; ++column) {
      const std::size_t i = row * columns_of_tiles + column;
      const float magnitude = tiles.key.is_signed ? x[i] : std::abs(x[i]);
      const bool counts = is_in_part(tiles.key.part, column - begin, end - begin) &&
                          (tiles.key.elements == 0 || i < tiles.key.elements);
      if (counts) amax = std::max(amax, magnitude);
    }
  }
  return amax;
}

}  // namespace

TEST_CASE("amaxes of tiles are those of a loop over their elements, one by one and at once") {
  std::mt19937 random(8);
  std::normal_distribution<float> numbers;
  std::vector<float> x(rows_of_tiles * columns_of_tiles);
  for (float& one : x) one = numbers(random);
  const MatrixView view(std::span<const float>(x), rows_of_tiles, columns_of_tiles);
  std::vector<AmaxKey> keys;
  // Whole columns, narrow tiles, tiles of rows, and squares.
  for (const auto& [across, along] : {std::pair<std::size_t, std::size_t>{0, 4},
                                      {0, 1},
                                      {32, 1},
                                      {32, 5},
                                      {1, 16},
                                      {1, 0},
                                      {32, 32},
                                      {64, 100},
                                      {0, 0}}) {
    keys.push_back({.across = across, .along = along});
    keys.push_back({.across = across, .along = along, .shift = 3});
    keys.push_back({.across = across, .along = along, .begin = 1, .end = 2});
    keys.push_back({.across = across, .along = along, .elements = 5000});
    keys.push_back({.across = across, .along = along, .is_signed = true});
    for (const AmaxPart part : {AmaxPart::without_first, AmaxPart::without_last, AmaxPart::first_half,
                                AmaxPart::second_half, AmaxPart::even, AmaxPart::odd}) {
      keys.push_back({.across = across, .along = along, .part = part});
    }
  }
  const doctor::Source some(view, 1);
  const doctor::Source all(view, 2);
  const doctor::Source shared(view, 1);
  for (const AmaxKey& key : keys) {
    CAPTURE(key.across, key.along, key.shift, key.begin, key.end, key.elements, key.is_signed,
            static_cast<int>(key.part));
    doctor::Amaxes& asked = some.tiles(key);
    doctor::Amaxes& completed = all.tiles(key);
    all.complete(completed);
    std::size_t wrong = 0;
    // The last tiles first, and none of the first row where there are many.
    for (std::size_t i = completed.values.size(); i-- > (asked.tiles_down > 1 ? asked.tiles_across : 0);) {
      const std::size_t row = i / asked.tiles_across;
      const std::size_t column = i % asked.tiles_across;
      const float expected = amax_one_by_one(x, asked, row, column);
      if (some.amax_of(asked, row, column) != expected || completed.values[i] != expected) ++wrong;
    }
    CHECK(wrong == 0);
    // Threads may ask for the same at the same time.
    const std::size_t tiles = completed.values.size();
    std::atomic<std::size_t> wrong_of_threads = 0;
    parallel_for(3, 3, [&](std::size_t thread, std::size_t) {
      doctor::Amaxes& own = shared.tiles(key);
      for (std::size_t i = 0; i < tiles; ++i) {
        const std::size_t tile = thread == 1 ? tiles - 1 - i : i;
        const float amax = shared.amax_of(own, tile / own.tiles_across, tile % own.tiles_across);
        wrong_of_threads += amax == completed.values[tile] ? 0 : 1;
      }
    });
    CHECK(wrong_of_threads == 0);
  }
}

}  // namespace fp8lab::tests
