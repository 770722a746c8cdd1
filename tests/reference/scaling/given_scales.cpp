// SPDX-License-Identifier: Apache-2.0
// Scales and amaxes that the caller has, tensors' scales for each row, and products in the tensor's type.
#include <cmath>
#include <limits>
#include <string>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/recipe_names.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "plain_quantize.hpp"

namespace fp8lab::tests::quantization {
namespace {

constexpr std::size_t tensor_rows = 64, tensor_columns = 256;

/// The amax of each tile, (tiles down, tiles across).
std::vector<float> amaxes_of_tiles(const std::vector<float>& x, const TileShape& tile) {
  const std::size_t across = (tensor_columns + tile.columns - 1) / tile.columns;
  std::vector<float> all((tensor_rows + tile.rows - 1) / tile.rows * across);
  for (std::size_t i = 0; i < x.size(); ++i) {
    float& amax = all[i / tensor_columns / tile.rows * across + i % tensor_columns / tile.columns];
    amax = std::fmax(amax, std::fabs(x[i]));
  }
  return all;
}

}  // namespace

TEST_CASE("given scales: amaxes of the tensor's own tiles change nothing, by every recipe and in both directions") {
  const std::vector<float> x = values(tensor_rows * tensor_columns, 5, true);
  for (const NamedRecipe& named : recipes()) {
    const Recipe& recipe = named.recipe;
    if (is_given(recipe) || recipe.tensor_scale_for_each_row || recipe.transform != Transform::none) continue;
    if ((recipe.whole_tiles || recipe.pads_tiles) &&
        (tensor_rows % recipe.tile_along != 0 || recipe.tile_across > tensor_rows))
      continue;
    for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
      INFO(named.name << ", direction " << static_cast<int>(direction));
      const Quantized own = quantize({x, tensor_rows, tensor_columns}, recipe, direction);
      const std::vector<float> amaxes = amaxes_of_tiles(x, tile_shape(recipe, direction, tensor_rows, tensor_columns));
      require_same(quantize({x, tensor_rows, tensor_columns}, recipe, direction, {.given = {.amaxes = amaxes}}), own);
      const std::vector<float> twice{2 * *std::ranges::max_element(amaxes)};
      const Quantized other =
          quantize({x, tensor_rows, tensor_columns}, recipe, direction, {.given = {.amaxes = twice}, .threads = 2});
      const bool same = other.codes == own.codes && other.scale_inv == own.scale_inv;
      CHECK((!same || other.scale_codes != own.scale_codes));
    }
  }
}

TEST_CASE("given scales: scales of tiles are used as they are, whichever of the two is given") {
  const std::vector<float> x = values(tensor_rows * tensor_columns, 6, true);
  for (const char* name : {"vllm_static", "vllm_per_token", "vllm_group", "te_block_128x128", "deepseek_v3_2024"}) {
    Recipe recipe = find_recipe(name).recipe;
    if (recipe.tile_across > 1) recipe.tile_across = recipe.tile_along = 16;
    for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
      if (direction == Direction::columnwise && (recipe.whole_tiles || recipe.pads_tiles)) continue;
      const TileShape tile = tile_shape(recipe, direction, tensor_rows, tensor_columns);
      const std::size_t across = (tensor_columns + tile.columns - 1) / tile.columns;
      std::vector<float> given(((tensor_rows + tile.rows - 1) / tile.rows) * across);
      for (std::size_t i = 0; i < given.size(); ++i) given[i] = 0.3F + 0.01F * static_cast<float>(i);
      for (const bool inverse : {false, true}) {
        INFO(name << ", direction " << static_cast<int>(direction) << ", inverse " << inverse);
        const GivenScales own = inverse ? GivenScales{.scales_inv = given} : GivenScales{.scales = given};
        const Quantized q = quantize({x, tensor_rows, tensor_columns}, recipe, direction, {.given = own, .threads = 2});
        CHECK(is_given(q.recipe));
        const std::vector<float> stored = tile_scales_inv(q);
        Mismatches wrong;
        for (std::size_t i = 0; i < x.size(); ++i) {
          const float one = given[i / tensor_columns / tile.rows * across + i % tensor_columns / tile.columns];
          const float scale_inv = inverse ? one : 1 / one;
          const bool is_quotient = recipe.operation == TileOperation::divide;
          const float scaled = is_quotient ? x[i] / scale_inv : x[i] * (inverse ? 1 / one : one);
          wrong.compare(i, x[i], code_at(q, i / tensor_columns, i % tensor_columns),
                        encode(q.format, recipe.cast, scaled), "code");
          wrong.compare(i, x[i], word_of(scale_inv_at(q, i / tensor_columns, i % tensor_columns)), word_of(scale_inv),
                        "scale_inv");
        }
        REQUIRE_NO(wrong);
        CHECK(stored.size() == given.size());
      }
    }
  }
}

TEST_CASE("given scales: the tensor's scale of NVFP4 is given, as a number, its inverse, an amax, or none") {
  const std::vector<float> x = values(tensor_rows * tensor_columns, 7, true);
  for (const char* name : {"te_nvfp4", "vllm_nvfp4", "torchao_nvfp4", "compressed_tensors_nvfp4", "modelopt_nvfp4"}) {
    INFO(name);
    const Recipe& recipe = find_recipe(name).recipe;
    const Quantized own = quantize({x, tensor_rows, tensor_columns}, recipe);
    const bool by_inverse = recipe.tensor_scale == TensorScaleRule::amax_over_largest;
    GivenScales given;
    if (by_inverse) {
      given.tensor_scale_inv = own.amax / 2688;
    } else if (recipe.tensor_scale == TensorScaleRule::largest_times_inverse) {
      given.tensor_scale = 1 / own.amax * 2688;
    } else {
      given.tensor_scale = 2688 / own.amax;
    }
    Quantized q = quantize({x, tensor_rows, tensor_columns}, recipe, Direction::rowwise, {.given = given});
    CHECK(q.codes == own.codes);
    CHECK(q.scale_codes == own.scale_codes);
    // What comes back is a code times its tile's scale and the inverse of the tensor's.
    std::vector<float> back(x.size());
    dequantize(q, back);
    const float inverse = by_inverse ? given.tensor_scale_inv : 1 / given.tensor_scale;
    const float d = decode(ue4m3, q.scale_codes[0]);
    const bool quotient = recipe.tensor_scale == TensorScaleRule::largest_times_inverse;
    CHECK(back[0] == decode(e2m1, code_at(q, 0, 0)) * (quotient ? d / given.tensor_scale : d * inverse));
    // An amax, and no scale at all.
    q = quantize({x, tensor_rows, tensor_columns}, recipe, Direction::rowwise, {.given = {.tensor_amax = own.amax}});
    require_same(q, own);
    q = quantize({x, tensor_rows, tensor_columns}, recipe, Direction::rowwise, {.given = {.tensor_scale = 1}});
    dequantize(q, back);
    CHECK(back[0] == decode(e2m1, code_at(q, 0, 0)) * decode(ue4m3, q.scale_codes[0]));
  }
}

TEST_CASE("given scales: what does not go with the recipe is refused") {
  const std::vector<float> x(tensor_rows * tensor_columns, 1);
  const std::vector<float> two{1, 2};
  const std::vector<float> negative{-1};
  const auto refused = [&](const char* name, const GivenScales& given, const char* message) {
    CHECK_THROWS_WITH(
        quantize({x, tensor_rows, tensor_columns}, find_recipe(name).recipe, Direction::rowwise, {.given = given}),
        ContainsSubstring(message));
  };
  refused("vllm_per_token", {.amaxes = two},
          "amaxes must have one element, or one for each of the 64 x 1 tiles, not 2");
  refused("vllm_per_token", {.scales = two},
          "scales must have one element, or one for each of the 64 x 1 tiles, not 2");
  refused("vllm_per_token", {.scales = two, .scales_inv = two}, "must not both be given");
  refused("vllm_per_token", {.scales_inv = negative}, "must be positive and finite");
  refused("vllm_static", {.amaxes = two}, "amaxes are for recipes that make scales of them");
  refused("te_mxfp8", {.scales = two}, "scale and scale_inv are given to recipes whose scales are float32");
  refused("te_mxfp8", {.tensor_amax = 1}, "are for recipes with one tensor_scale");
  refused("te_nvfp4", {.tensor_scale = -1},
          "tensor_scale must be positive and finite, or 0 where it is not given, not -1");
  constexpr float infinity = std::numeric_limits<float>::infinity();
  refused("te_nvfp4", {.tensor_scale = infinity}, "tensor_scale must be positive and finite");
  refused("te_nvfp4", {.tensor_scale_inv = infinity}, "tensor_scale_inv must be positive and finite");
  refused("te_nvfp4", {.tensor_scale_inv = std::numeric_limits<float>::quiet_NaN()},
          "tensor_scale_inv must be positive");
  refused("te_nvfp4", {.tensor_amax = -1}, "tensor_amax must be 0 or more, not -1");
  refused("te_nvfp4_row_scaled", {.tensor_amax = 1}, "are for recipes with one tensor_scale");
  refused("te_nvfp4_row_scaled", {.row_amaxes = two},
          "row_amaxes must have 64 elements, one for every row along K, not 2");
  refused("te_nvfp4_row_scaled", {.row_amaxes = negative}, "row_amaxes must be 0 or more, not -1");
  refused("te_nvfp4", {.row_amaxes = two}, "row_amaxes are for recipes where each row has a scale");
}

TEST_CASE("row-scaled NVFP4 is NVFP4 of each row, and columnwise of each column") {
  std::vector<float> x = values(tensor_rows * tensor_columns, 8, true);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= 1 + static_cast<float>(i / tensor_columns);
  const Recipe& recipe = find_recipe("te_nvfp4_row_scaled").recipe;
  for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
    const bool rowwise = direction == Direction::rowwise;
    const std::size_t lines = rowwise ? tensor_rows : tensor_columns;
    const std::size_t length = rowwise ? tensor_columns : tensor_rows;
    const Quantized q = quantize({x, tensor_rows, tensor_columns}, recipe, direction, {.threads = 2});
    std::vector<float> back(x.size());
    dequantize(q, back);
    REQUIRE(q.row_amaxes.size() == lines);
    for (std::size_t i = 0; i < lines; ++i) {
      std::vector<float> line(length);
      for (std::size_t k = 0; k < length; ++k)
        line[k] = rowwise ? x[i * tensor_columns + k] : x[k * tensor_columns + i];
      const Quantized one = quantize({line, 1, length}, find_recipe("te_nvfp4").recipe);
      std::vector<float> own(length);
      dequantize(one, own);
      REQUIRE(q.row_amaxes[i] == one.amax);
      REQUIRE(std::ranges::equal(one.codes, std::span(q.codes).subspan(i * length / 2, length / 2)));
      REQUIRE(std::ranges::equal(one.scale_codes, std::span(q.scale_codes).subspan(i * length / 16, length / 16)));
      for (std::size_t k = 0; k < length; ++k) {
        REQUIRE(own[k] == (rowwise ? back[i * tensor_columns + k] : back[k * tensor_columns + i]));
      }
    }
    CHECK(!takes(find_model("blackwell_nvf4"), q));
    std::vector<float> out(lines * lines);
    CHECK_THROWS_WITH(gemm({.model = find_model("blackwell_nvf4")}, q, q, out),
                      ContainsSubstring("a tensor's scale for each row"));
  }
}

TEST_CASE("4 over 6 takes the scale with the smaller error, and the usual one where they are equal") {
  const std::vector<float> x = values(tensor_rows * tensor_columns, 9, true);
  std::vector<Recipe> recipes;
  for (const char* name :
       {"te_nvfp4_4over6", "te_nvfp4_4over6_mse", "te_nvfp4_4over6_448", "te_nvfp4_4over6_448_mse"}) {
    recipes.push_back(find_recipe(name).recipe);
    const bool squares = recipes.back().block_choice == BlockChoice::four_or_six_squared;
    recipes.push_back(recipes.back());
    recipes.back().block_choice =
        squares ? BlockChoice::four_or_six_squared_scaled : BlockChoice::four_or_six_absolute_scaled;
  }
  for (const Recipe& recipe : recipes) {
    const std::string name(name_of(recipe.block_choice));
    for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
      INFO(name << " " << recipe.tensor_range << ", direction " << static_cast<int>(direction));
      const Quantized q = quantize({x, tensor_rows, tensor_columns}, recipe, direction);
      const bool rowwise = direction == Direction::rowwise;
      const float top = 6 * recipe.tensor_range;
      const float scale = std::fmin(top / q.amax, std::numeric_limits<float>::max());
      std::size_t stretched = 0;
      for (std::size_t block = 0; block < q.scale_codes.size(); ++block) {
        const std::size_t length = rowwise ? tensor_columns : tensor_rows;
        const auto element = [&](std::size_t k) {
          const std::size_t at = block * 16 + k;  // in the order of the codes
          return rowwise ? x[at] : x[at % length * tensor_columns + at / length];
        };
        float amax = 0;
        for (std::size_t k = 0; k < 16; ++k) amax = std::fmax(amax, std::fabs(element(k)));
        const float base = amax / 6 * scale;
        float best = inf;
        std::uint32_t code = 0;
        for (const float stretch : {1.0F, 1.5F}) {
          const auto candidate = encode(ue4m3, {}, std::fmin(base * stretch, 448));
          const float d = decode(ue4m3, candidate);
          const float factor = std::fmin(1 / (d * (1 / scale)), std::numeric_limits<float>::max());
          float error = 0;
          for (std::size_t k = 0; k < 16; ++k) {
            const float value = decode(e2m1, encode(e2m1, {}, element(k) * factor)) * d;
            const bool is_scaled = name.ends_with("_scaled");
            const float off = is_scaled ? value - element(k) * scale : value * q.amax / top - element(k);
            error += name.find("squared") != std::string::npos ? off * off : std::fabs(off);
          }
          if (error < best) code = candidate;
          best = std::fmin(best, error);
        }
        REQUIRE(q.scale_codes[block] == code);
        stretched += code != encode(ue4m3, {}, base) ? 1 : 0;
      }
      CHECK(stretched > q.scale_codes.size() / 8);
      CHECK(stretched < q.scale_codes.size());
    }
  }
}

TEST_CASE("stochastic rounding is for every format, and its random bits decide") {
  std::vector<float> x(tensor_rows * tensor_columns, 1.0625F);  // halfway between codes of E4M3
  x[0] = 448;
  for (const char* name : {"te_current_scaling", "te_current_scaling_e5m2", "te_mxfp8", "vllm_per_token", "te_nvfp4"}) {
    INFO(name);
    Recipe recipe = find_recipe(name).recipe;
    const Quantized nearest = quantize({x, tensor_rows, tensor_columns}, recipe);
    recipe.cast.rounding = Rounding::stochastic;
    const std::vector<std::uint16_t> low(x.size(), 0);
    const std::vector<std::uint16_t> high(x.size(), 0xFFFF);
    const auto by = [&](const std::vector<std::uint16_t>& words) {
      return quantize({x, tensor_rows, tensor_columns}, recipe, Direction::rowwise,
                      {.random = RandomSource{words, 16}});
    };
    recipe.cast.rounding = Rounding::toward_zero;
    const Quantized down = quantize({x, tensor_rows, tensor_columns}, recipe);
    recipe.cast.rounding = Rounding::stochastic;
    CHECK(by(low).codes == down.codes);
    CHECK(by(high).codes != down.codes);
    CHECK_THROWS_WITH(quantize({x, tensor_rows, tensor_columns}, recipe), ContainsSubstring("needs random bits"));
  }
}

}  // namespace fp8lab::tests::quantization
