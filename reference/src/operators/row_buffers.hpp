// SPDX-License-Identifier: Apache-2.0
// Reads rows of any element type as float32 and writes them back, and sums rows in the order of sum_order.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/reference/operators/float_output.hpp"
#include "simd/operators_rows.hpp"

namespace fp8lab {

/// Throws std::invalid_argument for a matrix of float64, which no kernel reads.
void check_kernel_floats(std::string_view name, const MatrixView& x);
/// Throws std::invalid_argument for functions of a device, which an operator does not have.
void check_rounded_functions(std::string_view name, const OperatorOptions& options);
/// Throws where elementary functions are asked to be off, of which an operator has none.
void check_exact_functions(std::string_view name, const OperatorOptions& options);
/// Throws where functions that are measured are asked to be off.
void check_function_words(const OperatorOptions& options);
/// The elements of an output.
[[nodiscard]] std::size_t output_size(const FloatOutput& out);
/// Throws std::invalid_argument unless out has `size` elements.
void check_size(std::string_view name, std::size_t actual, std::size_t size);
/// Throws where x and an output overlap, or where they do so otherwise than element by element.
void check_apart_from(std::string_view name, const MatrixView& x, std::string_view out_name, const FloatOutput& out);
void check_apart_or_same_as(std::string_view name, const MatrixView& x, std::string_view out_name,
                            const FloatOutput& out);

/// Elements [first, first + count) of x as float32, with zeros up to padded(count).
void read_piece(const MatrixView& x, std::size_t first, std::size_t count, float* out);
/// Writes them to out[first, first + count).
void write_piece(const float* in, std::size_t count, const FloatOutput& out, std::size_t first);

/// Sums over rows: `columns` sums for each of sum_blocks blocks.
class BlockSums {
 public:
  explicit BlockSums(std::size_t columns) : columns_(columns), sums_(sum_blocks * padded(columns)) {}
  /// The padded sums of a block.
  [[nodiscard]] float* of_block(std::size_t block) { return sums_.data() + block * padded(columns_); }
  /// The sums of all blocks, in pairs.
  void total(std::span<float> out);

 private:
  std::size_t columns_;
  std::vector<float> sums_;
};

/// Calls work(block, first row, last row) for each of sum_blocks blocks of rows, some of them empty.
void for_each_block(std::size_t rows, int threads,
                    const std::function<void(std::size_t block, std::size_t first, std::size_t last)>& work);

}  // namespace fp8lab
