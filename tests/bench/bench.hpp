// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace fp8lab::bench {

/// A measured work and the work that bounds it, both called again and again.
struct Row {
  std::string name;
  std::string bound_name;
  std::function<void()> work;
  std::function<void()> bound;
  double bound_factor;             ///< the bound's time is this times what `bound` takes
  std::function<bool()> verified;  ///< checked before anything is timed
};

[[nodiscard]] std::vector<Row> cast_rows();
[[nodiscard]] std::vector<Row> check_rows();
[[nodiscard]] std::vector<Row> layer_rows();
[[nodiscard]] std::vector<Row> measure_rows();
[[nodiscard]] std::vector<Row> product_rows();
[[nodiscard]] std::vector<Row> scaling_rows();

/// The target that the environment asks for, to go back to after another was forced.
[[nodiscard]] inline std::string wanted_target() {
  const char* name = std::getenv("FP8LAB_TARGET");
  return name == nullptr ? "" : name;
}

/// out = a * b^T in float32 on one thread; (rows, depth), (columns, depth) -> (rows, columns).
struct Sgemm {
  std::string name;
  std::function<void(const float* a, const float* b, float* out, std::size_t rows, std::size_t columns,
                     std::size_t depth)>
      multiply;
};
/// The faster of Eigen, compiled for this machine, and OpenBLAS, where it was found.
[[nodiscard]] Sgemm fastest_sgemm();

}  // namespace fp8lab::bench
