// SPDX-License-Identifier: Apache-2.0
// The slow oracle's record of a tensor core: what it takes, what it keeps, how it sums. The sources are in
// slow_mma.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "fp8lab/formats/format.hpp"

namespace fp8lab::tests {

/// Which terms take part in the maximum exponent that all terms are aligned to.
enum class SlowZeroRule : std::uint8_t {
  floor_of_zero_terms,  ///< all terms; one that is zero has the chip's exponent of zero (MMA-Sim 2.1.1)
  floor_always,         ///< the chip's exponent of zero bounds the maximum (Khattak and Mikaitis, August 2026)
  skip_terms,           ///< terms that are not zero (Khattak and Mikaitis before, but for bounds of float16 sums)
  count_zero_factors,   ///< all terms, a zero operand or accumulator as if its exponent were -126 (MMA-Sim before)
};
/// What the sum is converted to: truncated binary32, binary32 truncated to 13 fraction bits, or nearest-even binary16
/// or binary64.
enum class SlowOutput : std::uint8_t { binary32, e8m13, binary16, binary64 };
/// What becomes of the bits below the grid. Hardware truncates; the others let a test show that its vectors can tell.
enum class SlowAlignment : std::uint8_t { toward_zero, floor, nearest_even };
/// Which k a step takes: consecutive ones, or of every four the first two and then the last two (and the reverse).
enum class SlowOrder : std::uint8_t { ascending, pairs, pairs_reversed };
enum class SlowScale : std::uint8_t { none, ue8m0, ue4m3 };
/// Which groups of products take part in the maximum exponent where zeros do not: no row measured on a device decides.
enum class SlowGroups : std::uint8_t {
  nonzero_sum,
  nonzero_product,  ///< a group that cancels does (later versions of MMA-Sim)
  all,              ///< as under `count_zero_factors`
};

/// How a step sums: as NVIDIA's cores do, or as AMD's (slow_amd.hpp).
enum class SlowSum : std::uint8_t { fused, exact, products_first, flushed_pairs, fma_chain };
/// A wrong turn in a step of AMD's, so that a test can show that its vectors tell.
enum class SlowDefect : std::uint8_t {
  none,
  halves_toward_zero,  ///< not downward, where even and odd k meet
  dot_toward_zero,     ///< the products' sum beside c
  c_toward_zero,
  keeps_small_c,
  sum_toward_zero,  ///< the normalised sum
  no_flush,
  other_pairs,  ///< (p0 + p2) + (p1 + p3)
  descending,   ///< the last product first
  c_last,       ///< the products' sum, from zero, and then c
};

/// One instruction: `steps` fused sums, each of the accumulator and `step_products` products.
struct SlowModel {
  std::string_view name;
  std::span<const Format> operands;  ///< what each factor may be
  int step_products;
  int steps;
  int fraction_bits;  ///< kept below the leading exponent
  SlowOutput output;
  SlowScale scale = SlowScale::none;
  int scale_block = 0;                          ///< products that share a scale
  int group = 1;                                ///< products summed exactly before they are aligned as one term
  SlowGroups groups = SlowGroups::nonzero_sum;  ///< matters where `group` is above 1
  /// The compiler emits FP16 instructions that start from zero, and one IEEE addition of the accumulator.
  bool lowered = false;
  SlowOrder order = SlowOrder::ascending;
  SlowAlignment alignment = SlowAlignment::toward_zero;
  SlowSum sum = SlowSum::fused;
  bool has_two_sums = false;  ///< of even and of odd k
  bool keeps_nans = false;    ///< a chain's NaN is the first of a factor of b, the accumulator and a factor of a
  SlowDefect defect = SlowDefect::none;

  [[nodiscard]] constexpr int k() const { return step_products * steps; }
};

/// The format of the accumulator's words.
inline const Format& slow_word(SlowOutput output) {
  switch (output) {
    case SlowOutput::binary32:
    case SlowOutput::e8m13: break;
    case SlowOutput::binary16: return binary16;
    case SlowOutput::binary64: return binary64;
  }
  return binary32;
}

/// The exponent of a term that is zero, as MMA-Sim 2.1.1 lists it by chip and accumulator.
inline int slow_floor(const SlowModel& model) {
  if (model.group > 1) return -139;
  const bool half = model.output == SlowOutput::binary16;
  if (model.name.starts_with("volta")) return half ? -19 : -131;
  for (const std::string_view chip : {"turing", "ampere", "ada"}) {
    if (model.name.starts_with(chip)) return half ? -20 : -132;
  }
  return half ? -21 : -133;
}

}  // namespace fp8lab::tests
