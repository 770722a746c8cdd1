// SPDX-License-Identifier: Apache-2.0
// What a GEMM may have done.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "fp8lab/doctor/diagnose_gemm.hpp"

namespace fp8lab::doctor {

/// What there is to be explained: which scales and addends, and what the output is.
struct GemmFacts {
  std::size_t rows = 0, columns = 0, depth = 0;
  std::size_t tile_depth = 0;  ///< of tile scales that multiply at promotions; 0: none
  bool scales_a = false;       ///< float32 scales of a that are not 1
  bool scales_b = false;
  std::size_t block = 0;                                ///< elements that share a scale of the tensor core; 0: none
  bool block_codes = false;                             ///< these are codes of the operands, and not scales of tiles
  bool power_blocks = false;                            ///< they are powers of two, without a float32 scale beside them
  bool other_layout_a = false, other_layout_b = false;  ///< has_other_layout()
  bool c = false, bias = false;
  std::vector<AddendType> addend_types = {AddendType::as_given};  ///< that differ for these numbers
  float scale_out = 1;
  Format format = binary32;  ///< of the output
  bool overflowed = false;   ///< the output has its largest number, an infinity or a NaN
};

/// How far a search goes.
enum class GemmSearch : std::uint8_t {
  usual,         ///< K ascending, ZeroRule::floor
  orders,        ///< of K, other than ascending; and promotions within a tile
  zeros,         ///< rules for zeros other than floor
  rounded_sums,  ///< ranges, or the accumulator, are rounded to 16 bits before they are added or scaled
};

/// All hypotheses about that model with that defect. (Defects that do not go with the facts give none.)
[[nodiscard]] std::vector<GemmHypothesis> gemm_hypotheses(const MmaModel& model, const GemmFacts& facts,
                                                          GemmDefect defect, std::size_t depth,
                                                          GemmSearch search = GemmSearch::usual);

/// Elements of K in each partial sum that the hypothesis is made of.
[[nodiscard]] std::size_t partial_length(const GemmHypothesis& hypothesis, std::size_t depth);

/// How far from usual a hypothesis is: what explains equally much is ranked by it.
[[nodiscard]] int strangeness(const GemmHypothesis& hypothesis);

}  // namespace fp8lab::doctor
