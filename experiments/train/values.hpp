// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <variant>
#include <vector>

#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "train/train.hpp"

namespace fp8lab::experiments {

/// work(first, last) for pieces of [0, count) in order, between which a call can be ended.
template <typename Work>
void in_pieces(std::size_t count, const Work& work) {
  for (std::size_t first = 0; first < count; first += scalar_piece) {
    checkpoint();
    work(first, std::min(count, first + scalar_piece));
  }
}

/// A matrix between layers, of the type that the recipe's products have.
struct Values {
  std::variant<std::vector<float>, std::vector<BFloat16>> elements;
  std::size_t rows = 0, columns = 0;

  [[nodiscard]] MatrixView view() const;
  /// The elements in float32.
  [[nodiscard]] std::vector<float> floats() const;
};
/// The numbers as float32 or, rounded to the nearest, as bfloat16.
[[nodiscard]] Values values_of(std::vector<float> numbers, std::size_t rows, std::size_t columns, const Format& format);

/// max(x, 0), NaN where x is NaN.
void apply_relu(Values& x);
/// dy where the activation is positive or NaN, else 0.
void apply_relu_gradient(Values& dy, const Values& activation);

/// The sum of each column in float32, rows ascending.
[[nodiscard]] std::vector<float> column_sums(const Values& x);

/// Computes the amax of x, and counts the elements that are not zero, and those that are not finite.
[[nodiscard]] TensorStats facts_of(const MatrixView& x);
/// How many elements' magnitudes exceed `limit`.
[[nodiscard]] std::uint32_t count_above(const MatrixView& x, float limit);

}  // namespace fp8lab::experiments
