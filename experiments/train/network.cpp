// SPDX-License-Identifier: Apache-2.0
#include "train/network.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "fp8lab/reference/scaling/facts.hpp"

namespace fp8lab::experiments {
namespace {

/// f(layer); an std::invalid_argument of it gets a message that names the layer.
template <typename Function>
void in_layer(std::size_t layer, const Function& f) {
  try {
    f();
  } catch (const std::invalid_argument& error) {
    refuse("layer ", layer + 1, ": ", error.what());
  }
}

/// A product of a layer, computed into values of the recipe's output type; multiply(out) computes it.
template <typename Multiply>
Values product(const Format& output, std::size_t rows, std::size_t columns, const Multiply& multiply) {
  if (output == binary32) {
    std::vector<float> out(rows * columns);
    multiply(std::span<float>(out));
    return {std::move(out), rows, columns};
  }
  std::vector<std::uint16_t> codes(rows * columns);
  multiply(std::span<std::uint16_t>(codes));
  std::vector<BFloat16> out(codes.size());
  std::ranges::transform(codes, out.begin(), [](std::uint16_t code) { return BFloat16{code}; });
  return {std::move(out), rows, columns};
}

/// The delayed scaling that gives a recipe its scales; none where they are not given.
std::optional<Delayed> delayed_of(const TrainArguments& arguments, const LinearRecipe& recipe) {
  std::optional<Delayed> delayed;
  const auto* dy = std::get_if<Recipe>(&recipe.dgrad.a);
  if (dy == nullptr || !is_given(*dy)) return delayed;
  delayed.emplace();
  delayed->margin = arguments.margin;
  delayed->fp8_format = dy->format == e4m3 ? Fp8Format::e4m3_only : Fp8Format::hybrid;
  delayed->amax_history_len = static_cast<std::size_t>(arguments.amax_history_len);
  delayed->amax_compute_algo = arguments.amax_compute_algo;
  delayed->version = arguments.version;
  check(*delayed);
  return delayed;
}

}  // namespace

NetworkPlan plan_of(const TrainArguments& arguments, const LinearRecipe& recipe) {
  check_linear_recipe(recipe);
  const bool one_cast =
      recipe.fprop.a == recipe.wgrad.b && recipe.fprop.b == recipe.dgrad.b && recipe.dgrad.a == recipe.wgrad.a;
  if (!one_cast) refuse("the recipe must cast each tensor in one way for both of its products");
  for (const Format& output : {recipe.fprop.recipe.output, recipe.dgrad.recipe.output}) {
    if (output != binary32 && output != bfloat16) refuse("the recipe's y and dx must be float32 or bfloat16");
  }
  if (recipe.wgrad.recipe.output != binary32) refuse("the recipe's dw must be float32");
  NetworkPlan plan;
  for (const long long size : arguments.sizes) plan.sizes.push_back(static_cast<std::size_t>(size));
  const bool is_quantized = std::holds_alternative<Recipe>(recipe.fprop.a);
  const bool has_own_head = is_quantized && arguments.head == HeadPrecision::high_precision;
  const std::size_t layers = plan.sizes.size() - 1;
  plan.layers.resize(layers);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    if (has_own_head && layer + 1 == layers) {
      const bool is_hopper = recipe.fprop.recipe.model.chip == hopper_wgmma_fp8.chip;
      plan.layers[layer].linear = find_linear_recipe(is_hopper ? "bf16_hopper" : "bf16_blackwell").recipe;
    } else {
      plan.layers[layer].linear = recipe;
      plan.layers[layer].delayed = delayed_of(arguments, recipe);
    }
  }
  return plan;
}

Network initial_network(const std::vector<std::size_t>& sizes, std::uint64_t seed) {
  Network network;
  std::uint64_t first = 0;
  for (std::size_t layer = 0; layer + 1 < sizes.size(); ++layer) {
    const std::size_t in = sizes[layer];
    const std::size_t out = sizes[layer + 1];
    Parameters& added = network.emplace_back(Parameters{std::vector<float>(in * out), std::vector<float>(out, 0)});
    const double bound = std::sqrt(6.0 / static_cast<double>(in));
    sample_uniform(-bound, bound, seed, first, added.w);
    first += in * out;
  }
  return network;
}

Network zeros_like(const Network& network) {
  Network zeros;
  for (const auto& [w, b] : network) zeros.push_back({std::vector<float>(w.size()), std::vector<float>(b.size())});
  return zeros;
}

Propagation::Propagation(const NetworkPlan& plan, const Network& network, std::vector<LayerHistories>& histories)
    : plan_(plan), network_(network), histories_(histories), facts_(3 * network.size()) {
  x_.reserve(network.size());
  w_.reserve(network.size());
  outputs_.reserve(network.size());
}

const Values& Propagation::forward(std::span<const float> x, std::size_t rows) {
  const std::size_t layers = network_.size();
  for (std::size_t layer = 0; layer < layers; ++layer) {
    in_layer(layer, [&] {
      forward_layer(layer, layer == 0 ? MatrixView(x, rows, plan_.sizes[0]) : outputs_[layer - 1].view());
    });
    if (layer + 1 < layers) apply_relu(outputs_[layer]);
  }
  for (std::size_t layer = 0; layer < layers; ++layer) update_forward(plan_.layers[layer], histories_[layer]);
  return outputs_.back();
}

void Propagation::forward_layer(std::size_t layer, const MatrixView& x) {
  const LayerRecipe& recipe = plan_.layers[layer];
  const std::size_t out = plan_.sizes[layer + 1];
  const MatrixView w(network_[layer].w, out, plan_.sizes[layer]);
  x_.emplace_back(x, LinearTensor::x, recipe, histories_[layer], Directions{});
  w_.emplace_back(w, LinearTensor::w, recipe, histories_[layer], Directions{.columnwise = layer > 0});
  facts_[3 * layer] = x_.back().facts();
  facts_[3 * layer + 1] = w_.back().facts();
  outputs_.push_back(product(recipe.linear.fprop.recipe.output, x.rows(), out, [&](auto y) {
    linear(recipe.linear, x_.back().input(Direction::rowwise), w_.back().input(Direction::rowwise), y,
           {.bias = network_[layer].b});
  }));
}

Network Propagation::backward(std::vector<float> output_gradient, const RandomBytes& random) {
  Network gradients = zeros_like(network_);
  Values dy = values_of(std::move(output_gradient), outputs_.back().rows, outputs_.back().columns,
                        plan_.layers.back().linear.fprop.recipe.output);
  for (std::size_t layer = network_.size(); layer-- > 0;) {
    in_layer(layer, [&] { backward_layer(layer, dy, random, gradients[layer]); });
    if (layer > 0) apply_relu_gradient(dy, outputs_[layer - 1]);
  }
  for (std::size_t layer = 0; layer < network_.size(); ++layer) {
    update_backward(plan_.layers[layer], histories_[layer]);
  }
  return gradients;
}

void Propagation::backward_layer(std::size_t layer, Values& dy, const RandomBytes& random, Parameters& gradient) {
  const LayerRecipe& recipe = plan_.layers[layer];
  std::vector<std::uint8_t> bytes;
  if (takes_random(recipe, LinearTensor::dy)) bytes = random(layer, dy.rows * dy.columns);
  const CastTensor cast(dy.view(), LinearTensor::dy, recipe, histories_[layer], Directions{.rowwise = layer > 0},
                        bytes);
  facts_[3 * layer + 2] = cast.facts();
  linear_wgrad(recipe.linear, cast.input(Direction::columnwise), x_[layer].input(Direction::columnwise),
               std::span<float>(gradient.w));
  gradient.b = column_sums(dy);
  if (layer == 0) return;
  dy = product(recipe.linear.dgrad.recipe.output, dy.rows, plan_.sizes[layer], [&](auto dx) {
    linear_dgrad(recipe.linear, cast.input(Direction::rowwise), w_[layer].input(Direction::columnwise), dx);
  });
}

}  // namespace fp8lab::experiments
