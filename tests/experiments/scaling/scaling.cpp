// SPDX-License-Identifier: Apache-2.0
// What `fp8lab scaling` says is so: its figures are those of another program, and of plain sums over nearest values.
#include "scaling/scaling.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "experiments/npy.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "kit/render.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using namespace fp8lab::experiments;

constexpr std::size_t side = 64;

/// Tensors of a made-up run, a row of magnitudes over seven binades.
std::vector<std::vector<float>> some_tensors(std::size_t count) {
  std::vector<std::vector<float>> tensors(count);
  for (std::size_t step = 0; step < count; ++step) {
    for (std::size_t i = 0; i < side * side; ++i) {
      const std::uint64_t bits = random_bits(step, i);
      const double magnitude = std::ldexp(1 + static_cast<double>(bits % 1000003) / 1000003, -static_cast<int>(i % 7));
      tensors[step].push_back(static_cast<float>((bits >> 63) != 0 ? -magnitude : magnitude));
    }
  }
  for (float& x : tensors[3]) x *= 64;  // a jump of one step
  return tensors;
}
TensorSource held(const std::vector<std::vector<float>>& tensors) {
  HeldTensors matrices;
  for (const std::vector<float>& tensor : tensors) matrices.push_back({MatrixView(tensor, side, side)});
  return matrices;
}

/// The largest magnitude.
float plain_amax(const std::vector<float>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0F, [](float most, float v) { return std::max(most, std::abs(v)); });
}

/// The value of E4M3 or E5M2 nearest to x by a search of them all; ties are not expected.
double nearest(const Format& format, double x) {
  double best = 0;
  for (std::uint32_t code = 0; code <= format.max_code(); ++code) {
    const double value = decode(format, code);
    if (std::abs(std::abs(x) - value) < std::abs(std::abs(x) - best)) best = value;
  }
  return std::copysign(best, x);
}

/// SQNR of a tensor cast with one scale, and the elements beyond all values.
struct Plain {
  double sqnr_db = 0;
  std::uint64_t saturated = 0;
};
Plain plain(const std::vector<float>& x, float scale, const Format& format, double first_saturated) {
  Plain result;
  double signal = 0;
  double noise = 0;
  const float inverse = 1 / scale;
  for (const float value : x) {
    const float scaled = value * scale;
    if (std::abs(static_cast<double>(scaled)) > first_saturated) ++result.saturated;
    const float back = static_cast<float>(nearest(format, static_cast<double>(scaled))) * inverse;
    const double error = static_cast<double>(back) - static_cast<double>(value);
    signal += static_cast<double>(value) * static_cast<double>(value);
    noise += error * error;
  }
  result.sqnr_db = 10 * std::log10(signal / noise);
  return result;
}

/// How far, in dB, two SQNRs may lie apart whose sums were added in different orders: a sum of n positive numbers is
/// within n * 2^-53 of the exact one, and each SQNR has two.
bool is_same_sqnr(double a, double b) {
  constexpr double n = side * side;
  return a == b || std::abs(a - b) <= 4 * n * 0x1p-53 * 10 / std::numbers::ln10;
}

const MeasuredScaling& measured(const ScalingResult& result, std::string_view name) {
  return *std::ranges::find(result.measured, name, &MeasuredScaling::name);
}
double clipped_percent(const MeasuredScaling& m) {
  return 100 * static_cast<double>(m.clipped_blocks) / static_cast<double>(m.blocks);
}

template <typename Work>
std::string message_of(const Work& work) {
  try {
    work();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}
std::string message_of(ScalingArguments arguments) {
  return message_of([&] { (void)run_scaling(arguments); });
}

}  // namespace

TEST_CASE("scaling: MX blocks of the normal grid have the SQNR and the clipped blocks that another program measured",
          "[long]") {
  // A NumPy program over the same 2^20 values: SQNR in dB and the share of blocks whose amax is clipped, in percent.
  struct Row {
    const char* format;
    double floor[2], even[2], ceil[2], rceil[2];
  };
  const Row rows[] = {{"e4m3", {30.638, 16.97}, {31.189, 11.83}, {31.521, 0}, {31.521, 0}},
                      {"e5m2", {25.357, 16.97}, {25.543, 7.53}, {25.543, 0}, {25.543, 0}},
                      {"e2m3", {30.939, 9.44}, {30.987, 4.31}, {28.766, 0}, {30.959, 0}},
                      {"e3m2", {25.357, 16.97}, {25.543, 7.53}, {25.542, 0}, {25.543, 0}},
                      {"e2m1", {18.786, 29.63}, {19.028, 12.66}, {16.822, 0}, {18.757, 0}}};
  ScalingArguments arguments{.source = Grid{1 << 15, 32}, .delayed = {}, .threads = 2};
  arguments.recipes = {choose_recipe("te_current_scaling")};
  for (const Row& row : rows) {
    for (const char* rule : {"floor", "even", "ceil", "rceil"}) {
      arguments.recipes.push_back(choose_recipe(std::string("mx:") + row.format + ":" + rule));
    }
  }
  const ScalingResult result = run_scaling(arguments);
  const auto check = [&](const std::string& name, const double (&expected)[2]) {
    INFO(name);
    const MeasuredScaling& m = measured(result, name);
    // Printed to three decimals, and shares to two.
    CHECK(std::abs(m.totals.sqnr_db() - expected[0]) <= 0.0005);
    CHECK(std::abs(clipped_percent(m) - expected[1]) <= 0.005);
    CHECK(m.elements == 1U << 20);
  };
  for (const Row& row : rows) {
    const std::string name = std::string("mx:") + row.format;
    check(name + ":floor", row.floor);
    check(name + ":even", row.even);
    check(name + ":ceil", row.ceil);
    check(name + ":rceil", row.rceil);
  }
  check("te_current_scaling", {31.553, 0});
  CHECK(std::abs(result.amaxes[0] - 4.900964) < 5e-7);
}

TEST_CASE("scaling: current and delayed scaling cast with the scales they should, and lose what nearest values lose") {
  const auto tensors = some_tensors(6);
  ScalingArguments arguments{.source = held(tensors),
                             .recipes = {choose_recipe("te_current_scaling")},
                             .delayed = {choose_delayed("max:3"), choose_delayed("most_recent:1")}};
  const ScalingResult result = run_scaling(arguments);
  REQUIRE(result.measured.size() == 3);
  for (std::size_t step = 0; step < tensors.size(); ++step) {
    INFO("step " << step);
    const float amax = plain_amax(tensors[step]);
    CHECK(result.amaxes[step] == static_cast<double>(amax));
    // Current: its own amax. Delayed: that of the steps before, the first with 1.
    float window = 0;
    for (std::size_t i = step - std::min<std::size_t>(step, 3); i < step; ++i) {
      window = std::max(window, plain_amax(tensors[i]));
    }
    const float scales[] = {448 / amax, step == 0 ? 1.0F : 448 / window,
                            step == 0 ? 1.0F : 448 / plain_amax(tensors[step - 1])};
    for (std::size_t i = 0; i < 3; ++i) {
      INFO(result.measured[i].name);
      const Plain expected = plain(tensors[step], scales[i], e4m3, 464);
      const ScalingStep& got = result.measured[i].steps[step];
      CHECK(got.scale == static_cast<double>(scales[i]));
      CHECK(is_same_sqnr(got.sqnr_db, expected.sqnr_db));
      CHECK(got.saturated == expected.saturated);
    }
  }
  // The jump saturates what has an old scale, and a long history remembers it.
  CHECK(result.measured[1].steps[3].saturated > side * side / 2);
  CHECK(result.measured[2].steps[3].sqnr_db < 5);
  CHECK(result.measured[1].worst == 3);
  CHECK(result.measured[1].steps[5].scale < result.measured[2].steps[5].scale);
}

TEST_CASE("scaling: a block is clipped above the largest value, not at it") {
  // OCP's rule makes the scale of both blocks 1; 465 is beyond 464, from where E4M3 would round up.
  std::vector<float> x(64, 1);
  x[5] = 448;
  x[37] = 449;
  const auto clipped = [&](float largest) {
    x[40] = largest;
    const ScalingResult result = run_scaling(
        {.source = HeldTensors{{MatrixView(x, 1, 64)}}, .recipes = {choose_recipe("ocp_mxfp8_e4m3")}, .delayed = {}});
    return std::pair{result.measured[0].clipped_blocks, result.measured[0].saturated};
  };
  CHECK(clipped(448) == std::pair<std::uint64_t, std::uint64_t>{1, 0});
  CHECK(clipped(465) == std::pair<std::uint64_t, std::uint64_t>{1, 1});
  x[37] = 448;
  CHECK(clipped(448) == std::pair<std::uint64_t, std::uint64_t>{0, 0});
}

TEST_CASE("scaling: gradients are cast to E5M2") {
  const auto tensors = some_tensors(4);
  ScalingArguments arguments{
      .source = held(tensors), .recipes = {}, .delayed = {choose_delayed("max:2")}, .pass = Pass::backward};
  const ScalingResult result = run_scaling(arguments);
  CHECK(result.measured[0].format == e5m2);
  CHECK(result.measured[0].name == "te_current max 2 e5m2");
  const float scale = 57344 / plain_amax(tensors[0]);
  CHECK(result.measured[0].steps[1].scale == static_cast<double>(scale));
  CHECK(is_same_sqnr(result.measured[0].steps[1].sqnr_db, plain(tensors[1], scale, e5m2, 61440).sqnr_db));
}

TEST_CASE("scaling: histograms and counts have every element once, whatever the threads") {
  ScalingArguments arguments{.source = Draws{.rows = 32, .columns = 128, .steps = 6, .kind = StreamKind::outliers}};
  arguments.recipes = {choose_recipe("te_mxfp8"), choose_recipe("te_block_128x128"), choose_recipe("te_nvfp4_2d"),
                       choose_recipe("torchao_rowwise")};
  const std::string alone = json_of(document_of(run_scaling(arguments)));
  arguments.threads = 3;
  const ScalingResult result = run_scaling(arguments);
  const auto without_date = [](const std::string& text) {
    auto json = nlohmann::json::parse(text);
    json.erase("provenance");
    return json;
  };
  CHECK(without_date(alone) == without_date(json_of(document_of(result))));
  const std::uint64_t blocks[] = {6 * 32 * 4, 6, 6 * 2 * 8, 6 * 32};
  for (std::size_t i = 0; i < result.measured.size(); ++i) {
    const MeasuredScaling& m = result.measured[i];
    INFO(m.name);
    CHECK(m.elements == 6 * 32 * 128);
    for (const NamedHistogram& entry : m.histograms()) CHECK(entry.histogram.total() == m.elements);
    if (i < 4) CHECK(m.blocks == blocks[i]);
  }
  CHECK(result.measured.size() == 7);
  // The JSON, the tables recipes, changes, steps and tensors, the curves, and two histograms for each recipe.
  CHECK(files_of(document_of(result)).size() == 1 + 4 + 1 + 2 * 7);
}

TEST_CASE("scaling: the streams change as they say") {
  const auto amaxes = [](StreamKind kind) {
    return run_scaling({.source = Draws{.rows = 64, .columns = 64, .steps = 24, .kind = kind},
                        .recipes = {choose_recipe("te_mxfp8")},
                        .delayed = {}})
        .amaxes;
  };
  const std::vector<double> base = amaxes(StreamKind::stationary);
  const std::vector<double> jump = amaxes(StreamKind::jump);
  const std::vector<double> drift = amaxes(StreamKind::drift);
  const std::vector<double> outliers = amaxes(StreamKind::outliers);
  for (std::size_t step = 0; step < 24; ++step) {
    CHECK(jump[step] == base[step] * (step >= 8 && step < 16 ? 32 : 1));
    if (step % 8 == 0) CHECK(drift[step] == std::ldexp(base[step], static_cast<int>(step / 8)));
    if (step % 8 != 4) CHECK(outliers[step] == base[step]);
    if (step % 8 == 4) CHECK(outliers[step] > base[step]);
  }
}

TEST_CASE("scaling: files in order, each with a shape of its own") {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() / "fp8lab_scaling_test";
  std::filesystem::create_directories(directory);
  const auto write = [&](const std::string& name, const std::string& descr, const std::string& shape,
                         const auto& values) {
    write_npy(directory / name, descr, shape, values);
    return directory / name;
  };
  const StoredTensors stream{{write("1.npy", "<f4", "(2, 3, 32)", std::vector<float>(192, 2)),
                              write("2.npy", "<f4", "(32,)", std::vector<float>(32, 0.5F))}};
  ScalingArguments arguments{.source = stream, .recipes = {choose_recipe("te_mxfp8")}, .delayed = {}};
  const ScalingResult result = run_scaling(arguments);
  CHECK(result.amaxes == std::vector<double>{2, 0.5});
  CHECK(result.measured[0].blocks == 7);
  CHECK(result.tensors.size() == 2);
  const auto refused = [&](const std::filesystem::path& path) {
    arguments.source = StoredTensors{{path}};
    return message_of(arguments);
  };
  CHECK(refused(write("4.npy", "<f4", "(0, 32)", std::vector<float>()))
            .find("must have from 1 to 2^28 elements, not 0 (shape (0, 32))") != std::string::npos);
  CHECK(refused(write("5.npy", "<f4", "()", std::vector<float>{1})).find("a single number") != std::string::npos);
  CHECK(refused(write("6.npy", "|u1", "(32,)", std::string(32, 'x'))).find("are codes") != std::string::npos);
  CHECK(refused(write("7.npy", "<f4", "(2, 33)", std::vector<float>(66, 1))).find("multiple of 32") !=
        std::string::npos);
  std::filesystem::remove_all(directory);
}

TEST_CASE("scaling: delayed scaling is the library's, by every version, with NaN, infinity and zeros in the stream") {
  std::vector<std::vector<float>> tensors = some_tensors(7);
  tensors[2][5] = std::nanf("");
  tensors[4][9] = std::numeric_limits<float>::infinity();
  std::ranges::fill(tensors[5], 0.0F);
  for (const DelayedVersion& version : delayed_versions) {
    INFO(version.name);
    Delayed recipe = choose_delayed("max:3");
    recipe.version = version;
    const ScalingResult result = run_scaling({.source = held(tensors), .recipes = {}, .delayed = {recipe}});
    AmaxHistory history = start_history(recipe);
    for (std::size_t step = 0; step < tensors.size(); ++step) {
      INFO("step " << step);
      Quantized q;
      quantize({tensors[step], side, side}, recipe, Pass::forward, history, Direction::rowwise, q);
      const ScalingStep& got = result.measured[0].steps[step];
      CHECK(bits(static_cast<float>(got.scale)) == bits(history.scale));
      std::vector<float> back(side * side);
      dequantize(q, back);
      ErrorTotals totals;
      for (std::size_t i = 0; i < back.size(); ++i) {
        totals.add(static_cast<double>(back[i]), static_cast<double>(tensors[step][i]));
      }
      if (totals.count > 0) CHECK(is_same_sqnr(got.sqnr_db, totals.sqnr_db()));
      update_scale(recipe, Pass::forward, history);
    }
  }
}

TEST_CASE("scaling: with an infinite scale all comes back as zero, and all is counted") {
  // te_0_1 has no limit: an amax below 448 / 2^128 makes its scale infinite.
  const std::vector<std::vector<float>> tensors(2, std::vector<float>(side * side, 1e-37F));
  Delayed recipe = choose_delayed("max:1");
  recipe.version = te_0_1;
  const ScalingResult result = run_scaling({.source = held(tensors), .recipes = {}, .delayed = {recipe}});
  const MeasuredScaling& m = result.measured[0];
  CHECK(std::isinf(m.steps[1].scale));
  CHECK(m.steps[1].sqnr_db == 0);  // the error is the tensor
  CHECK(m.totals.not_finite == 0);
  CHECK(m.relative_error.total() == 2 * side * side);
}

TEST_CASE("scaling: arguments that make no sense are refused by name") {
  ScalingArguments arguments{.source = Draws{.rows = 32, .columns = 32, .steps = 2}};
  const auto with = [&](const auto& change) {
    ScalingArguments changed = arguments;
    change(changed);
    return message_of(changed);
  };
  const auto clear = [](ScalingArguments& a) {
    a.recipes.clear();
    a.delayed.clear();
  };
  CHECK(with(clear) == "recipes must have at least one entry");
  CHECK(with([](ScalingArguments& a) { a.recipes.push_back(a.recipes.front()); }) ==
        "recipes must have each entry once, and has te_current_scaling twice");
  CHECK(with([](ScalingArguments& a) { a.delayed[0].amax_history_len = 0; }) ==
        "amax_history_len must be from 1 to 1048576, not 0");
  CHECK(with([](ScalingArguments& a) { a.recipes.push_back({"sr", NvFp4{.stochastic_rounding = true}}); }) ==
        "'sr' rounds stochastically, and has no random bits here");
  CHECK(with([](ScalingArguments& a) {
          a.delayed[0].amax_compute_algo = AmaxFunction([](std::span<const float> h) { return h[0]; });
        }).starts_with("delayed scaling is measured with the amax_compute_algo max or most_recent"));
  CHECK(with([](ScalingArguments& a) { a.source = HeldTensors{}; }) == "a stream needs at least one tensor");
  CHECK(with([](ScalingArguments& a) { a.source = StoredTensors{}; }) == "a stream needs at least one file");
  CHECK(message_of([] { (void)find_value<StreamKind>("stream", "up"); }) ==
        "unknown stream 'up'; known: stationary, drift, outliers, jump");
}

}  // namespace fp8lab::tests
