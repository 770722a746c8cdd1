// SPDX-License-Identifier: Apache-2.0
// What a GEMM makes of partial sums, by a hypothesis.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gemm/hypotheses.hpp"
#include "gemm/sample.hpp"

namespace fp8lab::doctor {

/// c and the bias of all elements.
struct GemmAddends {
  std::span<const float> c = {}, bias = {};
  std::size_t rows = 0, columns = 0;
};

/// What is added to one element.
struct ElementAddends {
  float c = 0, bias = 0;
};

/// c and the bias as element (row, column) gets them.
[[nodiscard]] ElementAddends addends_of(const GemmHypothesis& h, const GemmAddends& addends, std::size_t row,
                                        std::size_t column);

/// Some elements: the partial sums of each, as partial_sums() gives them, and their factors' scales.
struct GemmSums {
  std::span<const float> partials;
  const PlainRows& a;
  const PlainRows& b;
};

/// The accumulator of element `entry` before the epilogue.
[[nodiscard]] float accumulated(const GemmHypothesis& h, const GemmFacts& facts, const GemmSums& sums,
                                std::size_t entry, const ElementAddends& addends);
/// Whether accumulated() gives the same for both, whose partial sums are the same.
[[nodiscard]] bool accumulates_equally(const GemmHypothesis& x, const GemmHypothesis& y);

/// The word of element `entry` of the output, of its accumulator.
[[nodiscard]] std::uint64_t gemm_word(const GemmHypothesis& h, const GemmFacts& facts, const GemmSums& sums,
                                      std::size_t entry, const ElementAddends& addends, float accumulator);

/// The word of a float32 result: rounded to the output as the hypothesis says.
[[nodiscard]] std::uint64_t output_word(const GemmHypothesis& h, const Format& format, float x);

/// x rounded to the type.
[[nodiscard]] float rounded_to(AddendType type, float x);

/// One word for all NaNs of the format.
[[nodiscard]] std::uint64_t canonical_word(const Format& format, std::uint64_t word);

/// Accumulators of pieces of K by the hypothesis, as partial_sums() has them; `starts` is c of the elements.
[[nodiscard]] std::vector<float> partial_sums_by(const GemmHypothesis& h, const MmaModel& model, PlainRows& a,
                                                 PlainRows& b, std::span<const float> starts);

}  // namespace fp8lab::doctor
