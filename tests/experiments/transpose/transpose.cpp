// SPDX-License-Identifier: Apache-2.0
#include "transpose/transpose.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/transpose/plain.hpp"
#include "experiments/transpose/transposing.hpp"
#include "fp8lab/formats/encode.hpp"
#include "kit/render.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// What the library measured of `recipe` against plain copies, as one number a count; empty where all agree.
std::vector<std::string> differences(const MeasuredTranspose& measured, const PlainMatrix& x, const PlainCopy& rowwise,
                                     const PlainCopy& original, const PlainCopy& requantized) {
  TransposeCounts expected;
  expected.transposed_differ = plain_differing(rowwise.values, original.values);
  expected.values_differ = plain_differing(requantized.values, original.values);
  expected.codes_differ = plain_differing(requantized.codes, original.codes);
  expected.scales_differ = plain_differing(requantized.scales, original.scales);
  expected.saturated_rowwise = rowwise.saturated;
  expected.saturated_original = original.saturated;
  expected.saturated_requantized = requantized.saturated;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    expected.underflows_original += x.values[i] != 0 && original.values[i] == 0 ? 1 : 0;
    expected.underflows_requantized += x.values[i] != 0 && requantized.values[i] == 0 ? 1 : 0;
    expected.extra_underflows += original.values[i] != 0 && requantized.values[i] == 0 ? 1 : 0;
  }
  std::vector<std::string> wrong;
  // Counts are exact; sums of n = 24,576 squares in another order are within n * 2^-53 < 3e-12, and their SQNR within
  // 10 log10(1 + 6e-12) < 3e-11 dB.
  const auto compare = [&](const std::string& what, double actual, double wanted) {
    if (std::abs(actual - wanted) < 3e-11) return;
    wrong.push_back(what + ": " + std::to_string(actual) + ", expected " + std::to_string(wanted));
  };
  for (const NamedTransposeCount& named : transpose_counts) {
    compare(named.name, static_cast<double>(measured.counts.*named.count), static_cast<double>(expected.*named.count));
  }
  compare("rowwise", measured.rowwise.sqnr_db(), plain_sqnr(x.values, rowwise.values));
  compare("original", measured.original.sqnr_db(), plain_sqnr(x.values, original.values));
  compare("requantized", measured.requantized.sqnr_db(), plain_sqnr(x.values, requantized.values));
  return wrong;
}

const nlohmann::json& column_of(const nlohmann::json& sections, const std::string& table, const std::string& column) {
  for (const nlohmann::json& section : sections) {
    if (section["name"] != table) continue;
    for (const nlohmann::json& one : section["columns"]) {
      if (one["name"] == column) return one["values"];
    }
  }
  throw std::out_of_range(table + ", " + column);
}

}  // namespace

TEST_CASE("transpose: every recipe's three copies are those of its definition, recomputed plainly") {
  const PlainMatrix x = wide_matrix(128, 192);
  const std::vector<float> values = floats_of(x);
  for (const PlainRecipe& recipe : plain_recipes) {
    INFO(recipe.name);
    const PlainCopy rowwise = plain_copy(x, recipe, false);
    const PlainCopy original = plain_copy(x, recipe, true);
    const PlainCopy requantized = plain_copy(plain_matrix(x, rowwise), recipe, true);
    const TransposeResult result = run_transpose(transposing(values, x.rows, {recipe.name}));
    CHECK(differences(result.recipes[0], x, rowwise, original, requantized) == std::vector<std::string>{});
    // What a mistake would measure is something else, where both directions have scales of their own.
    if (recipe.across != 1) continue;
    const PlainCopy along_rows = plain_copy(plain_matrix(x, rowwise), recipe, false);
    const PlainCopy from_columns = plain_copy(plain_matrix(x, original), recipe, true);
    CHECK(differences(result.recipes[0], x, rowwise, original, along_rows).size() > 3);
    CHECK(differences(result.recipes[0], x, rowwise, original, from_columns).size() > 3);
  }
}

TEST_CASE("transpose: recipes whose scales are those of few rows give what the parts of the matrix give") {
  // More rows than a band has, and a rest; parts are of 128 rows, the largest tile, or whole multiples.
  constexpr std::size_t rows = 6464;
  constexpr std::size_t columns = 160;
  const std::vector<float> values = floats_of(wide_matrix(rows, columns));
  const std::vector<std::string> names{"te_mxfp8", "te_mxfp8_2d", "te_block_1x128", "te_block_128x128", "ocp_mxfp4"};
  const TransposeResult whole = run_transpose(transposing(values, rows, names));
  for (std::size_t i = 0; i < names.size(); ++i) {
    INFO(names[i]);
    MeasuredTranspose sum(whole.recipes[i].recipe);
    for (std::size_t first = 0; first < rows; first += 1280) {
      const std::size_t count = std::min<std::size_t>(1280, rows - first);
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first * columns);
      const std::vector<float> part(begin, begin + static_cast<std::ptrdiff_t>(count * columns));
      sum.merge(run_transpose(transposing(part, count, {names[i]})).recipes[0]);
    }
    const MeasuredTranspose& one = whole.recipes[i];
    for (const NamedTransposeCount& named : transpose_counts) {
      INFO(named.name);
      CHECK(one.counts.*named.count == sum.counts.*named.count);
    }
    CHECK(one.widest_scale_factor == sum.widest_scale_factor);
    CHECK(one.original.count == sum.original.count);
    const auto histograms = one.histograms();
    const auto sums = sum.histograms();
    for (std::size_t k = 0; k < histograms.size(); ++k) CHECK(histograms[k].histogram == sums[k].histogram);
    CHECK(std::abs(one.loss_db() - sum.loss_db()) < 1e-8);  // sums of 2^20 numbers, each within 2^-33
  }
}

TEST_CASE("transpose: one element that underflows only on the second quantization, by hand") {
  // Row 1 alone has a fine scale: 1.0625 * 2^-18 ties between 1 and 1.125 and becomes 2^-18. In column 0, whose scale
  // is 2^-8 (amax 1.9375, and 1.75 after saturation), the smallest subnormal is 2^-17: the value rounds up to it, and
  // 2^-18 ties and becomes 0.
  std::vector<float> values(32 * 32, 0.0F);
  values[0] = 1.9375F;
  values[32] = 1.0625F * 0x1p-18F;
  const TransposeResult result = run_transpose(transposing(values, 32, {"ocp_mxfp8_e4m3"}));
  const MeasuredTranspose& one = result.recipes[0];
  CHECK(one.counts.transposed_differ == 1);
  CHECK(one.counts.values_differ == 1);
  CHECK(one.counts.codes_differ == 1);
  CHECK(one.counts.scales_differ == 0);
  CHECK(one.widest_scale_factor == 1);
  CHECK(one.counts.underflows_original == 0);
  CHECK(one.counts.underflows_requantized == 1);
  CHECK(one.counts.extra_underflows == 1);
  CHECK(one.counts.saturated_rowwise == 1);
  CHECK(one.counts.saturated_original == 1);
  CHECK(one.counts.saturated_requantized == 0);
  const double small = 1.0625 * 0x1p-18;
  CHECK(one.original.sum_squared_error == 0.1875 * 0.1875 + (0x1p-17 - small) * (0x1p-17 - small));
  CHECK(one.requantized.sum_squared_error == 0.1875 * 0.1875 + small * small);
  CHECK(one.difference.sum_squared_error == 0x1p-34);
  CHECK(one.relative_rms_difference() == std::sqrt(0x1p-34 / (1.9375 * 1.9375 + small * small)));
  // Minus one unit is the first bin from there: 64 bins from -4 to 4.
  CHECK(one.difference_ulps.counts()[24] == 1);
  CHECK(one.difference_ulps.zeros == 1023);
  CHECK(one.difference_ulps.total() == 1024);
  // |error / x| of 1 is the first bin from there: 8 bins a decade from 1e-8.
  CHECK(one.relative_error_requantized.counts()[64] == 1);
  CHECK(one.relative_error_original.counts()[64] == 0);
  // Binades from 2^-149: 0.1875 is in that of 2^-3, the small value in that of 2^-18, what it is rounded up by in
  // 2^-19.
  CHECK(one.error_original.counts()[149 - 3] == 1);
  CHECK(one.error_original.counts()[149 - 19] == 1);
  CHECK(one.error_requantized.counts()[149 - 3] == 1);
  CHECK(one.error_requantized.counts()[149 - 18] == 1);
  CHECK(one.error_requantized.zeros == 1022);
}

TEST_CASE("transpose: one scale for the tensor, and power-of-two scales of 2-D blocks, cost no value") {
  const std::vector<std::string> names{"te_current_scaling_pow2", "given_scale", "te_block_128x128", "te_mxfp8_2d"};
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    INFO("seed " << seed);
    for (const MeasuredTranspose& one : run_transpose(drawing(128, 128, seed, names)).recipes) {
      INFO(one.recipe.name);
      CHECK(one.counts.transposed_differ == 0);
      CHECK(one.counts.values_differ == 0);
      CHECK(one.loss_db() == 0);
    }
  }
}

TEST_CASE("transpose: a float scale that is made again may move by its last place, and no code does") {
  // fl(448 * fl(1 / fl(448 / amax))) is not always amax, and then makes another scale.
  const auto moves = [](float amax) {
    const float scale_inv = 1 / (448 / amax);
    return 1 / (448 / (448 * scale_inv)) != scale_inv;
  };
  float moving = 4;
  while (!moves(moving)) moving += 0x1p-20F;
  REQUIRE_FALSE(moves(4));
  std::vector<float> values(32 * 32);
  sample(find_distribution("uniform"), 1, 0, values);
  for (const std::string name : {"te_current_scaling", "torchao_tensorwise"}) {
    INFO(name);
    values[77] = -4;
    const MeasuredTranspose still = run_transpose(transposing(values, 32, {name})).recipes[0];
    CHECK(still.counts.transposed_differ == 0);
    CHECK(still.counts.values_differ == 0);
    CHECK(still.widest_scale_factor == 1);
    values[77] = -moving;
    const MeasuredTranspose moved = run_transpose(transposing(values, 32, {name})).recipes[0];
    CHECK(moved.counts.transposed_differ == 0);
    CHECK(moved.counts.values_differ > 512);
    CHECK(moved.counts.codes_differ == 0);
    CHECK(moved.counts.scales_differ == 1024);
    CHECK(moved.widest_scale_factor > 1);
    CHECK(moved.widest_scale_factor < 1 + 0x1p-21);
    CHECK(moved.relative_rms_difference() < 0x1p-21);
    CHECK_THAT(text_of(document_of(run_transpose(transposing(values, 32, {name})))),
               ContainsSubstring("gives back its codes, with scales that differ: " + name));
  }
}

TEST_CASE("transpose: NaN, infinities and zeros are counted and break nothing") {
  std::vector<float> values(32 * 32, 1.0F);
  values[40] = nan;
  values[80] = inf;
  const TransposeResult result =
      run_transpose(transposing(values, 32, {"te_mxfp8", "te_current_scaling", "ocp_mxfp4"}));
  for (const MeasuredTranspose& one : result.recipes) {
    INFO(one.recipe.name);
    CHECK(one.requantized.count + one.requantized.not_finite == 1024);
    CHECK(one.requantized.not_finite >= 2);
    CHECK(one.counts.saturated_original == 0);
    for (const NamedHistogram& entry : one.histograms()) CHECK(entry.histogram.total() == 1024);
  }
  const std::vector<float> zeros(32 * 32, 0.0F);
  const TransposeResult of_zeros = run_transpose(transposing(zeros, 32, {"te_mxfp8", "te_nvfp4"}));
  CHECK(of_zeros.recipes[0].counts.values_differ == 0);
  CHECK(of_zeros.recipes[0].loss_db() == 0);
  CHECK_THAT(text_of(document_of(of_zeros)), ContainsSubstring("te_mxfp8"));
}

TEST_CASE("transpose: threads change nothing, and files and report have what was measured") {
  TransposeArguments arguments = drawing(512, 384, 5, {"te_mxfp8", "te_nvfp4", "te_current_scaling"});
  const TransposeResult result = run_transpose(arguments);
  arguments.threads = 3;
  CHECK(recipes_json(run_transpose(arguments)) == recipes_json(result));
  const auto files = files_of(document_of(result));
  std::vector<std::string> names;
  for (const auto& [name, content] : files) names.push_back(name);
  REQUIRE(names.size() == 1 + 4 + 3 * 5);
  CHECK(std::ranges::count(names, "01_te_mxfp8_error_original.csv") == 1);
  CHECK(std::ranges::count(names, "03_te_current_scaling_difference_ulps.csv") == 1);
  const auto summary = std::ranges::find(files, "recipes.csv", &std::pair<std::string, std::string>::first);
  REQUIRE(summary != files.end());
  CHECK(summary->second.starts_with("recipe,tensor,sqnr_rowwise_db,sqnr_original_db,sqnr_requantized_db,loss_db,"));
  CHECK(std::ranges::count(summary->second, '\n') == 4);
  const nlohmann::json sections = recipes_json(result);
  CHECK(column_of(sections, "recipes", "values_differ")[1] == result.recipes[1].counts.values_differ);
  CHECK(column_of(sections, "recipes", "loss_db")[1] == result.recipes[1].loss_db());
  CHECK(column_of(sections, "differences", "values_share")[1] ==
        static_cast<double>(result.recipes[1].counts.values_differ) / (512 * 384));
  const std::string report = text_of(document_of(result), {.unicode = false, .width = 100});
  CHECK(report.find("Quantized in both directions: 512 x 384 float32 values drawn with seed 5 from normal\n") == 0);
  CHECK_THAT(report, ContainsSubstring("b original") && ContainsSubstring("b requant."));
  CHECK_THAT(report, ContainsSubstring("are the columnwise copy, value for value: te_current_scaling\n"));
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 100);
}

}  // namespace fp8lab::tests
