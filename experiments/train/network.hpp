// SPDX-License-Identifier: Apache-2.0
// A multilayer perceptron: linear layers with a relu between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "train/cast_tensor.hpp"
#include "train/values.hpp"

namespace fp8lab::experiments {

/// The weight (out, in) and the bias (out) of a layer, or what belongs to each of their elements.
struct Parameters {
  std::vector<float> w, b;
};
using Network = std::vector<Parameters>;

/// How a network computes: sizes of the inputs, of the hidden layers and of the outputs, and a recipe for each layer.
struct NetworkPlan {
  std::vector<std::size_t> sizes;
  std::vector<LayerRecipe> layers;
};

/// The plan of a network under a linear recipe: by delayed scaling where the recipe's scales are given, the last
/// layer in bfloat16 on the same chip where the arguments ask for high precision and the recipe quantizes.
/// Throws std::invalid_argument where the recipe casts a tensor in two ways.
[[nodiscard]] NetworkPlan plan_of(const TrainArguments& arguments, const LinearRecipe& recipe);

/// Uniform weights of variance 2 / in, as He et al. (arXiv 1502.01852) draw them for relu; biases are zero.
[[nodiscard]] Network initial_network(const std::vector<std::size_t>& sizes, std::uint64_t seed);
/// Zeros of the same sizes.
[[nodiscard]] Network zeros_like(const Network& network);

/// `count` random bytes for the cast of dy in a layer.
using RandomBytes = std::function<std::vector<std::uint8_t>(std::size_t layer, std::size_t count)>;

/// One forward pass and one backward pass. Histories get the amaxes, and move on as Transformer Engine's do: those of x
/// and w after the forward pass of all layers, those of dy after the backward pass of all.
class Propagation {
 public:
  /// All outlive this. There are histories of every layer.
  Propagation(const NetworkPlan& plan, const Network& network, std::vector<LayerHistories>& histories);

  /// The outputs for x, (rows, inputs) row-major, which outlives this.
  const Values& forward(std::span<const float> x, std::size_t rows);
  /// The gradients, given that of the outputs. To be called once after forward().
  [[nodiscard]] Network backward(std::vector<float> output_gradient, const RandomBytes& random);

  /// A layer and tensor (x, w, dy).
  [[nodiscard]] const std::vector<TensorStats>& facts() const { return facts_; }

 private:
  void forward_layer(std::size_t layer, const MatrixView& x);
  void backward_layer(std::size_t layer, Values& dy, const RandomBytes& random, Parameters& gradient);

  const NetworkPlan& plan_;
  const Network& network_;
  std::vector<LayerHistories>& histories_;
  std::vector<CastTensor> x_, w_;
  std::vector<Values> outputs_;  ///< of each layer, behind the relu
  std::vector<TensorStats> facts_;
};

}  // namespace fp8lab::experiments
