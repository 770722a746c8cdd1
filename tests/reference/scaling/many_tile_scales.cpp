// SPDX-License-Identifier: Apache-2.0
// The scales of many tiles at once are those of each tile, on every instruction set.
#include <algorithm>
#include <cmath>

#include "fp8lab/formats/targets.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// Every way to make scales of many tiles.
std::vector<Recipe> recipes_of_tiles() {
  std::vector<Recipe> recipes{NvFp4{}, GivenScale{.scale = 3}};
  for (const Format& format : {e4m3, e5m2, e3m2, e2m3, e2m1}) {
    for (const MxRule rule : {MxRule::te, MxRule::floor, MxRule::ceil, MxRule::even, MxRule::rceil}) {
      for (const E8m0Edges edges :
           {E8m0Edges::specified, E8m0Edges::te_before_2_19, E8m0Edges::te_before_2_13, E8m0Edges::torchao_0_18}) {
        recipes.emplace_back(MxBlock{.format = format, .rule = rule, .edges = edges});
      }
    }
    for (const bool power : {false, true}) {
      for (const BlockRule rule : {BlockRule::te, BlockRule::deepseek_2024, BlockRule::deepseek_2025,
                                   BlockRule::deepgemm_cpu, BlockRule::deepgemm_cuda, BlockRule::torchao}) {
        recipes.emplace_back(Block{.format = format, .rule = rule, .force_pow_2_scales = power});
      }
      recipes.emplace_back(Block{.format = format, .amax_epsilon = 1e-3F, .force_pow_2_scales = power});
      recipes.emplace_back(JustInTime{.format = format, .axis = Axis::row, .force_pow_2_scales = power});
    }
  }
  return recipes;
}

/// Amaxes around every power of two, the recipes' own thresholds, infinity and NaN: an odd number of them.
std::vector<std::uint32_t> edge_amaxes() {
  std::vector<std::uint32_t> amaxes;
  const auto around = [&](std::uint32_t word) {
    for (std::uint32_t near = word - std::min(word, 2U); near <= std::min(word + 2, 0x7FFFFFFFU); ++near) {
      amaxes.push_back(near);
    }
  };
  for (std::uint32_t field = 0; field <= 255; ++field) {
    for (const std::uint32_t mantissa : {0x000000U, 0x200000U, 0x400000U, 0x600000U, 0x700000U, 0x780000U, 0x7C0000U}) {
      around(field << 23 | mantissa);
    }
  }
  for (const float threshold : {1e-4F, 1e-12F, 1e-3F, 448.0F, 57344.0F, 6.0F, 7.5F, 28.0F}) around(bits(threshold));
  for (std::uint64_t i = 0; i < 20001; ++i) amaxes.push_back(static_cast<std::uint32_t>(random_bits(11, i) >> 33));
  return amaxes;
}

/// As the quantizer asks for them, where a recipe has scales of that kind.
void check_many(const Recipe& recipe, const std::vector<std::uint32_t>& amaxes, const TensorFacts& tensor) {
  std::vector<float> factors(amaxes.size());
  std::vector<float> scale_inv(amaxes.size());
  std::vector<std::uint8_t> codes(amaxes.size());
  const std::uint32_t most = tile_scales(recipe, amaxes, tensor, {factors, scale_inv, codes});
  const bool has_codes = recipe.scale_type != ScaleType::float32;
  Mismatches wrong;
  std::uint32_t expected = 0;
  for (std::size_t i = 0; i < amaxes.size(); ++i) {
    const TileScale one = tile_scale(recipe, from_bits(amaxes[i]), tensor);
    wrong.compare(i, amaxes[i], word_of(factors[i]), word_of(one.factor), "factor");
    expected = std::max(expected, bits(from_bits(amaxes[i]) * one.factor));
    if (has_codes) wrong.compare(i, amaxes[i], codes[i], one.code, "code");
    if (!has_codes) wrong.compare(i, amaxes[i], word_of(scale_inv[i]), word_of(one.scale_inv), "scale_inv");
  }
  REQUIRE_NO(wrong);
  REQUIRE(std::isnan(from_bits(most)) == std::isnan(from_bits(expected)));
  if (!std::isnan(from_bits(most))) REQUIRE(most == expected);
}

}  // namespace

TEST_CASE("scales of many tiles are those of each, on every target") {
  const UnforceTarget at_end;
  const std::vector<std::uint32_t> amaxes = edge_amaxes();
  for (const std::string_view target : targets()) {
    force_target(target);
    for (const Recipe& recipe : recipes_of_tiles()) {
      CAPTURE(target, describe(recipe));
      for (const float tensor : {0.0F, 0x1p-140F, 3.0F, 0x1.8p100F, inf}) {
        if (tensor != 3 && recipe.tensor_scale == TensorScaleRule::none) continue;
        check_many(recipe, amaxes, {.amax = tensor, .input_type = bfloat16});
      }
    }
  }
}

TEST_CASE("scales that go by a float32 log2 are those of each, on every target") {
  const UnforceTarget at_end;
  std::vector<std::uint32_t> amaxes{0x7F800000U, 0x7FC00000U, 0x7FFFFFFFU};
  for (std::uint32_t word = 0; word < 0x7F800000U; word += 0x00100000U) {  // eighths of binades, to past their slack
    for (std::uint32_t above = 0; above < 48; ++above) amaxes.push_back(word + above);
  }
  // A largest value of 2^-17 * 1.75 makes subnormal scales.
  constexpr Format tiny{.exponent_bits = 4, .mantissa_bits = 3, .bias = 33, .specials = Specials::nan_at_all_ones};
  for (const std::string_view target : targets()) {
    force_target(target);
    for (const Format& format : {e4m3, e5m2, e2m3, e2m1, tiny}) {
      CAPTURE(target, format_name(format));
      check_many(MxBlock{.format = format, .rule = MxRule::rceil, .edges = E8m0Edges::torchao_0_18}, amaxes, {});
      check_many(Block{.format = format, .rule = BlockRule::torchao}, amaxes, {});
    }
  }
}

}  // namespace fp8lab::tests
