// SPDX-License-Identifier: Apache-2.0
// The FP8 output of a Linear layer under delayed scaling, against a composition of scalar models.
#include <cmath>
#include <string>
#include <vector>

#include "fp8lab/reference/linear/shape_rules.hpp"
#include "reference/linear/slow_linear.hpp"
#include "support.hpp"

// Files are compiled together: names that others have, too, are in a namespace of this one.
namespace fp8lab::tests::fp8_output {
namespace {

/// The recipe with given scales that are no powers of two, and FP8 outputs forward and backward.
LinearRecipe with_fp8_output(const char* name, const Format& forward, const Format& backward) {
  LinearRecipe recipe = find_linear_recipe(name).recipe;
  recipe.fprop.a = recipe.wgrad.b = GivenScale{.scale = 3.7F};
  recipe.fprop.b = recipe.dgrad.b = GivenScale{.scale = 41.0F};
  recipe.dgrad.a = recipe.wgrad.a = GivenScale{.format = e5m2, .scale = 900.0F};
  recipe.fprop.recipe.output = forward;
  recipe.dgrad.recipe.output = backward;
  return recipe;
}

/// Every element of a result, and its amax, as the slow pass and a scalar cast give them.
void require_slow_output(const Quantized& q, const SlowPass& slow, const Format& format, float scale,
                         std::span<const float> bias = {}) {
  REQUIRE(q.codes.size() == q.rows * q.columns);
  CHECK(q.direction == Direction::rowwise);
  CHECK(q.format == format);
  float amax = 0;
  for (std::size_t i = 0; i < q.codes.size(); ++i) {
    float value = slow.product(i / q.columns, i % q.columns);
    if (!bias.empty()) value += decode(bfloat16, encode(bfloat16, cuda_nosat_policy, bias[i % q.columns]));
    amax = std::fmax(amax, std::fabs(value));
    const float scaled = value * scale;
    INFO("element " << i / q.columns << ", " << i % q.columns);
    REQUIRE(q.codes[i] == encode(format, CastPolicy{}, scaled));
  }
  CHECK(bits(q.amax) == bits(amax));
  CHECK(bits(q.scale_inv.at(0)) == bits(1 / scale));
}

}  // namespace

TEST_CASE("an FP8 output is the cast of the scaled float32 result, with the amax of what is not scaled or rounded") {
  const LayerTensor x = drawn_tensor(32, 160, 1, 0);
  const LayerTensor w = drawn_tensor(48, 160, 2, -3);
  const LayerTensor dy = drawn_tensor(32, 48, 3, -9);
  std::vector<float> bias;
  for (int i = 0; i < 48; ++i) bias.push_back(1.0F / static_cast<float>(3 + i));
  for (const auto& name : {"te_delayed_hopper", "te_delayed_blackwell"}) {
    for (const Format& format : {e4m3, e5m2}) {
      const LinearRecipe recipe = with_fp8_output(name, format, format);
      // Underflow, no power of two, and most of it saturated.
      for (const float scale : {0x1p-12F, 2.3F, 3e4F}) {
        INFO(name << " to " << format_name(format) << " by " << scale);
        Quantized y;
        Quantized dx;
        linear(recipe, x.view(), w.view(), y, {.bias = bias, .threads = 2, .output_scale = scale});
        require_slow_output(y, SlowPass(recipe.fprop, x, Direction::rowwise, w, Direction::rowwise), format, scale,
                            bias);
        linear_dgrad(recipe, dy.view(), w.view(), dx, {.output_scale = scale});
        require_slow_output(dx, SlowPass(recipe.dgrad, dy, Direction::rowwise, w, Direction::columnwise), format,
                            scale);
      }
    }
  }
}

TEST_CASE("an FP8 output has no bfloat16 on its way: a value that bfloat16 rounds onto a tie keeps its side") {
  // x w^T = (1 + 2^-4) + 2^-10: E4M3's neighbours are 1 and 1.125, whose tie is 1 + 2^-4; bfloat16 drops the 2^-10.
  LinearRecipe recipe = find_linear_recipe("te_delayed_blackwell").recipe;
  std::vector<float> x(8 * 16);
  std::vector<float> w(16 * 16);
  x[0] = 1, x[1] = 0x1p-4F, x[2] = 0x1p-5F;
  w[0] = 1, w[1] = 1, w[2] = 0x1p-5F;
  const MatrixView left{x, 8, 16};
  const MatrixView right{w, 16, 16};
  std::vector<std::uint16_t> rounded(8 * 16);
  linear(recipe, left, right, std::span(rounded));
  recipe.fprop.recipe.output = e4m3;
  Quantized y;
  linear(recipe, left, right, y);
  CHECK(y.amax == 1 + 0x1p-4F + 0x1p-10F);
  CHECK(y.codes[0] == encode(e4m3, CastPolicy{}, 1.125F));
  CHECK(encode(e4m3, CastPolicy{}, decode(bfloat16, rounded[0])) == encode(e4m3, CastPolicy{}, 1.0F));
}

TEST_CASE("an FP8 output is the next layer's input, and its amax makes the next scale") {
  const LinearRecipe recipe = with_fp8_output("te_delayed_hopper", e4m3, e5m2);
  const LayerTensor x = drawn_tensor(32, 64, 1, 0);
  const LayerTensor w = drawn_tensor(64, 64, 2, -3);
  const Delayed delayed;
  AmaxHistory history = start_history(delayed);
  Quantized y;
  linear(recipe, x.view(), w.view(), y, {.output_scale = history.scale});
  record_amax(delayed, Pass::forward, history, y.amax);
  update_scale(delayed, Pass::forward, history);
  CHECK(history.scale == 448 / y.amax);
  std::vector<float> values(32 * 64);
  dequantize(y, values);
  Quantized z;
  linear(recipe, std::cref(y), w.view(), z, {.output_scale = history.scale});
  LinearRecipe by_one = recipe;
  by_one.fprop.a = GivenScale{};
  Quantized expected;
  linear(by_one, MatrixView{std::span<const float>(values), 32, 64}, w.view(), expected,
         {.output_scale = history.scale});
  CHECK(z.codes == expected.codes);
  linear(recipe, std::cref(y), w.view(), y, {.output_scale = history.scale});  // in place
  CHECK(y.codes == expected.codes);
}

TEST_CASE("FP8 outputs are refused where no GEMM writes them") {
  const auto refused = [](const LinearRecipe& recipe, const std::string& message) {
    CHECK_THROWS_WITH(check_linear_recipe(recipe), ContainsSubstring(message));
  };
  for (const auto& name :
       {"te_current_scaling_hopper", "te_mxfp8_blackwell", "te_block_hopper", "te_nvfp4_blackwell", "bf16_hopper"}) {
    LinearRecipe recipe = find_linear_recipe(name).recipe;
    recipe.fprop.recipe.output = e4m3;
    INFO(name);
    refused(recipe,
            "fprop: output must not be e4m3: GEMMs write FP8 under delayed scaling alone, whose operands have "
            "given scales; under other recipes they write high precision, which a second kernel quantizes");
  }
  LinearRecipe recipe = with_fp8_output("te_delayed_hopper", e4m3, e5m2);
  recipe.wgrad.recipe.output = e5m2;
  refused(recipe, "wgrad: output must not be e5m2: no system has dw in FP8");
  recipe.wgrad.recipe.output = e3m2;
  refused(recipe,
          "wgrad: output must be float32, float16 or bfloat16, or e4m3 or e5m2 under delayed scaling, not e3m2");
}

TEST_CASE("a pass with an FP8 output takes a Quantized, and what it refuses leaves that as it was") {
  const LinearRecipe recipe = with_fp8_output("te_delayed_hopper", e4m3, e5m2);
  const LinearRecipe& plain = find_linear_recipe("te_delayed_hopper").recipe;
  const LayerTensor x = drawn_tensor(32, 64, 1, 0);
  const LayerTensor w = drawn_tensor(24, 64, 2, -3);
  std::vector<std::uint16_t> codes(32 * 24);
  Quantized y;
  CHECK_THROWS_WITH(linear(recipe, x.view(), w.view(), std::span(codes), {.check_shapes = false}),
                    "fprop: out must be a Quantized, for the recipe's output is e4m3");
  CHECK_THROWS_WITH(linear(plain, x.view(), w.view(), y),
                    "fprop: out must not be a Quantized, for the recipe's output is bfloat16");
  CHECK_THROWS_WITH(linear(plain, x.view(), w.view(), std::span(codes), {.output_scale = 2.0F}),
                    "fprop: output_scale is for an output of e4m3 or e5m2");
  CHECK_THROWS_WITH(linear(recipe, x.view(), w.view(), y, {.output_scale = -1.0F, .check_shapes = false}),
                    ContainsSubstring("fprop: output_scale must not be negative"));
  // A row of an FP8 result has 16 bytes only where out is a multiple of 16.
  CHECK_THROWS_WITH(linear(recipe, x.view(), w.view(), y),
                    ContainsSubstring("fprop: w: out (rows) must be a multiple of 16, not 24 (nearest: 16 or 32)"));
  CHECK(y.codes.empty());
  linear(recipe, x.view(), w.view(), y, {.check_shapes = false});
  CHECK(y.codes.size() == 32 * 24);
}

}  // namespace fp8lab::tests::fp8_output
