// SPDX-License-Identifier: Apache-2.0
// The terms of one step of a tensor core, in words and as binary numbers.
#pragma once

#include <string>
#include <vector>

#include "fp8lab/reference/gemm/trace.hpp"

namespace fp8lab::experiments {

/// The accumulator's term, then those of the products.
[[nodiscard]] std::vector<const TraceTerm*> terms_of(const TraceStep& step);
/// The same without zeros that have no say.
[[nodiscard]] std::vector<const TraceTerm*> told_terms(const TraceStep& step);
/// What a step cuts off, of all terms together.
[[nodiscard]] double cut_off(const TraceStep& step);

/// Draws the part of a term that is kept as a binary number, the digit of 2^E before the point, and behind a bar the
/// first digits of what is cut off; "+" where there are more. Precondition: the step has an exponent.
[[nodiscard]] std::string picture(const TraceStep& step, const TraceTerm& term, int fraction_bits);

/// The k of a term: "c", "3", or "0-3" of a group.
[[nodiscard]] std::string k_text(const TraceTerm& term, const MmaModel& model);
/// Where E comes from, or why there is none.
[[nodiscard]] std::string exponent_text(const TraceStep& step, const MmaModel& model);
[[nodiscard]] std::string power_text(int exponent);

}  // namespace fp8lab::experiments
