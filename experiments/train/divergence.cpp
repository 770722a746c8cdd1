// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "train/run.hpp"

namespace fp8lab::experiments {
namespace {

/// The tensors of a step in the order in which they are cast: x and w of each layer, then dy from the last layer on.
std::vector<TensorEvent> in_order(const std::vector<TensorStats>& tensors, std::size_t layers, std::size_t step) {
  std::vector<TensorEvent> events;
  const auto add = [&](std::size_t layer, LinearTensor tensor) {
    const std::size_t at = ((step - 1) * layers + layer) * 3 + static_cast<std::size_t>(tensor);
    events.push_back({step, layer + 1, tensor, tensors[at]});
  };
  for (std::size_t layer = 0; layer < layers; ++layer) {
    add(layer, LinearTensor::x);
    add(layer, LinearTensor::w);
  }
  for (std::size_t layer = layers; layer-- > 0;) add(layer, LinearTensor::dy);
  return events;
}

bool is_saturated(const TensorStats& facts) {
  return facts.saturated > 0 && 1000 * std::uint64_t{facts.saturated} >= facts.nonzero;
}
bool is_flushed(const TensorStats& facts) {
  return facts.flushed > 0 && 2 * std::uint64_t{facts.flushed} >= facts.nonzero;
}

/// Looks for what happened to tensors around the step.
void find_events(const std::vector<TensorStats>& tensors, std::size_t layers, Divergence& divergence) {
  const std::size_t steps = tensors.size() / (3 * layers);
  const std::size_t first = divergence.step > divergence_steps ? divergence.step - divergence_steps : 1;
  const std::vector<TensorEvent> before = in_order(tensors, layers, first);
  for (std::size_t step = first; step <= std::min(steps, divergence.step + divergence_steps); ++step) {
    const std::vector<TensorEvent> events = in_order(tensors, layers, step);
    for (std::size_t i = 0; i < events.size(); ++i) {
      const TensorStats& facts = events[i].facts;
      if (facts.not_finite > 0 && !divergence.not_finite) divergence.not_finite = events[i];
      if (is_saturated(facts) && !divergence.saturated) divergence.saturated = events[i];
      const bool is_new = step == 1 || !is_flushed(before[i].facts);
      if (is_flushed(facts) && is_new && !divergence.flushed) divergence.flushed = events[i];
    }
  }
}

/// The step, its loss and the bound; no events yet.
std::optional<Divergence> step_of_divergence(const std::vector<double>& losses, double factor) {
  double lowest = losses.empty() ? 0 : losses.front();
  double sum = 0;
  std::optional<Divergence> begun;  // the steps in a row that are out of bounds
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double bound = factor * lowest;
    const bool is_finite = std::isfinite(losses[i]);
    if (is_finite && losses[i] <= bound) {
      begun.reset();
    } else if (!begun) {
      begun = Divergence{.step = i + 1, .loss = losses[i], .bound = bound};
    }
    if (begun && (!is_finite || i + 2 - begun->step >= divergence_steps)) return begun;
    sum += losses[i];
    if ((i + 1) % divergence_steps != 0) continue;
    lowest = std::min(lowest, sum / static_cast<double>(divergence_steps));
    sum = 0;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Divergence> divergence_of(const std::vector<double>& losses, const std::vector<TensorStats>& tensors,
                                        std::size_t layers, double factor) {
  std::optional<Divergence> divergence = step_of_divergence(losses, factor);
  if (divergence) find_events(tensors, layers, *divergence);
  return divergence;
}

}  // namespace fp8lab::experiments
