// SPDX-License-Identifier: Apache-2.0
#include "exact_gemm.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "instruction.hpp"

namespace fp8lab {

ExactGemm::ExactGemm(const GemmShape& shape, const Factors& a, const Factors& b, std::span<float> out)
    : shape_(shape), a_(a), b_(b), out_(out), left_(side_of(a, shape.rows)), right_(side_of(b, shape.columns)) {}

ExactGemm::Side ExactGemm::side_of(const Factors& factors, std::size_t rows) {
  const std::size_t depth = factors.depth;
  Side side{Matrix(static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(depth)), std::vector<double>(rows)};
  for (std::size_t row = 0; row < rows; ++row) {
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

void ExactGemm::operator()(std::size_t first, std::size_t last, const Report& report) const {
  constexpr std::size_t block = 64;
  // |computed - real| <= gamma_K * sum |a b| <= gamma_K * |a| |b| with gamma_K = K u / (1 - K u), u = 2^-53, for any
  // order of summation (Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1); the products are exact
  // in double. Twice that covers the rounding of the norms and of the two bounds below.
  const double gamma = static_cast<double>(shape_.depth) * 0x1p-52;
  const auto depth = static_cast<Eigen::Index>(shape_.depth);
  Matrix product;
  for (std::size_t row0 = first; row0 < last; row0 += block) {
    const std::size_t count = std::min(block, last - row0);
    product.noalias() =
        left_.values.block(static_cast<Eigen::Index>(row0), 0, static_cast<Eigen::Index>(count), depth) *
        right_.values.transpose();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t row = row0 + i;
      for (std::size_t column = 0; column < shape_.columns; ++column) {
        const double computed = product(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(column));
        const double error = gamma * left_.norms[row] * right_.norms[column];
        const auto below = static_cast<float>(computed - error);
        const auto above = static_cast<float>(computed + error);
        // Rounding is monotone: equal ends (in bits, so that zeros of two signs differ) fix what lies between.
        const bool decided =
            !std::isnan(error) && std::bit_cast<std::uint32_t>(below) == std::bit_cast<std::uint32_t>(above);
        float& result = out_[row * shape_.columns + column];
        if (decided) {
          result = computed == 0 ? 0.0F : below;
        } else {
          result = accumulator_value(exact, mma_instruction(exact, a_.row(row), b_.row(column), 0, ZeroRule::skip));
        }
      }
    }
    if (!report(static_cast<double>(row0 + count - first) / static_cast<double>(last - first))) return;
  }
}

}  // namespace fp8lab
