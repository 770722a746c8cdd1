// SPDX-License-Identifier: Apache-2.0
// Float32 operations by another way: 50 decimal digits, rounded to float32 once. What tests hold operators against.
#pragma once

#include <algorithm>
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cstddef>
#include <vector>

#include "support.hpp"

namespace fp8lab::tests {

using Digits = boost::multiprecision::cpp_bin_float_50;

inline float nearest(const Digits& x) { return x.convert_to<float>(); }
inline float step_sum(float a, float b) { return nearest(Digits(a) + Digits(b)); }
inline float step_difference(float a, float b) { return nearest(Digits(a) - Digits(b)); }
inline float step_product(float a, float b) { return nearest(Digits(a) * Digits(b)); }
inline float step_quotient(float a, float b) { return nearest(Digits(a) / Digits(b)); }
inline float step_fused(float a, float b, float c) { return nearest(Digits(a) * Digits(b) + Digits(c)); }
inline float step_sigmoid(float x) {
  const float e = nearest(exp(-Digits(x)));
  return nearest(1 / Digits(step_sum(1, e)));
}
inline float step_tanh(float x) { return nearest(tanh(Digits(x))); }

/// The sum of lanes or blocks: i and i + 16, i and i + 8, ...
inline float in_pairs(std::vector<float> sums) {
  for (std::size_t half = sums.size() / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sums[i] = step_sum(sums[i], sums[i + half]);
  }
  return sums[0];
}

/// Normal numbers of a standard deviation, in float32: sums of 12 uniform ones, seeded.
inline std::vector<float> normal_draws(std::uint64_t seed, std::size_t count, double deviation) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    double sum = -6;
    for (std::uint64_t k = 0; k < 12; ++k) sum += static_cast<double>(random_bits(seed, 12 * i + k) >> 11) * 0x1p-53;
    values[i] = static_cast<float>(sum * deviation);
  }
  return values;
}

}  // namespace fp8lab::tests
