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
#include "reference/doctor/planter.hpp"
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

/// The words of numbers rounded to a type of 16 bits.
template <typename Word>
std::vector<Word> words_of_16_bits(const Format& type, const std::vector<float>& x) {
  std::vector<Word> words;
  for (const float one : x) words.push_back({static_cast<std::uint16_t>(encode(type, ieee_policy, one))});
  return words;
}

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
  const std::size_t every = tests::sanitized ? 8 : tests::exhaustive() ? 1 : 6;
  std::size_t number = 0;
  for_each_departure([&](const Departure& row) {
    if (number++ % every != 0) return;
    const Recipe& recipe = find_recipe(row.plant.recipe).recipe;
    const std::vector<float> x = telling_tensor(row.plant.rows, recipe.scale_type == ScaleType::e8m0_code);
    const auto halves = words_of_16_bits<Half>(binary16, x);
    const auto brains = words_of_16_bits<BFloat16>(bfloat16, x);
    MatrixView view(std::span<const float>(x), row.plant.rows, columns);
    if (row.plant.input_type == binary16) view = {std::span<const Half>(halves), row.plant.rows, columns};
    if (row.plant.input_type == bfloat16) view = {std::span<const BFloat16>(brains), row.plant.rows, columns};
    const Hypothesis hypothesis{.base = std::string(row.plant.recipe),
                                .recipe = recipe,
                                .deviations = {{&row, row.plant.place, row.plant.value, row.plant.last}}};
    INFO(row.name);
    const auto planted = tests::Planter(view, hypothesis).planted();
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
  constexpr std::array<std::string_view, 110> names{"a_transposed",
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
                                                    "bias_of_previous_column",
                                                    "scale_out_missing",
                                                    "scale_out_inverted",
                                                    "rows_exchanged",
                                                    "columns_exchanged",
                                                    "scales_a_without_mantissa",
                                                    "scales_b_without_mantissa",
                                                    "scales_without_mantissa",
                                                    "codes_a_as_other_format",
                                                    "codes_b_as_other_format",
                                                    "codes_as_other_format",
                                                    "scales_a_halved",
                                                    "scales_b_halved",
                                                    "scales_halved",
                                                    "operand_rows_a_exchanged",
                                                    "operand_rows_b_exchanged",
                                                    "operand_rows_exchanged",
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
                                                    "row_scale_a_of_next",
                                                    "row_scale_b_of_next",
                                                    "row_scales_of_next",
                                                    "row_scale_a_of_previous",
                                                    "row_scale_b_of_previous",
                                                    "row_scales_of_previous",
                                                    "scales_a_from_next_tile",
                                                    "scales_b_from_next_tile",
                                                    "scales_from_next_tile",
                                                    "scales_a_from_previous_tile",
                                                    "scales_b_from_previous_tile",
                                                    "scales_from_previous_tile",
                                                    "scales_a_from_next_row",
                                                    "scales_b_from_next_row",
                                                    "scales_from_next_row",
                                                    "scales_a_from_previous_row",
                                                    "scales_b_from_previous_row",
                                                    "scales_from_previous_row",
                                                    "scales_a_of_first_tile",
                                                    "scales_b_of_first_tile",
                                                    "scales_of_first_tile",
                                                    "block_scales_after_sums",
                                                    "output_scaled",
                                                    "codes_a_as_fnuz",
                                                    "codes_b_as_fnuz",
                                                    "codes_as_fnuz",
                                                    "k_descending",
                                                    "promotion_missed",
                                                    "accumulator_kept",
                                                    "accumulator_never_cleared",
                                                    "tail_dropped",
                                                    "head_dropped",
                                                    "head_twice",
                                                    "tail_twice",
                                                    "stale_tile",
                                                    "k_blocks",
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
  CHECK(rows.size() == 56);
}
