// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "files/tensor_file.hpp"
#include "fp8lab/formats/memory.hpp"

namespace fp8lab::experiments {

/// Whether the elements lie in the order of rows: with one long dimension, both orders are the same.
[[nodiscard]] bool is_row_major(const TensorHeader& header);

/// Where the element lies in its file, counted in elements, that is number `index` where the last index runs fastest.
[[nodiscard]] std::uint64_t stored_place(const TensorHeader& header, std::uint64_t index);

/// Goes through the indices of some dimensions as they are stored in Fortran order, the first index running fastest,
/// and tells the place of each in C order.
class StoredOrder {
 public:
  explicit StoredOrder(std::span<const std::uint64_t> lengths);
  [[nodiscard]] std::uint64_t place() const { return place_; }
  void next();

 private:
  std::vector<std::uint64_t> lengths_, steps_, at_;
  std::uint64_t place_ = 0;
};

/// A tensor that is read from its begin to its end with the last index running fastest, however it is stored. Of one in
/// Fortran order, bands of up to `most_bytes` are in memory: all elements with some neighbouring first indices.
class RowMajorReader {
 public:
  static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 25;

  /// Throws as TensorFile does, and std::invalid_argument where the elements with one first index are more than a band.
  RowMajorReader(const std::filesystem::path& path, TensorHeader header, std::uint64_t band_bytes = most_bytes);

  /// Reads the next elements, a whole number of them. Throws as TensorFile does.
  void read(std::span<std::byte> out);
  /// Goes on with the element that has this number.
  void go_to(std::uint64_t element) { next_ = element; }

 private:
  void load_band();
  template <typename Word>
  void load_band_of();

  TensorHeader header_;
  TensorFile file_;
  std::uint64_t next_ = 0;                ///< element
  std::uint64_t rows_ = 0, columns_ = 0;  ///< the first dimension, and the elements that have one first index
  std::uint64_t band_rows_ = 0;           ///< of a whole band; 0: it is stored in the order of rows
  std::uint64_t band_first_ = 0;          ///< row
  Buffer<std::byte> band_, columns_read_;
};

}  // namespace fp8lab::experiments
