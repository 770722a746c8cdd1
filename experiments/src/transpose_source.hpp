// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/experiments/transpose.hpp"

namespace fp8lab::experiments {

/// A matrix in memory, row-major. Moves, but is not copied: spans are of its own vectors.
struct Matrix {
  std::string description;  ///< where it is from, in words and one line
  ElementType type = ElementType::float32;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::span<const float> values;      ///< as they are, or widened
  std::span<const BFloat16> bfloats;  ///< the same where they are bfloat16, else empty

  std::vector<float> room;  ///< what the spans need
  std::vector<BFloat16> bfloat_room;

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
