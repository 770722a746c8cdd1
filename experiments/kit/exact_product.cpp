// SPDX-License-Identifier: Apache-2.0
#include "kit/exact_product.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t panel_width = 8;  // columns at a time: their sums stay in vector registers
using Lanes = std::array<double, panel_width>;

/// The dot products of one row of a with the columns of a panel, (K, panel_width): the sums, and their errors.
void multiply_panel(std::span<const float> a, const double* panel, Lanes& sums, Lanes& errors) {
  Lanes sum{};
  Lanes error{};
  for (const float factor : a) {
    const double x = factor;
    for (std::size_t j = 0; j < panel_width; ++j) {
      // TwoSum (Knuth): sum + product = next + what it lost, exactly.
      const double product = x * panel[j];
      const double next = sum[j] + product;
      const double added = next - sum[j];
      error[j] += (sum[j] - (next - added)) + (product - added);
      sum[j] = next;
    }
    panel += panel_width;
  }
  sums = sum;
  errors = error;
}

/// Element `at` becomes sum + error, exactly, by TwoSum again: where terms cancel, the error may be the larger one.
void add_exactly(double sum, double error, const DoubleDoubles& out, std::size_t at) {
  const double high = sum + error;
  const double added = high - sum;
  out.high[at] = high;
  out.low[at] = (sum - (high - added)) + (error - added);
}

/// Columns of the panel, K by K, in double; those that are missing are zero.
void pack_panel(const FactorMatrix& b, std::span<const std::size_t> columns, std::vector<double>& panel) {
  panel.assign(b.depth * panel_width, 0);
  for (std::size_t j = 0; j < columns.size(); ++j) {
    const std::span<const float> column = b.values.subspan(columns[j] * b.depth, b.depth);
    for (std::size_t k = 0; k < b.depth; ++k) panel[k * panel_width + j] = static_cast<double>(column[k]);
  }
}

}  // namespace

void exact_products(const FactorMatrix& a, std::span<const std::size_t> rows, const FactorMatrix& b,
                    std::span<const std::size_t> columns, int threads, const DoubleDoubles& out) {
  parallel_for(rows.size(), threads, [&](std::size_t first, std::size_t last) {
    std::vector<double> panel;
    Lanes sums{};
    Lanes errors{};
    for (std::size_t column = 0; column < columns.size(); column += panel_width) {
      const auto some = columns.subspan(column, std::min(panel_width, columns.size() - column));
      pack_panel(b, some, panel);
      for (std::size_t i = first; i < last; ++i) {
        checkpoint();
        multiply_panel(a.values.subspan(rows[i] * a.depth, a.depth), panel.data(), sums, errors);
        for (std::size_t j = 0; j < some.size(); ++j) {
          add_exactly(sums[j], errors[j], out, rows[i] * out.columns + some[j]);
        }
      }
    }
  });
}

}  // namespace fp8lab::experiments
