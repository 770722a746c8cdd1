// SPDX-License-Identifier: Apache-2.0
// Linear layers that are split over ranks, against every rank's part computed by scalar models.
#include <algorithm>
#include <string>
#include <vector>

#include "reference/linear/split_layer.hpp"

namespace fp8lab::tests::split_layer {

TEST_CASE("a column-parallel layer: every rank casts its part of the weight and of dy, and dx is summed") {
  const Layer layer;
  constexpr std::size_t ranks = 2;
  for (const NamedLinearRecipe& named : linear_recipes()) {
    const LinearRecipe& recipe = named.recipe;
    INFO(named.name);
    const LinearOptions options{.threads = 2, .parallel = {.mode = ParallelMode::column, .ranks = ranks}};
    const auto y = words_of(recipe, LinearPass::fprop, layer, options, tokens * out);
    const auto dx = words_of(recipe, LinearPass::dgrad, layer, options, tokens * in);
    const auto dw = words_of(recipe, LinearPass::wgrad, layer, options, out * in);
    std::vector<SlowPass> slow_y, slow_dx, slow_dw;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const LayerTensor w = rows_of(layer.w, rank, ranks);
      const LayerTensor dy = columns_of(layer.dy, rank, ranks);
      // Random bytes follow the codes: rowwise those of dy, columnwise those of its transpose.
      std::vector<std::uint8_t> rowwise, columnwise;
      for (std::size_t i = 0; is_stochastic(recipe) && i < tokens * out; ++i) {
        if (i % out / (out / ranks) == rank) rowwise.push_back(layer.random[i]);
        if (i / (out / ranks * tokens) == rank) columnwise.push_back(layer.random[i]);
      }
      slow_y.emplace_back(recipe.fprop, layer.x, Direction::rowwise, w, Direction::rowwise);
      slow_dx.emplace_back(recipe.dgrad, dy, Direction::rowwise, w, Direction::columnwise, rowwise);
      slow_dw.emplace_back(recipe.wgrad, dy, Direction::columnwise, layer.x, Direction::columnwise, columnwise);
    }
    const std::size_t part = out / ranks;
    for (std::size_t i = 0; i < y.size(); i += step) {
      REQUIRE(y[i] == slow_y[i % out / part].word(i / out, i % out % part));
    }
    for (std::size_t i = 0; i < dw.size(); i += step) {
      REQUIRE(dw[i] == slow_dw[i / in / part].word(i / in % part, i % in));
    }
    const Format type = recipe.dgrad.recipe.output;
    for (std::size_t i = 0; i < dx.size(); i += step) {
      std::vector<float> values;
      for (const SlowPass& slow : slow_dx) values.push_back(value_of_word(slow.word(i / in, i % in), type));
      REQUIRE(dx[i] == word_of(values[0] + values[1], type));
    }
  }
}

TEST_CASE("a row-parallel layer: every rank casts its columns of x and of the weight, and y is summed") {
  const Layer layer;
  constexpr std::size_t ranks = 2;
  for (const NamedLinearRecipe& named : linear_recipes()) {
    const LinearRecipe& recipe = named.recipe;
    INFO(named.name);
    const LinearOptions options{.parallel = {.mode = ParallelMode::row, .ranks = ranks}};
    const auto y = words_of(recipe, LinearPass::fprop, layer, options, tokens * out);
    const auto dx = words_of(recipe, LinearPass::dgrad, layer, options, tokens * in);
    const auto dw = words_of(recipe, LinearPass::wgrad, layer, options, out * in);
    const std::vector<std::uint8_t> random = is_stochastic(recipe) ? layer.random : std::vector<std::uint8_t>();
    std::vector<SlowPass> slow_y, slow_dx, slow_dw;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const LayerTensor x = columns_of(layer.x, rank, ranks);
      const LayerTensor w = columns_of(layer.w, rank, ranks);
      slow_y.emplace_back(recipe.fprop, x, Direction::rowwise, w, Direction::rowwise);
      slow_dx.emplace_back(recipe.dgrad, layer.dy, Direction::rowwise, w, Direction::columnwise, random);
      slow_dw.emplace_back(recipe.wgrad, layer.dy, Direction::columnwise, x, Direction::columnwise, random);
    }
    const std::size_t part = in / ranks;
    for (std::size_t i = 0; i < dx.size(); i += step) {
      REQUIRE(dx[i] == slow_dx[i % in / part].word(i / in, i % in % part));
    }
    for (std::size_t i = 0; i < dw.size(); i += step) {
      REQUIRE(dw[i] == slow_dw[i % in / part].word(i / in, i % in % part));
    }
    const Format type = recipe.fprop.recipe.output;
    for (std::size_t i = 0; i < y.size(); i += step) {
      std::vector<float> values;
      for (const SlowPass& slow : slow_y) values.push_back(value_of_word(slow.word(i / out, i % out), type));
      REQUIRE(y[i] == word_of(values[0] + values[1], type));
    }
  }
}

TEST_CASE(
    "the bias of a row-parallel layer is added to the sum in the output's type, that of a column-parallel by the "
    "GEMM") {
  const Layer layer;
  std::vector<float> bias;
  for (std::size_t i = 0; i < out; ++i) bias.push_back(1.0F / static_cast<float>(3 + i));
  for (const Format& type : {bfloat16, binary32}) {
    LinearRecipe recipe = find_linear_recipe("te_current_scaling_hopper").recipe;
    recipe.fprop.recipe.output = type;
    for (const int ranks : {1, 2}) {
      const auto y = [&](ParallelMode mode, std::span<const float> given) {
        return words_of(recipe, LinearPass::fprop, layer, {.bias = given, .parallel = {mode, ranks}}, tokens * out);
      };
      const auto bare = y(ParallelMode::row, {});
      const auto row = y(ParallelMode::row, bias);
      const auto column = y(ParallelMode::column, bias);
      for (std::size_t i = 0; i < row.size(); ++i) {
        const float rounded = value_of_word(word_of(bias[i % out], type), type);  // float32 stays float32
        REQUIRE(row[i] == word_of(value_of_word(bare[i], type) + rounded, type));
      }
      const auto part = static_cast<std::size_t>(ranks);
      for (std::size_t rank = 0; rank < part; ++rank) {
        const SlowPass slow(recipe.fprop, layer.x, Direction::rowwise, rows_of(layer.w, rank, part),
                            Direction::rowwise);
        for (std::size_t i = 0; i < tokens * out / part; i += step) {
          const std::size_t at = i % (out / part) + rank * (out / part);
          const float short_bias = decode(bfloat16, encode(bfloat16, cuda_nosat_policy, bias[at]));
          REQUIRE(column[i / (out / part) * out + at] == slow.word(i / (out / part), i % (out / part), 0, short_bias));
        }
      }
      if (ranks == 1) CHECK(row != column);
    }
  }
}

TEST_CASE("a split wgrad is added to the ranks' parts of main_grad") {
  const Layer layer;
  const LinearRecipe& recipe = find_linear_recipe("te_delayed_hopper").recipe;
  for (const ParallelMode mode : {ParallelMode::column, ParallelMode::row}) {
    LinearOptions options{.parallel = {mode, 4}};
    const auto bare = words_of(recipe, LinearPass::wgrad, layer, options, out * in);
    options.accumulate = true;
    const auto sum = words_of(recipe, LinearPass::wgrad, layer, options, out * in, 1.0F / 3);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      REQUIRE(sum[i] == bits(std::bit_cast<float>(bare[i]) + 1.0F / 3));
    }
  }
}

TEST_CASE("a split layer refuses what ranks cannot share, and leaves the result as it was") {
  const Layer layer;
  const LinearRecipe& exact_recipe = find_linear_recipe("exact").recipe;
  std::vector<float> y(tokens * out, 7);
  const auto refused = [&](const LinearRecipe& recipe, const LinearInput& x, const TensorParallel& parallel,
                           const std::string& message, std::span<const float> bias = {}) {
    CHECK_THROWS_WITH(linear(recipe, x, layer.w.view(), std::span(y), {.bias = bias, .parallel = parallel}), message);
    CHECK(std::ranges::all_of(y, [](float one) { return one == 7; }));
  };
  using enum ParallelMode;
  refused(exact_recipe, layer.x.view(), {column, 3},
          "fprop: out must be a multiple of 3, the ranks that share it, not 256");
  refused(exact_recipe, layer.x.view(), {row, 7},
          "fprop: in must be a multiple of 7, the ranks that share it, not 256");
  refused(exact_recipe, layer.x.view(), {column, 256, true},
          "fprop: tokens must be a multiple of 256, the ranks that share it, not 128");
  refused(exact_recipe, layer.x.view(), {row, 2, false, {ReductionOrder::ring, {0, 0}}},
          "the reduction's ranks must be each of 0 to 1 once");
  refused(exact_recipe, layer.x.view(), {row, 2}, "fprop: bias must have 256 elements, not 2", std::span(y).first(2));
  LinearRecipe mx = find_linear_recipe("te_mxfp8_blackwell").recipe;
  mx.fprop.recipe.output = binary32;
  refused(mx, layer.x.view(), {row, 16},
          "fprop: x: in (columns) must be a multiple of 512 (32 on each of 16 ranks), not 256 (nearest: 512), for "
          "Transformer Engine's quantizer; check_shapes = false computes what it refuses");
  const Quantized q = quantize(layer.x.view(), MxBlock{});
  refused(mx, std::cref(q), {row, 2}, "fprop: x must not be quantized: every rank quantizes its part");
  LinearRecipe fp8 = find_linear_recipe("te_delayed_hopper").recipe;
  fp8.fprop.recipe.output = e4m3;
  Quantized codes;
  CHECK_THROWS_WITH(linear(fp8, layer.x.view(), layer.w.view(), codes, {.parallel = {row, 2}}),
                    ContainsSubstring("fprop: parallel is for an output in high precision"));
  CHECK_THROWS_WITH(find_value<ReductionOrder>("order", "tree"),
                    ContainsSubstring("known: sequential, ring, pairwise"));
}

}  // namespace fp8lab::tests::split_layer
