// SPDX-License-Identifier: Apache-2.0
// Each row of the table of departures is planted in a kernel, and the doctor names it.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/doctor/diagnose.hpp"
#include "fp8lab/doctor/diagnose_gemm.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "quantize/departure.hpp"
#include "quantize/kernel_model.hpp"
#include "support.hpp"

using namespace fp8lab;
using namespace fp8lab::doctor;

namespace {

constexpr std::size_t columns = 256;

/// Blocks of many magnitudes, each with elements over many binades; zeros of both signs and a NaN.
std::vector<float> telling_tensor(std::size_t rows, bool has_subnormals) {
  std::vector<float> x(rows * columns);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint64_t bits = tests::random_bits(3, i);
    const std::size_t row = i / columns;
    const std::size_t block = i % columns / 16;
    const int exponent = static_cast<int>((row + 7 * block) % 20) - 9 - static_cast<int>(bits >> 32 & 0xFF) % 24;
    x[i] = std::ldexp(1 + static_cast<float>(bits & 0x7FFFFF) * 0x1p-23F, exponent) * ((bits >> 23 & 1) != 0 ? -1 : 1);
    if (has_subnormals && row == 100) x[i] = std::ldexp(x[i], -127 - exponent);
    if ((bits >> 40 & 0xFF) == 77) x[i] = std::copysign(0.0F, x[i]);
  }
  x[33 * columns + 200] = std::numeric_limits<float>::quiet_NaN();
  return x;
}

/// The word of a scale of that value in a type.
std::uint32_t word_of(float value, const Format& type) {
  return type == binary32 ? std::bit_cast<std::uint32_t>(value) : encode(type, CastPolicy{}, value);
}

/// What a kernel with one departure stores.
struct Planted {
  std::vector<std::uint8_t> codes;
  std::vector<std::byte> scales;
  Format scale_format;
  std::optional<float> of_tensor;

  [[nodiscard]] Dump dump(const Recipe& recipe) const {
    return {.codes = codes,
            .format = recipe.format,
            .scales = {.format = scale_format, .bytes = scales, .of_tensor = of_tensor}};
  }
};

/// Plants the departure of a hypothesis, without the searches of the doctor.
class Planter {
 public:
  Planter(const MatrixView& x, const Hypothesis& hypothesis)
      : x_(x), source_(x, 1), hypothesis_(hypothesis), own_(hypothesis.deviations.front()), row_(*own_.departure) {}

  [[nodiscard]] std::optional<Planted> planted() const {
    const Recipe& recipe = hypothesis_.recipe;
    const std::size_t down = recipe.tile_across == 0 ? 1 : (x_.rows() + recipe.tile_across - 1) / recipe.tile_across;
    const std::size_t across = recipe.tile_along == 0 ? 1 : columns / recipe.tile_along;
    // Tiles of other shapes are more, moved ones are one more in a row, and some layouts have padding.
    // Some are half as many.
    for (const std::size_t count : {down * across, down * across / 2, 2 * down * across, down * (across + 1),
                                    (down + 3) / 4 * 4 * across, swizzled_size(down, across)}) {
      if (auto made = with_scales(count)) return made;
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] std::optional<Planted> with_scales(std::size_t count) const {
    Planted made{.codes = std::vector<std::uint8_t>(x_.size()),
                 .scales = {},
                 .scale_format = scale_format_of(hypothesis_.recipe),
                 .of_tensor = {}};
    if (row_.tensor_scale != nullptr && row_.is_given) made.of_tensor = own_.value;
    const std::size_t width = made.scale_format == binary32 ? 4 : 1;
    made.scales.resize(count * width);
    StoredDump dump(x_, made.dump(hypothesis_.recipe));
    const KernelModel model(source_, hypothesis_, &dump);
    if (!model.applies() || !model.has_room_for_scales()) return std::nullopt;
    store_scales(model, dump);
    for (std::size_t i = 0; i < count; ++i) std::memcpy(&made.scales[i * width], &dump.scales[i], width);
    store_codes(model, made.codes);
    return made;
  }

  void store_scales(const KernelModel& model, StoredDump& dump) const {
    const auto& layout = model.layout();
    const Amaxes& tiles = model.tiles();
    const Format type = scale_format_of(hypothesis_.recipe);
    const TensorFacts facts;
    for (std::size_t row = 0; row < layout.rows; ++row) {
      for (std::size_t column = 0; column < layout.columns; ++column) {
        const auto place = layout.place_of(row, column);
        if (!place || (row_.is_unwritten != nullptr && row_.is_unwritten(*place, own_))) continue;
        TileIndex tile{row * layout.entry_rows / tiles.across, column};
        if (row_.stored_of != nullptr) {
          tile = row_.stored_of(tile, {tiles.tiles_down - 1, tiles.tiles_across - 1}, own_).first;
        }
        const TileScale scale = model.stored_scale(tile.row, tile.column);
        std::uint32_t word = type.bits() <= 8 ? scale.code : word_of(scale.scale_inv, type);
        if (row_.stored != nullptr) {
          const float amax = model.amax_at(tile.row * tiles.across, tile.column);
          word = word_of(row_.stored(scale.scale_inv, {hypothesis_.recipe, facts, amax}), type);
        }
        if (row_.word != nullptr) word = row_.word(word, type);
        if (is_stale(tile)) word = word_of(0.001F * static_cast<float>(1 + (7 * row + column) % 13), type);
        dump.scales[*place] = word;
      }
    }
  }

  /// Whether a tile's scale follows from nothing.
  [[nodiscard]] bool is_stale(TileIndex tile) const {
    if (row_.takes_stored == TakesStored::some) return tile.column == 0 && tile.row % 50 == 7 && tile.row < 150;
    return row_.takes_stored == TakesStored::all;
  }

  void store_codes(const KernelModel& model, std::vector<std::uint8_t>& stored) const {
    std::vector<std::uint8_t> codes(columns);
    std::vector<std::uint8_t> others(columns);
    for (std::size_t row = 0; row < x_.rows(); ++row) {
      model.predict({row, 0, columns}, codes, others);
      for (std::size_t column = 0; column < columns; ++column) {
        const std::uint64_t place = model.place_of(row, column);
        if (place < stored.size()) stored[place] = codes[column];
      }
    }
  }

  MatrixView x_;
  Source source_;
  const Hypothesis& hypothesis_;
  const Deviation& own_;
  const Departure& row_;
};

/// Names of the departures of what explains all and is as plausible as the first.
std::string named(const Diagnosis& diagnosis) {
  std::string all;
  for (std::size_t i = 0; i < diagnosis.tied; ++i) {
    for (const Deviation& one : diagnosis.explanations[i].hypothesis.deviations) {
      all.append(one.name()).append(" ");
    }
  }
  return all;
}

}  // namespace

TEST_CASE("Each departure of the table is named where it is planted") {
  std::size_t number = 0;
  for_each_departure([&](const Departure& row) {
    if (tests::sanitized && number++ % 8 != 0) return;
    const Recipe& recipe = find_recipe(row.plant.recipe).recipe;
    const std::vector<float> x = telling_tensor(row.plant.rows, recipe.scale_type == ScaleType::e8m0_code);
    const MatrixView view(x, row.plant.rows, columns);
    const Hypothesis hypothesis{.base = std::string(row.plant.recipe),
                                .recipe = recipe,
                                .deviations = {{&row, row.plant.place, row.plant.value, row.plant.last}}};
    INFO(row.name);
    const auto planted = Planter(view, hypothesis).planted();
    CHECK(planted);
    if (!planted) return;
    const Diagnosis found =
        diagnose(view, planted->dump(recipe), {.expected = recipe, .expected_name = hypothesis.base});
    INFO(found.verdict);
    CHECK(found.explained());
    const std::string names = named(found);
    INFO(names);
    CHECK(names.find(std::string(row.name) + " ") != std::string::npos);
    CHECK(found.correct() == row.is_given);
  });
}

TEST_CASE("Departures have names and words of their own, and act in order") {
  std::set<std::string_view> names;
  std::set<std::string_view> words;
  KernelStage last = KernelStage::input;
  for_each_departure([&](const Departure& row) {
    INFO(row.name);
    CHECK(names.insert(row.name).second);
    CHECK(words.insert(row.words).second);
    CHECK(row.stage >= last);
    CHECK(row.cost < 3);
    last = row.stage;
  });
}

TEST_CASE("Departures of a GEMM are rows of the table: of a, of b and of both where they are of scales") {
  constexpr std::array<std::string_view, 75> names{"a_transposed",
                                                   "b_transposed",
                                                   "out_transposed",
                                                   "scale_a_missing",
                                                   "scale_b_missing",
                                                   "scales_missing",
                                                   "scale_a_twice",
                                                   "scale_b_twice",
                                                   "scales_twice",
                                                   "scale_a_inverted",
                                                   "scale_b_inverted",
                                                   "scales_inverted",
                                                   "scale_a_of_previous_tile",
                                                   "scale_b_of_previous_tile",
                                                   "scales_of_previous_tile",
                                                   "scale_a_of_next_tile",
                                                   "scale_b_of_next_tile",
                                                   "scales_of_next_tile",
                                                   "tensor_scale_a_missing",
                                                   "tensor_scale_b_missing",
                                                   "tensor_scales_missing",
                                                   "block_scales_a_missing",
                                                   "block_scales_b_missing",
                                                   "block_scales_missing",
                                                   "scale_layout_a",
                                                   "scale_layout_b",
                                                   "scale_layouts",
                                                   "c_missing",
                                                   "c_transposed",
                                                   "bias_missing",
                                                   "addends_missing",
                                                   "bias_along_rows",
                                                   "bias_of_next_column",
                                                   "bias_in_each_range",
                                                   "scale_out_missing",
                                                   "scale_out_inverted",
                                                   "rows_exchanged",
                                                   "columns_exchanged",
                                                   "scales_a_without_mantissa",
                                                   "scales_b_without_mantissa",
                                                   "scales_without_mantissa",
                                                   "scales_a_halved",
                                                   "scales_b_halved",
                                                   "scales_halved",
                                                   "scale_a_of_previous_row",
                                                   "scale_b_of_previous_row",
                                                   "scales_of_previous_row",
                                                   "scale_a_of_next_row",
                                                   "scale_b_of_next_row",
                                                   "scales_of_next_row",
                                                   "first_of_four_scales_a",
                                                   "first_of_four_scales_b",
                                                   "first_of_four_scales",
                                                   "scale_words_a_as_bytes",
                                                   "scale_words_b_as_bytes",
                                                   "scale_words_as_bytes",
                                                   "scales_a_stored_turned",
                                                   "scales_b_stored_turned",
                                                   "scales_stored_turned",
                                                   "scales_a_read_turned",
                                                   "scales_b_read_turned",
                                                   "scales_read_turned",
                                                   "scales_a_of_other",
                                                   "scales_b_of_other",
                                                   "scales_of_other",
                                                   "output_scaled",
                                                   "codes_a_as_fnuz",
                                                   "codes_b_as_fnuz",
                                                   "codes_as_fnuz",
                                                   "tail_dropped",
                                                   "head_dropped",
                                                   "head_twice",
                                                   "tail_twice",
                                                   "rows_scaled",
                                                   "columns_scaled"};
  std::set<std::string> words;
  std::set<const Departure*> rows;
  std::size_t number = 0;
  for (const GemmDeparture& one : gemm_departures()) {
    INFO(one.name);
    REQUIRE(number < names.size());
    CHECK(one.name == names[number++]);
    CHECK(words.insert(one.words).second);
    rows.insert(one.row);
    CHECK((one.row->operand.is_searched != nullptr) == (one.of_a || one.of_b));
    CHECK(&find_gemm_departure(one.name) == &one);
  }
  CHECK(number == names.size());
  CHECK(rows.size() == 39);
}
