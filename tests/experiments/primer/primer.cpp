// SPDX-License-Identifier: Apache-2.0
#include "primer/primer.hpp"

#include "kit/render.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using namespace fp8lab::experiments;

int matches(const PrimerResult& result, std::string_view table) {
  return std::ranges::find(result.tables, table, &PrimerTable::name)->matches;
}

PrimerResult run_with(const MmaModel& model) {
  PrimerArguments arguments;
  arguments.mma = model;
  arguments.threads = 2;
  return run_primer(arguments);
}

}  // namespace

TEST_CASE("the published H100 tables come out, digit for digit", "[long]") {
  static const PrimerResult result = run_with(hopper_wgmma_fp8);  // once, not once a section
  CHECK(matches(result, "out_fp8") == 36);
  CHECK(matches(result, "difference") == 36);
  CHECK(matches(result, "out_fp8_representable") == 36);
  CHECK(matches(result, "out_fp32") == 35);
  CHECK(result.judged);
  CHECK(result.passed);

  SECTION("the causes add up to the whole") {
    double shares = 0;
    double means = 0;
    for (const PrimerCause& cause : result.causes) {
      if (cause.name == "total") continue;
      shares += cause.share;
      means += cause.totals.mean_error();
    }
    CHECK(std::abs(shares - 1) < 1e-9);  // 786,432 double additions of terms below 1e-2, each off by at most 2^-53
    CHECK(std::abs(means - result.causes.back().totals.mean_error()) < 1e-12);
    for (const NamedHistogram& entry : result.histograms) {
      INFO(entry.name);
      CHECK(entry.histogram.total() == (entry.name == "codes_w" ? 768U * 768 : 1024U * 768));
    }
  }
  SECTION("the document has the tables as they are published") {
    const Document document = document_of(result);
    CHECK(document.passed == true);
    const auto& table = std::get<Table>(document.sections[4]);
    CHECK(table.name == "difference");
    CHECK(std::get<Texts>(table.columns[1].values)[0] == "4.9591e-05");
    CHECK(table.columns[6].head.name == "column_767");
    CHECK(table.columns[6].expected[5] == "7.6294e-06");
    CHECK(std::get<Integers>(std::get<Table>(document.sections[5]).columns[1].values)[1] == 35);
  }
  SECTION("the report fits its width and marks the one digit that differs") {
    const std::string report = text_of(document_of(result), {.color = false, .unicode = false, .width = 100});
    CHECK(report.find("out_fp32 35/36") != std::string::npos);
    std::istringstream lines(report);
    int marks = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.find_first_not_of(" ^|") == std::string::npos) marks += static_cast<int>(std::ranges::count(line, '^'));
      CHECK(line.size() <= 100);
    }
    CHECK(marks == 1);
  }
}

TEST_CASE("one fraction bit more or less, or another accumulator, fails the counts") {
  if (sanitized) return;  // full-size runs take seconds there, and show nothing new
  for (const int change : {1, -1}) {
    if (change < 0 && !exhaustive()) break;  // seconds each
    MmaModel wrong = hopper_wgmma_fp8;
    wrong.fraction_bits += change;
    wrong.output.mantissa_bits += change;
    const PrimerResult result = run_with(wrong);
    CHECK(matches(result, "out_fp8") < 36);
    CHECK(matches(result, "difference") < 36);
    CHECK_FALSE(result.passed);
    CHECK_FALSE(result.judged);
  }
  if (!exhaustive()) return;
  const PrimerResult real = run_with(exact);
  CHECK(matches(real, "out_fp8") < 36);
  CHECK(real.causes[2].totals.max_absolute_error == 0);  // no accumulator, no accumulator error
  CHECK(matches(run_with(blackwell_tcgen05_fp8), "difference") < 36);
}

TEST_CASE("one SM more changes only the columns that a second wave draws") {
  if (sanitized) return;  // as above
  PrimerArguments arguments;
  arguments.sms = 132;
  arguments.threads = 2;
  const PrimerResult result = run_primer(arguments);
  const auto& table = result.tables.front();
  for (std::size_t row = 0; row < 6; ++row) {
    for (std::size_t column = 0; column < 3; ++column) CHECK(table.ours[row][column] == table.published[row][column]);
  }
  CHECK(table.matches < 36);
}

TEST_CASE("primer arguments are checked, with the rule in the message") {
  const auto run = [](auto change) {
    PrimerArguments arguments;
    change(arguments);
    (void)run_primer(arguments);
  };
  using A = PrimerArguments;
  CHECK_THROWS_WITH(run([](A& a) { a.rows = 24; }), ContainsSubstring("rows must be a multiple of 16"));
  CHECK_THROWS_WITH(run([](A& a) { a.in_features = 0; }),
                    ContainsSubstring("in_features must be a multiple of 16 from 16 to 65536"));
  CHECK_THROWS_WITH(run([](A& a) { a.out_features = -16; }), ContainsSubstring("not -16"));
  CHECK_THROWS_WITH(run([](A& a) { a.rows = 65536, a.in_features = 65536; }),
                    ContainsSubstring("at most 2^26 elements"));
  CHECK_THROWS_WITH(run([](A& a) { a.scale_x = 0; }), ContainsSubstring("must be positive"));
  CHECK_THROWS_WITH(run([](A& a) { a.scale_w = -1; }), ContainsSubstring("must be positive"));
  CHECK_THROWS_WITH(run([](A& a) { a.sms = 0; }), ContainsSubstring("sms must be at least 1"));
  CHECK_THROWS_WITH(run([](A& a) { a.mma = hopper_tf32; }),
                    ContainsSubstring("unknown model for the FP8 product 'hopper_tf32'"));
}

TEST_CASE("proper scales shrink the casts' share of a small problem") {
  PrimerArguments small{.in_features = 64, .out_features = 32, .rows = 16};
  const PrimerResult plain = run_primer(small);
  small.scale_x = 256;
  small.scale_w = 2048;
  const PrimerResult scaled = run_primer(small);
  CHECK(scaled.causes[1].totals.rms_error() < plain.causes[1].totals.rms_error());
  CHECK_FALSE(scaled.judged);
}

}  // namespace fp8lab::tests
