// SPDX-License-Identifier: Apache-2.0
// A quantized matrix as it is compared: a code an element, a scale a block, whatever the layout of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"

namespace fp8lab::experiments {

struct CodedMatrix {
  Format format = e4m3;
  std::size_t rows = 0, columns = 0;
  std::vector<std::uint8_t> codes = {};  ///< rows * columns, row-major, a byte each
  std::size_t block_rows = 1, block_columns = 1;
  std::vector<float> scales = {};    ///< of each block, row-major, as what multiplies on dequantize, without `global`
  std::optional<float> global = {};  ///< the stored scale of the whole tensor over those of blocks
  bool global_divides = false;       ///< a block's scale is divided by it; else multiplied
  bool scales_are_powers = false;    ///< they are stored as E8M0

  [[nodiscard]] std::size_t grid_rows() const { return (rows + block_rows - 1) / block_rows; }
  [[nodiscard]] std::size_t grid_columns() const { return (columns + block_columns - 1) / block_columns; }
  /// The scale that element (row, column) meets.
  [[nodiscard]] float scale_of(std::size_t row, std::size_t column) const {
    return scales[row / block_rows * grid_columns() + column / block_columns];
  }
};

/// What quantize() made, rowwise, of a tensor of `input_type`; `global_divides` says which of the two scales of a
/// tensor counts.
[[nodiscard]] CodedMatrix coded_matrix(const Quantized& quantized, const Format& input_type, bool global_divides);

/// The factor of all codes of a block: fl(scale * global) or fl(scale / global).
[[nodiscard]] float factor_of(const CodedMatrix& matrix, float scale);

/// What each byte of a matrix stands for without its scale.
[[nodiscard]] std::vector<float> code_values(const Format& format);

/// fl(code * factor_of(scale)) of each element.
[[nodiscard]] std::vector<float> values_of(const CodedMatrix& matrix);

/// The bfloat16 nearest to x, ties to even.
[[nodiscard]] float nearest_bfloat16(float x);

}  // namespace fp8lab::experiments
