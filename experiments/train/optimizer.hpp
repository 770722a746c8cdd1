// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "train/network.hpp"

namespace fp8lab::experiments {

/// The optimizer's memory: the momentum of sgd; both moments of Adam, and the powers of their decay.
struct OptimizerState {
  Network first, second;
  double first_power = 1, second_power = 1;
};
[[nodiscard]] OptimizerState start_optimizer(const Network& network);

/// One update of the weights. Gradients are divided by the arguments' gradient_scale and, where their norm (of double,
/// summed layer by layer, w before b) is larger than clip, scaled to it: both by one product in float32. Then, in
/// float32 and element by element:
/// - sgd: v = momentum v + g; w -= rate v
/// - Adam (Kingma and Ba, arXiv 1412.6980; beta 0.9 and 0.999, epsilon 1e-8): m = b1 m + (1 - b1) g,
///   v = b2 v + ((1 - b2) g) g, w -= (rate / (1 - b1^t)) m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)
void update_weights(const TrainArguments& arguments, const Network& gradients, OptimizerState& state, Network& network);

}  // namespace fp8lab::experiments
