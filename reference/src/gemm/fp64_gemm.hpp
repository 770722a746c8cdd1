// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "fp8lab/reference/gemm/gemm.hpp"

namespace fp8lab {

/// Products of float64 matrices: chains of fused multiply-adds of ascending k, each from a zero accumulator.
class Fp64Gemm {
 public:
  /// Operands and options must have been checked; their arrays must outlive it.
  Fp64Gemm(const MmaModel& model, const Operand& a, const Operand& b, const GemmOptions& options);
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
  std::span<const std::size_t> split_k_, split_order_;
};

}  // namespace fp8lab
