// SPDX-License-Identifier: Apache-2.0
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>
#include <algorithm>
#include <chrono>
#include <vector>

#ifdef FP8LAB_OPENBLAS
#include <cblas.h>
#endif

#include "bench.hpp"

namespace fp8lab::bench {
namespace {

void eigen_sgemm(const float* a, const float* b, float* out, std::size_t rows, std::size_t columns, std::size_t depth) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto index = [](std::size_t size) { return static_cast<Eigen::Index>(size); };
  const Eigen::Map<const Matrix> left(a, index(rows), index(depth));
  const Eigen::Map<const Matrix> right(b, index(columns), index(depth));
  Eigen::Map<Matrix>(out, index(rows), index(columns)).noalias() = left * right.transpose();
}

#ifdef FP8LAB_OPENBLAS
void openblas_sgemm(const float* a, const float* b, float* out, std::size_t rows, std::size_t columns,
                    std::size_t depth) {
  const auto size = [](std::size_t x) { return static_cast<blasint>(x); };
  openblas_set_num_threads(1);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, size(rows), size(columns), size(depth), 1, a, size(depth), b,
              size(depth), 0, out, size(columns));
}
#endif

/// The least time of five products of 512 x 512 x 512.
template <typename Multiply>
double seconds_of(const Multiply& multiply) {
  constexpr std::size_t side = 512;
  const std::vector<float> a(side * side, 1);
  std::vector<float> out(side * side);
  double least = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    multiply(a.data(), a.data(), out.data(), side, side, side);
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return least;
}

}  // namespace

Sgemm fastest_sgemm() {
#ifdef FP8LAB_OPENBLAS
  if (seconds_of(openblas_sgemm) < seconds_of(eigen_sgemm)) return {"OpenBLAS sgemm", openblas_sgemm};
#endif
  return {"Eigen sgemm", eigen_sgemm};
}

}  // namespace fp8lab::bench
