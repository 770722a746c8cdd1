// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "quantize/scales_case.hpp"
#include "reference/scaling/tile_rules.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// Positive finite amaxes in their order: those at edges, and one of 61 of a binade, exhaustively of 5.
std::vector<std::uint32_t> rising_amaxes() {
  std::vector<std::uint32_t> amaxes = edge_amaxes();
  for (std::uint32_t word = bits(1.0F); word <= bits(2.0F); word += exhaustive() ? 5 : 61) amaxes.push_back(word);
  std::ranges::sort(amaxes);
  const auto [first, last] = std::ranges::unique(amaxes);
  amaxes.erase(first, last);
  std::erase_if(amaxes, [](std::uint32_t word) { return word == 0 || word >= bits(inf); });
  return amaxes;
}

/// How often a stored scale is smaller than that of the amax before.
Mismatches falling_scales(const Recipe& recipe, const std::vector<std::uint32_t>& amaxes, const TensorFacts& tensor) {
  std::vector<float> factors(amaxes.size());
  std::vector<float> scale_inv(amaxes.size());
  std::vector<std::uint8_t> codes(amaxes.size());
  tile_scales(recipe, amaxes, tensor, {factors, scale_inv, codes});
  Mismatches falling;
  const bool has_codes = recipe.scale_type != ScaleType::float32;
  for (std::size_t i = 1; i < amaxes.size(); ++i) {
    // Positive floats are ordered as their words are.
    const std::uint32_t before = has_codes ? codes[i - 1] : bits(scale_inv[i - 1]);
    const std::uint32_t own = has_codes ? codes[i] : bits(scale_inv[i]);
    falling.compare(i, amaxes[i], std::min(before, own), before, "scale");
  }
  return falling;
}

}  // namespace

// The doctor relies on it: it looks at no part of a row whose amax makes its scale.
TEST_CASE("a larger amax makes no smaller scale where the doctor takes that for granted") {
  const std::vector<std::uint32_t> amaxes = rising_amaxes();
  std::vector<Recipe> all = recipes_of_tiles();
  for (const Format& format : {e4m3, e5m2, e2m3, e2m1}) {
    all.emplace_back(MxBlock{.format = format, .rule = MxRule::rceil, .edges = E8m0Edges::torchao_0_18});
  }
  for (const NamedRecipe& one : recipes()) all.push_back(one.recipe);
  std::size_t rising = 0;
  std::size_t falling = 0;
  for (const Recipe& recipe : all) {
    CAPTURE(describe(recipe));
    for (const Format& type : {binary32, bfloat16, binary16}) {
      const Mismatches wrong = falling_scales(recipe, amaxes, {.amax = 3, .input_type = type});
      if (doctor::has_rising_scales(recipe)) {
        REQUIRE_NO(wrong);
        ++rising;
      } else if (wrong.count() != 0) {
        ++falling;
      }
    }
  }
  // Most rules are such, and some others are not.
  REQUIRE(rising > 4 * falling);
  REQUIRE(falling > 0);
}

}  // namespace fp8lab::tests
