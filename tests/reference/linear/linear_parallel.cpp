// SPDX-License-Identifier: Apache-2.0
// Linear layers that are split over ranks, against every rank's part computed by scalar models, and their sums made
// element by element.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reference/linear/slow_linear.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

constexpr std::size_t tokens = 128, in = 256, out = 256;

LayerTensor drawn(std::size_t rows, std::size_t columns, std::uint64_t seed, int most) {
  LayerTensor x{std::vector<float>(rows * columns), rows, columns};
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const auto word = static_cast<std::uint32_t>(random_bits(seed, i));
    x.values[i] = std::ldexp(std::bit_cast<float>((word & 0x81FFFFFFU) + 0x3E000000U), most);
  }
  return x;
}

/// The i-th of n parts of the rows, or of the columns.
LayerTensor rows_of(const LayerTensor& x, std::size_t i, std::size_t n) {
  const std::size_t rows = x.rows / n;
  const auto first = x.values.begin() + static_cast<std::ptrdiff_t>(i * rows * x.columns);
  return {std::vector<float>(first, first + static_cast<std::ptrdiff_t>(rows * x.columns)), rows, x.columns};
}
LayerTensor columns_of(const LayerTensor& x, std::size_t i, std::size_t n) {
  LayerTensor part{{}, x.rows, x.columns / n};
  for (std::size_t j = 0; j < x.values.size(); ++j) {
    if (j % x.columns / part.columns == i) part.values.push_back(x.values[j]);
  }
  return part;
}

struct Layer {
  LayerTensor x = drawn(tokens, in, 1, 0), w = drawn(out, in, 2, -4), dy = drawn(tokens, out, 3, -11);
  std::vector<std::uint8_t> random = std::vector<std::uint8_t>(tokens * out);
  Layer() {
    for (std::size_t i = 0; i < random.size(); ++i) random[i] = static_cast<std::uint8_t>(random_bits(4, i));
    x.values[5] = 40;  // parts differ in their amax
    w.values[7] = 3;
    dy.values[9] = 0.5F;
  }
};

bool is_stochastic(const LinearRecipe& recipe) {
  const auto* cast = std::get_if<Recipe>(&recipe.dgrad.a);
  return cast != nullptr && cast->cast.rounding == Rounding::stochastic;
}

/// A pass of the layer under those options, as words.
std::vector<std::uint32_t> words_of(const LinearRecipe& recipe, LinearPass pass, const Layer& layer,
                                    LinearOptions options, std::size_t size, float start = 0) {
  if (pass != LinearPass::fprop && is_stochastic(recipe)) options.random = RandomSource{std::span(layer.random), 8};
  const auto call = [&](auto to) {
    switch (pass) {
      case LinearPass::fprop: return linear(recipe, layer.x.view(), layer.w.view(), to, options);
      case LinearPass::dgrad: return linear_dgrad(recipe, layer.dy.view(), layer.w.view(), to, options);
      case LinearPass::wgrad: return linear_wgrad(recipe, layer.dy.view(), layer.x.view(), to, options);
    }
  };
  if (gemm_of(recipe, pass).output != binary32) {
    std::vector<std::uint16_t> codes(size);
    call(std::span(codes));
    return {codes.begin(), codes.end()};
  }
  std::vector<float> values(size, start);
  call(std::span(values));
  std::vector<std::uint32_t> words;
  for (const float value : values) words.push_back(bits(value));
  return words;
}

float value_of_word(std::uint32_t word, const Format& type) {
  return type == binary32 ? std::bit_cast<float>(word) : decode(type, word);
}
std::uint32_t word_of(float value, const Format& type) {
  return type == binary32 ? bits(value) : encode(type, cuda_nosat_policy, value);
}

/// The sum of ranks' values in an order: each sum is rounded to the type, or the last one alone.
std::uint32_t summed(const std::vector<float>& values, const Reduction& reduction,
                     const std::vector<std::size_t>& order, const Format& type) {
  const auto rounded = [&](float sum) { return reduction.in_float32 ? sum : value_of_word(word_of(sum, type), type); };
  std::vector<float> terms;
  for (const std::size_t rank : order) terms.push_back(values[rank]);
  while (terms.size() > 1) {
    std::vector<float> next;
    if (reduction.order == ReductionOrder::pairwise) {
      for (std::size_t i = 0; i + 1 < terms.size(); i += 2) next.push_back(rounded(terms[i] + terms[i + 1]));
      if (terms.size() % 2 == 1) next.push_back(terms.back());
    } else {
      next.assign(terms.begin() + 1, terms.end());
      next[0] = rounded(terms[0] + terms[1]);
    }
    terms = next;
  }
  return word_of(terms[0], type);
}

/// The order in which NCCL's ring adds the element: it begins behind the owner of the element's chunk, and ends there.
std::vector<std::size_t> ring_order(std::vector<std::size_t> ring, std::size_t owner_place) {
  std::vector<std::size_t> order;
  for (std::size_t i = 1; i <= ring.size(); ++i) order.push_back(ring[(owner_place + i) % ring.size()]);
  return order;
}

constexpr std::size_t step = 331;  // between the elements that are compared

}  // namespace

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
    const Format type = recipe.dgrad.output;
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
    const Format type = recipe.fprop.output;
    for (std::size_t i = 0; i < y.size(); i += step) {
      std::vector<float> values;
      for (const SlowPass& slow : slow_y) values.push_back(value_of_word(slow.word(i / out, i % out), type));
      REQUIRE(y[i] == word_of(values[0] + values[1], type));
    }
  }
}

TEST_CASE(
    "ranks' results are added in the order that is given, each sum or the last one rounded to the output's type") {
  const Layer layer;
  constexpr std::size_t ranks = 4;
  for (const Format& type : {bfloat16, binary16, binary32}) {
    LinearRecipe recipe = find_linear_recipe("te_current_scaling_blackwell").recipe;
    recipe.fprop.output = type;
    std::vector<SlowPass> slow;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      slow.emplace_back(recipe.fprop, columns_of(layer.x, rank, ranks), Direction::rowwise,
                        columns_of(layer.w, rank, ranks), Direction::rowwise);
    }
    for (const ReductionOrder order : {ReductionOrder::sequential, ReductionOrder::ring, ReductionOrder::pairwise}) {
      for (const std::vector<int>& permutation : {std::vector<int>{}, {2, 0, 3, 1}}) {
        for (const bool in_float32 : {false, true}) {
          for (const bool sequence : {false, true}) {
            const Reduction reduction{order, permutation, in_float32};
            const auto y = words_of(recipe, LinearPass::fprop, layer,
                                    {.parallel = {ParallelMode::row, ranks, sequence, reduction}}, tokens * out);
            std::vector<std::size_t> given{0, 1, 2, 3};
            if (!permutation.empty()) given.assign(permutation.begin(), permutation.end());
            INFO(name_of(order) << ", " << format_name(type) << (in_float32 ? ", float32" : "") << sequence);
            for (std::size_t i = 0; i < y.size(); i += 2003) {
              const std::size_t chunk = i / (tokens * out / ranks);
              // Scattered, a chunk belongs to the rank of its number; else to the place of its number in the ring.
              const auto owner = std::ranges::find(given, chunk) - given.begin();
              const std::size_t place = sequence ? static_cast<std::size_t>(owner) : chunk;
              std::vector<float> values;
              for (const SlowPass& one : slow) values.push_back(value_of_word(one.word(i / out, i % out), type));
              REQUIRE(y[i] == summed(values, reduction,
                                     order == ReductionOrder::ring ? ring_order(given, place) : given, type));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("another permutation of the ranks, another order and float32 sums change bits, as rounding has it") {
  const Layer layer;
  const LinearRecipe& recipe = find_linear_recipe("te_mxfp8_blackwell").recipe;
  const auto y = [&](ReductionOrder order, std::vector<int> ranks, bool in_float32 = false) {
    const Reduction reduction{order, std::move(ranks), in_float32};
    return words_of(recipe, LinearPass::fprop, layer, {.parallel = {ParallelMode::row, 4, false, reduction}},
                    tokens * out);
  };
  const auto ascending = y(ReductionOrder::sequential, {});
  const auto same = [](const auto& a, const auto& b) { return a == b; };  // a failure does not print all words
  CHECK(same(y(ReductionOrder::sequential, {0, 1, 2, 3}), ascending));
  CHECK(same(y(ReductionOrder::sequential, {1, 0, 2, 3}), ascending));  // a + b is b + a
  CHECK_FALSE(same(y(ReductionOrder::sequential, {3, 2, 1, 0}), ascending));
  CHECK_FALSE(same(y(ReductionOrder::ring, {}), ascending));
  CHECK_FALSE(same(y(ReductionOrder::pairwise, {}), ascending));
  CHECK(same(y(ReductionOrder::pairwise, {1, 0, 3, 2}), y(ReductionOrder::pairwise, {})));
  CHECK(same(y(ReductionOrder::pairwise, {2, 3, 0, 1}), y(ReductionOrder::pairwise, {})));
  CHECK_FALSE(same(y(ReductionOrder::pairwise, {0, 2, 1, 3}), y(ReductionOrder::pairwise, {})));
  CHECK_FALSE(same(y(ReductionOrder::sequential, {}, true), ascending));
}

TEST_CASE("a split sequence is cast with the amax of all its parts: codes of the parts are those of the whole") {
  // By the scalar models alone: parts are cast by the scale of the whole, and blocks lie within a part.
  const Layer layer;
  const auto codes_equal = [&](const Recipe& whole, const Recipe& of_part, Direction direction) {
    const PlainOperand all = plain_quantized(layer.x, whole, direction);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const PlainOperand part = plain_quantized(rows_of(layer.x, rank, 4), of_part, direction);
      for (std::size_t i = 0; i < part.codes.size(); ++i) {
        const std::size_t row = direction == Direction::rowwise ? rank * part.rows + i / part.depth : i / part.depth;
        const std::size_t k = direction == Direction::rowwise ? i % part.depth : rank * part.depth + i % part.depth;
        REQUIRE(part.codes[i] == all.codes[row * all.depth + k]);
      }
    }
  };
  for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
    const float scale = 448 / plain_quantized(layer.x, JustInTime{}, direction).amax;
    codes_equal(JustInTime{}, GivenScale{.scale = scale}, direction);
    codes_equal(MxBlock{}, MxBlock{}, direction);
  }
  codes_equal(Block{}, Block{}, Direction::rowwise);
  // The layer then has the bits of one whose sequence is whole, but where sums are scattered.
  for (const auto& name : {"te_current_scaling_hopper", "te_mxfp8_blackwell", "te_delayed_blackwell"}) {
    const LinearRecipe& recipe = find_linear_recipe(name).recipe;
    for (const ParallelMode mode : {ParallelMode::column, ParallelMode::row}) {
      for (const LinearPass pass : {LinearPass::fprop, LinearPass::dgrad, LinearPass::wgrad}) {
        const auto words = [&](bool sequence) {
          return words_of(recipe, pass, layer, {.parallel = {mode, 2, sequence}},
                          pass == LinearPass::wgrad ? out * in : tokens * in);
        };
        INFO(name << " " << name_of(mode) << " " << name_of(pass));
        const bool same = words(true) == words(false);
        CHECK(same);
      }
    }
  }
}

TEST_CASE("an x in tiles of 128 whose parts are ragged is quantized, dequantized, gathered and quantized again") {
  Layer layer;
  // The second part is smaller, so that its values lose bits by the scale of both.
  for (std::size_t i = tokens / 2 * in; i < tokens * in; ++i) layer.x.values[i] *= 0x1p-7F;
  constexpr std::size_t ranks = 2;  // 64 tokens each
  LinearRecipe recipe = find_linear_recipe("te_block_hopper").recipe;
  const Recipe exact_scales = Block{.force_pow_2_scales = false};
  for (const Recipe& tiles : {Recipe(Block{}), exact_scales}) {
    recipe.fprop.a = recipe.wgrad.b = tiles;
    const auto twice = [&](Direction direction) {
      LayerTensor x{{}, tokens, in};
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const LayerTensor part = rows_of(layer.x, rank, ranks);
        const PlainOperand q = plain_quantized(part, tiles, direction);
        for (std::size_t i = 0; i < part.values.size(); ++i) {
          const std::size_t row = i / in;
          const std::size_t column = i % in;
          const std::size_t at = direction == Direction::rowwise ? i : column * part.rows + row;
          x.values.push_back(decode(e4m3, q.codes[at]) * q.scales[at]);
        }
      }
      return x;
    };
    const LinearOptions options{.parallel = {ParallelMode::column, ranks, true}};
    const auto y = words_of(recipe, LinearPass::fprop, layer, options, tokens * out);
    const auto dw = words_of(recipe, LinearPass::wgrad, layer, options, out * in);
    const LayerTensor rowwise = twice(Direction::rowwise);
    const LayerTensor columnwise = twice(Direction::columnwise);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const SlowPass slow_y(recipe.fprop, rowwise, Direction::rowwise, rows_of(layer.w, rank, ranks),
                            Direction::rowwise);
      const SlowPass slow_dw(recipe.wgrad, columns_of(layer.dy, rank, ranks), Direction::columnwise, columnwise,
                             Direction::columnwise);
      const std::size_t part = out / ranks;
      for (std::size_t i = 0; i < tokens * part; i += step) {
        REQUIRE(y[i / part * out + rank * part + i % part] == slow_y.word(i / part, i % part));
      }
      for (std::size_t i = 0; i < part * in; i += step) {
        REQUIRE(dw[rank * part * in + i] == slow_dw.word(i / in, i % in));
      }
    }
    const LinearOptions whole{.parallel = {ParallelMode::column, ranks, false}};
    const bool same = dw == words_of(recipe, LinearPass::wgrad, layer, whole, out * in);
    CHECK_FALSE(same);
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
    recipe.fprop.output = type;
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
  mx.fprop.output = binary32;
  refused(mx, layer.x.view(), {row, 16},
          "fprop: x: in (columns) must be a multiple of 512 (32 on each of 16 ranks), not 256 (nearest: 512), for "
          "Transformer Engine's quantizer; check_shapes = false computes what it refuses");
  const Quantized q = quantize(layer.x.view(), MxBlock{});
  refused(mx, std::cref(q), {row, 2}, "fprop: x must not be quantized: every rank quantizes its part");
  LinearRecipe fp8 = find_linear_recipe("te_delayed_hopper").recipe;
  fp8.fprop.output = e4m3;
  Quantized codes;
  CHECK_THROWS_WITH(linear(fp8, layer.x.view(), layer.w.view(), codes, {.parallel = {row, 2}}),
                    ContainsSubstring("fprop: parallel is for an output in high precision"));
  CHECK_THROWS_WITH(find_reduction_order("tree"), ContainsSubstring("known: sequential, ring, pairwise"));
}

}  // namespace fp8lab::tests
