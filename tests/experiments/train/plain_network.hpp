// SPDX-License-Identifier: Apache-2.0
// A second opinion on FP32 training: plain loops over the formulas.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

#include "fp8lab/reference/measure/distributions.hpp"

namespace fp8lab::tests {

/// A network with one hidden layer, trained on the products of input pairs by the squared error, in float32.
struct PlainNetwork {
  std::size_t in, hidden, out, batch;
  std::uint64_t seed;
  std::vector<float> w1, w2, b1 = std::vector<float>(hidden), b2 = std::vector<float>(out);
  std::vector<float> m1 = std::vector<float>(in * hidden), m2 = std::vector<float>(hidden * out);
  std::vector<float> n1 = std::vector<float>(hidden), n2 = std::vector<float>(out);  // of the biases

  PlainNetwork(std::size_t inputs, std::size_t units, std::size_t outputs, std::size_t rows, std::uint64_t which)
      : in(inputs), hidden(units), out(outputs), batch(rows), seed(which), w1(in * hidden), w2(hidden * out) {
    const double bound1 = std::sqrt(6.0 / static_cast<double>(in));
    const double bound2 = std::sqrt(6.0 / static_cast<double>(hidden));
    sample_uniform(-bound1, bound1, 4 * seed + 2, 0, w1);
    sample_uniform(-bound2, bound2, 4 * seed + 2, in * hidden, w2);
  }

  /// Row r of x times row j of w.
  static float dot(const float* x, const float* w, std::size_t count) {
    float sum = 0;
    for (std::size_t k = 0; k < count; ++k) sum = std::fma(x[k], w[k], sum);
    return sum;
  }
  /// v = momentum v + g; w -= rate v.
  static void descend(float rate, float momentum, float g, float& v, float& w) {
    v = momentum * v + g;
    w = w - rate * v;
  }

  /// A step of sgd; gives the loss before it.
  double step(std::size_t number, float rate, float momentum) {
    std::vector<float> x(batch * in), h(batch * hidden), dy(batch * out), dh(batch * hidden);
    sample_uniform(-std::numbers::sqrt3, std::numbers::sqrt3, 4 * seed, number * batch * in, x);
    double loss = 0;
    for (std::size_t r = 0; r < batch; ++r) {
      for (std::size_t j = 0; j < hidden; ++j) {
        h[r * hidden + j] = std::fmax(dot(&x[r * in], &w1[j * in], in) + b1[j], 0.0F);
      }
      for (std::size_t j = 0; j < out; ++j) {
        const double y = dot(&h[r * hidden], &w2[j * hidden], hidden) + b2[j];
        const double error = y - static_cast<double>(x[r * in + 2 * j]) * static_cast<double>(x[r * in + 2 * j + 1]);
        loss += error * error / static_cast<double>(out);
        dy[r * out + j] = static_cast<float>(2 * error / static_cast<double>(out) * (1 / static_cast<double>(batch)));
      }
      for (std::size_t i = 0; i < hidden; ++i) {
        float sum = 0;
        for (std::size_t j = 0; j < out; ++j) sum = std::fma(dy[r * out + j], w2[j * hidden + i], sum);
        dh[r * hidden + i] = h[r * hidden + i] > 0 ? sum : 0;
      }
    }
    descend_all(rate, momentum, dy, h, out, hidden, w2, m2, b2, n2);
    descend_all(rate, momentum, dh, x, hidden, in, w1, m1, b1, n1);
    return loss / static_cast<double>(batch);
  }

  void descend_all(float rate, float momentum, const std::vector<float>& dy, const std::vector<float>& x,
                   std::size_t rows, std::size_t columns, std::vector<float>& w, std::vector<float>& m,
                   std::vector<float>& b, std::vector<float>& n) const {
    for (std::size_t j = 0; j < rows; ++j) {
      for (std::size_t i = 0; i < columns; ++i) {
        float sum = 0;
        for (std::size_t r = 0; r < batch; ++r) sum = std::fma(dy[r * rows + j], x[r * columns + i], sum);
        descend(rate, momentum, sum, m[j * columns + i], w[j * columns + i]);
      }
      float sum = 0;
      for (std::size_t r = 0; r < batch; ++r) sum += dy[r * rows + j];
      descend(rate, momentum, sum, n[j], b[j]);
    }
  }
};

}  // namespace fp8lab::tests
