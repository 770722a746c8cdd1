// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "fp8lab/reference/tensor_core/mma.hpp"

namespace fp8lab {

/// How a dot product is composed of instructions.
struct TraceOptions {
  std::uint64_t c = 0;  ///< what the first instruction adds to: a word of the model's accumulator
  ZeroRule zero_rule = ZeroRule::floor;
  int promote_k = 0;  ///< as GemmRecipe has it
};

/// Two numbers that are multiplied: the factors of a product, or the scales of a block.
struct TraceProduct {
  std::size_t k;                 ///< the product's index in K, or the number of the scales' block
  std::uint64_t code_a, code_b;  ///< as given; the bit pattern of float32 and float64 values
  double a, b;                   ///< what the model multiplies: exact, infinite or NaN
};

/// A term that the adder aligns: a product, an FP4 group of products, or the accumulator.
struct TraceTerm {
  std::size_t k;  ///< index in K of the product, or of the group's first one; 0 for the accumulator
  std::vector<TraceProduct> products;  ///< one product, the nonzero ones of a group, or none for the accumulator
  std::optional<TraceProduct> scales;  ///< the scales of its block
  double value;                        ///< exact: the products' sum times the scales; infinite or NaN; of FP64
                                       ///< models the product rounded to float64
  std::optional<int> exponent;         ///< what it contributes to the maximum; empty where it contributes nothing
  double kept;                         ///< value cut toward zero to a multiple of 2^unit of the step, or what other
                                       ///< arithmetic makes of it before it is added: cut beside its own sum, flushed,
                                       ///< or whole
  double cut;                          ///< value - kept, exact
  [[nodiscard]] bool is_special() const;  ///< infinite or NaN
};

/// One step: terms aligned to the largest exponent, cut, summed and converted to the accumulator's word.
struct TraceStep {
  TraceTerm accumulator;            ///< the word before, as a term
  std::vector<TraceTerm> terms;     ///< in the order of k, without zeros that contribute no exponent
  std::optional<int> exponent;      ///< E, the largest; empty where no term has one, where NaN or infinity decides, and
                                    ///< for models that are not fused
  std::optional<int> unit;          ///< E - fraction_bits
  std::optional<std::int64_t> sum;  ///< the sum of the kept parts, in units of 2^unit
  std::uint64_t before, after;      ///< words of the accumulator
};

/// One instruction.
struct TraceInstruction {
  std::size_t k, products;  ///< its first k, and how many products the operands fill; the others are zero
  std::vector<TraceStep> steps;
  std::optional<std::uint64_t> added;  ///< models of Lowering::fp16_add start their steps at zero; this is the c that a
                                       ///< last IEEE 754 addition adds
  std::uint64_t result;                ///< the accumulator's word
  std::optional<float> promoted;       ///< the float32 accumulator, where the result was added to it
};

/// A dot product, step by step.
struct DotTrace {
  MmaModel model;
  TraceOptions options;
  std::size_t depth;  ///< K as given
  std::vector<TraceInstruction> instructions;
  std::uint64_t word;  ///< the result
  Format format;       ///< what the result is: the model's accumulator, or binary32 with promotion

  /// The result as a number, exactly.
  [[nodiscard]] double value() const;
};

/// Shows how `model` computes the dot product of one row of `a` and one of `b`, of any K, instruction
/// by instruction; zeros fill up the last one. The words are those of mma() and gemm(), bit for bit.
///
/// Throws std::invalid_argument where an operand has not one row, where K is 0, where c is no word of the accumulator,
/// and as gemm() does.
[[nodiscard]] DotTrace trace_dot(const MmaModel& model, const Operand& a, const Operand& b,
                                 const TraceOptions& options = {});

}  // namespace fp8lab
