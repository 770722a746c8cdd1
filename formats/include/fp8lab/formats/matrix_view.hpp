// SPDX-License-Identifier: Apache-2.0
// Views a row-major matrix of float32, float64, float16 or bfloat16 numbers that somebody else owns.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <variant>

#include "fp8lab/formats/unpack.hpp"

namespace fp8lab {

/// A row-major matrix of floats of one of four types, whose memory someone else owns.
class MatrixView {
 public:
  using Values =
      std::variant<std::span<const float>, std::span<const double>, std::span<const Half>, std::span<const BFloat16>>;

  /// A view of `values`: a std::span, or a contiguous range of float, double, Half or BFloat16.
  ///
  /// Throws std::invalid_argument unless there are rows * columns of them.
  MatrixView(Values values, std::size_t rows, std::size_t columns);

  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] std::size_t columns() const { return columns_; }
  /// The number of elements.
  [[nodiscard]] std::size_t size() const { return rows_ * columns_; }
  /// The elements, row by row.
  [[nodiscard]] const Values& values() const { return values_; }

  /// Returns f(elements), with a std::span of their type.
  template <typename Function>
  decltype(auto) visit(Function&& f) const {
    return std::visit(std::forward<Function>(f), values_);
  }

 private:
  Values values_;
  std::size_t rows_;
  std::size_t columns_;
};

}  // namespace fp8lab
