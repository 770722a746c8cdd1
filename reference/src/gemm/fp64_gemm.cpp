// SPDX-License-Identifier: Apache-2.0
#include "gemm/fp64_gemm.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "fp8lab/formats/interruption.hpp"
#include "tensor_core/fp64_nan.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t panel_columns = 32;  // columns at a time
constexpr std::size_t panel_depth = 128;   // of K at a time: their factors of b stay in the first-level cache

double element(const Operand& operand, std::size_t row, std::size_t k) {
  const auto values = std::get<std::span<const double>>(operand.elements);
  return values[operand.transposed ? k * operand.rows + row : row * operand.depth + k];
}

/// Adds the products of a number with elements of b, each rounded once.
void add_products(double factor, std::span<const double> elements, double* sums) {
  for (std::size_t j = 0; j < elements.size(); ++j) sums[j] = std::fma(factor, elements[j], sums[j]);
}

}  // namespace

Fp64Gemm::Fp64Gemm(const GemmRecipe& recipe, const Operand& a, const Operand& b)
    : a_(a),
      b_(b),
      k_(static_cast<std::size_t>(recipe.model.k())),
      nan_(recipe.model.nan),
      ranges_(ranges_of(recipe, a.depth, k_)),
      order_(recipe.split_order) {
  if (!order_.empty()) return;
  order_.resize(ranges_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  if (recipe.order == PartialOrder::descending) std::ranges::reverse(order_);
}

void Fp64Gemm::chains(std::size_t first, std::size_t from, std::size_t to, std::span<double> sums) const {
  const std::size_t columns = b_.rows;
  std::vector<std::array<double, panel_columns>> panel(panel_depth);
  for (std::size_t column = 0; column < columns; column += panel_columns) {
    const std::size_t count = std::min(panel_columns, columns - column);
    for (std::size_t k0 = from; k0 < to; k0 += panel_depth) {
      checkpoint();
      const std::size_t products = std::min(panel_depth, to - k0);
      for (std::size_t k = 0; k < products; ++k) {
        for (std::size_t j = 0; j < count; ++j) panel[k][j] = element(b_, column + j, k0 + k);
      }
      for (std::size_t row = 0; row * columns < sums.size(); ++row) {
        double* const sum = &sums[row * columns + column];
        for (std::size_t k = 0; k < products; ++k) {
          add_products(element(a_, first + row, k0 + k), std::span(panel[k]).first(count), sum);
        }
      }
    }
  }
  // The zeros that fill up the last instruction: they make +0 of -0, which a product becomes that is too small.
  if ((to - from) % k_ != 0) std::ranges::for_each(sums, [](double& x) { x += 0.0; });
  // A NaN stays one to the chain's end, so that only its word is to be found.
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (std::isnan(sums[i])) sums[i] = nan_of_chain(first + i / columns, i % columns, from, to);
  }
}

double Fp64Gemm::nan_of_chain(std::size_t row, std::size_t column, std::size_t from, std::size_t to) const {
  double sum = 0;
  for (std::size_t k = from; k < to; ++k) sum = fp64_fma(nan_, element(a_, row, k), element(b_, column, k), sum);
  return sum;
}

void Fp64Gemm::rows(std::size_t first, std::size_t count, std::span<double> out) const {
  std::vector<std::vector<double>> sums(ranges_.size(), std::vector<double>(count * b_.rows));
  for (std::size_t r = 0, from = 0; r < ranges_.size(); ++r) {
    chains(first, from, from + ranges_[r], sums[r]);
    from += ranges_[r];
  }
  std::ranges::copy(sums[order_.front()], out.begin());
  // Which NaN an addition of two ranges gives is not known: the first one's is taken.
  const auto added = [this](double x, double y) { return std::isnan(x + y) ? first_nan(nan_, {x, y}) : x + y; };
  for (const std::size_t r : std::span(order_).subspan(1)) std::ranges::transform(out, sums[r], out.begin(), added);
}

}  // namespace fp8lab
