// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "checkpoints/checkpoint.hpp"
#include "checkpoints/layout.hpp"
#include "checkpoints/recognize.hpp"

namespace fp8lab::experiments {

/// The arithmetic by which `loader` reads a layout. Throws std::invalid_argument where none is known.
[[nodiscard]] const Dequantization& find_dequantization(const Layout& layout, Loader loader);

/// What a code is multiplied by, of a scale and the tensor's scale over it.
[[nodiscard]] float factor_of(Product product, float scale, float global);

/// The values of a recognized weight, row by row, as a loader makes them.
///
/// Rows are those of the codes, experts one after the other: row e * rows + r is row r of expert e; of a transposed
/// stack it is a column of the weight before. Only the rows that are asked for are read, and their scales.
class WeightReader {
 public:
  /// `checkpoint` and `weight` must outlive it. Throws std::invalid_argument where the loader has no rule for the
  /// layout or refuses the shapes, std::runtime_error where a file ends within a tensor of the weight.
  WeightReader(const Checkpoint& checkpoint, const Weight& weight, Loader loader = Loader::format);
  ~WeightReader();
  WeightReader(WeightReader&&) noexcept;
  WeightReader& operator=(WeightReader&&) noexcept;

  [[nodiscard]] const Weight& weight() const;
  [[nodiscard]] const Dequantization& rule() const;
  /// experts * rows.
  [[nodiscard]] std::uint64_t rows() const;
  /// Rows of the weight that share a scale, as this loader has it.
  [[nodiscard]] std::uint64_t block_rows() const;
  [[nodiscard]] std::uint64_t block_columns() const;

  /// The codes of rows [first, first + count), one a byte: out.size() is count * columns.
  void codes(std::uint64_t first, std::uint64_t count, std::span<std::uint8_t> out) const;
  /// The scales of these rows as numbers, before any global scale: count * scale_columns(), a grid's block row
  /// repeated.
  void scales(std::uint64_t first, std::uint64_t count, std::span<float> out) const;
  /// Scales of a row.
  [[nodiscard]] std::uint64_t scale_columns() const;
  /// The global scale of the expert, as a number as it is stored; 1 where there is none.
  [[nodiscard]] float global_scale(std::uint64_t expert = 0) const;
  /// The values of these rows in float32, before the last rounding.
  void values(std::uint64_t first, std::uint64_t count, std::span<float> out) const;
  /// The values as words of bfloat16.
  void bfloat16_words(std::uint64_t first, std::uint64_t count, std::span<std::uint16_t> out) const;

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

}  // namespace fp8lab::experiments
