// SPDX-License-Identifier: Apache-2.0
// Steps of small layers on an Fp8State, of which only the amaxes matter.
#pragma once

#include <optional>
#include <vector>

#include "fp8lab/reference/linear/fp8_layer.hpp"
#include "support.hpp"

namespace fp8lab::tests {

/// A tensor of 16 x 16 zeros but for its amax.
inline std::vector<float> with_amax(float amax) {
  std::vector<float> values(256);
  values[5] = -amax;
  return values;
}
inline MatrixView square(const std::vector<float>& values) { return {values, 16, 16}; }

inline Autocast delayed_region(const Delayed& delayed, bool enabled = true) {
  return {.enabled = enabled, .recipe = find_linear_recipe("te_delayed_hopper").recipe, .delayed = delayed};
}

/// Runs layers whose tensors have given amaxes.
struct Fp8Run {
  Fp8State state;

  explicit Fp8Run(std::size_t layers, std::string_view rules = "te_2_8", int ranks = 1)
      : state(start_fp8_state(layers, find_state_rules(rules), ranks)) {}

  LinearCall forward_amaxes(std::size_t layer, float x, float w, const ForwardOptions& options = {}) {
    std::vector<std::uint16_t> y(256);
    LinearCall call = forward(state, layer, square(with_amax(x)), square(with_amax(w)), std::span(y), options);
    words = y;
    return call;
  }
  void backward_amax(const LinearCall& call, float dy) {
    std::vector<std::uint16_t> dx(256);
    std::vector<float> dw(256);
    backward(state, call, square(with_amax(dy)), std::span(dx), std::span(dw));
  }
  /// A step of layer 0 in a region of its own.
  void step(const Delayed& delayed, float x, float w, float dy) {
    enter_autocast(state, delayed_region(delayed));
    const LinearCall call = forward_amaxes(0, x, w);
    exit_autocast(state);
    backward_amax(call, dy);
  }
  [[nodiscard]] float x_scale(std::size_t layer = 0) const { return state.layers[layer].forward.x.scale; }
  [[nodiscard]] float w_scale(std::size_t layer = 0) const { return state.layers[layer].forward.w.scale; }
  [[nodiscard]] float dy_scale(std::size_t layer = 0) const { return state.layers[layer].backward.scale; }

  std::vector<std::uint16_t> words;  ///< of the last y
};

}  // namespace fp8lab::tests
