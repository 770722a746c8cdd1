// SPDX-License-Identifier: Apache-2.0
#include "train/optimizer.hpp"

#include <cmath>

namespace fp8lab::experiments {
namespace {

constexpr double beta1 = 0.9, beta2 = 0.999;

/// The factor of the gradients: the inverse of the gradient scale, times the factor that clipping asks for.
float multiplier_of(const TrainArguments& arguments, const Network& gradients) {
  const double unscale = 1 / arguments.gradient_scale;
  if (arguments.clip == 0) return static_cast<float>(unscale);
  double sum = 0;
  for (const auto& [w, b] : gradients) {
    for (const std::vector<float>* part : {&w, &b}) {
      in_pieces(part->size(), [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i) {
          sum += static_cast<double>((*part)[i]) * static_cast<double>((*part)[i]);
        }
      });
    }
  }
  const double norm = std::sqrt(sum) * unscale;
  return static_cast<float>(norm > arguments.clip ? unscale * (arguments.clip / norm) : unscale);
}

void update_by_sgd(const TrainArguments& arguments, float multiplier, std::span<const float> gradients,
                   std::span<float> velocities, std::span<float> weights) {
  const auto momentum = static_cast<float>(arguments.momentum);
  const auto rate = static_cast<float>(arguments.learning_rate);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    velocities[i] = momentum * velocities[i] + gradients[i] * multiplier;
    weights[i] -= rate * velocities[i];
  }
}

/// The numbers of an update by Adam.
struct AdamStep {
  float multiplier, rate, root;  ///< root: of 1 - beta2^t
};
void update_by_adam(const AdamStep& step, std::span<const float> gradients, std::span<float> first,
                    std::span<float> second, std::span<float> weights) {
  constexpr auto keep1 = static_cast<float>(beta1);
  constexpr auto keep2 = static_cast<float>(beta2);
  constexpr auto take1 = static_cast<float>(1 - beta1);
  constexpr auto take2 = static_cast<float>(1 - beta2);
  constexpr float epsilon = 1e-8F;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float g = gradients[i] * step.multiplier;
    first[i] = keep1 * first[i] + take1 * g;
    second[i] = keep2 * second[i] + take2 * g * g;
    weights[i] -= step.rate * first[i] / (std::sqrt(second[i]) / step.root + epsilon);
  }
}

}  // namespace

OptimizerState start_optimizer(const Network& network) { return {zeros_like(network), zeros_like(network)}; }

void update_weights(const TrainArguments& arguments, const Network& gradients, OptimizerState& state,
                    Network& network) {
  const float multiplier = multiplier_of(arguments, gradients);
  state.first_power *= beta1;
  state.second_power *= beta2;
  const AdamStep step{multiplier, static_cast<float>(arguments.learning_rate / (1 - state.first_power)),
                      static_cast<float>(std::sqrt(1 - state.second_power))};
  for (std::size_t i = 0; i < network.size(); ++i) {
    for (std::vector<float> Parameters::* part : {&Parameters::w, &Parameters::b}) {
      in_pieces((network[i].*part).size(), [&](std::size_t first, std::size_t last) {
        const auto piece = [&](auto& parameters) {
          return std::span(parameters[i].*part).subspan(first, last - first);
        };
        if (arguments.optimizer == Optimizer::sgd) {
          update_by_sgd(arguments, multiplier, piece(gradients), piece(state.first), piece(network));
        } else {
          update_by_adam(step, piece(gradients), piece(state.first), piece(state.second), piece(network));
        }
      });
    }
  }
}

}  // namespace fp8lab::experiments
