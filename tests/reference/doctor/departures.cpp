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
