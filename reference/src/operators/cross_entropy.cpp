// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/cross_entropy.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "operators/row_buffers.hpp"
#include "simd/operators_softmax.hpp"

namespace fp8lab {

namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

void check_entropy(const CrossEntropyParameters& parameters, const MatrixView& x, std::span<const std::int64_t> targets,
                   std::size_t largest, std::size_t sum) {
  check_kernel_floats("x", x);
  if (x.columns() == 0) refuse("x must have columns");
  if (std::isnan(parameters.label_smoothing) || parameters.label_smoothing < 0 || parameters.label_smoothing >= 1) {
    refuse("label_smoothing must be from 0 to below 1, not ", parameters.label_smoothing);
  }
  check_size("targets", targets.size(), x.rows());
  check_size("largest", largest, x.rows());
  check_size("sum", sum, x.rows());
}

float smoothing_of_column(const CrossEntropyParameters& parameters, const MatrixView& x) {
  const DefaultEnvironment environment;
  return parameters.label_smoothing / static_cast<float>(x.columns());
}

bool has_column(const MatrixView& x, std::int64_t target) {
  return target >= 0 && static_cast<std::uint64_t>(target) < x.columns();
}

/// A row, with -infinity up to padded().
void read_logits(const MatrixView& x, std::size_t row, std::vector<float>& out) {
  read_piece(x, row * x.columns(), x.columns(), out.data());
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(x.columns()), out.end(), minus_infinity);
}

void write_scalar(float value, float& out) { narrow_row(&value, 1, &out); }

}  // namespace

void cross_entropy(const CrossEntropyParameters& parameters, const MatrixView& x, std::span<const std::int64_t> targets,
                   std::span<float> loss, std::span<float> largest, std::span<float> sum,
                   const OperatorOptions& options) {
  check_rounded_functions("cross_entropy", options);
  check_entropy(parameters, x, targets, largest.size(), sum.size());
  check_size("loss", loss.size(), x.rows());
  const float eps = smoothing_of_column(parameters, x);
  const float smoothing = parameters.label_smoothing;
  const SoftmaxFunctions loops = softmax_functions();
  const RowFunctions sums = row_functions();
  parallel_for(x.rows(), options.threads, [&](std::size_t first, std::size_t last) {
    std::vector<float> row(padded(x.columns()));
    for (std::size_t i = first; i < last; ++i) {
      checkpoint();
      read_logits(x, i, row);
      const float of_target = has_column(x, targets[i]) ? row[static_cast<std::size_t>(targets[i])] : minus_infinity;
      float most = row[0];
      for (const float logit : row) most = most > logit ? most : logit;
      float all = 0;
      if (smoothing > 0) {
        std::fill(row.begin() + static_cast<std::ptrdiff_t>(x.columns()), row.end(), 0.0F);
        all = sums.sum_of_row(row.data(), row.size());
        std::fill(row.begin() + static_cast<std::ptrdiff_t>(x.columns()), row.end(), minus_infinity);
      }
      const float total = loops.exponentials(row.data(), most, row.size(), row.data());
      write_scalar(most, largest[i]);
      write_scalar(total, sum[i]);
      loss[i] = 0;
      if (targets[i] == parameters.ignore_index) continue;
      const float log_total = rounded_log(total);
      float value = -((of_target - most) - log_total);
      if (smoothing > 0) value = value * (1 - smoothing) + (-eps * all + smoothing * (most + log_total));
      write_scalar(value, loss[i]);
    }
  });
}

void cross_entropy_backward(const CrossEntropyParameters& parameters, std::span<const float> grad, const MatrixView& x,
                            std::span<const std::int64_t> targets, std::span<const float> largest,
                            std::span<const float> sum, FloatOutput dx, const OperatorOptions& options) {
  check_rounded_functions("cross_entropy_backward", options);
  check_entropy(parameters, x, targets, largest.size(), sum.size());
  check_size("grad", grad.size(), x.rows());
  check_size("dx", output_size(dx), x.size());
  check_apart_or_same_as("x", x, "dx", dx);
  const float eps = smoothing_of_column(parameters, x);
  const SoftmaxFunctions loops = softmax_functions();
  parallel_for(x.rows(), options.threads, [&](std::size_t first, std::size_t last) {
    std::vector<float> row(padded(x.columns()));
    for (std::size_t i = first; i < last; ++i) {
      checkpoint();
      if (targets[i] == parameters.ignore_index) {
        std::ranges::fill(row, 0.0F);
      } else {
        read_logits(x, i, row);
        loops.exponentials(row.data(), largest[i], row.size(), row.data());
        const auto target = has_column(x, targets[i]) ? static_cast<std::size_t>(targets[i]) : x.columns();
        const float share = target < x.columns() ? row[target] / sum[i] - eps : 0;
        loops.entropy_gradient(row.data(), sum[i], eps, grad[i], row.size(), row.data());
        if (target < x.columns()) row[target] = (share - (1 - parameters.label_smoothing)) * grad[i];
      }
      write_piece(row.data(), x.columns(), dx, i * x.columns());
    }
  });
}

}  // namespace fp8lab
