// SPDX-License-Identifier: Apache-2.0
// Reads matrices of checkpoints: of numbers, and of codes and scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "checkpoints/checkpoint.hpp"
#include "checkpoints/coded_matrix.hpp"
#include "checkpoints/dequantize.hpp"
#include "fp8lab/formats/matrix_view.hpp"

namespace fp8lab::experiments {

/// A matrix of (rows, columns) in the type of its tensor.
struct NumberMatrix {
  std::variant<std::vector<float>, std::vector<BFloat16>, std::vector<Half>> values = {};
  std::size_t rows = 0, columns = 0;

  [[nodiscard]] MatrixView view() const;
  /// The largest |x|; NaN counts nothing.
  [[nodiscard]] float amax() const;
};

/// Which matrix of a tensor: slice `slice` of rows * columns elements. `transposed`: it is stored as (columns, rows).
struct MatrixPlace {
  std::uint64_t slice = 0, rows = 0, columns = 0;
  bool transposed = false;
};

/// Elements of F64 are rounded to float32. None where the tensor is not of F32, F64, BF16 or F16, its file ends before,
/// or it has no such slice.
[[nodiscard]] std::optional<NumberMatrix> read_numbers(const Checkpoint& checkpoint, const StoredTensor& tensor,
                                                       const MatrixPlace& place);

/// Divides each column by its scale, as ModelOpt does: times the inverse in float32, rounded to the type of the matrix.
/// Source: nvidia-modelopt 0.47.0, model_calib.py:apply_pre_quant_scale_and_smooth. Precondition: a scale a column.
void divide_columns(NumberMatrix& matrix, std::span<const float> scales);

/// The numbers of a tensor of F32, BF16 or F16 in float32; empty where it is none, or its file ends before.
[[nodiscard]] std::vector<float> read_floats(const Checkpoint& checkpoint, const StoredTensor& tensor);

/// The number of a tensor of one element; NaN where it is none.
[[nodiscard]] float scalar_of(const Checkpoint& checkpoint, const StoredTensor& tensor);
/// Whether a static scale can be one: a positive number.
[[nodiscard]] bool is_usable(float scale);

/// One expert of a weight, or the weight. Throws as WeightReader does.
[[nodiscard]] CodedMatrix read_coded_matrix(const WeightReader& reader, std::uint64_t expert);

}  // namespace fp8lab::experiments
