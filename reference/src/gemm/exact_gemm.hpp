// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <span>
#include <vector>

#include "tensor_core/factors.hpp"

namespace fp8lab {

/// The real dot products, rounded once to float32.
///
/// A double precision GEMM first; where its error bound leaves open which float32 is nearest, and where a NaN or an
/// infinity takes part, the element is summed exactly.
class ExactGemm {
 public:
  ExactGemm(const FactorReader& a, const FactorReader& b);
  /// Rows [first, first + count), in the default floating-point environment.
  void rows(std::size_t first, std::size_t count, std::span<float> out) const;

 private:
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  struct Side {
    Matrix values;              // specials are replaced by zeros
    std::vector<double> norms;  // the 2-norm of each row; NaN for rows with a special
  };
  [[nodiscard]] static Side side_of(const Factors& factors, std::size_t rows);

  std::size_t rows_, columns_, depth_;
  Factors a_, b_;
  Side left_, right_;
};

}  // namespace fp8lab
