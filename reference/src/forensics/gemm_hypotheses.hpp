// SPDX-License-Identifier: Apache-2.0
// What a GEMM may have done, and what it makes of partial sums then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "forensics/gemm_sample.hpp"
#include "fp8lab/reference/forensics/diagnose_gemm.hpp"

namespace fp8lab::forensics {

/// Which kinds of float32 scales there are, and what the output is.
struct GemmFacts {
  std::size_t depth = 0;
  std::size_t tile_depth = 0;  ///< of tile scales; 0: none
  bool scales_a = false;       ///< float32 scales of a that are not 1
  bool scales_b = false;
  bool block_scales = false;  ///< the tensor core multiplies with scales
  Format format = binary32;   ///< of the output
};

/// All hypotheses about that model with that defect. (Defects that do not go with the facts give none.)
[[nodiscard]] std::vector<GemmHypothesis> gemm_hypotheses(const MmaModel& model, const GemmFacts& facts,
                                                          GemmDefect defect, std::size_t depth);

/// Elements of K in each partial sum that the hypothesis is made of.
[[nodiscard]] std::size_t partial_length(const GemmHypothesis& hypothesis, std::size_t depth);

/// The scales that an element meets in the epilogue.
struct EpilogueScales {
  float a = 1, b = 1;
  float alpha = 1;  ///< both as one number
};

/// The word of element `entry` of the output. `partials` are as partial_sums() gives them.
[[nodiscard]] std::uint64_t gemm_word(const GemmHypothesis& hypothesis, const GemmFacts& facts,
                                      std::span<const float> partials, const PlainRows& a, const PlainRows& b,
                                      std::size_t entry);

/// How far from usual a hypothesis is: what explains equally much is ranked by it.
[[nodiscard]] int strangeness(const GemmHypothesis& hypothesis);

/// One word for all NaNs of the format.
[[nodiscard]] std::uint64_t canonical_word(const Format& format, std::uint64_t word);

}  // namespace fp8lab::forensics
