// SPDX-License-Identifier: Apache-2.0
// Operands as kernels without FP8 multiply them: dequantized to a type of 16 bits first.
#pragma once

#include <cstdint>
#include <vector>

#include "fp8lab/reference/gemm/gemm_recipe.hpp"
#include "fp8lab/reference/tensor_core/operand.hpp"

namespace fp8lab {

/// Each code of an operand times its scales, of blocks, tiles, rows and the tensor in this order, rounded to float16 or
/// bfloat16.
class DequantizedOperand {
 public:
  DequantizedOperand(const Operand& from, StepType type);

  /// Row-major, without scales; valid as long as this.
  [[nodiscard]] Operand operand() const { return Operand::codes(words_, format_, rows_, depth_); }

 private:
  Format format_;
  std::size_t rows_, depth_;
  std::vector<std::uint16_t> words_;
};

}  // namespace fp8lab
