// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "fp8lab/formats/unpack.hpp"
#include "fp8lab/reference/tensor_core/mma_model.hpp"
#include "fp8lab/reference/tensor_core/operand.hpp"

namespace fp8lab {

/// A batch of independent dot products of one instruction: out[i] = c[i] + dot(a row i, b row i), word for word,
/// whatever the caller's rounding mode.
///
/// @param a,b  n rows of the instruction's K (any K for `exact`)
/// @param c    n accumulators, or empty for zeros
/// Throws std::invalid_argument where shapes, formats, scales, K or the accumulator's type do not fit; the message says
/// what is allowed. It throws too for a code with bits beyond its format's width (bit 7 of a UE4M3 scale is ignored, as
/// by the instruction), and where out overlaps an input; only c may be out itself.
void mma(const MmaModel& model, const Operand& a, const Operand& b, std::span<const float> c, std::span<float> out,
         ZeroRule zero_rule = ZeroRule::floor);
/// The same for models with a float16 accumulator.
void mma(const MmaModel& model, const Operand& a, const Operand& b, std::span<const Half> c, std::span<Half> out,
         ZeroRule zero_rule = ZeroRule::floor);
/// The same for models with a float64 accumulator.
void mma(const MmaModel& model, const Operand& a, const Operand& b, std::span<const double> c, std::span<double> out,
         ZeroRule zero_rule = ZeroRule::floor);

}  // namespace fp8lab
