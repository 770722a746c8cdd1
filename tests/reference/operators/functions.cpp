// SPDX-License-Identifier: Apache-2.0
// Elementary functions are the float32 nearest to the value that 50 digits give.
#include "fp8lab/reference/operators/functions.hpp"

#include <array>

#include "rounded_steps.hpp"

namespace fp8lab::tests {
namespace {

Digits digits_of(std::string_view name, float x) {
  const Digits value(x);
  if (name == "exp") return exp(value);
  if (name == "exp2") return pow(Digits(2), value);
  if (name == "tanh") return tanh(value);
  if (name == "log") return log(value);
  if (name == "log2") return log(value) / log(Digits(2));
  if (name == "log1p") return log1p(value);
  if (name == "rsqrt") return 1 / sqrt(value);
  // Boost reduces large arguments by as many digits as it has: their sines need more.
  using Wide = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<120>>;
  return name == "sin" ? Digits(sin(Wide(x))) : Digits(cos(Wide(x)));
}

/// Floats where a function has a value that is neither constant nor infinite.
bool is_in_range(std::string_view name, float x) {
  if (name == "exp") return x > -104 && x < 89;
  if (name == "exp2") return x > -151 && x < 128;
  if (name == "tanh") return std::abs(x) < 10;
  if (name == "sin" || name == "cos") return std::abs(x) < inf;
  return x > (name == "log1p" ? -1 : 0) && x < inf;
}

/// Requires that every target gives what the function itself does.
void on_targets_equal(std::string_view name, const std::vector<float>& x) {
  const UnforceTarget unforce;
  const auto function = find_named(elementary_functions, "name", name).value;
  for (const auto target : targets()) {
    force_target(target);
    std::vector<float> out(x.size());
    apply_elementary(name, x, out, 2);
    Mismatches mismatches;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float expected = function(x[i]);
      mismatches.compare(i, x[i], bits(out[i]), std::isnan(expected) ? 0x7FFFFFFFU : bits(expected), "");
    }
    INFO(name << " on " << target);
    REQUIRE_NO(mismatches);
  }
}

TEST_CASE("elementary functions: nearest to 50 digits") {
  for (const auto& function : elementary_functions) {
    Mismatches mismatches;
    const auto compare = [&](std::uint64_t i, float x) {
      if (!is_in_range(function.name, x)) return;
      mismatches.compare(i, x, bits(function.value(x)), bits(nearest(digits_of(function.name, x))), "");
    };
    const std::uint64_t count = exhaustive() ? 200'000 : sanitized ? 200 : 2'000;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t word = random_bits(1, i);
      compare(i, from_bits(static_cast<std::uint32_t>(word)));                        // of any exponent
      compare(i, static_cast<float>(static_cast<double>(word >> 40) * 0x1p-20) - 8);  // in [-8, 8)
    }
    INFO(function.name);
    REQUIRE_NO(mismatches);
  }
}

// The floats of each whole range whose value lies nearest to a tie, found by a search through all of them, and those of
// exp and tanh where the series is longest: the rest of the argument is above 0.28 of at most 0.35.
TEST_CASE("elementary functions: the values nearest to a tie") {
  struct Near {
    std::string_view name;
    std::vector<float> x;
  };
  const std::array near{
      Near{"exp", {-0x1.d2259ap+3F, -0x1.e1dbe2p-8F, -0x1.c1c4b8p-10F, -0x1p-25F,      0x1.fdff02p-17F,
                   0x1.62b666p+1F,  0x1.036492p+1F,  0x1.8d7cb6p-12F,  0x1.112856p+6F, -0x1.f02a66p+1F,
                   -0x1.03d5bep+0F, 0x1.060e1ep+6F,  0x1.f12cdcp+3F,   0x1.48e1c4p+2F, 0x1.36d932p+1F,
                   -0x1.34003ap+1F, -0x1.ec9718p+4F, -0x1.31d272p+1F,  0x1.32f55p+1F,  0x1.34ffa8p-2F}},
      Near{"tanh",
           {0x1.86fbc4p-10F, 0x1.dc0accp-2F, 0x1.5969ap+2F, 0x1.a83722p-6F, 0x1.2ff78ep+0F, 0x1.a7dd4ep+1F,
            0x1.2a19a8p-3F, 0x1.00e12cp+2F, 0x1.6089e4p-3F, 0x1.4ac0cep+1F, 0x1.3c9de6p+0F, 0x1.fa10a8p-2F,
            0x1.e83cap+0F}},
      Near{"log",
           {0x1.b121a6p+76F, 0x1.bacb4ap+25F, 0x1.c09d7cp+27F, 0x1.5190cp+78F, 0x1.22d57p-65F, 0x1.2f1fd6p+3F,
            0x1.827a74p-7F, 0x1.6351d8p+95F}},
  };
  for (const Near& one : near) {
    const auto& function = find_named(elementary_functions, "name", one.name);
    Mismatches mismatches;
    for (const float x : one.x) {
      mismatches.compare(0, x, bits(function.value(x)), bits(nearest(digits_of(one.name, x))), "");
    }
    INFO(one.name);
    REQUIRE_NO(mismatches);
    on_targets_equal(one.name, one.x);
  }
}

TEST_CASE("elementary functions: vectors equal one number at a time") {
  for (const auto& function : elementary_functions) {
    std::vector<float> x{nan, inf, -inf, 0, -0.0F, 89, 88.7F, -104, -103.9F, 10, 0x1p-149F, -0x1p-126F};
    const std::uint64_t count = exhaustive() ? 1'000'000 : 3'000;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t word = random_bits(2, i);
      x.push_back(from_bits(static_cast<std::uint32_t>(word)));
      x.push_back(static_cast<float>(static_cast<double>(word >> 40) * 0x1p-20) - 8);
    }
    on_targets_equal(function.name, x);
  }
}

// 1 / sqrt(x) in float64 has two roundings of at most 2^-53 each. Where all values within 1.01 2^-52 of it round to one
// float32, that is the nearest to the exact value: true of all significands, for even and odd exponents.
TEST_CASE("elementary functions: no reciprocal root is near to a tie", "[long]") {
  std::uint64_t undecided = 0;
  for (std::uint32_t word = 0x3F800000U; word < 0x40800000U; ++word) {
    const double y = 1 / std::sqrt(static_cast<double>(from_bits(word)));
    const auto low = static_cast<float>(y - y * (1.01 * 0x1p-52));
    if (low != static_cast<float>(y + y * (1.01 * 0x1p-52))) ++undecided;
  }
  REQUIRE(undecided == 0);
}

TEST_CASE("elementary functions: special values") {
  for (const auto& function : elementary_functions) REQUIRE(bits(function.value(nan)) == 0x7FC00000U);
  REQUIRE(rounded_exp(-inf) == 0);
  REQUIRE(rounded_exp(inf) == inf);
  REQUIRE(rounded_exp(0) == 1);
  REQUIRE(rounded_exp(88.8F) == inf);
  REQUIRE(rounded_exp(-103.9F) == 0x1p-149F);
  REQUIRE(bits(rounded_tanh(-0.0F)) == 0x80000000U);
  REQUIRE(rounded_tanh(-inf) == -1);
  REQUIRE(rounded_tanh(0x1p-149F) == 0x1p-149F);
  REQUIRE(rounded_log(-0.0F) == -inf);
  REQUIRE(rounded_log(inf) == inf);
  REQUIRE(bits(rounded_log(1)) == 0);
  REQUIRE(std::isnan(rounded_log(-1)));
  REQUIRE(rounded_log1p(-1) == -inf);
  REQUIRE(rounded_log1p(inf) == inf);
  REQUIRE(bits(rounded_log1p(-0.0F)) == 0x80000000U);
  REQUIRE(rounded_log1p(0x1.000002p-26F) == 0x1.000002p-26F);
  REQUIRE(std::isnan(rounded_log1p(-1.0000001F)));
  REQUIRE(rounded_rsqrt(-0.0F) == -inf);
  REQUIRE(rounded_rsqrt(inf) == 0);
  REQUIRE(rounded_rsqrt(0x1p-148F) == 0x1p74F);
  REQUIRE(std::isnan(rounded_rsqrt(-0x1p-149F)));
  REQUIRE(std::isnan(rounded_sin(inf)));
  REQUIRE(std::isnan(rounded_cos(-inf)));
  REQUIRE(bits(rounded_sin(-0.0F)) == 0x80000000U);
  REQUIRE(rounded_cos(0) == 1);
}

}  // namespace
}  // namespace fp8lab::tests
