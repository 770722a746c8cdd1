// SPDX-License-Identifier: Apache-2.0
// The passes of a Linear layer under every named linear recipe, against a composition of scalar models.
#include "fp8lab/reference/linear/linear.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "reference/linear/slow_linear.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// Values of three binades, times 2^most, with a row of zeros.
LayerTensor layer_tensor(std::size_t rows, std::size_t columns, std::uint64_t seed, int most) {
  LayerTensor x{std::vector<float>(rows * columns), rows, columns};
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const auto word = static_cast<std::uint32_t>(random_bits(seed, i));
    const float value = std::bit_cast<float>((word & 0x81FFFFFFU) + 0x3E000000U);
    x.values[i] = i / columns == 1 ? 0 : std::ldexp(value, most);
  }
  return x;
}

/// A layer's tensors of sizes that the recipe's casts take: odd ones, or multiples of its blocks; K is above 128 in
/// each pass. (Systems refuse odd sizes: these tests do without check_shapes.)
struct LinearLayer {
  LayerTensor x, w, dy;
  std::vector<std::uint8_t> random;  // where dy is rounded stochastically: a byte for each of its elements
  std::vector<float> bias;
};
LinearLayer layer_for_recipe(const LinearRecipe& recipe) {
  std::size_t tokens = 137, in = 139, out = 150;
  bool is_stochastic = false;
  if (const auto* cast = std::get_if<Recipe>(&recipe.dgrad.a)) {
    if (cast->whole_tiles && cast->tile_along == 16) tokens = 144, in = 176, out = 160;
    if (cast->whole_tiles && cast->tile_along == 32) tokens = 160, in = 192, out = 160;
    if (cast->whole_tiles && cast->tile_along == 128) tokens = 256, in = 128, out = 256;
    if (recipe.fprop.recipe.model.scales && !cast->whole_tiles) tokens = 160, in = 288, out = 192;
    is_stochastic = cast->cast.rounding == Rounding::stochastic;
  }
  LinearLayer layer{
      layer_tensor(tokens, in, 1, 0), layer_tensor(out, in, 2, -4), layer_tensor(tokens, out, 3, -11), {}, {}};
  for (std::size_t i = 0; is_stochastic && i < tokens * out; ++i) {
    layer.random.push_back(static_cast<std::uint8_t>(random_bits(4, i)));
  }
  for (std::size_t i = 0; i < out; ++i) layer.bias.push_back(1.0F / static_cast<float>(3 + i));
  return layer;
}

LinearOptions options_for(const LinearLayer& layer) {
  LinearOptions options{.threads = 2};
  if (!layer.random.empty()) options.random = RandomSource{std::span(layer.random), 8};
  return options;
}

/// The result of a pass, as words.
using PassWords = std::vector<std::uint32_t>;
PassWords run_pass(const LinearRecipe& recipe, LinearPass pass, const LinearInput& a, const LinearInput& b,
                   std::size_t count, LinearOptions options, float start = 0) {
  options.check_shapes = false;
  const auto call = [&](auto out) {
    switch (pass) {
      case LinearPass::fprop: return linear(recipe, a, b, out, options);
      case LinearPass::dgrad: return linear_dgrad(recipe, a, b, out, options);
      case LinearPass::wgrad: return linear_wgrad(recipe, a, b, out, options);
    }
  };
  if (gemm_of(recipe, pass).recipe.output == binary32) {
    std::vector<float> out(count, start);
    call(std::span(out));
    PassWords words;
    for (const float x : out) words.push_back(bits(x));
    return words;
  }
  std::vector<std::uint16_t> out(count);
  call(std::span(out));
  return {out.begin(), out.end()};
}

/// Compares the corners, and every so many elements between, with the slow pass; bias and c are as in word().
void require_slow(const PassWords& actual, const SlowPass& slow, std::size_t columns, std::span<const float> bias = {},
                  float c = 0) {
  for (std::size_t i = 0; i < actual.size(); i += i + 37 < actual.size() ? 37 : 1) {
    const float added = bias.empty() ? 0 : bias[i % columns];
    INFO("element " << i / columns << ", " << i % columns);
    REQUIRE(actual[i] == slow.word(i / columns, i % columns, c, added));
  }
}

}  // namespace

TEST_CASE("the passes of a Linear layer are the slow composition, under every named linear recipe") {
  for (const NamedLinearRecipe& named : linear_recipes()) {
    const LinearRecipe& recipe = named.recipe;
    const LinearLayer layer = layer_for_recipe(recipe);
    const auto& [x, w, dy, random, bias] = layer;
    INFO(named.name);
    const PassWords y = run_pass(recipe, LinearPass::fprop, x.view(), w.view(), x.rows * w.rows, {});
    require_slow(y, SlowPass(recipe.fprop, x, Direction::rowwise, w, Direction::rowwise), w.rows);
    const PassWords dx = run_pass(recipe, LinearPass::dgrad, dy.view(), w.view(), x.values.size(), options_for(layer));
    require_slow(dx, SlowPass(recipe.dgrad, dy, Direction::rowwise, w, Direction::columnwise, random), x.columns);
    const PassWords dw = run_pass(recipe, LinearPass::wgrad, dy.view(), x.view(), w.values.size(), options_for(layer));
    require_slow(dw, SlowPass(recipe.wgrad, dy, Direction::columnwise, x, Direction::columnwise, random), x.columns);
  }
}

TEST_CASE("a bias is of the output's type, and of bfloat16 where the output of an FP8 GEMM is float32") {
  for (const NamedLinearRecipe& named : linear_recipes()) {
    LinearRecipe recipe = named.recipe;
    const LinearLayer layer = layer_for_recipe(recipe);
    const SlowPass slow(recipe.fprop, layer.x, Direction::rowwise, layer.w, Direction::rowwise);
    const bool is_quantized = std::holds_alternative<Recipe>(recipe.fprop.a);
    for (const Format& output : {binary32, binary16, bfloat16}) {
      recipe.fprop.recipe.output = output;
      const Format type = output == binary32 && is_quantized ? bfloat16 : output;
      std::vector<float> bias = layer.bias;
      const PassWords y = run_pass(recipe, LinearPass::fprop, layer.x.view(), layer.w.view(),
                                   layer.x.rows * layer.w.rows, {.bias = layer.bias});
      for (float& one : bias) one = type == binary32 ? one : decode(type, encode(type, cuda_nosat_policy, one));
      INFO(named.name << " to " << format_name(output));
      for (std::size_t i = 0; i < y.size(); i += 1013) {
        const float sum = slow.product(i / layer.w.rows, i % layer.w.rows) + bias[i % layer.w.rows];
        REQUIRE(y[i] == (output == binary32 ? bits(sum) : encode(output, cuda_nosat_policy, sum)));
      }
    }
  }
}

TEST_CASE("wgrad is added to a float32 main_grad after the scales") {
  for (const NamedLinearRecipe& named : linear_recipes()) {
    const LinearRecipe& recipe = named.recipe;
    const LinearLayer layer = layer_for_recipe(recipe);
    LinearOptions options = options_for(layer);
    options.accumulate = true;
    const float start = 1.0F / 3;
    const PassWords dw =
        run_pass(recipe, LinearPass::wgrad, layer.dy.view(), layer.x.view(), layer.w.values.size(), options, start);
    INFO(named.name);
    require_slow(dw,
                 SlowPass(recipe.wgrad, layer.dy, Direction::columnwise, layer.x, Direction::columnwise, layer.random),
                 layer.x.columns, {}, start);
  }
}

TEST_CASE(
    "Transformer Engine's HYBRID has E4M3 forward and E5M2 gradients, and its dgrad and wgrad are promoted on Hopper") {
  for (const auto& name : {"te_delayed_hopper", "te_current_scaling_hopper"}) {
    const LinearRecipe& recipe = find_linear_recipe(name).recipe;
    const auto format = [](const LinearCast& cast) { return std::get<Recipe>(cast).format; };
    CHECK((format(recipe.fprop.a) == e4m3 && format(recipe.fprop.b) == e4m3 && recipe.fprop.recipe.promote_k == 0));
    CHECK((format(recipe.dgrad.a) == e5m2 && format(recipe.dgrad.b) == e4m3 && recipe.dgrad.recipe.promote_k == 128));
    CHECK((format(recipe.wgrad.a) == e5m2 && format(recipe.wgrad.b) == e4m3 && recipe.wgrad.recipe.promote_k == 128));
  }
}

TEST_CASE("the E4M3 variants of per-tensor recipes differ from HYBRID in the format of the gradients alone") {
  for (const std::string name : {"te_delayed_hopper", "te_current_scaling_hopper"}) {
    LinearRecipe expected = find_linear_recipe(name).recipe;
    std::get<Recipe>(expected.dgrad.a).format = e4m3;
    std::get<Recipe>(expected.wgrad.a).format = e4m3;
    CHECK(describe(find_linear_recipe(name + "_e4m3").recipe) == describe(expected));
  }
}

TEST_CASE("a block-scaled wgrad is of the original input, not of what its rowwise codes stand for") {
  for (const auto& name : {"te_mxfp8_blackwell", "te_block_hopper", "deepseek_v3_hopper"}) {
    const LinearRecipe& recipe = find_linear_recipe(name).recipe;
    LinearLayer layer = layer_for_recipe(recipe);
    // Rows of many magnitudes: small ones keep their bits rowwise, and are subnormal, or zero, columnwise.
    for (std::size_t i = 0; i < layer.x.values.size(); ++i) {
      layer.x.values[i] = std::ldexp(layer.x.values[i], 2 * static_cast<int>(i / layer.x.columns % 9));
    }
    const PassWords dw =
        run_pass(recipe, LinearPass::wgrad, layer.dy.view(), layer.x.view(), layer.w.values.size(), {});
    const SlowPass slow(recipe.wgrad, layer.dy, Direction::columnwise, layer.x, Direction::columnwise);
    INFO(name);
    require_slow(dw, slow, layer.x.columns);
    LayerTensor twice = layer.x;
    dequantize(quantize(layer.x.view(), std::get<Recipe>(recipe.fprop.a)), twice.values);
    CHECK(dw != run_pass(recipe, LinearPass::wgrad, layer.dy.view(), twice.view(), layer.w.values.size(), {}));
  }
}

TEST_CASE("scales of tiles that are no powers of two multiply in the order that the recipe says") {
  LinearRecipe recipe = find_linear_recipe("deepseek_v3_hopper").recipe;
  const LinearLayer layer = layer_for_recipe(recipe);
  recipe.wgrad.recipe.output = binary32;
  PassWords before;
  for (const ScaleOrder order : {ScaleOrder::scales_first, ScaleOrder::accumulator_first}) {
    recipe.wgrad.recipe.scale_order = order;
    const PassWords dw =
        run_pass(recipe, LinearPass::wgrad, layer.dy.view(), layer.x.view(), layer.w.values.size(), {});
    require_slow(dw, SlowPass(recipe.wgrad, layer.dy, Direction::columnwise, layer.x, Direction::columnwise),
                 layer.x.columns);
    CHECK(dw != before);
    before = dw;
  }
}

TEST_CASE(
    "weights and inputs saved in FP8 keep the scale_inv they were made with, whatever the history's scale becomes") {
  const LinearRecipe& recipe = find_linear_recipe("te_delayed_hopper").recipe;
  const LinearLayer layer = layer_for_recipe(recipe);
  const Delayed delayed;
  AmaxHistory history = start_history(delayed);
  history.scale = 3.7F;
  Quantized rowwise, columnwise, gradient;
  quantize_both(layer.w.view(), delayed, Pass::forward, history, rowwise, columnwise);
  update_scale(delayed, Pass::forward, history);
  REQUIRE(history.scale != 3.7F);
  LinearGemm fprop = recipe.fprop;
  fprop.b = GivenScale{.scale = 3.7F};
  const PassWords y =
      run_pass(recipe, LinearPass::fprop, layer.x.view(), std::cref(rowwise), layer.x.rows * layer.w.rows, {});
  require_slow(y, SlowPass(fprop, layer.x, Direction::rowwise, layer.w, Direction::rowwise), layer.w.rows);
  LinearGemm dgrad = recipe.dgrad;
  dgrad.a = GivenScale{.format = e5m2, .scale = 1000};
  dgrad.b = GivenScale{.scale = 3.7F};
  AmaxHistory backward = start_history(delayed);
  backward.scale = 1000;
  quantize(layer.dy.view(), delayed, Pass::backward, backward, Direction::rowwise, gradient);
  const PassWords dx =
      run_pass(recipe, LinearPass::dgrad, std::cref(gradient), std::cref(columnwise), layer.x.values.size(), {});
  require_slow(dx, SlowPass(dgrad, layer.dy, Direction::rowwise, layer.w, Direction::columnwise), layer.x.columns);
}

TEST_CASE(
    "a pass is the same of a Quantized as of the tensor it was made of, and of bfloat16 as of its float32 values") {
  for (const NamedLinearRecipe& named : linear_recipes()) {
    const LinearRecipe& recipe = named.recipe;
    const LinearLayer layer = layer_for_recipe(recipe);
    const std::vector<BFloat16> short_x = quantization::as_bfloats(layer.x.values);
    std::vector<float> long_x;
    for (const BFloat16 one : short_x) long_x.push_back(quantization::value_of(one));
    const MatrixView narrow{short_x, layer.x.rows, layer.x.columns};
    const MatrixView wide{long_x, layer.x.rows, layer.x.columns};
    const std::size_t count = layer.x.rows * layer.w.rows;
    const PassWords y = run_pass(recipe, LinearPass::fprop, wide, layer.w.view(), count, {});
    INFO(named.name);
    CHECK(y == run_pass(recipe, LinearPass::fprop, narrow, layer.w.view(), count, {}));
    if (!std::holds_alternative<Recipe>(recipe.fprop.a)) continue;
    const Quantized q = quantize(layer.w.view(), std::get<Recipe>(recipe.fprop.b));
    CHECK(y == run_pass(recipe, LinearPass::fprop, wide, std::cref(q), count, {.threads = 2}));
  }
}

TEST_CASE("a NaN or an infinity in a weight gives what the tensor core makes of its code") {
  for (const NamedLinearRecipe& named : linear_recipes()) {
    const LinearRecipe& recipe = named.recipe;
    if (!std::holds_alternative<Recipe>(recipe.fprop.a)) continue;
    LinearLayer layer = layer_for_recipe(recipe);
    layer.w.values[5 * layer.w.columns + 7] = NAN;
    layer.w.values[8 * layer.w.columns + 40] = inf;
    const std::size_t columns = layer.w.rows;
    const PassWords y =
        run_pass(recipe, LinearPass::fprop, layer.x.view(), layer.w.view(), layer.x.rows * columns, {.threads = 2});
    INFO(named.name);
    require_slow(y, SlowPass(recipe.fprop, layer.x, Direction::rowwise, layer.w, Direction::rowwise), columns);
    if (std::get<Recipe>(recipe.fprop.b).format.has_nan()) CHECK(y[5] == 0x7FFF);
  }
}

TEST_CASE("override_linear_precision takes GEMMs of another recipe, and leaves their outputs") {
  const LinearRecipe& fp8 = find_linear_recipe("te_current_scaling_hopper").recipe;
  const LinearRecipe& high = find_linear_recipe("bf16_hopper").recipe;
  const LinearRecipe mixed = override_linear_precision(fp8, {.wgrad = true}, high);
  CHECK(mixed.fprop.recipe.model.name == "hopper_wgmma_fp8");
  CHECK(mixed.dgrad.recipe.promote_k == 128);
  CHECK(mixed.wgrad.recipe.output == binary32);
  const LinearRecipe& tf32 = find_linear_recipe("tf32_hopper").recipe;
  CHECK(override_linear_precision(fp8, {.fprop = true}, tf32).fprop.recipe.model.name == "hopper_tf32");
  CHECK(override_linear_precision(fp8, {.fprop = true}, tf32).fprop.recipe.output == bfloat16);
  CHECK(override_linear_precision(fp8, {.dgrad = true}, tf32).dgrad.recipe.output == bfloat16);
  const LinearLayer layer = layer_for_recipe(fp8);
  const auto wgrad = [&](const LinearRecipe& recipe) {
    return run_pass(recipe, LinearPass::wgrad, layer.dy.view(), layer.x.view(), layer.w.values.size(), {});
  };
  CHECK(wgrad(mixed) == wgrad(high));
  CHECK(wgrad(mixed) != wgrad(fp8));
}

TEST_CASE("a Linear layer refuses what does not fit, and names the pass and the tensor") {
  const LinearRecipe mx = find_linear_recipe("te_mxfp8_blackwell").recipe;
  const LayerTensor x = layer_tensor(32, 64, 1, 0);
  const LayerTensor w = layer_tensor(96, 64, 2, 0);
  const LayerTensor odd = layer_tensor(32, 48, 3, 0);
  std::vector<std::uint16_t> y(32 * 96);
  std::vector<float> floats(32 * 96);
  const auto refused = [&](const LinearRecipe& recipe, const LinearInput& a, const LinearInput& b,
                           const std::string& message, const LinearOptions& options = {}) {
    CHECK_THROWS_WITH(linear(recipe, a, b, std::span(y), options), ContainsSubstring(message));
  };
  refused(mx, odd.view(), w.view(), "fprop: x has 48 columns and w has 64 columns; they must be as many");
  refused(mx, odd.view(), odd.view(),
          "fprop: x: in (columns) must be a multiple of 32, not 48 (nearest: 32 or 64), for Transformer Engine's "
          "quantizer; check_shapes = false computes what it refuses");
  refused(mx, odd.view(), odd.view(), "fprop: x: columns must be a multiple of 32, the recipe's block, not 48",
          {.check_shapes = false});
  CHECK_THROWS_WITH(linear(mx, x.view(), w.view(), std::span(floats)),
                    "fprop: out must be 16-bit codes, for the recipe's output is bfloat16");
  CHECK_THROWS_WITH(linear_wgrad(mx, x.view(), w.view(), std::span(floats)),
                    "wgrad: dy has 32 rows and x has 96 rows; they must be as many");
  CHECK_THROWS_WITH(linear_dgrad(mx, x.view(), w.view(), std::span(y), {.bias = floats}),
                    "dgrad: bias is for fprop alone");
  refused(mx, x.view(), w.view(), "accumulate is for wgrad alone", {.accumulate = true});
  const Quantized columnwise = quantize(w.view(), MxBlock{}, Direction::columnwise);
  refused(mx, x.view(), std::cref(columnwise), "fprop: w: must be quantized rowwise for this pass");
  const Quantized other = quantize(w.view(), JustInTime{});
  refused(mx, x.view(), std::cref(other), "fprop: w: must be quantized by \"" + describe(std::get<Recipe>(mx.fprop.b)));
  const LinearRecipe& bf16 = find_linear_recipe("bf16_hopper").recipe;
  refused(bf16, x.view(), std::cref(other),
          "fprop: w: must not be quantized: the recipe leaves this operand in bfloat16");
  const std::vector<double> doubles(x.values.begin(), x.values.end());
  refused(bf16, MatrixView{doubles, 32, 64}, w.view(),
          "fprop: x: must be of float32, float16 or bfloat16, not float64");
  const std::vector<std::uint8_t> bytes(x.values.size());
  refused(mx, x.view(), w.view(), "random bits are for a dy", {.random = RandomSource{std::span(bytes), 8}});
  LinearRecipe wrong = mx;
  wrong.dgrad.a = bfloat16;
  refused(wrong, x.view(), w.view(), "dgrad: a and b must both be recipes or both be formats");
  wrong = mx;
  wrong.wgrad.recipe.output = e4m3;
  refused(wrong, x.view(), w.view(), "wgrad: output must not be e4m3: no system has dw in FP8");
  wrong = bf16;
  wrong.fprop.a = e5m2;
  refused(wrong, x.view(), w.view(), "fprop: a must be a recipe, or float32, float16 or bfloat16, not e5m2");
  CHECK_THROWS_WITH(find_linear_recipe("te_mxfp9"), ContainsSubstring("linear recipe"));
}

TEST_CASE("each linear recipe tells its passes in words") {
  for (const NamedLinearRecipe& named : linear_recipes()) CHECK(!describe(named.recipe).empty());
  CHECK_THAT(
      describe(find_linear_recipe("te_current_scaling_hopper").recipe),
      ContainsSubstring("dgrad: dy \"") && ContainsSubstring(", on hopper_wgmma_fp8, promoted every 128, to bfloat16"));
}

}  // namespace fp8lab::tests
