// SPDX-License-Identifier: Apache-2.0
#include "delayed/delayed.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "experiments/documents.hpp"
#include "scratch.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using namespace fp8lab::experiments;
using Floats = std::vector<float>;

AmaxTrace parsed(const std::string& text) {
  std::istringstream stream(text);
  return parse_amax_trace(stream, "trace.csv");
}

/// One tensor, one variant of each version, and a window of 3.
DelayedArguments small(const Floats& amaxes, std::vector<DelayedVersion> versions) {
  DelayedArguments arguments;
  std::vector<std::uint64_t> steps;
  for (std::size_t i = 0; i < amaxes.size(); ++i) steps.push_back(10 * i);
  arguments.trace = trace_of_columns("test", steps, {"x"}, {amaxes});
  arguments.versions = std::move(versions);
  arguments.algorithms = {AmaxComputeAlgo::max};
  arguments.histories = {3};
  return arguments;
}

std::vector<std::string> names_of(const std::vector<DelayedVariant>& variants) {
  std::vector<std::string> names;
  for (const DelayedVariant& variant : variants) names.push_back(variant.name());
  return names;
}

/// The file of this name that a document makes.
std::string content_of(const Document& document, std::string_view file) {
  for (const auto& [name, content] : files_of(document)) {
    if (name == file) return content;
  }
  throw std::out_of_range("no file " + std::string(file));
}

}  // namespace

TEST_CASE("a trace is read as it is written") {
  const AmaxTrace trace = parsed("step, a b ,c\r\n1,0.5, 2e-3\r\n 7 ,inf,0\r\n9,nan,448\r\n\r\n");
  CHECK(trace.source == "trace.csv");
  CHECK(trace.steps == std::vector<std::uint64_t>{1, 7, 9});
  REQUIRE(trace.tensors.size() == 2);
  CHECK(trace.tensors[0].name == "a b");
  CHECK(trace.tensors[0].ranks.empty());
  CHECK(trace.tensors[0].amaxes[0][1] == inf);
  CHECK(std::isnan(trace.tensors[0].amaxes[0][2]));
  CHECK(trace.tensors[1].amaxes == std::vector<Floats>{{2e-3F, 0, 448}});
  CHECK(parsed("step,x\n0,1e-45").tensors[0].amaxes[0][0] == 0x1p-149F);
  CHECK(std::isnan(parsed("step,x\n0,-nan").tensors[0].amaxes[0][0]));
  SECTION("with ranks, in any order") {
    const AmaxTrace ranks = parsed("step,a@0,b@3,a@3,b@0\n1,1,2,3,4\n");
    CHECK(ranks.tensors[1].ranks == std::vector<int>{3, 0});
    CHECK(ranks.tensors[1].amaxes == std::vector<Floats>{{2}, {4}});
  }
  SECTION("from a file") {
    const Scratch scratch;
    std::ofstream(scratch.path / "t.csv") << "step,x\n1,2\n";
    CHECK(read_amax_trace(scratch.path / "t.csv").tensors[0].amaxes[0] == Floats{2});
    CHECK_THROWS_WITH(read_amax_trace(scratch.path / "none.csv"), ContainsSubstring("none.csv: there is no such file"));
    CHECK_THROWS_WITH(read_amax_trace(scratch.path), ContainsSubstring("it is a directory"));
    std::ofstream(scratch.path / "t.csv") << "step,x\n1,?\n";
    CHECK_THROWS_WITH(read_amax_trace(scratch.path / "t.csv"), ContainsSubstring("t.csv, line 2: column x: '?'"));
  }
}

TEST_CASE("a wrong trace is refused with its place") {
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"", "trace.csv, line 1: it is empty; it must begin with a header, step,tensor,..."},
      {"1,2\n", "line 1: the first column must be called step, not '1'"},
      {"step\n1\n", "line 1: a trace must have a column for at least one tensor"},
      {"step,a\n", "line 1: there is no step after the header"},
      {"step,a,\n1,2,3\n", "line 1: a column must have a name, tensor or tensor@rank, not ''"},
      {"step,@1\n1,2\n", "line 1: a column must have a name, tensor or tensor@rank, not '@1'"},
      {"step,a\x1b[2J\n1,2\n", "line 1: a column's name must be printable"},
      {"step,a,b,a\n1,2,3,4\n", "line 1: two columns are called 'a'"},
      {"step,a@1,a@1\n1,2,3\n", "line 1: two columns are called 'a@1'"},
      {"step,a@x\n1,2\n", "line 1: the rank after the '@' of column 'a@x' must be a whole number"},
      {"step,a@-1\n1,2\n", "line 1: the rank after the '@' of column 'a@-1' must be a whole number"},
      {"step,a@0,a\n1,2,3\n", "line 1: two columns are called 'a'"},
      {"step,a,a@0\n1,2,3\n", "line 1: either every column or none has a rank: a has both"},
      {"step,a@0,b\n1,2,3\n", "line 1: either every column or none has a rank: b and a differ"},
      {"step,a@0,a@1,b@0\n1,2,3,4\n", "line 1: column 'b@1' is missing: a has that rank"},
      {"step,a@0,b@0,b@1\n1,2,3,4\n", "line 1: column 'a@1' is missing: b has that rank"},
      {"step,a\n1,2\n2,x\n", "line 3: column a: 'x' is not a number that float32 holds"},
      {"step,a,b\n1,2,\n", "line 2: column b: '' is not a number that float32 holds"},
      {"step,a\n1,1e39\n", "line 2: column a: '1e39' is not a number that float32 holds"},
      {"step,a\n1,1e-60\n", "line 2: column a: '1e-60' is not a number"},
      {"step,a\n1,2 3\n", "line 2: column a: '2 3' is not a number"},
      {"step,a\n1,-2\n", "line 2: column a: an amax must not be negative, and is -2"},
      {"step,a\n1,-inf\n", "line 2: column a: an amax must not be negative, and is -inf"},
      {"step,a\n1.5,2\n", "line 2: step must be a whole number, not '1.5'"},
      {"step,a\n5,2\n5,2\n", "line 3: steps must increase, and 5 follows 5"},
      {"step,a\n1,2,3\n", "line 2: it has 3 fields, and the header has 2"},
      {"step,a,b\n1,2\n", "line 2: it has 2 fields, and the header has 3"},
      {"step,a\n1,2\n\n3,4\n", "line 3: it is empty"},
  };
  for (const auto& [text, message] : wrong) {
    INFO(text);
    CHECK_THROWS_AS(parsed(text), std::invalid_argument);
    CHECK_THROWS_WITH(parsed(text), ContainsSubstring("trace.csv, line ") && ContainsSubstring(message));
  }
  CHECK_THROWS_WITH(trace_of_columns("", {1, 1}, {"a"}, {{1, 2}}), ContainsSubstring("steps must increase"));
  CHECK_THROWS_WITH(trace_of_columns("", {}, {"a"}, {{}}), ContainsSubstring("at least one step"));
  CHECK_THROWS_WITH(trace_of_columns("", {1, 2}, {"a"}, {{1}}), ContainsSubstring("column a has 1 amaxes"));
  CHECK_THROWS_WITH(trace_of_columns("", {1}, {"a"}, {{-1}}), ContainsSubstring("negative, and is -1"));
}

TEST_CASE("the scales are those of the casts, and the step where they part is told, and by how much") {
  // The trace that separates the fused from the unfused update.
  const DelayedResult result = run_delayed(small({4, 0, 0, 0, 1, 1, 1}, {te_current, te_current_unfused, te_1_7}));
  REQUIRE(result.tensors.size() == 1);
  const auto& variants = result.tensors[0].variants;
  REQUIRE(variants.size() == 3);
  CHECK(variants[0].scales == Floats{1, 112, 112, 112, 112, 112, 112, 448});
  CHECK(variants[1].scales == Floats{1, 112, 112, 112, 112, 448, 448, 448});
  CHECK(variants[2].scales == variants[0].scales);
  CHECK_FALSE(variants[0].parting);
  CHECK_FALSE(variants[2].parting);
  REQUIRE(variants[1].parting);
  CHECK(variants[1].parting->first == 5);
  CHECK(variants[1].parting->factor == 4);
  CHECK(variants[1].parting->count == 2);
  CHECK(variants[1].parting->widest == 5);
  CHECK(variants[1].parting->widest_factor == 4);
  SECTION("in the report and the files") {
    const Document document = document_of(result);
    const std::string report = text_of(document, {.unicode = false, .width = 100});
    CHECK(report.find("  a te_current max 3, te_1_7 max 3\n") != std::string::npos);
    CHECK(report.find("  b te_current_unfused max 3\n") != std::string::npos);
    // Marks are where a scale changes.
    CHECK(report.find("1e2      |            .*.......................................b.........................a\n") !=
          std::string::npos);
    CHECK(report.find("  50       1      112      448\n") != std::string::npos);
    CHECK(column_of<Integers>(document, "tensor1_variants", "parts_at_step") == Integers{std::nullopt, 50});
    CHECK(column_of<Texts>(document, "variants", "version")[1] == "te_current_unfused");
    CHECK(column_of<Integers>(document, "scales", "step").back() == 60);
    CHECK(column_of<Numbers>(document, "scales", "te_current_unfused_max_3") ==
          Numbers{1, 112, 112, 112, 112, 448, 448});
    CHECK(column_of<Numbers>(document, "summary", "next_scale") == Numbers{448, 448, 448});
    CHECK(column_of<Integers>(document, "summary", "parts_at_index") == Integers{std::nullopt, 5, std::nullopt});
    CHECK(column_of<Integers>(document, "summary", "widest_index") == Integers{std::nullopt, 5, std::nullopt});
    CHECK(column_of<Integers>(document, "summary", "steps_apart") == Integers{0, 2, 0});
    CHECK(content_of(document, "scales.csv")
              .starts_with("tensor,step,amax,te_current_max_3,te_current_unfused_max_3,te_1_7_max_3\n"
                           "x,0,4,1,1,1\n"));
    CHECK(content_of(document, "scales.csv").find("\nx,50,1,112,448,112\n") != std::string::npos);
    CHECK(content_of(document, "summary.csv").find("\nx,te_current_unfused max 3,50,4,4,50,2,0,") != std::string::npos);
    CHECK(content_of(document, "summary.csv").find("\nx,te_1_7 max 3,,,,,0,0,") != std::string::npos);
  }
}

TEST_CASE("the scale after the last step is told, but parts nothing: no cast has it") {
  DelayedArguments arguments = small({2, 1}, {te_current});
  arguments.histories = {2, 1};
  const auto variants = run_delayed(arguments).tensors[0].variants;
  CHECK(variants[0].scales == Floats{1, 224, 224});
  CHECK(variants[1].scales == Floats{1, 224, 448});
  CHECK_FALSE(variants[1].parting);
}

TEST_CASE("clipped steps and unused binades are those of amax times scale") {
  // Scales 1, 448, 448, 224: the second amax is within rounding of 448, the third is not.
  DelayedArguments arguments = small({1, 1.03F, 2, 2}, {te_current});
  arguments.histories = {1};
  const ReplayedScales replayed = run_delayed(arguments).tensors[0].variants[0];
  CHECK(replayed.scales[3] == 224);
  CHECK(replayed.clipped == 1);
  arguments.trace.tensors[0].amaxes[0] = {448, 464, 465, 1};
  arguments.versions = {torchao_delayed};
  arguments.histories = {1};
  const double unused = run_delayed(arguments).tensors[0].variants[0].unused_binades;
  // Scales 1, 1, 448/464 and 448/465.
  const double expected = (0 - std::log2(464 / 448.0) - std::log2(465 / 464.0) + std::log2(465.0)) / 4;
  CHECK(std::abs(unused - expected) < 1e-7);  // scales rounded to float32
  // With a scale of 1, half a unit above 448 and 57344, and one more.
  const auto clipped = [&](const std::string& format, const Floats& amaxes) {
    DelayedArguments two = small(amaxes, {torchao_delayed});
    two.formats = {choose_format(format)};
    two.histories = {1};
    return run_delayed(two).tensors[0].variants[0].clipped;
  };
  CHECK(clipped("e4m3", {448, 464}) == 0);
  CHECK(clipped("e4m3", {448, 465}) == 1);
  CHECK(clipped("e5m2", {57344, 61440}) == 0);
  CHECK(clipped("e5m2", {57344, 61441}) == 1);
  arguments.trace.tensors[0].amaxes[0] = {0, 0, 0, 0};
  CHECK(std::isnan(run_delayed(arguments).tensors[0].variants[0].unused_binades));
}

TEST_CASE("scales that are no numbers are told apart, and part infinitely") {
  const DelayedResult result = run_delayed(small({1, inf, 1, 1}, {te_current, torchao_delayed, te_0_1}));
  const Document document = document_of(result);
  CHECK(column_of<Numbers>(document, "scales", "amax")[1] == inf);
  CHECK(column_of<Numbers>(document, "scales", "torchao_max_3") == Numbers{448, 448, 0, 448});
  CHECK(column_of<Integers>(document, "summary", "widest_index")[1] == 2);
  CHECK(column_of<Numbers>(document, "summary", "widest_factor")[1] == 0);
  // Inverted while inf is in the window.
  CHECK(column_of<Numbers>(document, "scales", "te_0_1_max_3") == Numbers{1, 256, 1.0 / 256, 256});
  CHECK(column_of<Numbers>(document, "summary", "next_scale") == Numbers{448, 448, 1.0 / 256});
  DelayedArguments not_numbers = small({1, std::nanf(""), 1}, {torchao_delayed});
  not_numbers.histories = {3, 2};
  const Document same = document_of(run_delayed(not_numbers));
  CHECK(content_of(same, "scales.csv").find("\nx,20,1,,\n") != std::string::npos);
  CHECK(column_of<Texts>(same, "tensor1_variants", "variants") == Texts{"torchao max 3, torchao max 2"});
  const DelayedResult tiny = run_delayed(small({1, 1e-40F, 1e-40F, 1e-40F, 1e-40F}, {te_current, te_1_6}));
  CHECK(column_of<Numbers>(document_of(tiny), "scales", "te_1_6_max_3")[4] == inf);
  CHECK(tiny.tensors[0].variants[1].parting->widest_factor == inf);
  CHECK(content_of(document_of(tiny), "scales.csv").find(",inf\n") != std::string::npos);
}

TEST_CASE("every combination is a variant, but those that would be the same") {
  DelayedArguments arguments = small({1, 1}, {te_current, ms_amp});
  arguments.algorithms = {AmaxComputeAlgo::most_recent, AmaxComputeAlgo::max};
  arguments.histories = {16, 1};
  arguments.formats = {choose_format("e5m2"), choose_format("e4m3")};
  arguments.margin = 2;
  const std::vector<DelayedVariant> variants = variants_of(arguments);
  CHECK(names_of(variants) ==
        std::vector<std::string>{"te_current most_recent e5m2", "te_current max 16 e5m2", "te_current max 1 e5m2",
                                 "ms_amp max 16 e5m2", "ms_amp max 1 e5m2", "te_current most_recent",
                                 "te_current max 16", "te_current max 1", "ms_amp max 16", "ms_amp max 1"});
  CHECK(variants[0].recipe.margin == 2);
  CHECK(variants[3].recipe.margin == 0);
  // Partings are within a format.
  const DelayedResult result = run_delayed(arguments);
  CHECK(result.tensors[0].variants[0].scales[1] == 57344 / 4);
  CHECK(result.tensors[0].variants[5].scales[1] == 448 / 4);
  CHECK_FALSE(result.tensors[0].variants[5].parting);
  CHECK(result.tensors[0].variants[8].parting->factor == 256);  // just in time, in the first step
}

TEST_CASE("ranks share their largest amax, or scale each for itself") {
  DelayedArguments arguments = small({1}, {te_current});
  arguments.trace = parsed("step,a@0,a@1,b@0,b@1\n1,1,2,8,nan\n2,4,2,8,4\n");
  const DelayedResult shared = run_delayed(arguments);
  REQUIRE(shared.tensors.size() == 2);
  CHECK(shared.tensors[0].amaxes == Floats{2, 4});
  CHECK(shared.tensors[0].variants[0].scales == Floats{1, 224, 112});
  CHECK(shared.tensors[1].amaxes == Floats{8, 8});
  arguments.reduce_amax = false;
  const DelayedResult own = run_delayed(arguments);
  REQUIRE(own.tensors.size() == 4);
  CHECK(own.tensors[1].name == "a@1");
  CHECK(own.tensors[1].variants[0].scales == Floats{1, 224, 224});
  CHECK(own.tensors[3].variants[0].scales == Floats{1, 1, 112});
}

TEST_CASE("the example parts the variants, and its report keeps to its width") {
  const DelayedResult result = run_delayed({});
  CHECK(result.tensors.size() == 5);
  CHECK(result.variants.size() == 4 * 3 + 2 * 2);
  const auto clipped = [&](std::size_t tensor, std::string_view name) {
    for (std::size_t i = 0; i < result.variants.size(); ++i) {
      if (result.variants[i].name() == name) return result.tensors[tensor].variants[i].clipped;
    }
    throw std::logic_error("no such variant");
  };
  CHECK(clipped(1, "te_current max 1024") == 47);  // a drift of an eighth clips every step: the scale is a step late
  CHECK(clipped(0, "te_current max 16") < 5);
  CHECK(clipped(3, "te_current max 16") == 1 + clipped(0, "te_current max 16"));
  for (const int width : {60, 80, 120}) {
    const std::string report = text_of(document_of(result), {.unicode = false, .width = width});
    CHECK(std::ranges::all_of(report, [](unsigned char c) { return c < 0x80; }));
    std::istringstream lines(report);
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      CHECK(line.size() <= static_cast<std::size_t>(width));
    }
  }
}

TEST_CASE("a report shows eight tensors, and says so where there are more") {
  DelayedArguments arguments = small({1}, {te_current});
  std::vector<std::string> names;
  for (int i = 1; i <= 9; ++i) names.push_back(std::string("tensor").append(std::to_string(i)));
  arguments.trace = trace_of_columns("test", {1}, names, std::vector<Floats>(9, {1}));
  const Document document = document_of(run_delayed(arguments));
  const std::string report = text_of(document);
  CHECK(report.find("tensor8, variants") != std::string::npos);
  CHECK(report.find("tensor9") == std::string::npos);
  CHECK(report.find("These are the first 8 tensors; summary and scales have all.") != std::string::npos);
  CHECK(column_of<Texts>(document, "summary", "tensor").back() == "tensor9");
}

TEST_CASE("a replay's progress rises to 1, and an exception from it stops the run") {
  DelayedArguments arguments = small(Floats(10000, 1), {te_current, te_0_1});
  double last = 0;
  bool ascends = true;
  int calls = 0;
  (void)run_delayed(arguments, [&](double share) {
    ascends = ascends && share >= last;
    last = share;
    ++calls;
  });
  CHECK(ascends);
  CHECK(last == 1);
  CHECK(calls == 6);
  CHECK_THROWS_WITH(run_delayed(arguments, [](double) { throw std::runtime_error("stopped"); }), "stopped");
}

TEST_CASE("a replay's arguments are checked, with the rule in the message") {
  const auto run = [](auto change) {
    DelayedArguments arguments;
    change(arguments);
    (void)run_delayed(arguments);
  };
  using A = DelayedArguments;
  CHECK_THROWS_WITH(run([](A& a) { a.formats = {choose_format("e2m1")}; }),
                    ContainsSubstring("delayed scaling is for e4m3 and e5m2, not e2m1"));
  CHECK_THROWS_WITH(run([](A& a) { a.formats.clear(); }), ContainsSubstring("formats must have at least one entry"));
  CHECK_THROWS_WITH(run([](A& a) { a.versions.push_back(te_1_6); }), ContainsSubstring("has te_1_6 twice"));
  CHECK_THROWS_WITH(run([](A& a) { a.algorithms.clear(); }), ContainsSubstring("algorithms must have at least one"));
  CHECK_THROWS_WITH(run([](A& a) { a.histories = {0}; }),
                    ContainsSubstring("history must be from 1 to 1048576, not 0"));
  CHECK_THROWS_WITH(run([](A& a) { a.histories = {1, (1 << 20) + 1}; }), ContainsSubstring("not 1048577"));
  CHECK_THROWS_WITH(run([](A& a) { a.histories = {1, 1}; }), ContainsSubstring("history must have each entry once"));
  CHECK_THROWS_WITH(run([](A& a) { a.trace.steps.back() = std::uint64_t{1} << 63; }),
                    ContainsSubstring("a step must be at most 9223372036854775807, not 9223372036854775808"));
  CHECK_THROWS_WITH(run([](A& a) { a.margin = 100; }), ContainsSubstring("margin must be from -62 to 62, not 100"));
  CHECK_THROWS_WITH(run([](A& a) { a = small(Floats(1 << 23, 1), {te_current, te_1_6, te_0_1}); }),
                    ContainsSubstring("steps * tensors * variants must be at most 16777216, not 25165824"));
}

}  // namespace fp8lab::tests
