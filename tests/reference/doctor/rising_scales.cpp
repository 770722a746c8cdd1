// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "quantize/kernel_model.hpp"
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

// A few tiles are asked first, and refute most recipes.
TEST_CASE("scales are times one number where those of all tiles are, not of a few") {
  constexpr std::size_t rows = 256;
  constexpr std::size_t columns = 1024;
  std::vector<float> x(rows * columns);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1 + static_cast<float>(i * 7919 % 4096) / 64;
  const MatrixView view(std::span<const float>(x), rows, columns);
  const doctor::Source source(view, 1);
  const NamedRecipe& named = find_recipe("deepseek_v3_2024");
  const doctor::Hypothesis hypothesis{.base = "deepseek_v3_2024", .recipe = named.recipe};
  const Quantized q = quantize(view, named.recipe);
  const auto has_factor = [&](const std::vector<float>& scales) {
    const doctor::Dump dump{
        .codes = q.codes, .format = e4m3, .scales = {.format = binary32, .bytes = std::as_bytes(std::span(scales))}};
    const doctor::StoredDump stored(view, dump);
    const doctor::KernelModel model(source, hypothesis, &stored);
    return doctor::ScalesCase(model, source, scales.size(), Direction::rowwise).factor.has_value();
  };
  std::vector<float> scales = q.scale_inv;
  REQUIRE(scales.size() == rows * columns / 128);
  for (float& one : scales) one *= 3;
  CHECK(has_factor(scales));
  for (const std::size_t other : {std::size_t{0}, std::size_t{1}, scales.size() / 2 + 1, scales.size() - 1}) {
    std::vector<float> changed = scales;
    changed[other] *= 2;
    CAPTURE(other);
    CHECK(!has_factor(changed));
  }
}

}  // namespace fp8lab::tests
