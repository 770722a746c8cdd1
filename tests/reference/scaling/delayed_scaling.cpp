// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/delayed_scaling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/rational.hpp"
#include "reference/scaling/delayed_runs.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

constexpr float largest_float = std::numeric_limits<float>::max();

/// Positive finite floats: any pattern, and as many near 1.
float amax_at(std::uint64_t i) {
  const std::uint64_t word = random_bits(7, i);
  const auto pattern = static_cast<std::uint32_t>(word) & 0x7FFFFFFFU;
  const float any = std::bit_cast<float>(pattern);
  if (i % 2 == 1 || !std::isfinite(any) || any == 0) return std::bit_cast<float>(0x3C000000U + (pattern & 0x7FFFFFFU));
  return any;
}

/// Within 2 ulps of 2^k, 1.5 * 2^k and 1.75 * 2^k, where quotients and logarithms round to another side.
float corner_at(std::uint64_t i) {
  const std::uint64_t word = random_bits(9, i);
  constexpr std::array<std::uint32_t, 3> mantissas{0, 0x400000, 0x600000};
  const auto exponent = static_cast<std::uint32_t>(2 + (word >> 8) % 250);
  const auto ulps = static_cast<std::uint32_t>((word >> 20) % 5);
  return std::bit_cast<float>((exponent << 23 | mantissas[word % 3]) + ulps - 2);
}

/// floor(log2(q)) of a finite float q > 0 as float32 has it: its logarithm, rounded, may be the next whole number. By
/// exponents, and the distance to the power above by log1p, which does not cancel.
int floor_of_rounded_log2(float q) {
  const int e = std::ilogb(q);
  const double distance = -std::log1p(std::ldexp(static_cast<double>(q), -e - 1) - 1) / std::log(2.0);
  const auto above = static_cast<float>(e + 1);
  const float below = std::nextafter(above, -inf);
  return distance < (static_cast<double>(above) - static_cast<double>(below)) / 2 ? e + 1 : e;
}

}  // namespace

TEST_CASE("scales of single amaxes: known words of float32") {
  struct Row {
    std::uint32_t amax, e4m3, inverse, e5m2;
  };
  const std::vector<Row> rows{
      {0x3F800000, 0x43E00000, 0x3B124925, 0x47600000}, {0x40000000, 0x43600000, 0x3B924925, 0x46E00000},
      {0x40400000, 0x43155555, 0x3BDB6DB7, 0x46955555}, {0x3DE6D800, 0x45786913, 0x3983E925, 0x48F86913},
      {0x43E00000, 0x3F800000, 0x3F800000, 0x43000000}, {0x0DA24260, 0x75B0B471, 0x0939706D, 0x7930B471},
      {0x03E00001, 0x7F7FFFFF, 0x00200000, 0x7F7FFFFF}, {0x00000001, 0x7F7FFFFF, 0x00200000, 0x7F7FFFFF},
      {0x7149F2CA, 0x120DFA14, 0x6CE6CC54, 0x158DFA14}, {0x7F7FFFFF, 0x03E00001, 0x7B124924, 0x07600001}};
  for (const DelayedVersion& version : {te_1_7, te_1_7_single, te_current, te_current_single}) {
    for (const Row& row : rows) {
      INFO(version.name << std::hex << ' ' << row.amax);
      const Delayed recipe = recipe_of(version);
      AmaxHistory history = start_history(recipe);
      record_amax(recipe, Pass::forward, history, std::bit_cast<float>(row.amax));
      update_scale(recipe, Pass::forward, history);
      CHECK(bits(history.scale) == row.e4m3);
      record_amax(recipe, Pass::forward, history, 1);  // the cast that the scale is for
      CHECK(bits(history.scale_inv) == row.inverse);
      CHECK(bits(run_of(recipe, {std::bit_cast<float>(row.amax)}, Pass::backward).after[0]) == row.e5m2);
    }
  }
}

TEST_CASE("scales of single amaxes: words that PyTorch computes by a rounded reciprocal") {
  // What torch 2.13 gives for 448.0 / torch.tensor([amax]), or its largest float where that overflows.
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> rows{
      {0x3F800000, 0x43E00000}, {0x40400000, 0x43155556}, {0x447E71B1, 0x3EE15EA6}, {0x71DB0000, 0x1182EC20},
      {0x00000001, 0x7F7FFFFF}, {0x7F7FFFFF, 0x03E00000}, {0x3FE00001, 0x437FFFFF}, {0x60400001, 0x23155555}};
  for (const auto& [amax, scale] : rows) {
    for (const DelayedVersion& version : {te_1_7_unfused, te_current_unfused}) {
      INFO(version.name << std::hex << ' ' << amax);
      CHECK(bits(scale_of(recipe_of(version), Pass::forward, std::bit_cast<float>(amax), 1)) == scale);
    }
  }
  CHECK(scale_of(recipe_of(te_0_13), Pass::forward, 1017.7764282226562F, 1) == 0.44017523527145386F);
  CHECK(scale_of(recipe_of(te_1_4), Pass::forward, 1017.7764282226562F, 1) == 0.44017526507377625F);
  CHECK(scale_of(recipe_of(torchao_0_4), Pass::forward, 1017.7764282226562F, 1) == 0.44017523527145386F);
  for (const DelayedVersion& version : {te_0_1, te_0_5}) {
    CHECK(scale_of(recipe_of(version, 1, -4), Pass::backward, 896.0001220703125F, 1) == 512);
  }
  for (const DelayedVersion& version : {ms_amp, ms_amp_0_1}) {
    CHECK(scale_of(recipe_of(version), Pass::forward, 28672.00390625F, 1) == 0x1p-7F);
  }
}

TEST_CASE("a subnormal amax: the scale is infinite up to 1.6, the largest float32 from 1.7 on") {
  const float tiny = std::bit_cast<float>(0x00000100U);
  for (const DelayedVersion& version : {te_0_1, te_0_5, te_0_13, te_1_4, te_1_6, te_1_6_unfused}) {
    CHECK(run_of(version, 1, {tiny}).after[0] == inf);
  }
  for (const DelayedVersion& version :
       {te_1_7, te_1_7_unfused, te_1_7_single, te_current, te_current_unfused, te_current_single}) {
    CHECK(run_of(version, 1, {tiny}).after[0] == largest_float);
  }
  // The limit itself: 448 / amax overflows from half an ulp above the largest float32 on.
  CHECK(run_of(te_current, 1, {std::bit_cast<float>(0x03E00002U)}).after[0] < largest_float);
}

TEST_CASE("with a margin, the fused update divides after it and the unfused one overflows before it") {
  const float amax = std::ldexp(448.0F, -130);  // its scale would be 2^130
  CHECK(run_of(recipe_of(te_current, 1, 4), {amax}).after[0] == 0x1p126F);
  CHECK(run_of(recipe_of(te_1_6, 1, 4), {amax}).after[0] == 0x1p126F);
  CHECK(run_of(recipe_of(te_current_unfused, 1, 4), {amax}).after[0] == largest_float);
  CHECK(run_of(recipe_of(te_1_6_unfused, 1, 4), {amax}).after[0] == inf);
  CHECK(run_of(recipe_of(te_current, 1, -3), {1}).after[0] == 3584);
  CHECK(run_of(recipe_of(te_0_1, 1, 3), {1}).after[0] == 32);
  CHECK(run_of(recipe_of(te_0_1, 1, 12), {1}).after[0] == 0x1p-4F);
}

TEST_CASE("quotients are those of exact rationals, rounded after each operation") {
  Mismatches mismatches;
  for (std::uint64_t i = 0; i < (exhaustive() ? 40000U : 10000U); ++i) {
    const float amax = i % 4 < 2 ? amax_at(i) : corner_at(i);
    const int margin = static_cast<int>(random_bits(8, i) % 125) - 62;
    const Pass pass = i % 3 == 0 ? Pass::backward : Pass::forward;
    const Rational largest = pass == Pass::backward ? 57344 : 448;
    const auto times = [](float a, const Rational& b) {  // exactly, then once to float32
      return std::isinf(a) ? inf : nearest_float(rational(a) * b);
    };
    // 1. A kernel divides.
    const float numerator = nearest_float(largest * power_of_two(-margin));
    const float first = times(numerator, 1 / rational(amax));
    // 2. PyTorch multiplies by the reciprocal.
    const float quotient = times(nearest_float(1 / rational(amax)), largest);
    const float last = times(quotient, power_of_two(-margin));
    const auto compare = [&](const DelayedVersion& version, float expected) {
      mismatches.compare(i, amax, bits(scale_of(recipe_of(version, 1, margin), pass, amax, 3)), bits(expected),
                         version.name.data());
    };
    for (const DelayedVersion& version : {te_1_4, te_1_6}) compare(version, first);
    for (const DelayedVersion& version : {te_1_7, te_1_7_single, te_current, te_current_single}) {
      compare(version, std::min(first, largest_float));
    }
    for (const DelayedVersion& version : {te_0_13, te_1_6_unfused}) compare(version, last);
    for (const DelayedVersion& version : {te_1_7_unfused, te_current_unfused}) {
      compare(version, std::min(last, largest_float));
    }
    const auto compare_torchao = [&](const DelayedVersion& version, float expected) {
      mismatches.compare(i, amax, bits(scale_of(recipe_of(version), pass, amax, 3)), bits(expected),
                         version.name.data());
    };
    // 3. torchao's, which no double is too coarse for: no quotient is that close to halfway between two floats.
    const float in_float = times(nearest_float(1 / rational(std::max(amax, 1e-12F))), largest);
    const float in_double = nearest_float(largest / std::max(rational(amax), rational(1e-12)));
    compare_torchao(torchao_0_4, in_float);
    compare_torchao(torchao_0_4_float16, std::min(in_float, 65504.0F));
    compare_torchao(torchao_0_6_float16, std::min(in_double, 65504.0F));
    compare_torchao(torchao_delayed, in_double);
  }
  REQUIRE_NO(mismatches);
}

TEST_CASE("powers of two: the exponent is that of the rounded logarithm, over mantissas") {
  Mismatches mismatches;
  std::uint64_t rounded_up = 0;
  const Delayed recipe = recipe_of(te_0_1);
  for (std::uint32_t mantissa = 0; mantissa < 1U << 23; mantissa += exhaustive() ? 1 : 3) {
    const float amax = std::bit_cast<float>(((90U + mantissa % 80U) << 23) | mantissa);
    const float reciprocal = 1 / amax;
    const float quotient = reciprocal * 448;
    const int e = floor_of_rounded_log2(quotient);
    if (e != std::ilogb(quotient)) ++rounded_up;
    mismatches.compare(mantissa, amax, bits(scale_of(recipe, Pass::forward, amax, 3)), bits(std::ldexp(1.0F, e)));
  }
  REQUIRE_NO(mismatches);
  CHECK(rounded_up > 0);
}

TEST_CASE("MS-AMP's formula: known scales, from an old scale of 4") {
  const std::vector<std::pair<float, float>> rows{
      {0.0F, 4.0F},       {1e-40F, inf},      {1e-37F, inf},   {1.4e-36F, 0x1p127F}, {1e-8F, 0x1p35F},
      {0.4375F, 1024.0F}, {1.0F, 256.0F},     {1.75F, 256.0F}, {3.5F, 128.0F},       {10.0F, 32.0F},
      {448.0F, 1.0F},     {448.00003F, 0.5F}, {896.0F, 0.5F},  {10000.0F, 0x1p-5F},  {1e30F, 0x1p-91F},
      {inf, 0.25F},       {nan, 4.0F}};
  for (const auto& [amax, scale] : rows) {
    INFO(amax);
    CHECK(scale_of(recipe_of(ms_amp), Pass::forward, amax, 4) == scale);
    for (const DelayedVersion& version : {te_0_1, te_0_5, ms_amp_0_1}) {
      CHECK(scale_of(recipe_of(version), Pass::forward, amax, 4) == scale);
    }
  }
}

TEST_CASE("MS-AMP's formula: an infinite amax turns the scale around each time, and a new scale is 1") {
  const Delayed recipe = recipe_of(ms_amp);
  float scale = 4;
  for (const float expected : {0.25F, 4.0F, 0.25F}) {
    scale = scale_of(recipe, Pass::forward, inf, scale);
    CHECK(scale == expected);
  }
  CHECK(scale_of(recipe, Pass::forward, 0, 1) == 1);
  CHECK(scale_of(recipe, Pass::forward, 10, 1) == 32);
  CHECK(scale_of(recipe, Pass::forward, 10000, 1) == 1.0F / 32);
}

TEST_CASE(
    "MS-AMP's formula: one mantissa of 2^23 exceeds 448, by a unit in the last place, which the cast rounds off") {
  const Delayed recipe = recipe_of(ms_amp);
  std::vector<float> beyond;
  for (std::uint32_t mantissa = 0; mantissa < 1U << 23; ++mantissa) {
    const float amax = std::bit_cast<float>(0x3F800000U | mantissa);
    const float scaled = amax * scale_of(recipe, Pass::forward, amax, 1);
    if (scaled > 448) beyond.push_back(scaled);
  }
  CHECK(beyond == std::vector<float>{std::nextafter(448.0F, inf)});
}

TEST_CASE("an amax of zero, infinity or NaN keeps Transformer Engine's old scale") {
  for (const DelayedVersion& version : {te_0_13, te_1_4, te_1_6, te_1_6_unfused, te_1_7, te_1_7_unfused, te_1_7_single,
                                        te_current, te_current_unfused, te_current_single}) {
    for (const float amax : {0.0F, inf, nan}) {
      INFO(version.name << ' ' << amax);
      CHECK(scale_of(recipe_of(version), Pass::forward, amax, 3) == 3);
    }
  }
}

}  // namespace fp8lab::tests
