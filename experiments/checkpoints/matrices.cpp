// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/matrices.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "formats/simd/tiles.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/formats/widen.hpp"

namespace fp8lab::experiments {

namespace {

template <typename T>
std::vector<T> read_matrix_of(const Checkpoint& checkpoint, const StoredTensor& tensor, const MatrixPlace& place) {
  const std::uint64_t size = place.rows * place.columns;
  std::vector<T> stored(size);
  constexpr std::size_t piece = std::size_t{1} << 20;
  for (std::size_t done = 0; done < size; done += piece) {
    fp8lab::checkpoint();  // Ctrl-C
    const auto some = std::span(stored).subspan(done, std::min<std::size_t>(piece, size - done));
    checkpoint.read(tensor, (place.slice * size + done) * sizeof(T), std::as_writable_bytes(some));
  }
  if (!place.transposed) return stored;
  std::vector<T> turned(size);
  for (std::uint64_t row = 0; row < place.rows; ++row) {
    for (std::uint64_t column = 0; column < place.columns; ++column)
      turned[row * place.columns + column] = stored[column * place.rows + row];
  }
  return turned;
}

}  // namespace

MatrixView NumberMatrix::view() const {
  return std::visit([&](const auto& all) { return MatrixView(std::span(all), rows, columns); }, values);
}

float NumberMatrix::amax() const {
  constexpr std::size_t piece = std::size_t{1} << 24;  // elements between two looks at Ctrl-C
  std::uint32_t largest = 0;
  std::visit(
      [&]<typename T>(const std::vector<T>& all) {
        for (std::size_t done = 0; done < all.size(); done += piece) {
          fp8lab::checkpoint();
          const std::size_t count = std::min(piece, all.size() - done);
          add_amax(TileRows<T>{all.data() + done, 1, count, count, count}, NanInAmax::dropped, &largest, 0);
        }
      },
      values);
  return std::bit_cast<float>(largest);
}

std::optional<NumberMatrix> read_numbers(const Checkpoint& checkpoint, const StoredTensor& tensor,
                                         const MatrixPlace& place) {
  const std::uint64_t size = place.rows * place.columns;
  if (size == 0 || tensor.elements() < (place.slice + 1) * size || tensor.elements() % size != 0) return {};
  if (!checkpoint.has_data(tensor)) return {};
  if (const auto bits = bits_of_dtype(tensor.dtype); !bits || tensor.bytes != tensor.elements() * *bits / 8) return {};
  NumberMatrix matrix{.rows = place.rows, .columns = place.columns};
  if (tensor.dtype == "BF16") {
    matrix.values = read_matrix_of<BFloat16>(checkpoint, tensor, place);
  } else if (tensor.dtype == "F16") {
    matrix.values = read_matrix_of<Half>(checkpoint, tensor, place);
  } else if (tensor.dtype == "F32") {
    matrix.values = read_matrix_of<float>(checkpoint, tensor, place);
  } else if (tensor.dtype == "F64") {  // recipes round it to float32
    const std::vector<double> wide = read_matrix_of<double>(checkpoint, tensor, place);
    std::vector<float> narrow(wide.size());
    std::ranges::transform(wide, narrow.begin(), [](double x) { return static_cast<float>(x); });
    matrix.values = std::move(narrow);
  } else {
    return {};
  }
  return matrix;
}

void divide_columns(NumberMatrix& matrix, std::span<const float> scales) {
  std::vector<float> inverses;
  for (const float scale : scales) inverses.push_back(1 / scale);
  std::visit(
      [&]<typename T>(std::vector<T>& all) {
        for (std::size_t i = 0; i < all.size(); ++i) {
          const float x = widened(all[i]) * inverses[i % matrix.columns];
          if constexpr (std::is_same_v<T, float>) {
            all[i] = x;
          } else {
            const Format& format = std::is_same_v<T, Half> ? binary16 : bfloat16;
            all[i] = T{static_cast<std::uint16_t>(encode(format, ieee_policy, x))};
          }
        }
      },
      matrix.values);
}

std::vector<float> read_floats(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  const auto matrix = read_numbers(checkpoint, tensor, {.rows = 1, .columns = tensor.elements()});
  if (!matrix) return {};
  std::vector<float> all;
  const auto append = [&](const auto& some) {
    for (const auto x : some) all.push_back(widened(x));
  };
  std::visit(append, matrix->values);
  return all;
}

float scalar_of(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  const std::vector<float> numbers = tensor.elements() == 1 ? read_floats(checkpoint, tensor) : std::vector<float>();
  return numbers.empty() ? std::numeric_limits<float>::quiet_NaN() : numbers.front();
}
bool is_usable(float scale) { return std::isfinite(scale) && scale > 0; }

CodedMatrix read_coded_matrix(const WeightReader& reader, std::uint64_t expert) {
  const Weight& weight = reader.weight();
  const Layout& layout = *weight.layout;
  CodedMatrix matrix{.format = layout.format, .rows = weight.rows, .columns = weight.columns};
  matrix.block_rows = std::max<std::uint64_t>(1, reader.block_rows());
  matrix.block_columns = std::max<std::uint64_t>(1, reader.block_columns());
  matrix.codes.resize(matrix.rows * matrix.columns);
  const std::uint64_t first = expert * weight.rows;
  reader.codes(first, weight.rows, matrix.codes);
  const std::uint64_t across = reader.scale_columns();
  for (std::uint64_t row = 0; row < matrix.rows; row += matrix.block_rows) {
    const std::size_t at = matrix.scales.size();
    matrix.scales.resize(at + across);
    reader.scales(first + row, 1, std::span(matrix.scales).subspan(at));
  }
  if (layout.global != GlobalScale::none) {  // 1 where GGUF leaves it out
    matrix.global = reader.global_scale(expert);
    matrix.global_divides = layout.global == GlobalScale::divisor;
  }
  matrix.scales_are_powers = layout.scale_type == ScaleType::e8m0;
  return matrix;
}

}  // namespace fp8lab::experiments
