// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <stdexcept>
#include <type_traits>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/widen.hpp"
#include "fp8lab/reference/linear/linear.hpp"

namespace fp8lab {

void linear_bias_gradient(const MatrixView& dy, std::span<float> out) {
  const DefaultEnvironment environment;
  if (out.size() != dy.columns()) refuse("out must have ", dy.columns(), " elements, not ", out.size());
  dy.visit([&]<typename T>(std::span<const T> values) {
    if constexpr (std::is_same_v<T, double>) {
      throw std::invalid_argument("dy must be of float32, float16 or bfloat16, not float64");
    } else {
      check_apart("dy", values, "out", out);
      std::ranges::fill(out, 0.0F);
      for (std::size_t row = 0; row < dy.rows(); ++row) {
        checkpoint();
        for (std::size_t i = 0; i < out.size(); ++i) out[i] += widened(values[row * out.size() + i]);
      }
    }
  });
}

}  // namespace fp8lab
