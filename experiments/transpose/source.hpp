// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/formats/memory.hpp"
#include "transpose/transpose.hpp"

namespace fp8lab::experiments {

/// A matrix in memory, row-major. Moves, but is not copied: the span is of its own vectors.
struct Matrix {
  std::string description;  ///< where it is from, in words and one line
  ElementType type = ElementType::float32;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::variant<std::span<const float>, std::span<const BFloat16>, std::span<const Half>> values;  ///< as they are
  std::variant<Buffer<float>, Buffer<BFloat16>, Buffer<Half>> room;  ///< where they lie, unless held

  /// Rows [first, first + count).
  [[nodiscard]] MatrixView view(std::size_t first, std::size_t count) const {
    const auto some = [&](auto all) { return MatrixView::Values(all.subspan(first * columns, count * columns)); };
    return {std::visit(some, values), count, columns};
  }
  /// Elements first to first + out.size(), in float32.
  void widen(std::size_t first, std::span<float> out) const;

  Matrix() = default;
  Matrix(Matrix&&) = default;
  Matrix& operator=(Matrix&&) = default;
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  ~Matrix() = default;
};

/// Draws or reads it; calls progress(0) now and then. Throws as run_transpose() does.
[[nodiscard]] Matrix matrix_of(const MatrixSource& source, int threads, const Progress& progress);

}  // namespace fp8lab::experiments
