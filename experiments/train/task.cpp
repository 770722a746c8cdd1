// SPDX-License-Identifier: Apache-2.0
#include "train/task.hpp"

#include <algorithm>
#include <numbers>

#include "fp8lab/reference/measure/distributions.hpp"
#include "train/elementary.hpp"

namespace fp8lab::experiments {
namespace {

/// Adds the loss of a row to `loss`, and writes its gradient times `scale`.
void cross_entropy_row(std::span<const float> y, std::span<const double> products, double scale, double& loss,
                       std::span<float> gradient) {
  const auto wanted = static_cast<std::size_t>(std::ranges::max_element(products) - products.begin());
  double largest = y[0];
  for (const float one : y) largest = std::max(largest, static_cast<double>(one));
  std::vector<double> powers;
  double sum = 0;
  for (const float one : y) {
    powers.push_back(exp_of(static_cast<double>(one) - largest));
    sum += powers.back();
  }
  loss += log_of(sum) - (static_cast<double>(y[wanted]) - largest);
  for (std::size_t j = 0; j < y.size(); ++j) {
    gradient[j] = static_cast<float>((powers[j] / sum - (j == wanted ? 1 : 0)) * scale);
  }
}

void mse_row(std::span<const float> y, std::span<const double> products, double scale, double& loss,
             std::span<float> gradient) {
  const auto count = static_cast<double>(y.size());
  for (std::size_t j = 0; j < y.size(); ++j) {
    const double error = static_cast<double>(y[j]) - products[j];
    loss += error * error / count;
    gradient[j] = static_cast<float>(2 * error / count * scale);
  }
}

}  // namespace

Batch draw_batch(std::uint64_t seed, std::uint64_t first, std::size_t rows, std::size_t inputs, std::size_t outputs) {
  Batch batch{std::vector<float>(rows * inputs), {}};
  sample_uniform(-std::numbers::sqrt3, std::numbers::sqrt3, seed, first * inputs, batch.x);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t j = 0; j < outputs; ++j) {
      const float* const pair = &batch.x[row * inputs + 2 * j];
      batch.products.push_back(static_cast<double>(pair[0]) * static_cast<double>(pair[1]));
    }
  }
  return batch;
}

double loss_of_chance(TrainLoss loss, std::size_t outputs) {
  return loss == TrainLoss::mse ? 1 : log_of(static_cast<double>(outputs));
}

LossOfBatch loss_of(TrainLoss loss, std::span<const float> y, const Batch& batch, std::size_t rows, double scale) {
  LossOfBatch result{0, std::vector<float>(y.size())};
  const std::size_t outputs = y.size() / rows;
  const auto row_loss = loss == TrainLoss::mse ? mse_row : cross_entropy_row;
  const double scale_of_row = scale / static_cast<double>(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t at = row * outputs;
    row_loss(y.subspan(at, outputs), std::span(batch.products).subspan(at, outputs), scale_of_row, result.loss,
             std::span(result.gradient).subspan(at, outputs));
  }
  result.loss /= static_cast<double>(rows);
  return result;
}

}  // namespace fp8lab::experiments
