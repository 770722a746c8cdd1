// SPDX-License-Identifier: Apache-2.0
// The task that the network learns: products of pairs of its inputs, of which a linear model learns nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/train.hpp"

namespace fp8lab::experiments {

/// Examples: inputs x of U(-sqrt 3, sqrt 3), whose variance is 1, and the products x[2j] * x[2j + 1] of each.
struct Batch {
  std::vector<float> x;          ///< (rows, inputs)
  std::vector<double> products;  ///< (rows, outputs), exact
};
/// Rows [first, first + rows) of the endless stream of examples `seed`. Precondition: inputs >= 2 * outputs.
[[nodiscard]] Batch draw_batch(std::uint64_t seed, std::uint64_t first, std::size_t rows, std::size_t inputs,
                               std::size_t outputs);

/// The loss of the best constant: ln(outputs), or the variance of a product. No linear model has less: where the signs
/// of both inputs of a pair are flipped, products and probabilities stay, so that with a model's weights their
/// negatives are as good, and so, both losses being convex, is their mean, 0.
[[nodiscard]] double loss_of_chance(TrainLoss loss, std::size_t outputs);

/// The mean loss over the rows, and its gradient with respect to the outputs y, times `scale`, in float32.
/// cross_entropy: of softmax(y) against the largest product (the first of equal ones); mse: of y against the products.
/// All sums are of double and in order of the elements.
struct LossOfBatch {
  double loss = 0;
  std::vector<float> gradient;
};
[[nodiscard]] LossOfBatch loss_of(TrainLoss loss, std::span<const float> y, const Batch& batch, std::size_t rows,
                                  double scale);

}  // namespace fp8lab::experiments
