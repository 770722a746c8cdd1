// SPDX-License-Identifier: Apache-2.0
// What ranks of a split Linear layer add and gather, element by element from scalar models: the order of sums, the
// parts of a split sequence.
#include <algorithm>
#include <utility>
#include <vector>

#include "reference/linear/split_layer.hpp"

namespace fp8lab::tests::split_layer {
namespace {

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

}  // namespace

TEST_CASE(
    "ranks' results are added in the order that is given, each sum or the last one rounded to the output's type") {
  const Layer layer;
  constexpr std::size_t ranks = 4;
  for (const Format& type : {bfloat16, binary16, binary32}) {
    LinearRecipe recipe = find_linear_recipe("te_current_scaling_blackwell").recipe;
    recipe.fprop.recipe.output = type;
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

}  // namespace fp8lab::tests::split_layer
