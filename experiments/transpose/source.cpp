// SPDX-License-Identifier: Apache-2.0
#include "transpose/source.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/formats/widen.hpp"
#include "kit/lists.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::uint64_t most_of_a_matrix = std::uint64_t{1} << 27;

/// Sizes that are left: no dimension is empty, and all of it fits.
void check_dimensions(const std::string& what, std::uint64_t rows, std::uint64_t columns) {
  if (rows != 0 && columns != 0 && rows <= most_of_a_matrix && columns <= most_of_a_matrix / rows) return;
  refuse(what, " must have from 1 to 2^27 elements, not ", rows, " x ", columns);
}

std::string matrix_text(const Matrix& matrix) {
  std::string text = std::to_string(matrix.rows) + " x ";
  text += std::to_string(matrix.columns) + " ";
  return text + std::string(name_of(matrix.type)) + " values";
}

/// A shape as Python prints it.
std::string dimensions_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

/// Where and how often to multiply.
void check_outliers(const char* what, const OutlierLines& outliers, long long lines) {
  if (outliers.count < 0 || outliers.count > lines) {
    refuse(what, " must be from 0 to ", lines, " of them, not ", outliers.count);
  }
  const auto factor = static_cast<float>(outliers.factor);
  if (factor > 0 && std::isfinite(factor)) return;
  refuse("the factor of ", what, " must be positive and finite in float32, not ", outliers.factor);
}

/// Calls multiply(line, factor) for the outliers of `lines` rows or columns.
template <typename Multiply>
void for_each_outlier(const OutlierLines& outliers, std::size_t lines, const Multiply& multiply) {
  const auto count = static_cast<std::size_t>(outliers.count);
  for (std::size_t i = 0; i < count; ++i) multiply(i * lines / count, static_cast<float>(outliers.factor));
}

std::string outliers_text(const OutlierLines& outliers, const char* lines) {
  if (outliers.count == 0) return "";
  TextStream text;
  text << ", " << outliers.count << ' ' << lines << " times " << outliers.factor;
  return text.str();
}

/// Draws all of `room`, in pieces, so that a run can be cancelled between them.
void draw_values(const MatrixDraws& draws, int threads, const Progress& progress, std::span<float> room) {
  constexpr std::size_t most = 1 << 20;
  for (std::size_t begin = 0; begin < room.size(); begin += most) {
    const std::span<float> some = room.subspan(begin, std::min(most, room.size() - begin));
    parallel_for(some.size(), threads, [&](std::size_t first, std::size_t last) {
      sample(draws.distribution, draws.seed, begin + first, some.subspan(first, last - first));
    });
    if (progress) progress(0);
  }
}

Matrix matrix_from(const MatrixDraws& draws, int threads, const Progress& progress) {
  // 1. Sizes.
  if (draws.rows < 1 || draws.columns < 1) {
    refuse("rows and columns must be 1 or more, not ", draws.rows, " and ", draws.columns);
  }
  check_dimensions("a matrix", static_cast<std::uint64_t>(draws.rows), static_cast<std::uint64_t>(draws.columns));
  check_outliers("outlier_rows", draws.outlier_rows, draws.rows);
  check_outliers("outlier_columns", draws.outlier_columns, draws.columns);
  Matrix matrix;
  matrix.rows = static_cast<std::size_t>(draws.rows);
  matrix.columns = static_cast<std::size_t>(draws.columns);
  // 2. Values.
  auto& room = matrix.room.emplace<Buffer<float>>(matrix.rows * matrix.columns);
  draw_values(draws, threads, progress, room);
  for_each_outlier(draws.outlier_rows, matrix.rows, [&](std::size_t row, float factor) {
    for (std::size_t j = 0; j < matrix.columns; ++j) room[row * matrix.columns + j] *= factor;
  });
  for_each_outlier(draws.outlier_columns, matrix.columns, [&](std::size_t column, float factor) {
    for (std::size_t i = 0; i < matrix.rows; ++i) room[i * matrix.columns + column] *= factor;
  });
  matrix.values = std::span<const float>(room);
  // 3. Words.
  std::string& text = matrix.description = matrix_text(matrix) + " drawn with seed ";
  text += std::to_string(draws.seed) + " from " + std::string(draws.distribution.name);
  text += outliers_text(draws.outlier_rows, "rows") + outliers_text(draws.outlier_columns, "columns");
  return matrix;
}

/// Reads a file's elements, row-major, which are of T.
template <typename T>
void read_elements(TensorFile& file, Matrix& matrix) {
  const std::size_t rows = matrix.rows;
  const std::size_t columns = matrix.columns;
  auto& room = matrix.room.emplace<Buffer<T>>(rows * columns);
  matrix.values = std::span<const T>(room);
  if (!file.fortran_order()) return file.read(0, std::span<T>(room));
  // Some columns at a time, and so no second copy of all.
  Buffer<T> piece;
  const std::size_t most = std::max<std::size_t>(1, (std::size_t{1} << 20) / rows);
  for (std::size_t first = 0; first < columns; first += most) {
    const std::size_t count = std::min(most, columns - first);
    piece.resize(count * rows);
    file.read(first * rows, std::span<T>(piece));
    for (std::size_t i = 0; i < rows; ++i) {
      checkpoint(i);
      for (std::size_t j = 0; j < count; ++j) room[i * columns + first + j] = piece[j * rows + i];
    }
  }
}

Matrix matrix_from(const StoredTensor& stored, int /*threads*/, const Progress& /*progress*/) {
  TensorFile file(stored.path, stored.tensor);
  const std::string name = printable(stored.path.native());
  if (file.shape().size() != 2) {
    refuse(name, ": a tensor must have two dimensions, and this one has shape ", dimensions_text(file.shape()));
  }
  check_dimensions(name + ": a matrix", file.shape()[0], file.shape()[1]);
  Matrix matrix;
  matrix.type = file.type();
  matrix.rows = static_cast<std::size_t>(file.shape()[0]);
  matrix.columns = static_cast<std::size_t>(file.shape()[1]);
  switch (file.type()) {
    case ElementType::float32: read_elements<float>(file, matrix); break;
    case ElementType::bfloat16: read_elements<BFloat16>(file, matrix); break;
    case ElementType::float16: read_elements<Half>(file, matrix); break;
    case ElementType::float64:
    case ElementType::uint8:
      refuse(name, " holds ", name_of(file.type()), "; float32, float16 and bfloat16 are quantized");
  }
  matrix.description = matrix_text(matrix) + " of " + name;
  if (!file.name().empty()) matrix.description += ", tensor " + printable(file.name());
  return matrix;
}

Matrix matrix_from(const MatrixArray& array, int /*threads*/, const Progress& /*progress*/) {
  check_dimensions("a matrix", array.rows, array.columns);
  Matrix matrix;
  matrix.rows = array.rows;
  matrix.columns = array.columns;
  std::visit(
      [&]<typename T>(std::span<const T> values) {
        if (values.size() != array.rows * array.columns) {
          refuse("a matrix of ", array.rows, " x ", array.columns, " must not have ", values.size(), " values");
        }
        if constexpr (std::is_same_v<T, double>) {
          refuse("values are float64; float32, float16 and bfloat16 are quantized");
        } else {
          matrix.values = values;
        }
        if (std::is_same_v<T, Half>) matrix.type = ElementType::float16;
        if (std::is_same_v<T, BFloat16>) matrix.type = ElementType::bfloat16;
      },
      array.values);
  matrix.description = matrix_text(matrix) + " of an array";
  return matrix;
}

}  // namespace

void Matrix::widen(std::size_t first, std::span<float> out) const {
  std::visit(
      [&]<typename T>(std::span<const T> all) {
        std::ranges::transform(all.subspan(first, out.size()), out.begin(), [](T x) { return widened(x); });
      },
      values);
}

Matrix matrix_of(const MatrixSource& source, int threads, const Progress& progress) {
  return std::visit([&](const auto& one) { return matrix_from(one, threads, progress); }, source);
}

}  // namespace fp8lab::experiments
