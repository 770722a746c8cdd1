// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <memory>

#include "bench.hpp"
#include "fp8lab/reference/linear/fp8_layer.hpp"
#include "fp8lab/reference/measure/random.hpp"
#include "fp8lab/reference/scaling/facts.hpp"

namespace fp8lab::bench {
namespace {

constexpr std::size_t tokens = 1024;
constexpr std::size_t in = 768;
constexpr std::size_t out = 768;

/// Results of a step.
struct StepResults {
  std::vector<std::uint16_t> y = std::vector<std::uint16_t>(tokens * out);
  std::vector<std::uint16_t> dx = std::vector<std::uint16_t>(tokens * in);
  std::vector<float> dw = std::vector<float>(out * in);

  bool operator==(const StepResults&) const = default;
};

/// A layer, its tensors, and these quantized by hand for its three products.
struct Layer {
  Autocast region;
  int threads;
  std::vector<float> x = std::vector<float>(tokens * in), w = std::vector<float>(out * in),
                     dy = std::vector<float>(tokens * out);
  std::vector<std::uint8_t> random;
  Fp8State state = start_fp8_state(1);
  Quantized x_rows, x_columns, w_rows, w_columns, dy_rows, dy_columns;
  StepResults results;

  Layer(const LinearRecipe& recipe, int threads_) : region{.recipe = recipe}, threads(threads_) {
    torch_cuda_normal(1, 0, {}, 0, 1, x);
    torch_cuda_normal(2, 0, {}, 0, 0.023F, w);
    torch_cuda_normal(3, 0, {}, 0, 1e-3F, dy);
    const auto& cast = std::get<Recipe>(recipe.dgrad.a);
    if (is_stochastic(cast)) random.resize(dy.size(), 77);
    QuantizeOptions how;
    if (!random.empty()) how.random = RandomSource{std::span(random), 8};
    quantize_both(x_view(), std::get<Recipe>(recipe.fprop.a), x_rows, x_columns);
    quantize_both(w_view(), std::get<Recipe>(recipe.fprop.b), w_rows, w_columns);
    quantize_both(dy_view(), cast, dy_rows, dy_columns, how);
  }
  [[nodiscard]] MatrixView x_view() const { return {x, tokens, in}; }
  [[nodiscard]] MatrixView w_view() const { return {w, out, in}; }
  [[nodiscard]] MatrixView dy_view() const { return {dy, tokens, out}; }

  /// A training step, with the state: quantization of three tensors in both directions, three products, the updates.
  void step() {
    enter_autocast(state, region);
    const LinearCall call = forward(state, 0, x_view(), w_view(), std::span(results.y), {.threads = threads});
    exit_autocast(state);
    BackwardOptions options{.threads = threads};
    if (!random.empty()) options.random = RandomSource{std::span(random), 8};
    backward(state, call, dy_view(), std::span(results.dx), std::span(results.dw), options);
  }
  /// The three products of what is quantized already.
  void products() {
    const LinearOptions options{.threads = threads};
    linear(region.recipe, std::cref(x_rows), std::cref(w_rows), std::span(results.y), options);
    linear_dgrad(region.recipe, std::cref(dy_rows), std::cref(w_columns), std::span(results.dx), options);
    linear_wgrad(region.recipe, std::cref(dy_columns), std::cref(x_columns), std::span(results.dw), options);
  }
};

}  // namespace

std::vector<Row> layer_rows() {
  std::vector<Row> rows;
  for (const char* name : {"te_delayed_hopper", "te_current_scaling_hopper", "te_current_scaling_blackwell",
                           "te_mxfp8_blackwell", "te_block_hopper", "te_nvfp4_blackwell"}) {
    for (const int threads : {1, 2}) {
      const auto layer = std::make_shared<Layer>(find_linear_recipe(name).recipe, threads);
      rows.push_back(
          {std::string("step of a Linear layer, ") + name + ", 1024x768x768, threads " + std::to_string(threads),
           "its three products", [=] { layer->step(); }, [=] { layer->products(); }, 1,
           [=] {
             layer->state = start_fp8_state(1);  // scales are 1 then, as given
             layer->step();
             const StepResults expected = layer->results;
             layer->products();
             return layer->results == expected;
           }});
    }
  }
  return rows;
}

}  // namespace fp8lab::bench
