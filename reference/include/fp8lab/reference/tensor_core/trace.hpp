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
  std::uint32_t c = 0;  ///< what the first instruction adds to: a word of the model's accumulator
  ZeroRule zero_rule = ZeroRule::skip;
  int promote_k = 0;  ///< as GemmOptions has it
};

/// Two factors, of a product or the scales of a block.
struct TraceProduct {
  std::size_t k;                 ///< of a product; of scales the block's number
  std::uint32_t code_a, code_b;  ///< as given; float32's bit pattern for float32 values
  double a, b;                   ///< what the model multiplies: exact, infinite or NaN
};

/// What the adder aligns: a product, an FP4 group of products, or the accumulator.
struct TraceTerm {
  std::size_t k;                          ///< of the product, or the first of the group; of the accumulator 0
  std::vector<TraceProduct> products;     ///< one; of a group those that are not zero; of the accumulator none
  std::optional<TraceProduct> scales;     ///< of the block that it lies in
  double value;                           ///< exact: the products' sum times the scales; infinite or NaN
  std::optional<int> exponent;            ///< that it brings to the maximum; none of what brings none
  double kept;                            ///< value cut toward zero to a multiple of 2^unit of the step
  double cut;                             ///< value - kept, exact
  [[nodiscard]] bool is_special() const;  ///< infinite or NaN
};

/// One step: terms aligned to the largest exponent, cut, summed and converted to the accumulator's word.
struct TraceStep {
  TraceTerm accumulator;         ///< the word before, as a term
  std::vector<TraceTerm> terms;  ///< in the order of k; left out are those that are zero and bring no exponent
  std::optional<int> exponent;   ///< E, the largest; none where nothing brings one, where NaN or infinity decides, and
                                 ///< for `exact`, which aligns nothing
  std::optional<int> unit;       ///< E - fraction_bits
  std::optional<std::int64_t> sum;  ///< of what is kept, in units of 2^unit
  std::uint32_t before, after;      ///< words of the accumulator
};

/// One instruction.
struct TraceInstruction {
  std::size_t k, products;  ///< its first k, and how many products the operands have for it: the others are zero
  std::vector<TraceStep> steps;
  std::optional<std::uint32_t> added;  ///< the c that a last IEEE 754 addition adds to what the steps, begun at zero,
                                       ///< gave: for models of Lowering::fp16_add
  std::uint32_t result;                ///< the accumulator's word
  std::optional<float> promoted;       ///< the float32 accumulator, where the result was added to it
};

/// A dot product, told step by step.
struct DotTrace {
  MmaModel model;
  TraceOptions options;
  std::size_t depth;  ///< K as given
  std::vector<TraceInstruction> instructions;
  std::uint32_t word;  ///< the result
  Format format;       ///< of the result: the model's accumulator, binary32 with promotion

  /// The result as gemm() has it: a float32 number, any NaN of the accumulator 7FFFFFFF.
  [[nodiscard]] float value() const;
};

/// Tells how `model` computes the dot product of one row of `a` and one of `b`, of any K: instruction after
/// instruction, zeros filling up the last. The words are those of mma() and gemm(), bit for bit.
///
/// Throws std::invalid_argument where an operand has not one row, where K is 0, where c is no word of the accumulator,
/// and as gemm() does.
[[nodiscard]] DotTrace trace_dot(const MmaModel& model, const Operand& a, const Operand& b,
                                 const TraceOptions& options = {});

}  // namespace fp8lab
