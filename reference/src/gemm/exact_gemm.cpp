// SPDX-License-Identifier: Apache-2.0
#include "gemm/exact_gemm.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "tensor_core/instruction.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t tile_side = 1024;  // block sizes of columns and K: a block takes 0.1 s at most

}  // namespace

ExactGemm::ExactGemm(const FactorReader& a, const FactorReader& b)
    : rows_(a.operand().rows),
      columns_(b.operand().rows),
      depth_(a.operand().depth),
      a_(a.rows(0, rows_)),
      b_(b.rows(0, columns_)),
      left_(side_of(a_, rows_)),
      right_(side_of(b_, columns_)) {}

ExactGemm::Side ExactGemm::side_of(const Factors& factors, std::size_t rows) {
  const std::size_t depth = factors.depth;
  Side side{Matrix(static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(depth)), std::vector<double>(rows)};
  for (std::size_t row = 0; row < rows; ++row) {
    checkpoint();
    double squares = 0;
    for (std::size_t k = 0; k < depth; ++k) {
      const Factor& x = factors.elements[row * depth + k];
      const bool special = x.kind == Kind::infinite || x.kind == Kind::nan;
      const double value = special ? 0 : x.value;
      side.values(static_cast<Eigen::Index>(row), static_cast<Eigen::Index>(k)) = value;
      squares += special ? std::numeric_limits<double>::quiet_NaN() : value * value;
    }
    side.norms[row] = std::sqrt(squares);
  }
  return side;
}

void ExactGemm::rows(std::size_t first, std::size_t count, std::span<float> out) const {
  // |computed - real| <= gamma_K * sum |a b| <= gamma_K * |a| |b| with gamma_K = K u / (1 - K u), u = 2^-53, for any
  // order of summation (Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1); the products are exact
  // in double. Twice that covers the rounding of the norms and of the two bounds below.
  const double gamma = static_cast<double>(depth_) * 0x1p-52;
  const auto index = [](std::size_t i) { return static_cast<Eigen::Index>(i); };
  Matrix product = Matrix::Zero(index(count), index(columns_));
  for (std::size_t k = 0; k < depth_; k += tile_side) {
    for (std::size_t column = 0; column < columns_; column += tile_side) {
      checkpoint();
      const auto depth = index(std::min(tile_side, depth_ - k));
      const auto width = index(std::min(tile_side, columns_ - column));
      product.middleCols(index(column), width).noalias() +=
          left_.values.block(index(first), index(k), index(count), depth) *
          right_.values.block(index(column), index(k), width, depth).transpose();
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t row = first + i;
    checkpoint();
    for (std::size_t column = 0; column < columns_; ++column) {
      const double computed = product(index(i), index(column));
      const double error = gamma * left_.norms[row] * right_.norms[column];
      const auto below = static_cast<float>(computed - error);
      const auto above = static_cast<float>(computed + error);
      // Rounding is monotone: equal ends (in bits, so that zeros of two signs differ) fix the results between them.
      const bool decided =
          !std::isnan(error) && std::bit_cast<std::uint32_t>(below) == std::bit_cast<std::uint32_t>(above);
      float& result = out[i * columns_ + column];
      if (decided) {
        result = computed == 0 ? 0.0F : below;
      } else {
        checkpoint();
        result = accumulator_value(exact, mma_instruction(exact, a_.row(row), b_.row(column), 0, ZeroRule::skip_terms));
      }
    }
  }
}

}  // namespace fp8lab
