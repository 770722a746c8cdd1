// SPDX-License-Identifier: Apache-2.0
// The scales of many tiles at once are those of each tile, on every instruction set.
#include <algorithm>
#include <cmath>

#include "fp8lab/formats/targets.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "reference/scaling/tile_rules.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

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
  std::vector<std::uint32_t> amaxes;
  const std::vector<std::uint32_t> all = edge_amaxes();
  for (std::size_t i = 0; i < all.size(); i += exhaustive() ? 1 : 3) amaxes.push_back(all[i]);
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

TEST_CASE("scales under a tensor's are those of each, whatever makes products and factors, on every target") {
  const UnforceTarget at_end;
  std::vector<std::uint32_t> amaxes{0};
  const std::vector<std::uint32_t> all = edge_amaxes();
  for (std::size_t i = 0; i < all.size(); i += exhaustive() ? 5 : 23) amaxes.push_back(all[i]);
  std::vector<Recipe> recipes;
  for (const NamedRecipe& named : fp8lab::recipes()) {
    if (named.recipe.tensor_scale != TensorScaleRule::none) recipes.push_back(named.recipe);
  }
  for (int product = 0; product <= static_cast<int>(BlockProduct::quotient_over_quotient); ++product) {
    for (int factor = 0; factor <= static_cast<int>(BlockFactor::block_over_scale); ++factor) {
      for (const SpecialScale zero : {SpecialScale::computed, SpecialScale::one, SpecialScale::type_epsilon}) {
        Recipe recipe = NvFp4{};
        recipe.block_product = static_cast<BlockProduct>(product);
        recipe.block_factor = static_cast<BlockFactor>(factor);
        recipe.zero_amax = zero;
        recipe.least_scale_inv = factor % 2 == 0 ? 0x1p-6F : 0;
        recipes.push_back(recipe);
      }
    }
  }
  for (const std::string_view target : targets()) {
    force_target(target);
    for (const Recipe& recipe : recipes) {
      CAPTURE(target, describe(recipe));
      for (const float tensor : {0.0F, 0x1p-140F, 3.0F, inf}) check_many(recipe, amaxes, {.amax = tensor});
      check_many(recipe, amaxes, {.amax = 3, .input_type = bfloat16});
      for (const float tie : {257.0F, 259.0F})
        check_many(recipe, amaxes, {.amax = 3, .tensor_scale = tie});  // of bfloat16
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
