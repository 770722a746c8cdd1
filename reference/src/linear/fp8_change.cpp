// SPDX-License-Identifier: Apache-2.0
#include "linear/fp8_change.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "fp8lab/formats/refuse.hpp"

namespace fp8lab {

StateChange::StateChange(Fp8State& state, std::string name)
    : buffers(state.buffers),
      is_first_layer(state.is_first_layer),
      recomputed_first(state.recomputed_first),
      state_(state),
      name_(std::move(name)) {
  if (state.forward_is_due || state.backward_is_due) {
    throw std::logic_error("the scales of this rank wait for the other ranks: reduce_and_update() comes first");
  }
}

LayerState& StateChange::layer(std::size_t index) {
  if (index >= state_.layers.size()) {
    refuse("layer must be from 0 to ", state_.layers.size() - 1, ", not ", index);
  }
  const auto known = std::ranges::find(layers_, index, &std::pair<std::size_t, LayerState>::first);
  if (known != layers_.end()) return known->second;
  return layers_.emplace_back(index, state_.layers[index]).second;
}

void StateChange::tell(std::optional<std::size_t> layer, std::string tensor, std::string action,
                       const AmaxHistory& history) {
  if (!state_.is_traced) return;
  events_.push_back({.call = state_.calls + 1,
                     .name = name_,
                     .layer = layer,
                     .tensor = std::move(tensor),
                     .action = std::move(action),
                     .amax = history.amaxes.empty() ? 0 : history.amaxes.front(),
                     .scale = history.scale,
                     .scale_inv = history.scale_inv});
}

void StateChange::update(std::size_t layer, const std::string& tensor, const Delayed& recipe, Pass pass,
                         AmaxHistory& history) {
  Delayed of_length = recipe;
  of_length.amax_history_len = history.amaxes.size();
  update_scale(of_length, pass, history);
  tell(layer, tensor, "update", history);
}

void StateChange::update_forward(std::size_t layer, const Delayed& recipe, bool keeps_weight_inverse) {
  ForwardHistories& histories = this->layer(layer).forward;
  update(layer, "x", recipe, Pass::forward, histories.x);
  const float inverse = histories.w.scale_inv;
  update(layer, "w", recipe, Pass::forward, histories.w);
  if (keeps_weight_inverse) histories.w.scale_inv = inverse;
}

void StateChange::update_backward(std::size_t layer, const Delayed& recipe) {
  update(layer, "dy", recipe, Pass::backward, this->layer(layer).backward);
}

void StateChange::update_registered(Pass pass) {
  for (std::size_t i = 0; i < state_.layers.size(); ++i) {
    const std::optional<std::size_t> buffer = layer(i).buffer;
    if (!buffer) continue;
    if (pass == Pass::forward) {
      update_forward(i, buffers[*buffer].recipe);
    } else {
      update_backward(i, buffers[*buffer].recipe);
    }
  }
}

void StateChange::commit() {
  state_.trace.insert(state_.trace.end(), std::make_move_iterator(events_.begin()),
                      std::make_move_iterator(events_.end()));
  for (auto& [index, layer] : layers_) state_.layers[index] = std::move(layer);
  state_.buffers = std::move(buffers);
  state_.is_first_layer = is_first_layer;
  state_.recomputed_first = std::move(recomputed_first);
  ++state_.calls;
}

}  // namespace fp8lab
