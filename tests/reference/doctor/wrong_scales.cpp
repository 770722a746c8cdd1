// SPDX-License-Identifier: Apache-2.0
// What stored scales suggest that a hypothesis does not explain: a few of them refute most of it.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "quantize/departures/shared.hpp"
#include "reference/doctor/planter.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using doctor::OtherRow;

constexpr std::size_t columns_of_scales = 256;

std::vector<float> elements_of_rows(std::size_t rows) {
  std::mt19937 random(31);
  std::normal_distribution<float> numbers;
  std::vector<float> x(rows * columns_of_scales);
  for (float& one : x) one = numbers(random);
  return x;
}

const Departure& departure_by_name(std::string_view name) {
  const Departure* found = nullptr;
  doctor::for_each_departure([&](const Departure& one) { found = one.name == name ? &one : found; });
  REQUIRE(found != nullptr);
  return *found;
}

/// What a row suggests of these scales.
std::optional<Deviation> suggested_by(const Departure& row, const MatrixView& x, const Hypothesis& hypothesis,
                                      const Dump& written) {
  const StoredDump dump(x, written);
  const Source source(x, 1);
  const KernelModel model(source, hypothesis, &dump);
  REQUIRE(model.applies());
  return row.by_wrong_scales(model, dump);
}

bool are_equal(const std::optional<Deviation>& found, const Deviation& expected) {
  return found && found->place == expected.place && found->value == expected.value && found->last == expected.last;
}

/// A kernel's way to another row of `rows`, and the doctor's words for it.
struct WayToRow {
  std::function<std::size_t(std::size_t row)> row;
  Deviation told;
};

std::vector<WayToRow> ways_to_rows(std::size_t rows) {
  std::vector<WayToRow> all;
  for (const std::size_t away : {2, 16, 64}) {
    const auto add = [&](OtherRow kind, std::size_t begin, const std::function<std::size_t(std::size_t)>& row) {
      all.push_back(
          {row, {.place = begin, .value = static_cast<float>(away), .last = static_cast<std::uint64_t>(kind)}});
    };
    add(OtherRow::above, 0, [=](std::size_t row) { return row < away ? row : row - away; });
    for (const std::size_t begin : {away + 1, std::size_t{101}, rows - 1}) {
      add(OtherRow::above, begin, [=](std::size_t row) { return row < begin ? row : row - away; });
    }
    add(OtherRow::above_round, 0, [=](std::size_t row) { return row < away ? row + rows - away : row - away; });
    add(OtherRow::below, 0, [=](std::size_t row) { return row + away < rows ? row + away : row; });
    add(OtherRow::below_round, 0, [=](std::size_t row) { return row + away < rows ? row + away : row + away - rows; });
    add(OtherRow::upper_half, 0, [=](std::size_t row) { return row % (2 * away) < away ? row : row - away; });
    add(OtherRow::lower_half, 0, [=](std::size_t row) { return row % (2 * away) < away ? row + away : row; });
  }
  return all;
}

TEST_CASE("scales of other rows are known by all of them, not by a few") {
  constexpr std::size_t rows = 256;
  const std::vector<float> x = elements_of_rows(rows);
  const MatrixView view(std::span<const float>(x), rows, columns_of_scales);
  const Hypothesis plain{.base = "deepseek_v3_2024", .recipe = find_recipe("deepseek_v3_2024").recipe};
  const Quantized q = quantize(view, plain.recipe);
  const std::size_t across = q.scale_inv.size() / rows;
  REQUIRE(q.scale_inv.size() > 4 * 64);
  const auto suggested = [&](std::span<const float> scales) {
    return suggested_by(
        departure_by_name("stored_of_other_row"), view, plain,
        {.codes = q.codes, .format = e4m3, .scales = {.format = binary32, .bytes = std::as_bytes(scales)}});
  };
  CHECK(!suggested(q.scale_inv));
  for (const WayToRow& way : ways_to_rows(rows)) {
    std::vector<float> scales(q.scale_inv.size());
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = q.scale_inv[way.row(i / across) * across + i % across];
    CAPTURE(way.told.value, way.told.last, way.told.place);
    CHECK(are_equal(suggested(scales), way.told));
    // One that is none of them refutes it, wherever it is.
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{333}, scales.size() - 1}) {
      std::vector<float> other = scales;
      other[i] *= 3;
      CHECK(!suggested(other));
    }
  }
}

TEST_CASE("scales at the end that are not written are known wherever the first one is stored") {
  const Departure& unwritten = departure_by_name("stored_end_unwritten");
  std::size_t layouts = 0;
  doctor::for_each_departure([&](const Departure& row) {
    if (row.layout == nullptr) return;
    const Recipe& recipe = find_recipe(row.plant.recipe).recipe;
    for (const std::uint64_t place : {row.plant.place, row.plant.place + 1}) {
      const Hypothesis own{
          .base = std::string(row.plant.recipe),
          .recipe = recipe,
          .deviations = {{.departure = &row, .place = place, .value = row.plant.value, .last = row.plant.last}}};
      const std::vector<float> x = elements_of_rows(row.plant.rows);
      const MatrixView view(std::span<const float>(x), row.plant.rows, columns_of_scales);
      const std::optional<PlantedTensor> made = Planter(view, own).planted();
      if (!made) continue;
      CAPTURE(row.name, place);
      // 1. Where scales of tiles are stored.
      const StoredDump dump(view, made->dump(recipe));
      const Source source(view, 1);
      const KernelModel model(source, own, &dump);
      if (!model.applies()) continue;
      std::vector<std::size_t> places;
      model.for_each_scale([&](std::size_t at, bool is_right) {
        CHECK(is_right);
        places.push_back(at);
      });
      std::ranges::sort(places);
      // 2. The last quarter is not written, or nothing is.
      const std::size_t width = made->scales.size() / dump.scales.size();
      for (const std::size_t begin : {places[places.size() / 4 * 3], std::size_t{0}}) {
        PlantedTensor cut = *made;
        std::ranges::fill(std::span(cut.scales).subspan(begin * width), std::byte{0});
        const std::optional<Deviation> found = suggested_by(unwritten, view, own, cut.dump(recipe));
        CHECK((begin == 0 ? !found : are_equal(found, {.place = begin, .last = 1})));
      }
      ++layouts;
    }
  });
  CHECK(layouts > 6);
}

}  // namespace
}  // namespace fp8lab::tests
