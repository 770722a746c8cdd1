// SPDX-License-Identifier: Apache-2.0
#include "cast/cast.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/documents.hpp"
#include "experiments/npy.hpp"
#include "fp8lab/formats/decode.hpp"
#include "scratch.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using namespace fp8lab::experiments;
using nlohmann::json;

template <typename T>
CastArguments casting(const std::vector<T>& values, const std::vector<std::string>& formats) {
  CastArguments arguments;
  arguments.source = HeldTensors{{MatrixView(std::span<const T>(values), 1, values.size())}};
  arguments.formats.clear();
  for (const std::string& name : formats) arguments.formats.push_back(choose_format(name));
  return arguments;
}

/// The tables and histograms, without what tells where the values come from.
json measured(const CastResult& result) {
  json all = json::array();
  json document = json::parse(json_of(document_of(result)));
  for (json& section : document["sections"]) {
    if (section["kind"] != "text" && section["name"] != "tensors") all.push_back(std::move(section));
  }
  return all;
}

}  // namespace

TEST_CASE("the normal grid at scale 1 has the known exact SQNRs, as far off as its spacing allows", "[long]") {
  // The grid is the midpoint rule, n = 2^20, for integrals over the probability p. By Koksma's inequality its mean of a
  // function of variation V is off by at most V / (2 n). The squared error rises from 0 at a value to h^2 half-way to
  // the next one, h half their distance, and falls again: 2 h^2 for every gap below the grid's largest value (4.90), on
  // both sides of zero. x^2 has V = 2 * 4.91^2, and E[x^2; |x| > 4.9] < 3e-5 lies beyond the grid. Measured, in dB:
  // E4M3 +0.00021, E5M2 +0.00005, E2M3 +0.00004, E3M2 +0.00007, E2M1 -0.00006; allowed: 0.0037, 0.0020, 0.0020, 0.0020,
  // 0.0009. The known numbers themselves have four decimals.
  constexpr double n = 1 << 20;
  const std::vector<std::pair<std::string, double>> known{
      {"e4m3", 31.5211}, {"e5m2", 25.5430}, {"e2m3", 28.3011}, {"e3m2", 25.4580}, {"e2m1", 16.3443}};
  CastArguments arguments;
  arguments.source = Grid{};
  arguments.formats.clear();
  for (const auto& [name, sqnr] : known) arguments.formats.push_back(choose_format(name));
  arguments.exact = true;
  const CastResult result = run_cast(arguments);
  for (std::size_t i = 0; i < known.size(); ++i) {
    const Format& format = result.casts[i].cast.format.format;
    const double sqnr = known[i].second;
    double variation = 0;
    for (std::uint32_t code = 0; code < format.max_code() && decode(format, code) < 4.91; ++code) {
      const double h = (static_cast<double>(decode(format, code + 1)) - static_cast<double>(decode(format, code))) / 2;
      variation += 2 * 2 * h * h;
    }
    const double noise = std::pow(10, -sqnr / 10);
    const double relative = variation / (2 * n) / noise + (2 * 4.91 * 4.91 / (2 * n) + 3e-5);
    const double tolerance = -10 * std::log10(1 - relative) + 0.51e-4;
    INFO(known[i].first << ": " << result.casts[i].totals.sqnr_db() - sqnr << ", allowed " << tolerance);
    CHECK(tolerance < 0.004);
    CHECK(std::abs(*result.casts[i].exact_sqnr_db - sqnr) <= 0.51e-4);
  }
}

TEST_CASE("every value is counted for what became of it") {
  const std::vector<float> values{0, -0.0F, 1e-5F, 0.01F, 1, 500, -1e6F, inf, -inf, nan};
  CastArguments arguments = casting(values, {"e4m3", "e5m2"});
  arguments.profiles = {choose_profile("ml_dtypes"), choose_profile("cuda_satfinite")};
  const CastResult result = run_cast(arguments);
  const auto counts = [&](std::size_t cast) {
    std::vector<std::uint64_t> list;
    for (const NamedCount& named : cast_counts) list.push_back(result.casts[cast].counts.*named.count);
    return list;
  };
  using Counts = std::vector<std::uint64_t>;
  // zeros, underflows, subnormals, saturated, infinities in and out, NaN in and out
  CHECK(counts(0) == Counts{2, 1, 1, 2, 2, 0, 1, 5});  // E4M3, ml_dtypes: no infinity, so NaN
  CHECK(counts(1) == Counts{2, 1, 1, 2, 2, 0, 1, 1});  // E4M3, cuda_satfinite
  CHECK(counts(2) == Counts{2, 0, 1, 1, 2, 3, 1, 1});  // E5M2, ml_dtypes: 1e-5 is subnormal, 500 in range
  CHECK(counts(3) == Counts{2, 0, 1, 1, 2, 0, 1, 1});
  CHECK(result.casts[0].totals.count == 5);
  CHECK(result.casts[1].totals.count == 7);
  for (const MeasuredCast& cast : result.casts) {
    for (const NamedHistogram& entry : cast.histograms()) CHECK(entry.histogram.total() == values.size());
    for (const float value : values) {
      CHECK(cast.codes.counts()[encode(cast.cast.format.format, cast.cast.policy(), value)] > 0);
    }
  }
}

TEST_CASE("doubles and halves are cast from their own precision") {
  // Just above the tie between 1 and 1.125, by less than a float32 can tell.
  const CastResult doubles = run_cast(casting<double>({1.0625 + 0x1p-40}, {"e4m3"}));
  CHECK(doubles.casts[0].totals.sum_error == 1.125 - (1.0625 + 0x1p-40));
  const CastResult floats = run_cast(casting<float>({1.0625F}, {"e4m3"}));
  CHECK(floats.casts[0].totals.sum_error == -0.0625);
  const CastResult halves = run_cast(casting<Half>({{0x3C41}}, {"e4m3"}));  // 1 + 65/1024
  CHECK(halves.casts[0].totals.sum_error == 1.125 - (1 + 65 / 1024.0));
  const CastResult words = run_cast(casting<BFloat16>({{0x3F89}}, {"e4m3"}));  // 1 + 9/128
  CHECK(words.casts[0].totals.sum_error == 1.125 - (1 + 9 / 128.0));
  for (const CastResult* up : {&doubles, &halves, &words}) CHECK(up->casts[0].codes.counts()[0x39] == 1);
  CHECK(floats.casts[0].codes.counts()[0x38] == 1);
  CHECK(doubles.tensors[0].type == ElementType::float64);
  CHECK(halves.tensors[0].type == ElementType::float16);
  CHECK(words.tensors[0].type == ElementType::bfloat16);
}

TEST_CASE("a file, the same values in memory, and any number of threads give the same, block by block") {
  std::vector<float> values((1 << 20) + 70001);
  sample(find_distribution("student_t"), 7, 0, values);
  CastArguments arguments = casting(values, {"e4m3", "float16"});
  arguments.scales = {3.7};
  const json expected = measured(run_cast(arguments));
  arguments.threads = 3;
  CHECK(measured(run_cast(arguments)) == expected);
  const Scratch scratch;
  write_npy(scratch.path / "x.npy", "<f4", "(" + std::to_string(values.size()) + ",)", values);
  arguments.source = StoredTensors{{scratch.path / "x.npy"}};
  CHECK(measured(run_cast(arguments)) == expected);
  arguments.source = Draws{find_distribution("student_t"), 7, 1, static_cast<long long>(values.size())};
  CHECK(measured(run_cast(arguments)) == expected);
}

TEST_CASE("amax gives the scale that maps it to the largest value, and the best scale beats those beside it",
          "[long]") {
  CastArguments arguments;
  arguments.source = Grid{};
  arguments.amaxes = {6, 4};
  arguments.best_scale = true;
  const CastResult result = run_cast(arguments);
  REQUIRE(result.casts.size() == 6);
  CHECK(result.casts[0].cast.scale == 448.0 / 6);
  CHECK(*result.casts[1].cast.amax == 4);
  CHECK(result.casts[5].cast.is_best_scale);
  CHECK(result.casts[2].totals.sqnr_db() > result.casts[0].totals.sqnr_db());
  CHECK(result.casts[5].totals.sqnr_db() > result.casts[3].totals.sqnr_db());
  CHECK_FALSE(result.casts[0].exact_sqnr_db);  // not asked for
}

TEST_CASE("an exact SQNR is there for saturating casts to nearest with a sign, and nowhere else") {
  CastArguments arguments;
  arguments.source = Draws{.columns = 10};
  arguments.exact = true;
  arguments.formats = {choose_format("e4m3"), choose_format("ue4m3"), choose_format("float16")};
  arguments.profiles = {choose_profile("cuda_satfinite"), choose_profile("cuda_nosat")};
  arguments.roundings = {Rounding::nearest_even, Rounding::toward_zero};
  int count = 0;
  for (const MeasuredCast& cast : run_cast(arguments).casts) count += cast.exact_sqnr_db ? 1 : 0;
  CHECK(count == 1);
}

TEST_CASE("a tensor without elements is refused") {
  CHECK_THROWS_WITH(run_cast(casting(std::vector<float>{}, {"e4m3"})),
                    ContainsSubstring("there are no elements to cast"));
}

TEST_CASE("a tensor of NaN alone, and one of zero, have a report and files, though no SQNR") {
  for (const std::vector<float>& values : {std::vector<float>{nan, nan}, std::vector<float>{0}}) {
    const Document document = document_of(run_cast(casting(values, {"e4m3", "e5m2"})));
    const std::string report = text_of(document, {.unicode = false, .width = 80});
    CHECK(report.find("Errors of what comes back") != std::string::npos);
    CHECK(report.find(" nan ") == std::string::npos);
    const double sqnr = column_of<Numbers>(document, "casts", "sqnr_db")[0];
    CHECK((values == std::vector<float>{0} ? sqnr == HUGE_VAL : std::isnan(sqnr)));  // a zero has no error
    CHECK(column_of<Integers>(document, "fates", "nans_in")[0] == (values.size() == 2 ? 2 : 0));
    CHECK(column_of<Numbers>(document, "fates", "underflows_share")[0] == 0);
  }
}

TEST_CASE("a cast has four histograms, whose names follow from its number and its format") {
  CastArguments arguments;
  arguments.source = Draws{.columns = 1000};
  arguments.formats = {choose_format("e4m3"), {"my \"own\", é/x", e5m2}};
  const Document document = document_of(run_cast(arguments));
  CHECK(names_of(files_of(document)) ==
        std::vector<std::string>{".json", "casts.csv", "fates.csv", "01_e4m3_error.csv", "02_my__own______x_error.csv",
                                 "01_e4m3_relative_error.csv", "01_e4m3_ulp_error.csv", "01_e4m3_codes.csv",
                                 "02_my__own______x_relative_error.csv", "02_my__own______x_ulp_error.csv",
                                 "02_my__own______x_codes.csv", "tensors.csv"});
  CHECK(counts_named(document, "01_e4m3_codes").total == 1000);
  CHECK(column_of<Texts>(document, "casts", "format")[1] == "my \"own\", é/x");
}

TEST_CASE("a cast that turns its largest errors into NaN is not called the best") {
  CastArguments arguments;
  arguments.source = Grid{1, 1000};
  arguments.profiles = {choose_profile("cuda_nosat"), choose_profile("cuda_satfinite")};
  arguments.formats = {choose_format("e4m3")};
  arguments.amaxes = {1};
  const CastResult result = run_cast(arguments);
  CHECK(result.casts[0].totals.sqnr_db() > result.casts[1].totals.sqnr_db());
  CHECK(section_of<Text>(document_of(result), "best").paragraphs[0].starts_with("Highest SQNR: #2 e4m3, "));
}

TEST_CASE("the best cast of several tensors is that of the highest SQNR, of whatever size, and is named") {
  // E4M3 has 1, and 1.01 is 0.01 above it: 20 log10(1.01 / 0.01) = 40.086 dB. Casts of normal values have some 31.5 dB.
  const std::vector<float> few(128, 1.01F);
  std::vector<float> many(4096);
  sample(find_distribution("normal"), 1, 0, many);
  CastArguments arguments;
  const auto held = [](const std::vector<float>& values, std::string name) {
    HeldTensor one{MatrixView(std::span<const float>(values), values.size() / 32, 32)};
    one.name = std::move(name);
    return one;
  };
  arguments.source =
      HeldTensors{held(few, "dir/w.safetensors, tensor few"), held(many, "dir/w.safetensors, tensor many")};
  arguments.formats = {choose_format("e4m3")};
  Document document = document_of(run_cast(arguments));
  CHECK(section_of<Text>(document, "best").paragraphs[0] == "Highest SQNR: #1 e4m3 of few, 40.0864 dB");
  CHECK(column_of<Texts>(document, "casts", "tensor_name") == Texts{"few", "many"});
  CHECK(text_of(document, {.width = 60}).find("many") != std::string::npos);
  // A value that is not finite before the cast is not lost by it; one that the cast makes NaN is.
  many[0] = inf;
  std::vector<float> lost = few;
  lost[0] = 1e6F;
  arguments.profiles = {choose_profile("cuda_nosat")};
  arguments.source = HeldTensors{held(lost, ""), held(many, "")};
  document = document_of(run_cast(arguments));
  CHECK(section_of<Text>(document, "best").paragraphs[0].starts_with("Highest SQNR: #2 e4m3 of x[1], 31."));
  CHECK(column_of<Texts>(document, "casts", "tensor_name") == Texts{"x[0]", "x[1]"});
}

TEST_CASE("cast arguments are checked, with the rule in the message") {
  const auto run = [](auto change) {
    CastArguments arguments;
    arguments.source = Draws{.columns = 10};
    change(arguments);
    (void)run_cast(arguments);
  };
  using A = CastArguments;
  const std::vector<float> one{1};
  const HeldTensors held{{MatrixView(std::span<const float>(one), 1, 1)}};
  CHECK_THROWS_WITH(run([](A& a) { a.formats.clear(); }), ContainsSubstring("formats must have at least one entry"));
  CHECK_THROWS_WITH(run([](A& a) { a.formats.push_back(a.formats[0]); }),
                    ContainsSubstring("formats must have each entry once, and has e4m3 twice"));
  CHECK_THROWS_WITH(run([](A& a) { a.profiles.clear(); }), ContainsSubstring("profiles must have at least one entry"));
  CHECK_THROWS_WITH(run([](A& a) { a.scales = {1, 1}; }), ContainsSubstring("scales must have each entry once"));
  for (const double scale : {0.0, -1.0, static_cast<double>(inf), static_cast<double>(nan)}) {
    CHECK_THROWS_WITH(run([=](A& a) { a.scales = {scale}; }), ContainsSubstring("scales must be positive and finite"));
    CHECK_THROWS_WITH(run([=](A& a) { a.amaxes = {scale}; }), ContainsSubstring("amax must be positive and finite"));
  }
  CHECK_THROWS_WITH(run([](A& a) { a.scales = {1e300}; }), ContainsSubstring("in float32, not 1e+300"));
  CHECK_THROWS_WITH(run([](A& a) { a.amaxes = {1e-300}; }), ContainsSubstring("(from amax 1e-300)"));
  CHECK_THROWS_WITH(run([](A& a) { a.roundings = {Rounding::stochastic}; }),
                    ContainsSubstring("rounding without random bits 'stochastic'; known: nearest_even"));
  CHECK_THROWS_WITH(run([](A& a) { a.source = Draws{.columns = 0}; }),
                    ContainsSubstring("rows and columns must be 1 or more, not 1 and 0"));
  CHECK_THROWS_WITH(run([](A& a) { a.source = Grid{1, -5}; }),
                    ContainsSubstring("rows and columns must be 1 or more, not 1 and -5"));
  CHECK_THROWS_WITH(run([&](A& a) { a.source = held, a.exact = true; }), ContainsSubstring("not a tensor"));
  CHECK_THROWS_WITH(run([](A& a) { a.formats = {choose_format("e8m0")}, a.best_scale = true; }),
                    ContainsSubstring("best_scale of 'e8m0'"));
  CHECK_THROWS_WITH(run([](A& a) {
                      for (int i = 0; i < 5000; ++i) a.scales.push_back(i + 1);
                    }),
                    ContainsSubstring("at most 4096 casts"));
  CHECK_THROWS_WITH(run([](A& a) { a.source = StoredTensors{{"/nowhere/x.npy"}}; }), ContainsSubstring("cannot read"));
}

}  // namespace fp8lab::tests
