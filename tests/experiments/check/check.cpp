// SPDX-License-Identifier: Apache-2.0
// What each recipe makes of a tensor, against the experiment scaling, which measures a tensor as a whole, and against
// sums over the elements of each row.
#include "check/check.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "experiments/npy.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "scaling/scaling.hpp"
#include "scratch.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

namespace fs = std::filesystem;
using experiments::CheckArguments;
using experiments::CheckedRecipe;
using experiments::CheckedTensor;
using experiments::CheckResult;
using experiments::ChosenRecipe;
using experiments::HeldTensor;
using experiments::HeldTensors;
using experiments::Suitability;

/// Seeded values of both signs over some binades, as bfloat16 holds them.
std::vector<BFloat16> check_weights(std::size_t count, std::uint64_t seed) {
  std::vector<float> values(count);
  sample_uniform(-1, 1, seed, 0, values);
  std::vector<BFloat16> words;
  for (const float x : values) {
    words.push_back({static_cast<std::uint16_t>(encode(bfloat16, CastPolicy{}, x * std::fabs(x) * x))});
  }
  return words;
}

std::vector<float> check_normal_values(std::size_t count, std::uint64_t seed) {
  std::vector<float> values(count);
  sample(find_distribution("normal"), seed, 0, values);
  return values;
}

/// The SQNR of each row of a tensor that is quantized as a whole; NaN for rows of zeros.
std::vector<double> check_rows_sqnr(const std::vector<BFloat16>& x, std::size_t rows, std::size_t columns,
                                    const Recipe& recipe) {
  const Quantized q = quantize(MatrixView(x, rows, columns), recipe);
  std::vector<float> back(q.rows * q.columns);
  dequantize(q, back);
  std::vector<double> all;
  for (std::size_t row = 0; row < rows; ++row) {
    double energy = 0;
    double noise = 0;
    for (std::size_t j = 0; j < columns; ++j) {
      const auto value = static_cast<double>(widened(x[row * columns + j]));
      energy += value * value;
      noise += std::pow(static_cast<double>(back[row * q.columns + j]) - value, 2);
    }
    all.push_back(10 * std::log10(energy / noise));
  }
  return all;
}

CheckArguments check_arguments_of(const std::vector<HeldTensor>& tensors, std::vector<std::string> recipes = {}) {
  CheckArguments arguments;
  arguments.source = HeldTensors(tensors);
  if (recipes.empty()) return arguments;
  arguments.recipes.clear();
  for (const std::string& name : recipes) arguments.recipes.push_back(experiments::choose_recipe(name));
  return arguments;
}

bool same_check_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

bool same_checked(const CheckedTensor& a, const CheckedTensor& b) {
  const auto same_recipe = [](const CheckedRecipe& x, const CheckedRecipe& y) {
    return same_check_number(x.sqnr_db, y.sqnr_db) && same_check_number(x.median_row_sqnr_db, y.median_row_sqnr_db) &&
           same_check_number(x.worst_row_sqnr_db, y.worst_row_sqnr_db) && x.worst_row == y.worst_row &&
           x.zeroed == y.zeroed && x.subnormal == y.subnormal && x.blocks == y.blocks &&
           x.clipped_blocks == y.clipped_blocks && x.bits_per_weight == y.bits_per_weight;
  };
  return a.name == b.name && a.amax == b.amax && a.rms == b.rms && a.zero_rows == b.zero_rows &&
         std::ranges::equal(a.recipes, b.recipes, same_recipe);
}

}  // namespace

TEST_CASE("check: bands, threads and given amaxes change nothing, and scaling and plain sums over rows tell the same") {
  // 300 rows are more than a band of 128, which a band of 4096 columns has; and no multiple of it.
  constexpr std::size_t rows = 300;
  constexpr std::size_t columns = 4096;
  std::vector<BFloat16> x = check_weights(rows * columns, 7);
  std::fill_n(x.begin() + 5 * columns, columns, BFloat16{0});
  x[17 * columns + 3] = {0x4348};  // 200
  const std::vector<HeldTensor> held{{.values = MatrixView(x, rows, columns), .name = "w"}};
  CheckArguments arguments = check_arguments_of(held);
  const CheckResult result = run_check(arguments);
  arguments.threads = 3;
  CHECK(same_checked(run_check(arguments).tensors[0], result.tensors[0]));
  const CheckedTensor& tensor = result.tensors[0];
  CHECK(tensor.amax == 200);
  CHECK(tensor.zero_rows == 1);
  experiments::ScalingArguments scaling{.source = HeldTensors(held), .recipes = arguments.recipes, .delayed = {}};
  const experiments::ScalingResult whole = run_scaling(scaling);
  for (std::size_t i = 0; i < arguments.recipes.size(); ++i) {
    INFO(arguments.recipes[i].name);
    const CheckedRecipe& one = tensor.recipes[i];
    // Sums of positive numbers in other orders: 2^20 * 2^-53 of them at most, 1e-9 dB.
    CHECK(std::abs(one.sqnr_db - whole.measured[i].totals.sqnr_db()) < 1e-9);
    CHECK(one.zeroed == whole.measured[i].underflows);
    CHECK(one.blocks == whole.measured[i].blocks);
    CHECK(one.clipped_blocks == whole.measured[i].clipped_blocks);
    std::vector<double> plain = check_rows_sqnr(x, rows, columns, arguments.recipes[i].recipe);
    const double worst = *std::ranges::min_element(plain, [](double a, double b) { return a < b; });
    CHECK(std::abs(plain[one.worst_row] - one.worst_row_sqnr_db) < 1e-9);
    CHECK(std::abs(worst - one.worst_row_sqnr_db) < 1e-9);
    std::erase_if(plain, [](double row) { return std::isnan(row); });
    std::ranges::sort(plain);
    REQUIRE(plain.size() == rows - 1);
    CHECK(std::abs(plain[(rows - 2) / 2] - one.median_row_sqnr_db) < 1e-9);
  }
  for (std::size_t i = 0; i < arguments.recipes.size(); ++i) {
    INFO(arguments.recipes[i].name << " alone, which may need no amax of the tensor");
    CheckedTensor alone = tensor;
    alone.recipes = {tensor.recipes[i]};
    CHECK(same_checked(run_check(check_arguments_of(held, {arguments.recipes[i].name})).tensors[0], alone));
  }
  CHECK(tensor.recipes[0].bits_per_weight == 8 + 32.0 / (rows * columns));
  CHECK(tensor.recipes[3].bits_per_weight == 8.25);
  CHECK(tensor.recipes[5].bits_per_weight == 4.5 + 32.0 / (rows * columns));
}

TEST_CASE("check: subnormal codes and elements that become zero are counted") {
  // With scale 448 / 448: 2^-10 is half of the smallest subnormal and becomes zero, 2^-9 and 3 * 2^-9 are subnormal,
  // 2^-6 is the smallest normal value.
  const std::vector<float> x{448, 0x1p-10F, 0x1p-9F, 3 * 0x1p-9F, 0x1p-6F, 0, -0x1p-9F, 1};
  const CheckResult result =
      run_check(check_arguments_of({{.values = MatrixView(x, 1, 8), .name = "w"}}, {"te_current_scaling"}));
  CHECK(result.tensors[0].recipes[0].zeroed == 1);
  CHECK(result.tensors[0].recipes[0].subnormal == 3);
}

TEST_CASE("check: what is planted is told with its row, and blocks that it does not reach are not") {
  constexpr std::size_t rows = 64;
  constexpr std::size_t columns = 512;
  const std::vector<float> plain = check_normal_values(rows * columns, 3);
  std::vector<float> outlier = plain;
  outlier[100] = 100'000;
  std::vector<float> with_nan = plain;
  with_nan[7] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> zeros(rows * columns);
  const std::vector<std::string> recipes{"modelopt_fp8", "compressed_tensors_channel", "ocp_mxfp8_e4m3"};
  const CheckArguments arguments =
      check_arguments_of({{.values = MatrixView(plain, rows, columns), .name = "plain"},
                          {.values = MatrixView(outlier, rows, columns), .name = "outlier"},
                          {.values = MatrixView(with_nan, rows, columns), .name = "nan"},
                          {.values = MatrixView(zeros, rows, columns), .name = "zeros"}},
                         recipes);
  const CheckResult result = run_check(arguments);
  const auto suits = [&](std::size_t tensor, std::size_t recipe) {
    return suitability(arguments, result.normal, result.tensors[tensor], recipe);
  };
  for (std::size_t recipe = 0; recipe < 3; ++recipe) {
    CHECK(suits(0, recipe) == Suitability::suits);
    CHECK(suits(2, recipe) == Suitability::broken);
    // ModelOpt's scale of a tensor of zeros is 0, by which it divides.
    CHECK(suits(3, recipe) == (recipe == 0 ? Suitability::broken : Suitability::suits));
  }
  CHECK(suits(1, 0) == Suitability::hurts);
  CHECK(suits(1, 1) == Suitability::suits);  // it is the row's only energy
  CHECK(result.tensors[1].concentration->elements == 1);
  CHECK(result.tensors[2].not_finite == 1);
  CHECK(result.tensors[3].zero_rows == rows);
}

TEST_CASE("check: a number that is not finite changes the measures of its own band alone") {
  // A band has 128 rows of 4096 columns; both halves have the same amax, so that scales of the tensor are the same.
  constexpr std::size_t rows = 128;
  constexpr std::size_t columns = 4096;
  std::vector<BFloat16> both = check_weights(2 * rows * columns, 11);
  both[5] = both[(rows + 100) * columns + 9] = {0x4348};  // 200
  both[(rows + 100) * columns + 77] = {0x7FC0};           // NaN
  const std::span<const BFloat16> all(both);
  const auto part = [&](std::size_t first, std::size_t count) {
    return HeldTensor{.values = MatrixView(all.subspan(first * columns, count * columns), count, columns), .name = "w"};
  };
  const auto measured = [&](std::size_t first, std::size_t count) {
    return run_check(check_arguments_of({part(first, count)})).tensors[0];
  };
  const CheckedTensor whole = measured(0, 2 * rows);
  const CheckedTensor upper = measured(0, rows);
  const CheckedTensor lower = measured(rows, rows);
  CHECK(whole.not_finite == 1);
  CHECK(whole.amax == 200);
  CHECK(std::abs(whole.rms * whole.rms - (upper.rms * upper.rms + lower.rms * lower.rms) / 2) < 1e-12);
  for (std::size_t i = 0; i < whole.recipes.size(); ++i) {
    INFO(check_arguments_of({}).recipes[i].name);
    const CheckedRecipe& a = upper.recipes[i];
    const CheckedRecipe& b = lower.recipes[i];
    CHECK(whole.recipes[i].zeroed == a.zeroed + b.zeroed);
    CHECK(whole.recipes[i].subnormal == a.subnormal + b.subnormal);
    CHECK(whole.recipes[i].blocks == (i == 0 ? 1 : a.blocks + b.blocks));  // modelopt_fp8 has one
    if (i > 0) CHECK(whole.recipes[i].clipped_blocks == a.clipped_blocks + b.clipped_blocks);
  }
}

TEST_CASE("check: a run goes on from what is kept, in any order, and gives the same") {
  const Scratch scratch;
  for (const char* name : {"a", "b", "c"}) {
    const std::vector<float> values = check_normal_values(64 * 64, static_cast<std::uint64_t>(*name));
    write_npy(scratch.path / (std::string(name) + ".npy"), "<f4", "(64, 64)", values);
  }
  CheckArguments arguments = check_arguments_of({}, {"modelopt_fp8", "ocp_mxfp4"});
  arguments.source = experiments::StoredTensors{{scratch.path}};
  const CheckResult whole = run_check(arguments);
  REQUIRE(whole.tensors.size() == 3);
  // 1. Two parts of it, by two runs.
  std::string lines;
  for (const char* name : {"c", "a"}) {
    CheckArguments part = arguments;
    part.source = experiments::StoredTensors{{scratch.path}, {name}};
    part.checkpoint = scratch.path / (std::string(name) + ".jsonl");
    (void)run_check(part);
    std::ifstream file(*part.checkpoint, std::ios::binary);
    lines.append(std::istreambuf_iterator<char>(file), {});
    CHECK_THROWS_WITH(run_check(part), ContainsSubstring("is there already; resume goes on from it"));
  }
  // 2. The rest, behind a line that was cut off.
  arguments.checkpoint = scratch.path / "all.jsonl";
  arguments.resume = true;
  std::ofstream(*arguments.checkpoint, std::ios::binary) << lines << R"({"key": "cut o)";
  const CheckResult resumed = run_check(arguments);
  CHECK(std::ranges::equal(resumed.tensors, whole.tensors, same_checked));
  CHECK(std::ranges::equal(run_check(arguments).tensors, whole.tensors, same_checked));
  // 3. Other recipes and a changed file are measured anew; a file of something else is refused.
  arguments.recipes.pop_back();
  CHECK(run_check(arguments).tensors[0].recipes.size() == 1);
  std::ofstream(*arguments.checkpoint, std::ios::binary) << "a line\n";
  CHECK_THROWS_WITH(run_check(arguments), ContainsSubstring("none of a checkpoint of fp8lab check"));
}

TEST_CASE("check: lines that other runs measure make the result, in any order, and count once") {
  const Scratch scratch;
  for (const char* name : {"a", "b", "c"}) {
    const std::vector<float> values = check_normal_values(64 * 64, static_cast<std::uint64_t>(*name));
    write_npy(scratch.path / (std::string(name) + ".npy"), "<f4", "(64, 64)", values);
  }
  CheckArguments arguments = check_arguments_of({}, {"modelopt_fp8", "ocp_mxfp4"});
  arguments.source = experiments::StoredTensors{{scratch.path}};
  const CheckResult whole = run_check(arguments);
  CheckArguments elsewhere = arguments;  // the same folder by another name
  elsewhere.source = experiments::StoredTensors{{scratch.path / ".." / scratch.path.filename()}};
  const experiments::CheckRun other(elsewhere);
  arguments.checkpoint = scratch.path / "kept.jsonl";
  experiments::CheckRun run(arguments);
  const std::string line = other.line_of(0);
  run.take(other.line_of(2) + line, "another run");
  run.take(line, "another run");
  REQUIRE(run.missing().size() == 1);
  CHECK((run.missing()[0].number == 1 && run.missing()[0].elements == 64 * 64));
  std::ifstream file(*arguments.checkpoint, std::ios::binary);
  const std::string kept(std::istreambuf_iterator<char>(file), {});
  CHECK(std::ranges::count(kept, '\n') == 2);
  // What is none of its lines is refused, and who gave it is named.
  CHECK_THROWS_WITH(run.take("{}\n", "another run"), ContainsSubstring("another run: a line is no result of a tensor"));
  elsewhere.recipes.pop_back();
  CHECK_THROWS_WITH(run.take(experiments::CheckRun(elsewhere).line_of(1), "w"),
                    ContainsSubstring("w: it measured by other recipes"));
  elsewhere = arguments;
  elsewhere.checkpoint.reset();
  write_npy(scratch.path / "b.npy", "<f4", "(32, 64)", check_normal_values(32 * 64, 1));
  CHECK_THROWS_WITH(run.take(experiments::CheckRun(elsewhere).line_of(1), "w"),
                    ContainsSubstring("w: it measured what is not asked for: b (32, 64)"));
  write_npy(scratch.path / "b.npy", "<f4", "(64, 64)", check_normal_values(64 * 64, 'b'));
  CHECK(std::ranges::equal(run.result().tensors, whole.tensors, same_checked));
}

TEST_CASE("check: a plan keeps what must not be quantized, and what servers fuse together") {
  constexpr std::size_t rows = 128;
  constexpr std::size_t columns = 256;
  const std::vector<float> plain = check_normal_values(rows * columns, 3);
  std::vector<float> bad = plain;
  bad[9] = 1e6F;
  const auto named = [&](const std::vector<float>& values, const char* name) {
    return HeldTensor{.values = MatrixView(values, rows, columns), .name = name};
  };
  CheckArguments arguments =
      check_arguments_of({named(plain, "l.0.q_proj.weight"), named(bad, "l.0.k_proj.weight"),
                          named(plain, "l.0.o_proj.weight"), named(plain, "l.0.down_proj.weight")},
                         {"modelopt_fp8", "modelopt_nvfp4"});
  arguments.min_sqnr = 25;
  const CheckResult result = run_check(arguments);
  const experiments::Plan plan = plan_of(result);
  REQUIRE(plan.groups.size() == 3);
  CHECK(!plan.groups[0].recipe);  // q with k
  CHECK(plan.groups[0].modules == std::vector<std::string>{"l.0.q_proj", "l.0.k_proj"});
  CHECK(plan.groups[1].recipe == 0U);
  CHECK(std::abs(plan.bits_per_weight - (2 * 16 + 2 * 8) / 4.0) < 0.01);
  // Within 7 bits: of four equal tensors, that is three at 4.5 and one at 14.5 at most.
  CheckResult by_bits = result;
  by_bits.arguments.min_sqnr.reset();
  by_bits.arguments.bits_per_weight = 7;
  CHECK(plan_of(by_bits).bits_per_weight <= 7);
  CHECK(plan_of(by_bits).bits_per_weight > 6);
  by_bits.arguments.bits_per_weight = 4;
  CHECK_THROWS_WITH(plan_of(by_bits), ContainsSubstring("bits_per_weight is too low"));
  by_bits.arguments.bits_per_weight = 16;
  for (const experiments::PlannedGroup& group : plan_of(by_bits).groups) CHECK(!group.recipe);
}

}  // namespace fp8lab::tests
