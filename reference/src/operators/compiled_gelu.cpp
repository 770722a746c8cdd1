// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/compiled_gelu.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <variant>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
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

constexpr std::size_t bias_places = 64;
constexpr std::size_t bias_warps = 2;
constexpr std::size_t bias_lanes = 8;

/// What a thread block adds of the places of a column: a thread its own, the threads of a warp in halves, both warps.
float sum_of_bias_places(std::span<const float, bias_places> place) {
  std::array<float, bias_warps> of_warps{};
  for (std::size_t warp = 0; warp < bias_warps; ++warp) {
    std::array<float, bias_lanes> own{};
    for (std::size_t lane = 0; lane < bias_lanes; ++lane) {
      own[lane] = place[warp * bias_lanes + lane];
      for (std::size_t i = bias_warps * bias_lanes; i < bias_places; i += bias_warps * bias_lanes)
        own[lane] += place[i + warp * bias_lanes + lane];
    }
    for (std::size_t half = bias_lanes / 2; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) own[i] += own[i + half];
    }
    of_warps[warp] = own[0];
  }
  return of_warps[0] + of_warps[1];
}

void add_bias_rows(const MatrixView& dx, std::span<float> sums) {
  const DefaultEnvironment environment;
  const std::size_t columns = dx.columns();
  std::vector<float> row(padded(columns));
  std::vector<float> all(bias_places * columns);
  for (std::size_t i = 0; i < dx.rows(); ++i) {
    checkpoint();
    read_piece(dx, i * columns, columns, row.data());
    for (std::size_t j = 0; j < columns; ++j) all[j * bias_places + i % bias_places] += row[j];
  }
  for (std::size_t j = 0; j < columns; ++j) {
    const float sum =
        sum_of_bias_places(std::span<const float, bias_places>(all.data() + j * bias_places, bias_places));
    sums[j] = std::isnan(sum) ? std::bit_cast<float>(0x7FFFFFFFU) : sum;
  }
}

}  // namespace

void compiled_gelu(const MatrixView& x, std::span<const float> bias, const FloatOutput& out, int threads) {
  check_compiled_gelu(x, bias, "out", out);
  for_each_biased_row(x, bias, threads, [&](std::size_t row, std::vector<float>& y) {
    for (float& value : y) value = gelu_by_tanh(value, hopper_tanhf);
    write_piece(y.data(), x.columns(), out, row * x.columns());
  });
}

void compiled_gelu_backward(const MatrixView& grad, const MatrixView& x, std::span<const float> bias,
                            const FloatOutput& dx, std::span<float> sums, int threads) {
  check_compiled_gelu(x, bias, "dx", dx);
  check_kernel_floats("grad", grad);
  check_size("grad", grad.size(), x.size());
  check_apart_or_same_as("grad", grad, "dx", dx);
  if (!sums.empty()) check_size("sums", sums.size(), x.columns());
  const std::size_t columns = x.columns();
  for_each_biased_row(x, bias, threads, [&](std::size_t row, std::vector<float>& y) {
    std::vector<float> g(y.size());
    read_piece(grad, row * columns, columns, g.data());
    for (std::size_t i = 0; i < columns; ++i) y[i] = gelu_slope_by_tanh(y[i], hopper_tanhf) * g[i];
    write_piece(y.data(), columns, dx, row * columns);
  });
  if (!sums.empty()) add_bias_rows(view_of_output(dx, x.rows(), columns), sums);
}

}  // namespace fp8lab
