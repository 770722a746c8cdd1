// SPDX-License-Identifier: Apache-2.0
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

#include "bench.hpp"

namespace fp8lab::bench {

void sgemm(const float* a, const float* b, float* out, std::size_t rows, std::size_t columns, std::size_t depth) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto index = [](std::size_t size) { return static_cast<Eigen::Index>(size); };
  const Eigen::Map<const Matrix> left(a, index(rows), index(depth));
  const Eigen::Map<const Matrix> right(b, index(columns), index(depth));
  Eigen::Map<Matrix>(out, index(rows), index(columns)).noalias() = left * right.transpose();
}

}  // namespace fp8lab::bench
