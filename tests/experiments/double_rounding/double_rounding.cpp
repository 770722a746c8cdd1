// SPDX-License-Identifier: Apache-2.0
#include "double_rounding/double_rounding.hpp"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "kit/render.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using namespace fp8lab::experiments;
using RoundedTwice = std::vector<std::uint64_t>;

RoundedTwice rounded_twice(const DoubleRoundingResult& result) {
  RoundedTwice counts;
  for (const Chain& chain : result.chains) counts.push_back(chain.count);
  return counts;
}

}  // namespace

TEST_CASE("float32 from 1 to below 2, to E4M3: the known counts of codes that a detour changes", "[long]") {
  DoubleRoundingArguments arguments;
  arguments.threads = 2;
  const DoubleRoundingResult result = run_double_rounding(arguments);
  CHECK(result.size == 8388608);
  CHECK(rounded_twice(result) == RoundedTwice{32768, 32764, 262144, 262140});
  CHECK(result.chains[0].toward_zero == 16384);  // to nearest, both sides of a tie are hit alike
  CHECK(result.chains[1].toward_zero == 32764);
  CHECK(result.chains[3].toward_zero == 262140);
  REQUIRE(result.chains[1].first.size() == 8);
  // The first float32 above the tie of 1 and 1.125, which truncation to half takes back onto it.
  const auto& [input, direct, via] = result.chains[1].first[0];
  CHECK(input == std::nextafter(1.0625F, 2.0F));
  CHECK(direct == 0x39);
  CHECK(via == 0x38);
  SECTION("in the report and the files") {
    Document document = document_of(result);
    document.experiment = "double_rounding";
    const std::string report = text_of(document, {.unicode = false, .width = 100});
    CHECK(report.find("1.06250012 (3F880001) -> 1.125 (code 39), chained 1 (code 38)") != std::string::npos);
    const auto files = files_of(document);
    std::vector<std::string> names;
    for (const auto& [name, content] : files) names.push_back(name);
    CHECK(names == std::vector<std::string>{"double_rounding.json", "summary.csv", "chains.csv", "examples.csv"});
    const auto json = nlohmann::json::parse(files[0].second);
    CHECK(json["sections"][2]["columns"][3]["values"][2] == 262144);
    CHECK(files[2].second.find("\ne4m3,float16,toward_zero,32764,0.003905") != std::string::npos);
    CHECK(std::ranges::count(files[3].second, '\n') == 1 + 4 * 8);
  }
}

TEST_CASE("of U(-448, 448), truncation to half changes 2^-8 of the codes, every one toward zero", "[long]") {
  // Half has 7 bits more than E4M3, so 2^-7 of a gap between two values lies within a half's spacing above the gap's
  // tie, where truncation makes it the tie; which rounds up, as the value itself does, every other time: 2^-8. What is
  // subnormal in E4M3, 1 in 28,672, is negligible. n draws have a standard deviation of sqrt(2^-8 / n): four of them.
  DoubleRoundingArguments arguments;
  arguments.uniform = {-448, 448};
  arguments.vias = {choose_format("float16")};
  arguments.via_roundings = {Rounding::toward_zero, Rounding::to_odd};
  const DoubleRoundingResult result = run_double_rounding(arguments);
  const double n = 1 << 24;
  CHECK(result.size == 1 << 24);
  const double share = static_cast<double>(result.chains[0].count) / n;
  INFO(share);
  CHECK(std::abs(share - 0x1p-8) < 4 * std::sqrt(0x1p-8 / n));
  CHECK(result.chains[0].toward_zero == result.chains[0].count);
  CHECK(result.chains[1].count == 0);  // rounding to odd first is harmless: Boldo and Melquiond 2008
}

TEST_CASE("an interval has every float32 once, across zero too") {
  DoubleRoundingArguments arguments;
  const auto size = [&](float low, float high) {
    arguments.low = low;
    arguments.high = high;
    return run_double_rounding(arguments).size;
  };
  CHECK(size(1, std::nextafter(1.0F, 2.0F)) == 1);
  CHECK(size(-0x1p-149F, 0x1p-149F) == 2);  // the negative one and zero
  CHECK(size(-0x1p-130F, 0x1p-130F) == 2 * (1 << 19));
  const float largest = std::numeric_limits<float>::max();
  CHECK(size(std::nextafter(largest, 0.0F), largest) == 1);
}

TEST_CASE("double rounding's arguments are checked, with the rule in the message") {
  const auto run = [](auto change) {
    DoubleRoundingArguments arguments;
    change(arguments);
    (void)run_double_rounding(arguments);
  };
  using A = DoubleRoundingArguments;
  CHECK_THROWS_WITH(run([](A& a) { a.low = 2, a.high = 1; }), ContainsSubstring("low less than high, not 2 and 1"));
  CHECK_THROWS_WITH(run([](A& a) { a.low = 1, a.high = 1; }), ContainsSubstring("low less than high"));
  CHECK_THROWS_WITH(run([](A& a) { a.low = 1, a.high = inf; }), ContainsSubstring("must be finite"));
  CHECK_THROWS_WITH(run([](A& a) { a.uniform = {1, 1}; }),
                    ContainsSubstring("low < high, both finite in float32, not 1 and 1"));
  CHECK_THROWS_WITH(run([](A& a) { a.uniform = {-1e300, 1}; }), ContainsSubstring("finite in float32"));
  CHECK_THROWS_WITH(run([](A& a) { a.uniform = {0, 1}, a.size = 0; }),
                    ContainsSubstring("size must be from 1 to 2^40, not 0"));
  CHECK_THROWS_WITH(run([](A& a) { a.uniform = {1}; }), ContainsSubstring("uniform must be two numbers"));
  CHECK_THROWS_WITH(run([](A& a) { a.formats.clear(); }), ContainsSubstring("formats must have at least one entry"));
  CHECK_THROWS_WITH(run([](A& a) { a.vias.push_back(a.vias[0]); }), ContainsSubstring("has float16 twice"));
  CHECK_THROWS_WITH(run([](A& a) { a.formats = {choose_format("float16")}; }),
                    ContainsSubstring("formats must have at most 8 bits, and float16 has 16"));
  CHECK_THROWS_WITH(run([](A& a) { a.via_roundings = {Rounding::stochastic}; }),
                    ContainsSubstring("known: nearest_even"));
}

}  // namespace fp8lab::tests
