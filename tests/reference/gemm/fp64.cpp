// SPDX-License-Identifier: Apache-2.0
// Products of float64 matrices are chains of the slow oracle's fused multiply-adds.
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/tensor_core/mma.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "reference/tensor_core/dots.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

constexpr std::size_t height = 35, breadth = 37;  // more than a block of each

std::vector<double> numbers(const Codes& codes) {
  std::vector<double> values;
  for (const std::uint64_t code : codes) values.push_back(std::bit_cast<double>(code));
  return values;
}

/// Hard operands of K = depth: dot product i is of a's row i and of b's row i.
Dots hard_rows(const MmaModel& model, std::size_t depth, std::uint64_t seed) {
  MmaModel whole = model;
  whole.steps = static_cast<int>(depth);
  return hard_dots(whole, binary64, binary64, std::max(height, breadth), seed);
}

/// The oracle's word of a's row and b's row, in instructions from `first` on, the last filled up with zeros.
std::uint64_t chained(const MmaModel& model, const Dots& dots, std::size_t row, std::size_t column, std::size_t first,
                      std::size_t last) {
  const auto k = static_cast<std::size_t>(model.k());
  Dots one{binary64, binary64, k, {}, {}, {}, {}, {0}};
  for (; first < last; first += k) {
    one.a.assign(k, 0), one.b.assign(k, 0);
    for (std::size_t i = 0; i < k && first + i < last; ++i) {
      one.a[i] = dots.a[row * dots.k + first + i];
      one.b[i] = dots.b[column * dots.k + first + i];
    }
    one.c = slow_words(slow_model_of(model), one, ZeroRule::floor);
  }
  return one.c.front();
}

}  // namespace

TEST_CASE("an FP64 GEMM's element is its chain of instructions, with a tail of zeros, transposed or not") {
  for (const MmaModel& model : models) {
    if (!model.is_fp64() || is_repeated(model)) continue;
    const std::size_t depth = 9 * static_cast<std::size_t>(model.k()) + 3;  // deeper than what is packed at a time
    const Dots dots = hard_rows(model, depth, 3);
    const std::vector<double> a = numbers(dots.a), b = numbers(dots.b);
    const Operand left = Operand::doubles(std::span(a).first(height * depth), height, depth);
    const Operand right = Operand::doubles(std::span(b).first(breadth * depth), breadth, depth);
    const Codes words = gemm_words({.model = model}, left, right, {.threads = 2});
    Mismatches wrong;
    for (std::size_t i = 0; i < words.size(); i += sanitized ? 13 : 1) {
      wrong.compare(i, i, words[i], chained(model, dots, i / breadth, i % breadth, 0, depth), model.name.data());
    }
    REQUIRE_NO(wrong);
    std::vector<double> turned(height * depth);
    for (std::size_t i = 0; i < turned.size(); ++i) turned[i % depth * height + i / depth] = a[i];
    Operand transposed = Operand::doubles(turned, height, depth);
    transposed.transposed = true;
    CHECK(gemm_words({.model = model}, transposed, right) == words);
  }
}

TEST_CASE("an FP64 product that underflows leaves -0, and zeros that fill up an instruction make +0 of it") {
  const std::vector<double> a{-0x1p-600, 0, 0, 0}, b{0x1p-600, 0, 0, 0};
  const auto word_of = [&](const MmaModel& model, std::size_t depth) {
    return gemm_words({.model = model}, Operand::doubles(std::span(a).first(depth), 1, depth),
                      Operand::doubles(std::span(b).first(depth), 1, depth))
        .front();
  };
  CHECK(word_of(ampere_fp64, 4) == 0);
  CHECK(word_of(ampere_fp64, 1) == 0);
  MmaModel one = ampere_fp64;
  one.steps = 1;
  CHECK(word_of(one, 1) == binary64.sign_mask());
}

TEST_CASE("ranges of K of an FP64 product are computed apart and added in float64, in the order given") {
  constexpr std::size_t depth = 30;
  const Dots dots = hard_rows(cdna3_fp64, depth, 5);
  const std::vector<double> a = numbers(dots.a), b = numbers(dots.b);
  const Operand left = Operand::doubles(std::span(a).first(height * depth), height, depth);
  const Operand right = Operand::doubles(std::span(b).first(breadth * depth), breadth, depth);
  const Codes words =
      gemm_words({.model = cdna3_fp64, .split_k = {8, 12, 10}, .split_order = {2, 0, 1}}, left, right, {.threads = 3});
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto range = [&](std::size_t first, std::size_t last) {
      return chained(cdna3_fp64, dots, i / breadth, i % breadth, first, last);
    };
    REQUIRE(words[i] == slow_add(slow_add(range(20, 30), range(0, 8), binary64), range(8, 20), binary64));
  }
}

TEST_CASE("an FP64 product of a hard sum: not the sum of rounded products, nor of another order") {
  // 2^53 + 1 + 1 - 2^53: one after the other, each 1 is lost in the tie to even; descending, they are not.
  const std::vector<double> a{0x1p53, 1, 1, -0x1p53}, ones(4, 1);
  std::vector<double> out(1);
  gemm({.model = cdna3_fp64}, Operand::doubles(a, 1, 4), Operand::doubles(ones, 1, 4), std::span<double>(out));
  CHECK(out[0] == 0);
  // (1 + 2^-30)^2 - 1 - 2^-29 leaves 2^-60, which a rounded product loses.
  const std::vector<double> x{-1 - 0x1p-29, 1 + 0x1p-30}, y{1, 1 + 0x1p-30};
  gemm({.model = cdna3_fp64}, Operand::doubles(x, 1, 2), Operand::doubles(y, 1, 2), std::span<double>(out));
  CHECK(out[0] == 0x1p-60);
}

TEST_CASE("FP64 gives the NaNs that an H200 gave, and of several the first of b, c and a") {
  const auto result = [](const MmaModel& model, const std::array<std::uint64_t, 4>& a,
                         const std::array<std::uint64_t, 4>& b, std::uint64_t c) {
    const auto x = std::bit_cast<std::array<double, 4>>(a);
    const auto y = std::bit_cast<std::array<double, 4>>(b);
    const std::array accumulator{std::bit_cast<double>(c)};
    std::array<double, 1> out{};
    mma(model, Operand::doubles(x, 1, 4), Operand::doubles(y, 1, 4), std::span<const double>(accumulator),
        std::span<double>(out));
    return std::bit_cast<std::uint64_t>(out[0]);
  };
  // 1. Rows of tests/vectors/device/h200.json, of mma.sync.m8n8k4: a signalling c, a factor of a, and inf - inf.
  CHECK(result(hopper_fp64_k4, {0xe68c8cb2c2a0a9ba, 0x036c124103a06a56, 0x4a49183faf42e968, 0xf44d40bcbff86f4a},
               {0x79ddb8798b25480d, 0x7c56d03acb228bdf, 0x95ff80137e408295, 0xac4d368becc70d34},
               0xfff0bb9e0b0be664) == 0xfff8bb9e0b0be664);
  CHECK(result(hopper_fp64_k4, {0xf90eb366080e1f0f, 0xfffa8e431ccd507b, 0xa76a67c23e1c4459, 0x4780ced89496efc4},
               {0x046b64e0581ee999, 0x4358cf554c497890, 0x16f7128963ffcdf5, 0x84dffab683db172d},
               0x7fefffffffffffff) == 0xfffa8e431ccd507b);
  constexpr std::uint64_t infinity = 0x7ff0000000000000;
  constexpr std::uint64_t one = 0x3ff0000000000000;
  CHECK(result(hopper_fp64_k4, {infinity, 0, 0, 0}, {0, 0, 0, 0}, 0) == 0xfff8000000000000);
  CHECK(result(hopper_fp64_k4, {infinity, 0, 0, 0}, {one, 0, 0, 0}, infinity | 1ULL << 63) == 0xfff8000000000000);
  // 2. Several, as that ledger's digests say. Of later products a NaN of b wins over what is in the accumulator.
  constexpr std::uint64_t nan_a = 0x7ff800000000000a;
  constexpr std::uint64_t nan_b = 0x7ff800000000000b;
  constexpr std::uint64_t nan_c = 0xfff800000000000c;
  CHECK(result(hopper_fp64_k4, {nan_a, 0, 0, 0}, {nan_b, 0, 0, 0}, nan_c) == nan_b);
  CHECK(result(hopper_fp64_k4, {nan_a, 0, 0, 0}, {one, 0, 0, 0}, nan_c) == nan_c);
  CHECK(result(hopper_fp64_k4, {nan_a, 0, 0, 0}, {one, 0, 0, 0}, 0) == nan_a);
  CHECK(result(hopper_fp64_k4, {nan_a, 0, 0, 0}, {one, 0, 0, nan_b}, nan_c) == nan_b);
  CHECK(result(hopper_fp64_k4, {infinity, 0, 0, 0}, {0, 0, 0, 0}, nan_c) == nan_c);
  // 3. A GEMM has them, and AMD's have one NaN.
  const std::vector<double> a{1, 2, std::bit_cast<double>(nan_a), 3};
  const std::vector<double> b{std::bit_cast<double>(nan_b), 1, 1, 1, 1, 1, 1, 1};
  const Codes words = gemm_words({.model = hopper_fp64_k4}, Operand::doubles(a, 1, 4), Operand::doubles(b, 2, 4));
  CHECK(words == Codes{nan_b, nan_a});
  CHECK(result(cdna3_fp64, {nan_a, 0, 0, 0}, {nan_b, 0, 0, 0}, nan_c) == 0x7fffffffffffffff);
}

TEST_CASE("what FP64 models do not take is named") {
  std::vector<double> a(64);
  const std::vector<float> floats(64, 1);
  std::vector<double> out(16);
  std::vector<float> narrow(16);
  const Operand four = Operand::doubles(std::span(a).first(16), 4, 4);
  const auto run = [&](const Operand& x, GemmRecipe recipe, const GemmCall& call = {}) {
    recipe.model = cdna3_fp64;
    gemm(recipe, x, four, std::span<double>(out), call);
  };
  CHECK_THROWS_WITH(gemm({.model = cdna3_fp64}, four, four, std::span<float>(narrow)),
                    "out must be float64, the accumulator of cdna3_fp64, which nothing rounds");
  CHECK_THROWS_WITH(gemm({.model = cdna3_fp32}, four, four, std::span<double>(out)),
                    "out of float64 is for models with a float64 accumulator, ampere_fp64, ada_fp64, hopper_fp64, "
                    "hopper_fp64_k8, hopper_fp64_k4, blackwell_fp64, cdna2_fp64, cdna3_fp64, not cdna3_fp32");
  CHECK_THROWS_WITH(run(Operand::floats(std::span(floats).first(16), 4, 4), {}),
                    ContainsSubstring("a is float32; cdna3_fp64 takes float64. Models that take float32: ampere_tf32"));
  CHECK_THROWS_WITH(gemm({.model = cdna3_fp32}, four, four, std::span<float>(narrow)),
                    ContainsSubstring("a is float64; cdna3_fp32 takes float32. Models that take float64: ampere_fp64"));
  for (const auto& [what, recipe, call] :
       {std::tuple{"promote_k", GemmRecipe{.promote_k = 4}, GemmCall{}},
        std::tuple{"scale_out", GemmRecipe{}, GemmCall{.scale_out = 2}},
        std::tuple{"scale_order", GemmRecipe{.scale_order = ScaleOrder::scales_first}, GemmCall{}},
        std::tuple{"partial_type", GemmRecipe{.partial_type = StepType::to_bfloat16}, GemmCall{}},
        std::tuple{"c", GemmRecipe{}, GemmCall{.c = std::span(floats).first(16)}},
        std::tuple{"bias", GemmRecipe{}, GemmCall{.bias = std::span(floats).first(4)}},
        std::tuple{"activation_input", GemmRecipe{}, GemmCall{.activation_input = std::span(floats).first(16)}}}) {
    CHECK_THROWS_WITH(run(four, recipe, call),
                      std::string(what) + " does not apply to cdna3_fp64, which has no epilogue and no scales");
  }
  Operand scaled = four;
  scaled.tensor_scale = {2};
  CHECK_THROWS_WITH(run(scaled, {}), ContainsSubstring("scale_a does not apply to cdna3_fp64"));
  CHECK_THROWS_WITH(run(four, {.split_k = {3, 1}}), ContainsSubstring("a range must be a positive multiple of 4"));
  CHECK_THROWS_WITH(gemm({.model = cdna3_fp64}, four, four, std::span(a).first(16)), ContainsSubstring("overlap"));
}

}  // namespace fp8lab::tests
