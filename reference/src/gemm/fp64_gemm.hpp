// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "fp8lab/reference/gemm/gemm.hpp"

namespace fp8lab {

/// Products of float64 matrices: chains of fused multiply-adds of ascending k, each from a zero accumulator.
class Fp64Gemm {
 public:
  /// Operands and recipe must have been checked; the operands must outlive it.
  Fp64Gemm(const GemmRecipe& recipe, const Operand& a, const Operand& b);
  /// How many rows to ask for at a time.
  [[nodiscard]] static std::size_t block_rows() { return 32; }
  /// Rows [first, first + count), in the default floating-point environment.
  void rows(std::size_t first, std::size_t count, std::span<double> out) const;

 private:
  /// The chains of products [from, to) of K.
  void chains(std::size_t first, std::size_t from, std::size_t to, std::span<double> sums) const;
  /// The NaN that the chain of an element leaves.
  [[nodiscard]] double nan_of_chain(std::size_t row, std::size_t column, std::size_t from, std::size_t to) const;

  const Operand& a_;
  const Operand& b_;
  std::size_t k_;  // of an instruction
  NanWord nan_;
  std::vector<std::size_t> ranges_, order_;  // their lengths, and their numbers as they are added
};

}  // namespace fp8lab
