// SPDX-License-Identifier: Apache-2.0
// Products of quantized tensors: every recipe on every model that takes it, against a slow composition and exact sums.
#include <algorithm>
#include <array>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "reference/gemm/slow_product.hpp"
#include "reference/tensor_core/slow_models.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// Elements to look at: corners, and some between.
std::vector<std::pair<std::size_t, std::size_t>> places(std::size_t rows, std::size_t columns, std::size_t count) {
  std::vector<std::pair<std::size_t, std::size_t>> result{{0, 0}, {rows - 1, columns - 1}};
  for (std::uint64_t i = 0; result.size() < count; ++i) {
    result.emplace_back(random_bits(1, 2 * i) % rows, random_bits(1, 2 * i + 1) % columns);
  }
  return result;
}

/// Values of three binades, a row and a tile of zeros, and some NaN and infinities where `special`.
std::vector<float> tensor(std::size_t rows, std::size_t columns, std::uint64_t seed, bool special) {
  std::vector<float> x(rows * columns);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto word = static_cast<std::uint32_t>(random_bits(seed, i));
    x[i] = std::bit_cast<float>((word & 0x80FFFFFFU) + 0x3E000000U);
    if (i / columns == 1 || (i / columns < 3 && i % columns < 16)) x[i] = 0;
  }
  if (special) {
    x[x.size() / 2 + columns / 3] = NAN;
    x[x.size() / 3] = seed % 2 == 0 ? inf : 1e30F;
  }
  return x;
}

/// Codes and scales of both directions, and what they were made of.
struct Tensor {
  Quantized rowwise, columnwise;
};
Tensor quantized(std::size_t rows, std::size_t columns, const Recipe& recipe, std::uint64_t seed, bool special) {
  Tensor result;
  const std::vector<float> x = tensor(rows, columns, seed, special);
  quantize_both({x, rows, columns}, recipe, result.rowwise, result.columnwise);
  return result;
}

/// A layer's sizes, the smallest and oddest of some that the recipe takes.
struct Layer {
  std::size_t tokens, in, out;
};
Layer layer_for(const Recipe& recipe) {
  for (const Layer& one : {Layer{5, 300, 7}, Layer{48, 80, 144}, Layer{32, 160, 64}, Layer{128, 256, 384}}) {
    if (recipe.scale_type == ScaleType::e8m0_code && one.tokens % 32 != 0) continue;  // tensor cores take whole blocks
    try {
      (void)quantized(one.tokens, one.in, recipe, 1, false);
      (void)quantized(one.out, one.in, recipe, 1, false);
      return one;
    } catch (const std::invalid_argument&) {
      continue;
    }
  }
  throw std::logic_error("no layer fits the recipe");
}

/// Compares some elements of one product on all models; returns how many models took it.
std::size_t compare_product(const Quantized& a, std::string_view name_a, const Quantized& b, std::string_view name_b,
                            const std::string& what) {
  const PlainOperand left = taken_apart(a);
  const PlainOperand right = taken_apart(b);
  std::vector<float> x(a.rows * a.columns);
  std::vector<float> y(b.rows * b.columns);
  dequantize(a, x);
  dequantize(b, y);
  std::size_t taken = 0;
  for (const MmaModel& model : models) {
    INFO(name_a << ", " << name_b << ": " << what << " on " << model.name);
    const bool both = slow_fits(model, left) && slow_fits(model, right);
    REQUIRE(takes(model, a) == slow_fits(model, left));
    REQUIRE(takes(model, b) == slow_fits(model, right));
    std::vector<float> out(left.rows * right.rows);
    if (!both) {
      REQUIRE_THROWS_AS(gemm({.model = model}, a, b, out), std::invalid_argument);
      continue;
    }
    if (model.scales && left.depth % static_cast<std::size_t>(model.scales->block) != 0) continue;
    ++taken;
    gemm({.model = model}, a, b, out);
    const bool is_exact = model.k() == 0;
    for (const auto& [row, column] : places(left.rows, right.rows, is_exact ? 6 : 7)) {
      const float expected =
          is_exact ? exact_element(a, x, row, b, y, column) : slow_element(model, left, row, right, column);
      INFO(row << ", " << column << ": " << out[row * right.rows + column] << " " << expected);
      REQUIRE(bits(out[row * right.rows + column]) == bits(expected));
    }
  }
  return taken;
}

/// What a GEMM sees of a recipe.
std::string layout_of(const Recipe& r) {
  std::ostringstream text;
  text << format_name(r.format) << ' ' << r.tile_across << ' ' << r.tile_along << ' ' << static_cast<int>(r.scale_type)
       << ' ' << static_cast<int>(r.transform) << ' ' << static_cast<int>(r.tensor_scale) << ' ' << r.whole_tiles
       << r.pads_tiles << r.transposed_columnwise << r.scale_for_each_row << r.tensor_scale_for_each_row;
  return text.str();
}

}  // namespace

TEST_CASE("a product of quantized tensors is the slow composition, for every recipe, pass and model that takes it") {
  std::set<std::string> seen;
  for (const NamedRecipe& named : recipes()) {
    // Recipes with the same layout of codes and scales are the same to a GEMM: one of each, and all with
    // FP8LAB_EXHAUSTIVE.
    if (!seen.insert(layout_of(named.recipe)).second && !exhaustive()) continue;
    // No tensor core takes E8M0 scales of 128.
    if (named.recipe.scale_type == ScaleType::e8m0_code && named.recipe.tile_along != 32) continue;
    if (named.recipe.tensor_scale_for_each_row) continue;  // a GEMM refuses it
    // Tensor cores without scales are promoted every 128, and so is the slow composition.
    if (named.recipe.scale_type == ScaleType::float32 && named.recipe.tile_along == 32) continue;
    const Layer layer = layer_for(named.recipe);
    std::size_t taken = 0;
    for (const bool special : {false, true}) {
      if (sanitized && !special) continue;
      if (!sanitized && !exhaustive() && special != (seen.size() % 2 == 0)) continue;
      const Tensor x = quantized(layer.tokens, layer.in, named.recipe, 2, special);
      const Tensor w = quantized(layer.out, layer.in, named.recipe, 3, false);
      const Tensor dy = quantized(layer.tokens, layer.out, named.recipe, 4, special);
      const std::string_view name = named.name;
      taken += compare_product(x.rowwise, name, w.rowwise, name, "y = x w^T");
      if (name.find("rht") == name.npos) taken += compare_product(dy.rowwise, name, w.columnwise, name, "dx = dy w");
      taken += compare_product(dy.columnwise, name, x.columnwise, name, "dw = dy^T x");
    }
    INFO(named.name);
    CHECK(taken >= (exhaustive() && !sanitized ? 2 : 1) * 2 * 2);  // data sets, two passes, `exact` and a tensor core
  }
}

TEST_CASE("the two of a product may have recipes that differ, where a model takes both") {
  const auto compare = [](std::string_view left, std::string_view right, std::size_t models_that_take,
                          std::size_t size = 128) {
    INFO(left << " " << right);
    const Tensor x = quantized(size, size, find_recipe(left).recipe, 5, false);
    const Tensor w = quantized(size, size, find_recipe(right).recipe, 6, true);
    CHECK(compare_product(x.rowwise, left, w.rowwise, right, "y = x w^T") == models_that_take);
    CHECK(compare_product(x.columnwise, left, w.columnwise, right, "dw = dy^T x") == models_that_take);
    CHECK(compare_product(x.rowwise, left, w.columnwise, right, "dx = dy w") == models_that_take);
  };
  const auto takes_fp8 = [](const MmaModel& model) {
    const SlowModel slow = slow_model_of(model);
    return slow.scale == SlowScale::none && slow_takes(slow.operands, e4m3, e5m2);
  };
  const auto fp8 = static_cast<std::size_t>(std::ranges::count_if(models, takes_fp8));
  compare("te_current_scaling", "te_current_scaling_e5m2", fp8);
  compare("torchao_rowwise", "te_current_scaling", fp8);
  compare("te_block_1x128", "te_block_128x128", fp8 + 1, 256);
  compare("deepseek_v3_2024", "torchao_rowwise", fp8, 256);
  compare("te_mxfp8", "ocp_mxfp4", 2);
  compare("te_mxfp8", "deepgemm_ue8m0", 2);
  compare("te_nvfp4", "te_nvfp4_2d", 2);
  compare("te_nvfp4", "te_mxfp8", 1);
}

TEST_CASE("delayed scaling's scale may be infinite, 0 or NaN, and the product has it") {
  for (const float scale : {3.0F, inf, 0.0F, nan}) {
    AmaxHistory history = start_history(Delayed{});
    history.scale = scale;
    Quantized x, w;
    const std::vector<float> values = tensor(5, 96, 1, false);
    quantize({values, 5, 96}, Delayed{}, Pass::forward, history, Direction::rowwise, x);
    history.scale = 0.3F;
    const std::vector<float> weights = tensor(96, 7, 2, false);
    quantize({weights, 96, 7}, Delayed{}, Pass::forward, history, Direction::columnwise, w);
    INFO(scale);
    CHECK(compare_product(x, "delayed", w, "delayed", "y = x w") == 17);
  }
}

TEST_CASE("a Quantized that a model does not take is refused, with the models that take it") {
  const Tensor mx = quantized(32, 64, find_recipe("te_mxfp8").recipe, 1, false);
  const Tensor fp4 = quantized(32, 64, find_recipe("ocp_mxfp4").recipe, 1, false);
  const Tensor nvfp4 = quantized(32, 64, find_recipe("te_nvfp4").recipe, 1, false);
  const Tensor turned = quantized(32, 64, find_recipe("te_nvfp4_rht").recipe, 1, false);
  const Tensor current = quantized(32, 64, find_recipe("te_current_scaling").recipe, 1, false);
  const Tensor tiles = quantized(32, 64, find_recipe("te_block_1x128_fp32").recipe, 1, false);
  std::vector<float> out(32 * 32);
  const auto refused = [&](const MmaModel& model, const Quantized& a, const Quantized& b, const std::string& message) {
    CHECK_THROWS_WITH(gemm({.model = model}, a, b, out), message);
  };
  const std::string words = describe(mx.rowwise.recipe);
  refused(hopper_wgmma_fp8, mx.rowwise, mx.rowwise,
          "a was quantized by \"" + words +
              "\", which hopper_wgmma_fp8 does not take: scale_a has 64 codes; "
              "hopper_wgmma_fp8 has no block scales. Models that take it: blackwell_mxf8, exact");
  refused(blackwell_nvf4, fp4.rowwise, nvfp4.rowwise,
          "a was quantized by \"" + describe(fp4.rowwise.recipe) +
              "\", which blackwell_nvf4 does not take: scale_a is "
              "e8m0, one for every 32 of K; blackwell_nvf4 takes ue4m3, one for every 16 of K. Models that take it: "
              "blackwell_mxf8, blackwell_mxf4, exact");
  CHECK_THROWS_WITH(
      gemm({.model = blackwell_mxf8}, mx.rowwise, current.rowwise, out),
      ContainsSubstring("which blackwell_mxf8 does not take: scale_b is left out; blackwell_mxf8 takes e8m0, "
                        "one for every 32 of K. Models that take it: hopper_wgmma_fp8, "));
  CHECK_THROWS_WITH(gemm({.model = blackwell_mxf8}, tiles.rowwise, mx.rowwise, out),
                    ContainsSubstring("scale_a must be powers of two, of which blackwell_mxf8 gets the exponents"));
  CHECK_THROWS_WITH(gemm({.model = hopper_fp16}, current.rowwise, current.rowwise, out),
                    ContainsSubstring("which hopper_fp16 does not take: a is e4m3; hopper_fp16 takes float16."));
  refused(blackwell_mxf8, mx.rowwise, mx.columnwise,
          "a and b must have the same K: of a it is 64, its columns (32 x 64, rowwise), of b 32, its rows (32 x 64, "
          "columnwise)");
  out.resize(64 * 64);
  refused(blackwell_nvf4, turned.columnwise, nvfp4.columnwise,
          "a Hadamard matrix turned a along K, and not b: their product would be of no tensors");
  refused(exact, nvfp4.columnwise, turned.columnwise,
          "a Hadamard matrix turned b along K, and not a: their product would be of no tensors");
  CHECK_THROWS_WITH(gemm({.model = exact}, mx.rowwise, mx.rowwise, out), "out must have 32 * 32 elements, not 4096");
  Quantized broken = mx.rowwise;
  broken.codes.pop_back();
  CHECK_THROWS_WITH(gemm({.model = blackwell_mxf8}, broken, mx.rowwise, out),
                    ContainsSubstring("codes must have 2048 elements"));
}

TEST_CASE("a product of quantized tensors is encoded, split and given a bias as one of arrays is") {
  const Tensor x = quantized(48, 128, find_recipe("te_nvfp4").recipe, 1, false);
  std::vector<float> plain(48 * 48), c(48 * 48, 0.25F), bias(48, -1.5F), out(48 * 48);
  gemm({.model = blackwell_nvf4}, x.rowwise, x.rowwise, plain);
  gemm({.model = blackwell_nvf4}, x.rowwise, x.rowwise, out, {.c = c, .bias = bias, .scale_out = 0.5F, .threads = 2});
  for (std::size_t i = 0; i < out.size(); ++i) REQUIRE(bits(out[i]) == bits((plain[i] + 0.25F - 1.5F) * 0.5F));
  std::vector<std::uint8_t> bytes(out.size());
  std::vector<std::uint16_t> words(out.size());
  gemm({.model = blackwell_nvf4, .output = e4m3}, x.rowwise, x.rowwise, bytes);
  gemm({.model = blackwell_nvf4, .output = bfloat16, .cast = CastPolicy{}}, x.rowwise, x.rowwise, words);
  for (std::size_t i = 0; i < out.size(); ++i) {
    REQUIRE(bytes[i] == encode(e4m3, {}, plain[i]));
    REQUIRE(words[i] == encode(bfloat16, {}, plain[i]));
  }
}

}  // namespace fp8lab::tests
