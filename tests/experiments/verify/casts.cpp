// SPDX-License-Identifier: Apache-2.0
#include "verify/casts.hpp"

#include <cmath>
#include <cstring>

#include "catch.hpp"
#include "exhaustive.hpp"
#include "experiments/documents.hpp"
#include "fp8lab/formats/encode.hpp"

namespace fp8lab::experiments {
namespace {

/// The chunks around 1, around E4M3's subnormals and its largest value, infinity and NaN; and the negative ones.
const std::vector<std::uint32_t> telling_chunks{0x3F8, 0x3B0, 0x3A8, 0x43E, 0x43F, 0x7F7, 0x7F8, 0x7FC, 0xBF8, 0xFFC};

template <typename Wrong>
NamedEncoder encoder(const char* name, Wrong wrong) {
  return {name, [wrong](std::span<const float> in, std::span<std::uint8_t> bytes) {
            for (std::size_t i = 0; i < in.size(); ++i) bytes[i] = static_cast<std::uint8_t>(wrong(in[i]));
          }};
}

VerifyCastsRow verify_e4m3(const std::vector<NamedEncoder>& encoders) {
  return verify_cast(find_format("e4m3"), find_profile("cuda_satfinite").policy, encoders, telling_chunks, 2);
}

}  // namespace

TEST_CASE("verify casts finds nothing wrong with encode") {
  const VerifyCastsRow row = verify_e4m3({encoder("encode", [](float x) { return encode(e4m3, {}, x); })});
  REQUIRE(row.inputs == telling_chunks.size() << 20);
  REQUIRE(row.checks.front().mismatches == 0);
  REQUIRE_FALSE(row.digest);
}

TEST_CASE("verify casts catches planted defects by name") {
  const auto ties_away = [](float x) { return encode(e4m3, {.rounding = Rounding::nearest_away}, x); };
  const auto flushed = [](float x) { return encode(e4m3, {}, std::abs(x) < 0x1p-6F ? std::copysign(0.0F, x) : x); };
  // 480, the value that E4M3 would have at the code of NaN.
  const auto at_480 = [](float x) {
    return std::abs(x) > 464 && !std::isnan(x) ? 0x7FU | (std::signbit(x) ? 0x80U : 0U) : encode(e4m3, {}, x);
  };
  const auto nan_sign = [](float x) { return encode(e4m3, {.nan = NanCode::sign_all_ones}, x); };
  const VerifyCastsRow row = verify_e4m3({encoder("ties away", ties_away), encoder("flushed subnormals", flushed),
                                          encoder("saturation at 480", at_480), encoder("NaN sign", nan_sign)});
  REQUIRE_FALSE(row.passed());
  struct Expected {
    const char* name;
    std::uint32_t input, got, expected;
  };
  const Expected expected[] = {{"ties away", 0x3F880000, 0x39, 0x38},
                               {"flushed subnormals", 0x3B000000, 0x00, 0x01},
                               {"saturation at 480", 0x43E80001, 0x7F, 0x7E},
                               {"NaN sign", 0xFFC00000, 0xFF, 0x7F}};
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    const EncoderCheck& check = row.checks[i];
    INFO(check.name);
    CHECK(check.name == expected[i].name);
    CHECK(check.mismatches > 0);
    REQUIRE(check.first);
    CHECK(check.first->input == expected[i].input);
    CHECK(check.first->got == expected[i].got);
    CHECK(check.first->expected == expected[i].expected);
  }
  // A chunk around 1 is an eighth of a binade: one code of E4M3, and one tie, to even or away. NaN: half the chunk FFC.
  CHECK(row.checks[3].mismatches == 1U << 20);

  VerifyCastsResult result;
  result.rows = {row};
  CHECK_FALSE(result.passed());
  const Document document = document_of(result);
  const std::string report = text_of(document);
  CHECK(report.find("saturation at 480: ") != std::string::npos);
  CHECK(report.find("first float 43e80001 gives 0000007f, exact is 0000007e") != std::string::npos);
  CHECK(report.find("NOT verified") != std::string::npos);
  CHECK(tests::column_of<Texts>(document, "checks", "encoder")[3] == "NaN sign");
  CHECK(tests::column_of<Texts>(document, "checks", "first_input")[3] == "ffc00000");
}

TEST_CASE("a seeded sample of every combination of format, profile and rounding is exact on every target") {
#ifdef __SANITIZE_ADDRESS__
  const VerifyCastsArguments arguments{
      .formats = {"e4m3", "e8m0", "bfloat16"}, .roundings = {"nearest_even"}, .chunks = 1};
#else
  VerifyCastsArguments arguments{.chunks = 1, .seed = 20261121, .threads = 2};
  if (!tests::exhaustive()) arguments.formats = {"e4m3", "e5m2", "e8m0", "e2m1", "bfloat16"};
#endif
  double last = 0;
  const VerifyCastsResult result = verify_casts(arguments, [&](double share) { last = share; });
  INFO(text_of(document_of(result)));
  CHECK(result.passed());
  CHECK(last <= 1);
}

TEST_CASE("verify casts names wrong arguments") {
  CHECK_THROWS_WITH(verify_casts({.formats = {"e4m4"}}), ContainsSubstring("unknown format 'e4m4'; known: e4m3"));
  CHECK_THROWS_WITH(verify_casts({.profiles = {"x"}}), ContainsSubstring("unknown profile 'x'; known: "));
  CHECK_THROWS_WITH(verify_casts({.roundings = {"stochastic"}}), ContainsSubstring("depends on random bits"));
  CHECK_THROWS_WITH(verify_casts({.formats = {"e4m3"}, .profiles = {"e8m0_torch"}}),
                    ContainsSubstring("can be verified"));
  CHECK_THROWS_WITH(verify_casts({.chunks = 0}), "chunks must be from 1 to 4096, not 0");
  CHECK_THROWS_WITH(verify_casts({.threads = 0}), "threads must be from 1 to 1024, not 0");
}

TEST_CASE("all 2^32 floats of every combination", "[.][exhaustive]") {
  const VerifyCastsResult result = verify_casts({.all = true, .threads = 2});
  INFO(text_of(document_of(result)));
  CHECK(result.passed());
}

}  // namespace fp8lab::experiments
