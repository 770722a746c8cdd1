// SPDX-License-Identifier: Apache-2.0
// A layer of random tensors for the tests of layers that are split over ranks, and its parts.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "fp8lab/reference/linear/linear.hpp"
#include "reference/linear/slow_linear.hpp"
#include "support.hpp"

namespace fp8lab::tests::split_layer {

inline constexpr std::size_t tokens = 128, in = 256, out = 256;

/// The i-th of n parts of the rows, or of the columns.
inline LayerTensor rows_of(const LayerTensor& x, std::size_t i, std::size_t n) {
  const std::size_t rows = x.rows / n;
  const auto first = x.values.begin() + static_cast<std::ptrdiff_t>(i * rows * x.columns);
  return {std::vector<float>(first, first + static_cast<std::ptrdiff_t>(rows * x.columns)), rows, x.columns};
}
inline LayerTensor columns_of(const LayerTensor& x, std::size_t i, std::size_t n) {
  LayerTensor part{{}, x.rows, x.columns / n};
  for (std::size_t j = 0; j < x.values.size(); ++j) {
    if (j % x.columns / part.columns == i) part.values.push_back(x.values[j]);
  }
  return part;
}

struct Layer {
  LayerTensor x = drawn_tensor(tokens, in, 1, 0), w = drawn_tensor(out, in, 2, -4),
              dy = drawn_tensor(tokens, out, 3, -11);
  std::vector<std::uint8_t> random = std::vector<std::uint8_t>(tokens * out);
  Layer() {
    for (std::size_t i = 0; i < random.size(); ++i) random[i] = static_cast<std::uint8_t>(random_bits(4, i));
    x.values[5] = 40;  // parts differ in their amax
    w.values[7] = 3;
    dy.values[9] = 0.5F;
  }
};

inline bool is_stochastic(const LinearRecipe& recipe) {
  const auto* cast = std::get_if<Recipe>(&recipe.dgrad.a);
  return cast != nullptr && cast->cast.rounding == Rounding::stochastic;
}

/// A pass of the layer under those options, as words.
inline std::vector<std::uint32_t> words_of(const LinearRecipe& recipe, LinearPass pass, const Layer& layer,
                                           LinearOptions options, std::size_t size, float start = 0) {
  if (pass != LinearPass::fprop && is_stochastic(recipe)) options.random = RandomSource{std::span(layer.random), 8};
  const auto call = [&](auto to) {
    switch (pass) {
      case LinearPass::fprop: return linear(recipe, layer.x.view(), layer.w.view(), to, options);
      case LinearPass::dgrad: return linear_dgrad(recipe, layer.dy.view(), layer.w.view(), to, options);
      case LinearPass::wgrad: return linear_wgrad(recipe, layer.dy.view(), layer.x.view(), to, options);
    }
  };
  if (gemm_of(recipe, pass).recipe.output != binary32) {
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

inline float value_of_word(std::uint32_t word, const Format& type) {
  return type == binary32 ? std::bit_cast<float>(word) : decode(type, word);
}
inline std::uint32_t word_of(float value, const Format& type) {
  return type == binary32 ? bits(value) : encode(type, cuda_nosat_policy, value);
}

inline constexpr std::size_t step = 331;  // between the elements that are compared

}  // namespace fp8lab::tests::split_layer
