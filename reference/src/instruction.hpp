// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "factors.hpp"

namespace fp8lab {

/// One instruction: c + sum of a[k] * b[k] as the model computes it, on words of its accumulator (binary32, or binary16
/// in the low half).
///
/// Takes fewer products than the instruction has as if the rest were zeros of no consequence, and any number for
/// Arithmetic::exact. Precondition: `a` and `b` are of equal length, and were made by a FactorReader of this model
/// and rule.
[[nodiscard]] std::uint32_t mma_instruction(const MmaModel& model, const FactorSpan& a, const FactorSpan& b,
                                            std::uint32_t c, ZeroRule zero_rule);

/// A word of the accumulator as a float32: exactly, but that any NaN is 7FFFFFFF.
[[nodiscard]] float accumulator_value(const MmaModel& model, std::uint32_t word);

}  // namespace fp8lab
