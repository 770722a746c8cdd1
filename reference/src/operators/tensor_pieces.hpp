// SPDX-License-Identifier: Apache-2.0
// Goes through tensors in pieces of float32, whatever their element type and shape.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "operators/row_buffers.hpp"

namespace fp8lab {

inline constexpr std::size_t tensor_piece_size = 1024;
using TensorPiece = std::array<float, tensor_piece_size>;

/// The elements of a tensor. Throws std::invalid_argument for float64, which no kernel reads.
inline std::size_t tensor_size(std::string_view name, const FloatSpan& x) {
  if (std::holds_alternative<std::span<const double>>(x)) {
    refuse(name, " must be of float32, float16 or bfloat16, not float64: no kernel reads that");
  }
  return std::visit([](auto values) { return values.size(); }, x);
}

/// How many rows of row_size elements, or bytes, an array of `size` has.
inline std::size_t whole_rows(std::string_view name, std::size_t size, std::size_t row_size) {
  if (row_size == 0 || size % row_size != 0) refuse(name, " must be of whole rows of ", row_size, ", not ", size);
  return size / row_size;
}

/// Elements [first, first + count) as float32, with zeros up to padded(count).
inline void read_tensor(const FloatSpan& x, std::size_t first, std::size_t count, float* out) {
  std::visit(
      [&]<typename T>(std::span<const T> in) {
        if constexpr (!std::is_same_v<T, double>) widen_row(in.data() + first, count, out);
      },
      x);
}
inline void read_output(const FloatOutput& x, std::size_t first, std::size_t count, float* out) {
  std::visit([&](auto in) { widen_row(in.data() + first, count, out); }, x);
}

/// Calls run(first, count) for pieces of at most tensor_piece_size elements.
template <typename Run>
void for_each_tensor_piece(std::size_t size, int threads, const Run& run) {
  const std::size_t pieces = (size + tensor_piece_size - 1) / tensor_piece_size;
  parallel_for(pieces, threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t piece = begin; piece < end; ++piece) {
      checkpoint();
      const std::size_t first = piece * tensor_piece_size;
      run(first, std::min(tensor_piece_size, size - first));
    }
  });
}

}  // namespace fp8lab
