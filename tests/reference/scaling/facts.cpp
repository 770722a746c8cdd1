// SPDX-License-Identifier: Apache-2.0
// What a recipe says of itself is what quantize() and dequantize() do.
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/scale_rule.hpp"

#include <map>
#include <string>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

constexpr std::size_t tall = 128;
constexpr std::size_t wide = 256;

/// Rowwise tiles of named recipes, as their systems' documents have them.
const std::map<std::string, TileShape, std::less<>> published_tiles{{"te_current_scaling", {tall, wide}},
                                                                    {"torchao_rowwise", {1, wide}},
                                                                    {"te_mxfp8", {1, 32}},
                                                                    {"te_mxfp8_2d", {32, 32}},
                                                                    {"ocp_mxfp4", {1, 32}},
                                                                    {"te_block_1x128", {1, 128}},
                                                                    {"te_block_128x128", {128, 128}},
                                                                    {"te_nvfp4", {1, 16}},
                                                                    {"te_nvfp4_2d", {16, 16}}};

std::vector<float> some_values() {
  std::vector<float> x(tall * wide);
  sample(find_distribution("normal"), 3, 0, x);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= static_cast<float>(1 + i / wide % 7) * 0.01F;
  return x;
}

/// Codes in the tensor's own order, a byte each.
std::vector<std::uint8_t> codes_in_order(const Quantized& q) {
  std::vector<std::uint8_t> codes(q.codes.begin(), q.codes.end());
  if (q.format.bits() == 4) {
    codes.resize(q.rows * q.columns);
    unpack_pairs(q.codes, codes);
  }
  if (!q.transposed) return codes;
  std::vector<std::uint8_t> turned(codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) turned[i] = codes[i % q.columns * q.rows + i / q.columns];
  return turned;
}

}  // namespace

TEST_CASE("facts: tiles are those that the systems publish, and the other direction's are turned") {
  for (const auto& [name, tile] : published_tiles) {
    INFO(name);
    const Recipe& recipe = find_recipe(name).recipe;
    CHECK(tile_shape(recipe, Direction::rowwise, tall, wide) == tile);
    const TileShape turned = tile_shape(recipe, Direction::columnwise, wide, tall);
    CHECK(turned == TileShape{tile.columns, tile.rows});
  }
  CHECK_THROWS_WITH(tile_shape(find_recipe("te_mxfp8").recipe, Direction::rowwise, 2, 33),
                    ContainsSubstring("columns must be a multiple of 32"));
}

TEST_CASE("facts: every element comes back as its code's value times its tile's scale, by every recipe") {
  const std::vector<float> x = some_values();
  for (const NamedRecipe& named : recipes()) {
    if (is_stochastic(named.recipe)) continue;
    for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
      INFO(named.name << ", direction " << static_cast<int>(direction));
      const Quantized q = quantize({x, tall, wide}, named.recipe, direction);
      std::vector<float> back(x.size());
      dequantize(q, back);
      const std::vector<std::uint8_t> codes = codes_in_order(q);
      const std::vector<float> scales = tile_scales_inv(q);
      const TileShape tile = tile_shape(q);
      CHECK(tile == tile_shape(named.recipe, direction, tall, wide));
      const std::size_t across = (wide + tile.columns - 1) / tile.columns;
      std::size_t different = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float scale = scales[i / wide / tile.rows * across + i % wide / tile.columns];
        different += bits(decode(q.format, codes[i]) * scale) == bits(back[i]) ? 0 : 1;
        if (i % 4099 == 0) CHECK(bits(scale_inv_at(q, i / wide, i % wide)) == bits(scale));
      }
      CHECK(different == 0);
      CHECK_THROWS_WITH(scale_inv_at(q, 0, wide), ContainsSubstring("no element (0, 256)"));
    }
  }
}

TEST_CASE("facts: where the tensor has one factor, codes are those of x times or over it, cast by the policy") {
  const std::vector<float> x = some_values();
  std::size_t with_factor = 0;
  for (const NamedRecipe& named : recipes()) {
    if (is_stochastic(named.recipe)) continue;
    INFO(named.name);
    const Quantized q = quantize({x, tall, wide}, named.recipe);
    const std::optional<float> factor = tensor_factor(q);
    const bool whole = tile_shape(q) == TileShape{tall, wide};
    CHECK(factor.has_value() == whole);
    if (!factor) continue;
    ++with_factor;
    std::size_t different = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const bool adds_zero = named.recipe.operation == TileOperation::divide_then_add_zero;
      const float scaled =
          divides(named.recipe.operation) ? x[i] / *factor + (adds_zero ? 0.0F : -0.0F) : x[i] * *factor;
      const float rounded = in_type(binary32, named.recipe.product, scaled);
      different += encode(q.format, named.recipe.cast, rounded) == q.codes[i] ? 0 : 1;
    }
    CHECK(different == 0);
  }
  CHECK(with_factor >= 5);
}

TEST_CASE(
    "facts: scales are stored as float32, E8M0 of MX or E4M3 of NVFP4, which alone has a tensor's scale over them") {
  CHECK(scale_format_of(find_recipe("te_mxfp8").recipe) == e8m0);
  CHECK(scale_format_of(find_recipe("te_nvfp4").recipe) == ue4m3);
  CHECK(scale_format_of(find_recipe("te_block_1x128").recipe) == binary32);
  CHECK(has_tensor_scale(find_recipe("te_nvfp4").recipe));
  CHECK(!has_tensor_scale(find_recipe("te_mxfp8").recipe));
  CHECK(is_stochastic(NvFp4{.stochastic_rounding = true}));
  CHECK(!is_stochastic(NvFp4{}));
}

}  // namespace fp8lab::tests
