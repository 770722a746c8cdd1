// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/mma.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/reference/gemm.hpp"
#include "rational.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

std::vector<std::uint8_t> bytes(const std::string& hex) {
  std::vector<std::uint8_t> result;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    result.push_back(static_cast<std::uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return result;
}
float word(const std::string& hex) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(hex, nullptr, 16)));
}

nlohmann::json vectors() {
  std::ifstream file(FP8LAB_VECTORS "/mma_sim_fp8.json");
  return nlohmann::json::parse(file);
}

float step(const MmaModel& model, const Format& fa, const Format& fb, const std::vector<std::uint8_t>& a,
           const std::vector<std::uint8_t>& b, float c, ZeroRule rule) {
  float out = 0;
  mma(model, Operands::codes(a, fa, 1, a.size()), Operands::codes(b, fb, 1, b.size()), std::span(&c, 1),
      std::span(&out, 1), rule);
  return out;
}

/// Codes whose k-th entries are given; the rest are zeros.
std::vector<std::uint8_t> codes(std::initializer_list<float> values, const Format& format = e4m3) {
  std::vector<std::uint8_t> result;
  for (const float value : values) result.push_back(static_cast<std::uint8_t>(encode(format, {}, value)));
  result.resize(32);
  return result;
}

RationalFactor rational_factor(const Format& format, std::uint32_t code) {
  const int field = static_cast<int>((code & format.magnitude_mask()) >> format.mantissa_bits);
  return {rational(static_cast<double>(decode(format, code))), std::max(field, 1) - format.bias};
}

}  // namespace

TEST_CASE("every MMA-Sim vector of the FP8 models, under its own zero rule") {
  std::uint64_t checked = 0;
  std::uint64_t zero_rule_matters = 0;
  Mismatches wrong;
  const auto all = vectors();
  for (const auto& group : all["groups"]) {
    const MmaModel& model = find_model(group["model"].get<std::string>());
    const Format a = find_format(group["a"].get<std::string>()).format;
    const Format b = find_format(group["b"].get<std::string>()).format;
    for (const auto& row : group.value("cases", nlohmann::json::array())) {
      const auto left = bytes(row[1]);
      const auto right = bytes(row[2]);
      const float actual = step(model, a, b, left, right, word(row[3]), ZeroRule::mma_sim);
      wrong.compare(checked++, row[0].get<std::string>(), bits(actual), bits(word(row[4])));
      const float skipping = step(model, a, b, left, right, word(row[3]), ZeroRule::skip);
      if (bits(skipping) != bits(actual)) {
        ++zero_rule_matters;
        // The rules part only where every product is zero and the accumulator is tiny.
        REQUIRE(row[0] == "ctiny");
      }
    }
  }
  REQUIRE_NO(wrong);
  CHECK(checked == 1486);
  CHECK(zero_rule_matters > 0);
}

TEST_CASE("chains of steps compose as in MMA-Sim's vectors, fast and promoted every 128") {
  Mismatches wrong;
  std::uint64_t checked = 0;
  const auto all = vectors();
  for (const auto& group : all["groups"]) {
    const MmaModel& model = find_model(group["model"].get<std::string>());
    for (const auto& row : group.value("chains", nlohmann::json::array())) {
      const auto left = bytes(row[2]);
      const auto right = bytes(row[3]);
      const auto a = Operands::codes(left, find_format(group["a"].get<std::string>()).format, 1, left.size());
      const auto b = Operands::codes(right, find_format(group["b"].get<std::string>()).format, 1, right.size());
      float out = 0;
      gemm(model, a, b, std::span(&out, 1));
      wrong.compare(checked, row[1].get<int>(), bits(out), bits(word(row[4])), "fast");
      gemm(model, a, b, std::span(&out, 1), {.promote_k = 128});
      wrong.compare(checked, row[1].get<int>(), bits(out), bits(word(row[5])), "promoted");
      ++checked;
    }
  }
  REQUIRE_NO(wrong);
  CHECK(checked == 64);
}

TEST_CASE("fused steps equal a model over exact rationals on random and adversarial operands") {
  Mismatches wrong;
  for (const auto& [model, a_format, b_format] :
       {std::tuple{hopper_wgmma_fp8, e4m3, e5m2}, std::tuple{hopper_wgmma_fp8, e4m3, e4m3},
        std::tuple{blackwell_tcgen05_fp8, e5m2, e4m3}}) {
    for (std::uint64_t trial = 0; trial < 300; ++trial) {
      std::vector<std::uint8_t> a(32);
      std::vector<std::uint8_t> b(32);
      std::vector<RationalFactor> x;
      std::vector<RationalFactor> y;
      for (std::size_t i = 0; i < 32; ++i) {
        const std::uint64_t random = random_bits(trial, i);
        const auto pick = [&](const Format& format, unsigned at) {
          auto code = static_cast<std::uint32_t>((random >> at) % 256);
          if (trial % 3 == 0) code = (code & 0x83) | 0x38;          // one binade: sums grow
          if (trial % 3 == 1 && i % 4 != 0) code &= 0x87;           // mostly tiny
          return (code & 0x7F) > format.max_code() ? 0x38U : code;  // no specials
        };
        a[i] = static_cast<std::uint8_t>(pick(a_format, 0));
        b[i] = static_cast<std::uint8_t>(pick(b_format, 8));
        x.push_back(rational_factor(a_format, a[i]));
        y.push_back(rational_factor(b_format, b[i]));
      }
      auto c_bits = static_cast<std::uint32_t>(random_bits(trial, 100));
      c_bits = (c_bits & 0x807FFFFF) | ((112 + c_bits % 24) << 23);
      const float c = trial % 5 == 0 ? 0.0F : std::bit_cast<float>(c_bits);
      const float actual = step(model, a_format, b_format, a, b, c, ZeroRule::skip);
      wrong.compare(trial, c, bits(actual), bits(fused_step(model.fraction_bits, model.output.mantissa_bits, x, y, c)),
                    model.name.data());
    }
  }
  REQUIRE_NO(wrong);
}

TEST_CASE("TF32 rounds its operands to nearest, ties away, and fuses eight products") {
  Mismatches wrong;
  for (std::uint64_t trial = 0; trial < 500; ++trial) {
    std::vector<float> a(8);
    std::vector<float> b(8);
    std::vector<RationalFactor> x;
    std::vector<RationalFactor> y;
    const auto draw = [&](std::uint64_t i) {
      const auto random = static_cast<std::uint32_t>(random_bits(trial + 5000, i));
      const std::uint32_t field = 110 + random % 30;
      std::uint32_t pattern = (random & 0x807FFFFF) | (field << 23);
      if (i % 3 == 0) pattern = (pattern & 0xFFFFE000) | 0x1000;  // a tie
      return std::bit_cast<float>(pattern);
    };
    const auto rounded = [](float value) {  // to a multiple of 2^(e - 10), halves up in magnitude
      const double unit = std::ldexp(1.0, std::ilogb(value) - 10);
      const double magnitude = std::floor(std::abs(value) / unit + 0.5) * unit;
      return RationalFactor{rational(std::copysign(magnitude, value)), std::ilogb(magnitude)};
    };
    for (std::uint64_t i = 0; i < 8; ++i) {
      a[i] = draw(2 * i);
      b[i] = draw(2 * i + 1);
      x.push_back(rounded(a[i]));
      y.push_back(rounded(b[i]));
    }
    const float c = trial % 2 == 0 ? 0.0F : draw(99);
    float out = 0;
    mma(hopper_tf32, Operands::floats(a, 1, 8), Operands::floats(b, 1, 8), std::span(&c, 1), std::span(&out, 1));
    wrong.compare(trial, c, bits(out), bits(fused_step(25, 23, x, y, c)));
  }
  REQUIRE_NO(wrong);
}

TEST_CASE("what single steps show about Hopper's FP8 accumulator") {
  const auto wgmma = [](const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b, std::uint32_t c,
                        const Format& format = e4m3) {
    return bits(step(hopper_wgmma_fp8, format, format, a, b, std::bit_cast<float>(c), ZeroRule::skip));
  };
  const auto tcgen05 = [](const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b, std::uint32_t c) {
    return bits(step(blackwell_tcgen05_fp8, e4m3, e4m3, a, b, std::bit_cast<float>(c), ZeroRule::skip));
  };
  // Output words computed by MMA-Sim, commit c785138.
  SECTION("products are not normalised: 1.5 * 1.5 aligns lower than 2.25 * 1") {
    CHECK(wgmma(codes({1.5F, -1.5F, 0x1p-6F}), codes({1.5F, 1.5F, 0x1p-7F}), 0) == 0x39000000);
    CHECK(wgmma(codes({2.25F, -2.25F, 0x1p-6F}), codes({1, 1, 0x1p-7F}), 0) == 0);
  }
  SECTION("the accumulator itself is cut to 13 bits, on Blackwell it is not") {
    CHECK(wgmma(codes({}), codes({}), 0x3F800600) == 0x3F800400);
    CHECK(tcgen05(codes({}), codes({}), 0x3F800600) == 0x3F800600);
    CHECK(wgmma(codes({128, -128}), codes({1, 1}), 0x3F800400) == 0x3F800000);
  }
  SECTION("cuts go toward zero") {
    CHECK(wgmma(codes({-1, -0x1p-7F}), codes({1, 0x1p-7F}), 0) == 0xBF800400 - 0x400);
    CHECK(wgmma(codes({448, 448}), codes({448, 448}), 0) == bits(401408));
  }
  SECTION("subnormal factors align as the smallest normal") {
    CHECK(wgmma(codes({0x1p-16F, -0x1p-16F, 0x1p-14F}, e5m2), codes({1, 1, 0x1p-14F}, e5m2), 0, e5m2) == 0);
    CHECK(wgmma(codes({0x1p-16F}, e5m2), codes({0x1p-16F}, e5m2), 0, e5m2) == 0x2F800000);
  }
  SECTION("zeros are positive, NaN is 7FFFFFFF, infinities meet IEEE's rules") {
    CHECK(wgmma(codes({-0.0F, -0.0F}), codes({1, 1}), 0x80000000) == 0);
    CHECK(wgmma(codes({1}), codes({1}), 0x7F800001) == 0x7FFFFFFF);
    CHECK(wgmma(codes({1}), codes({1}), 0xFF800000) == 0xFF800000);
    auto infinite = codes({0}, e5m2);
    infinite[0] = 0x7C;
    CHECK(wgmma(infinite, codes({1}, e5m2), 0, e5m2) == 0x7F800000);
    CHECK(wgmma(infinite, codes({0}, e5m2), 0, e5m2) == 0x7FFFFFFF);
    CHECK(wgmma(infinite, codes({1}, e5m2), 0xFF800000, e5m2) == 0x7FFFFFFF);
  }
}

TEST_CASE("bad mma arguments are named") {
  const std::vector<std::uint8_t> a(64);
  const std::vector<float> f(64);
  std::vector<float> out(2);
  const auto run = [&](const MmaModel& model, const Operands& x, const Operands& y, std::size_t c, std::size_t n) {
    mma(model, x, y, std::span(f).first(c), std::span(out).first(n));
  };
  const auto two = Operands::codes(a, e4m3, 2, 32);
  CHECK_THROWS_WITH(run(hopper_wgmma_fp8, two, Operands::codes(a, e4m3, 4, 16), 0, 2),
                    "a and b must have the same shape, not (2, 32) and (4, 16)");
  CHECK_THROWS_WITH(run(hopper_wgmma_fp8, two, two, 3, 2), "c must have 2 elements, one a row, not 3");
  CHECK_THROWS_WITH(run(hopper_wgmma_fp8, two, two, 0, 1), "out must have 2 elements, one a row, not 1");
  CHECK_THROWS_WITH(run(hopper_tf32, Operands::floats(f, 2, 32), Operands::floats(f, 2, 32), 0, 2),
                    "K must be 8, one step of hopper_tf32, not 32");
  CHECK_THROWS_WITH(run(hopper_wgmma_fp8, two, Operands::codes(a, e8m0, 2, 32), 0, 2),
                    "b is e8m0; hopper_wgmma_fp8 takes e4m3, e5m2");
  CHECK_THROWS_WITH(run(hopper_wgmma_fp8, Operands::codes(a, e4m3, 1, 32), Operands::codes(a, e4m3, 1, 32), 0, 1),
                    "a has 64 elements, not 1 * 32");
  CHECK_THROWS_WITH(find_model("h100"), ContainsSubstring("known: hopper_wgmma_fp8, hopper_tf32"));
  CHECK_THROWS_WITH(find_zero_rule("x"), ContainsSubstring("known: skip, mma_sim"));
}

}  // namespace fp8lab::tests
