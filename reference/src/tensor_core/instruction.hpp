// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tensor_core/factors.hpp"

namespace fp8lab {

/// One instruction: c + sum of a[k] * b[k] as the model computes it, on words of its accumulator (binary64, or binary32
/// or binary16 in the low end).
///
/// Takes fewer products than the instruction has as if the rest were zeros of no consequence, and any number for
/// Arithmetic::exact. Precondition: `a` and `b` are of equal length, and were made by a FactorReader of this model
/// and rule.
[[nodiscard]] std::uint64_t mma_instruction(const MmaModel& model, const FactorSpan& a, const FactorSpan& b,
                                            std::uint64_t c, ZeroRule zero_rule);

/// Step `step` of an instruction, from the accumulator's word before, `word`, to the one after. `exact` has one step.
[[nodiscard]] std::uint64_t mma_step(const MmaModel& model, int step, const FactorSpan& a, const FactorSpan& b,
                                     std::uint64_t word, ZeroRule zero_rule);

/// The IEEE 754 sum of two words of a binary32 or binary16 accumulator, nearest even; NaN is all ones.
[[nodiscard]] std::uint64_t ieee_sum(const MmaModel& model, std::uint64_t x, std::uint64_t y);

/// A float32 number that a binary32 or binary16 accumulator can be, as its word.
[[nodiscard]] std::uint32_t word_of_accumulator(const MmaModel& model, float x);

/// A word of a binary32 or binary16 accumulator as a float32: exactly, but that any NaN is 7FFFFFFF.
[[nodiscard]] float accumulator_value(const MmaModel& model, std::uint64_t word);

}  // namespace fp8lab
