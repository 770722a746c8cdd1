// SPDX-License-Identifier: Apache-2.0
// A layer of 256 tokens, 512 features in and 384 out under every named linear recipe, with the rules of its system: all
// three passes against the composition of scalar models. FP8LAB_EXHAUSTIVE compares every element.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "fp8lab/reference/linear/linear.hpp"
#include "reference/linear/slow_linear.hpp"
#include "support.hpp"

// Files are compiled together: names that others have, too, are in a namespace of this one.
namespace fp8lab::tests::whole_layer {
namespace {

constexpr std::size_t tokens = 256, in = 512, out = 384;

std::vector<std::uint32_t> words_of(const LinearRecipe& recipe, LinearPass pass, const LayerTensor& a,
                                    const LayerTensor& b, std::size_t size, const LinearOptions& options) {
  const auto call = [&](auto to) {
    switch (pass) {
      case LinearPass::fprop: return linear(recipe, a.view(), b.view(), to, options);
      case LinearPass::dgrad: return linear_dgrad(recipe, a.view(), b.view(), to, options);
      case LinearPass::wgrad: return linear_wgrad(recipe, a.view(), b.view(), to, options);
    }
  };
  if (gemm_of(recipe, pass).recipe.output != binary32) {
    std::vector<std::uint16_t> codes(size);
    call(std::span(codes));
    return {codes.begin(), codes.end()};
  }
  std::vector<float> values(size);
  call(std::span(values));
  std::vector<std::uint32_t> words;
  words.reserve(size);
  for (const float value : values) words.push_back(bits(value));
  return words;
}

/// How many of the elements 0, step, 2 step, ... differ, and the first that does.
struct Mismatches {
  std::size_t count, first;
};
Mismatches mismatches_of(const std::vector<std::uint32_t>& actual, const SlowPass& slow, std::size_t columns,
                         std::size_t step, std::span<const float> bias) {
  std::atomic<std::size_t> count{0};
  std::atomic<std::size_t> first{actual.size()};
  const std::size_t workers = step == 1 ? std::max(std::thread::hardware_concurrency(), 1U) : 1;
  const auto compare = [&](std::size_t worker) {
    for (std::size_t i = worker * step; i < actual.size(); i += workers * step) {
      const float added = bias.empty() ? 0 : bias[i % columns];
      if (actual[i] == slow.word(i / columns, i % columns, 0, added)) continue;
      ++count;
      std::size_t before = first;
      while (i < before && !first.compare_exchange_weak(before, i)) continue;
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t worker = 1; worker < workers; ++worker) threads.emplace_back(compare, worker);
  compare(0);
  for (std::thread& thread : threads) thread.join();
  return {count, first};
}

}  // namespace

TEST_CASE("a layer of 256 x 512 x 384 has the bits of the slow composition, pass by pass, under every linear recipe",
          "[long]") {
  // A prime sample of all elements.
  const std::size_t step = exhaustive() ? 1 : 2003;
  const LayerTensor x = drawn_tensor(tokens, in, 1, 0);
  const LayerTensor w = drawn_tensor(out, in, 2, -4);
  const LayerTensor dy = drawn_tensor(tokens, out, 3, -11);
  std::vector<std::uint8_t> bytes(tokens * out);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(random_bits(4, i));
  std::vector<float> bias;
  for (std::size_t i = 0; i < out; ++i) {
    bias.push_back(decode(bfloat16, encode(bfloat16, cuda_nosat_policy, 1.0F / static_cast<float>(3 + i))));
  }
  const auto check = [&](const NamedLinearRecipe& named, LinearPass pass, const LayerTensor& a, const LayerTensor& b,
                         const LinearOptions& options, std::size_t rows, std::size_t columns) {
    const LinearFactors factors = factors_of(pass);
    std::span<const std::uint8_t> random;
    if (options.random) random = bytes;
    const SlowPass slow(gemm_of(named.recipe, pass), a, factors.a.direction, b, factors.b.direction, random);
    const auto words = words_of(named.recipe, pass, a, b, rows * columns, options);
    const Mismatches wrong = mismatches_of(words, slow, columns, step, options.bias);
    INFO(named.name << ", " << name_of(pass) << ": first at " << wrong.first / columns << ", "
                    << wrong.first % columns);
    CHECK(wrong.count == 0);
  };
  for (const NamedLinearRecipe& named : linear_recipes()) {
    const auto* cast = std::get_if<Recipe>(&named.recipe.dgrad.a);
    LinearOptions options{.threads = 2};
    if (cast != nullptr && cast->cast.rounding == Rounding::stochastic) {
      options.random = RandomSource{std::span<const std::uint8_t>(bytes), 8};
    }
    check(named, LinearPass::fprop, x, w, {.bias = bias, .threads = 2}, tokens, out);
    check(named, LinearPass::dgrad, dy, w, options, tokens, in);
    check(named, LinearPass::wgrad, dy, x, options, out, in);
  }
}

}  // namespace fp8lab::tests::whole_layer
