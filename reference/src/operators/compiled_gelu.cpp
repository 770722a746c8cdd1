// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/compiled_gelu.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "operators/row_buffers.hpp"
#include "units/gelu_by_tanh.hpp"
#include "units/hopper_functions.hpp"

namespace fp8lab {

namespace {

void check_compiled_gelu(const MatrixView& x, std::span<const float> bias, std::string_view name,
                         const FloatOutput& out) {
  check_kernel_floats("x", x);
  if (!bias.empty()) check_size("bias", bias.size(), x.columns());
  check_size(name, output_size(out), x.size());
  check_apart_or_same_as("x", x, name, out);
}

/// Calls work(row, x + bias of it) for each row.
template <typename Work>
void for_each_biased_row(const MatrixView& x, std::span<const float> bias, int threads, const Work& work) {
  const DefaultEnvironment environment;
  parallel_for(x.rows(), threads, [&](std::size_t first, std::size_t last) {
    std::vector<float> y(padded(x.columns()));
    for (std::size_t row = first; row < last; ++row) {
      checkpoint();
      read_piece(x, row * x.columns(), x.columns(), y.data());
      for (std::size_t i = 0; i < bias.size(); ++i) y[i] += bias[i];
      work(row, y);
    }
  });
}

MatrixView view_of_output(const FloatOutput& out, std::size_t rows, std::size_t columns) {
  return std::visit(
      [&]<typename T>(std::span<T> values) { return MatrixView(std::span<const T>(values), rows, columns); }, out);
}

template <typename T>
bool holds(const MatrixView& x) {
  return x.visit(
      [](auto values) { return std::is_same_v<std::remove_const_t<typename decltype(values)::value_type>, T>; });
}

/// How the threads of a block share the rows of a column; powers of two.
struct PlaceOrder {
  std::size_t places, lanes, warps;
};

constexpr std::size_t most_lanes = 32;
constexpr std::size_t most_warps = 8;

/// Element i and element i + n / 2 are added, of these i and i + n / 4, and so on.
float halved_sum(std::span<float> values) {
  for (std::size_t half = values.size() / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) values[i] += values[i + half];
  }
  return values[0];
}

/// What a thread block adds of the places of a column: a thread its own, the threads of a warp in halves, the warps
/// too.
float sum_of_places(std::span<const float> place, const PlaceOrder& order) {
  std::array<float, most_warps> of_warps{};
  for (std::size_t warp = 0; warp < order.warps; ++warp) {
    std::array<float, most_lanes> own{};
    for (std::size_t lane = 0; lane < order.lanes; ++lane) {
      const std::size_t thread = warp * order.lanes + lane;
      own[lane] = place[thread];
      for (std::size_t i = order.warps * order.lanes; i < order.places; i += order.warps * order.lanes)
        own[lane] += place[i + thread];
    }
    of_warps[warp] = halved_sum(std::span(own).first(order.lanes));
  }
  return halved_sum(std::span(of_warps).first(order.warps));
}

/// The places of each column, and what they sum to.
class ColumnPlaces {
 public:
  ColumnPlaces(std::size_t columns, const PlaceOrder& order)
      : order_(order), columns_(columns), all_(order.places * columns) {}

  [[nodiscard]] float& at(std::size_t row, std::size_t column) {
    return all_[column * order_.places + row % order_.places];
  }
  void add_row(std::size_t row, std::span<const float> values) {
    for (std::size_t j = 0; j < columns_; ++j) at(row, j) += values[j];
  }
  void write_sums(std::span<float> sums) const {
    for (std::size_t j = 0; j < columns_; ++j) {
      const float sum = sum_of_places(std::span(all_).subspan(j * order_.places, order_.places), order_);
      sums[j] = std::isnan(sum) ? std::bit_cast<float>(0x7FFFFFFFU) : sum;
    }
  }

 private:
  PlaceOrder order_;
  std::size_t columns_;
  std::vector<float> all_;
};

/// The sums of rows [first, last) of the rounded dx.
void add_rounded_rows(const MatrixView& dx, std::size_t first, std::size_t last, const PlaceOrder& order,
                      std::span<float> sums) {
  ColumnPlaces places(dx.columns(), order);
  std::vector<float> row(padded(dx.columns()));
  for (std::size_t i = first; i < last; ++i) {
    checkpoint();
    read_piece(dx, i * dx.columns(), dx.columns(), row.data());
    places.add_row(i - first, row);
  }
  places.write_sums(sums);
}

constexpr PlaceOrder any_shape_order{64, 8, 2};

/// The rows that a thread block adds in code for one shape.
constexpr std::size_t chunk_rows = 128;
/// Up to this many rows, their gradients are in registers at once, and not added in a loop.
constexpr std::size_t rows_at_once = 64;
constexpr PlaceOrder at_once_order{32, 4, 8};

/// The order of a loop over rows, of a kernel that makes so many sums.
PlaceOrder loop_order(std::size_t sums) {
  if (sums <= 512) return {64, 32, 2};
  if (sums <= 1024) return {64, 16, 4};
  return sums < 9 * std::size_t{4096} ? PlaceOrder{32, 8, 4} : PlaceOrder{8, 2, 4};
}

/// The order in which a second kernel adds the sums of chunks.
PlaceOrder chunk_order(std::size_t chunks, std::size_t columns) {
  constexpr std::size_t few_columns = 512;
  if (columns > few_columns) return {chunks, 1, std::min(chunks, most_warps)};
  const std::size_t warps = std::min<std::size_t>(chunks, 4);
  return {chunks, chunks / warps, warps};
}

/// Slopes and gradients of up to 128 rows, whose products code for one shape adds without rounding them.
class FusedRows {
 public:
  FusedRows(std::size_t rows, std::size_t columns, bool is_float32)
      : rows_(rows), columns_(columns), is_float32_(is_float32), slope_(rows * columns), grad_(rows * columns) {}

  void set_row(std::size_t row, std::span<const float> slope, std::span<const float> grad) {
    std::copy_n(slope.begin(), columns_, slope_.begin() + static_cast<std::ptrdiff_t>(row * columns_));
    std::copy_n(grad.begin(), columns_, grad_.begin() + static_cast<std::ptrdiff_t>(row * columns_));
  }
  void write_sums(std::span<float> sums) const {
    rows_ == rows_at_once ? write_sums_at_once(sums) : write_sums_of_loop(sums);
  }

 private:
  [[nodiscard]] float product(std::size_t row, std::size_t column) const {
    return slope_[row * columns_ + column] * grad_[row * columns_ + column];
  }
  [[nodiscard]] float plus_product(std::size_t row, std::size_t column, float addend) const {
    return std::fma(slope_[row * columns_ + column], grad_[row * columns_ + column], addend);
  }
  /// A thread has the rows i and i + 32. Which product is rounded and which is not, the compiler has chosen.
  void write_sums_at_once(std::span<float> sums) const {
    ColumnPlaces places(columns_, at_once_order);
    for (std::size_t i = 0; i < at_once_order.places; ++i) {
      checkpoint();
      for (std::size_t j = 0; j < columns_; ++j) {
        const std::size_t other = i + at_once_order.places;
        places.at(i, j) = is_float32_ ? plus_product(i, j, product(other, j)) : plus_product(other, j, product(i, j));
      }
    }
    places.write_sums(sums);
  }
  void write_sums_of_loop(std::span<float> sums) const {
    ColumnPlaces places(columns_, loop_order(columns_));
    for (std::size_t i = 0; i < rows_; ++i) {
      checkpoint();
      for (std::size_t j = 0; j < columns_; ++j) places.at(i, j) = plus_product(i, j, places.at(i, j));
    }
    places.write_sums(sums);
  }

  std::size_t rows_;
  std::size_t columns_;
  bool is_float32_;
  std::vector<float> slope_;
  std::vector<float> grad_;
};

/// What code for one shape makes of more than 128 rows.
void add_chunks(const MatrixView& dx, std::span<float> sums) {
  const std::size_t chunks = dx.rows() / chunk_rows;
  ColumnPlaces places(dx.columns(), chunk_order(chunks, dx.columns()));
  std::vector<float> of_chunk(dx.columns());
  for (std::size_t i = 0; i < chunks; ++i) {
    add_rounded_rows(dx, i * chunk_rows, (i + 1) * chunk_rows, loop_order(dx.columns() * chunks), of_chunk);
    places.add_row(i, of_chunk);
  }
  places.write_sums(sums);
}

}  // namespace

void compiled_gelu(const MatrixView& x, std::span<const float> bias, const FloatOutput& out, int threads) {
  check_compiled_gelu(x, bias, "out", out);
  for_each_biased_row(x, bias, threads, [&](std::size_t row, std::vector<float>& y) {
    for (float& value : y) value = gelu_by_tanh(value, hopper_tanhf);
    write_piece(y.data(), x.columns(), out, row * x.columns());
  });
}

bool has_one_shape_sums(std::size_t rows, std::size_t columns) {
  constexpr std::size_t most = 4096;
  return std::has_single_bit(rows) && rows >= rows_at_once && rows <= most && std::has_single_bit(columns) &&
         columns >= chunk_rows && columns <= most;
}

void compiled_gelu_backward(const MatrixView& grad, const MatrixView& x, std::span<const float> bias,
                            const FloatOutput& dx, const CompiledBiasSums& bias_sums, int threads) {
  const std::size_t rows = x.rows();
  const std::size_t columns = x.columns();
  check_compiled_gelu(x, bias, "dx", dx);
  check_kernel_floats("grad", grad);
  check_size("grad", grad.size(), x.size());
  check_apart_or_same_as("grad", grad, "dx", dx);
  const std::span<float> sums = bias_sums.sums;
  if (!sums.empty()) check_size("sums", sums.size(), columns);
  const bool for_one_shape = bias_sums.for_one_shape && !sums.empty();
  if (for_one_shape && !has_one_shape_sums(rows, columns)) {
    refuse("x has ", rows, " x ", columns,
           " elements: how code for one shape adds is known of 64 to 4096 rows and 128 to ",
           "4096 columns, powers of two");
  }
  if (for_one_shape && holds<Half>(x)) refuse("x is float16, of which it is not known how code for one shape adds");
  std::optional<FusedRows> fused;
  if (for_one_shape && rows <= chunk_rows) fused.emplace(rows, columns, holds<float>(x));
  for_each_biased_row(x, bias, threads, [&](std::size_t row, std::vector<float>& y) {
    std::vector<float> g(y.size());
    read_piece(grad, row * columns, columns, g.data());
    for (std::size_t i = 0; i < columns; ++i) y[i] = gelu_slope_by_tanh(y[i], hopper_tanhf);
    if (fused) fused->set_row(row, y, g);
    for (std::size_t i = 0; i < columns; ++i) y[i] *= g[i];
    write_piece(y.data(), columns, dx, row * columns);
  });
  if (sums.empty()) return;
  const DefaultEnvironment environment;
  if (fused) return fused->write_sums(sums);
  const MatrixView made = view_of_output(dx, rows, columns);
  for_one_shape ? add_chunks(made, sums) : add_rounded_rows(made, 0, rows, any_shape_order, sums);
}

}  // namespace fp8lab
