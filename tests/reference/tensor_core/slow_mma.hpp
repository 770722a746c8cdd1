// SPDX-License-Identifier: Apache-2.0
// A second opinion on the tensor cores: one instruction's dot product, in whole numbers of any size, one term at a
// time. Slow and plain on purpose, and it shares no code or table with the library's models. Sources:
//   Bit-Accurate Modeling of GPU Matrix Multiply-Accumulate Units, arXiv 2511.10909, by its code, microsoft/MMA-Sim;
//   Khattak and Mikaitis, arXiv 2512.07004, whose rows measured on GPUs decide Ada, wgmma and mma.sync;
//   NVIDIA, PTX ISA, sections mma, wgmma and tcgen05.mma, for operands and scale formats.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "reference/tensor_core/slow_amd.hpp"
#include "reference/tensor_core/slow_model.hpp"
#include "reference/tensor_core/slow_term.hpp"

namespace fp8lab::tests {

/// The exponent that MMA-Sim gives to zero, of whatever format.
inline constexpr int slow_zero_exponent = -126;

/// The same FP8 number as FP16 holds it: E4M3's subnormals are normal there (F2FP unpacks before HMMA).
inline SlowTerm slow_widened(SlowTerm term) {
  if (term.kind != SlowTerm::Kind::finite || term.is_zero()) return term;
  while (term.significand < (cpp_int(1) << static_cast<unsigned>(term.width)) &&
         term.exponent > binary16.min_exponent()) {
    term.significand <<= 1;
    --term.exponent;
  }
  return term;
}

inline SlowTerm slow_operand(const SlowModel& model, std::uint64_t code, const Format& format) {
  SlowTerm term = slow_decode(code, format);
  if (term.is_zero()) term.exponent = slow_zero_exponent;
  return model.lowered ? slow_widened(term) : term;
}

/// A block's scale. UE4M3 ignores bit 7 (PTX ISA: its codes have seven bits).
inline SlowTerm slow_scale(SlowScale scale, std::uint8_t code) {
  switch (scale) {
    case SlowScale::none: break;
    case SlowScale::ue8m0: return slow_decode(code, e8m0);
    case SlowScale::ue4m3: return slow_decode(code & 0x7FU, e4m3);
  }
  throw std::invalid_argument("slow_scale: the model takes no scales");
}

/// Whether `skip` leaves out a group's term where it is zero.
inline bool slow_counts_as_zero(SlowGroups groups, std::span<const SlowTerm> products) {
  switch (groups) {
    case SlowGroups::nonzero_sum: break;
    case SlowGroups::nonzero_product:
      return std::all_of(products.begin(), products.end(), [](const SlowTerm& p) { return p.is_zero(); });
    case SlowGroups::all: return false;
  }
  return true;
}

/// Several products as one term of exponent 0: their exact sum, whose own size leaves the exponent alone (MMA-Sim).
/// Precondition: finite, of equal width, no exponent below 0 but a zero's, as FP4 has them.
inline SlowTerm slow_group(std::span<const SlowTerm> products) {
  if (products.size() == 1) return products.front();
  cpp_int sum = 0;
  for (const SlowTerm& product : products) {
    if (!product.is_zero()) sum += slow_signed(product) << static_cast<unsigned>(product.exponent);
  }
  SlowTerm term;
  term.negative = sum < 0;
  term.significand = abs(sum);
  term.width = products.front().width;
  return term;
}

inline std::uint64_t slow_output(const cpp_int& value, int exponent, SlowOutput output) {
  switch (output) {
    case SlowOutput::binary32: break;
    case SlowOutput::e8m13: return slow_pack(value, exponent, binary32, 13, false);
    case SlowOutput::binary16: return slow_pack(value, exponent, binary16, 10, true);
    case SlowOutput::binary64: return slow_pack(value, exponent, binary64, 52, true);
  }
  return slow_pack(value, exponent, binary32, 23, false);
}

/// A term as a whole number of units 2^(leading - fraction_bits).
inline cpp_int slow_aligned(const SlowTerm& term, int leading, const SlowModel& model) {
  const int shift = model.fraction_bits + term.exponent - leading - term.width;
  if (shift >= 0) return slow_signed(term) << static_cast<unsigned>(shift);
  const auto dropped = static_cast<unsigned>(-shift);
  cpp_int kept = term.significand >> dropped;
  const auto rest = [&] { return cpp_int(term.significand - (kept << dropped)); };
  switch (model.alignment) {
    case SlowAlignment::toward_zero: break;
    case SlowAlignment::floor:
      if (term.negative && rest() != 0) ++kept;
      break;
    case SlowAlignment::nearest_even: {
      const cpp_int half = cpp_int(1) << (dropped - 1);
      if (rest() > half || (rest() == half && (kept & 1) != 0)) ++kept;
      break;
    }
  }
  return term.negative ? cpp_int(-kept) : kept;
}

/// One fused sum: `terms`, the accumulator among them, aligned to their largest exponent, truncated, added exactly and
/// converted once.
inline std::uint64_t slow_fuse(const SlowModel& model, std::span<const SlowTerm> terms, SlowZeroRule zero) {
  // 1. NaN and infinity.
  if (const auto special = slow_special(terms, slow_word(model.output))) return *special;

  // 2. The largest exponent.
  std::vector<int> exponents;
  if (zero == SlowZeroRule::floor_always) exponents.push_back(slow_floor(model));
  for (const SlowTerm& term : terms) {
    const bool is_nothing = term.is_scaled_by_zero || (term.is_zero() && term.counts_as_zero);
    if (zero == SlowZeroRule::count_zero_factors) {
      if (!term.is_scaled_by_zero) exponents.push_back(term.exponent);
    } else if (!is_nothing) {
      exponents.push_back(term.exponent);
    } else if (zero == SlowZeroRule::floor_of_zero_terms) {
      exponents.push_back(slow_floor(model));
    }
  }
  const int leading = exponents.empty() ? 0 : *std::ranges::max_element(exponents);

  // 3. Align, truncate, add.
  cpp_int sum = 0;
  for (const SlowTerm& term : terms) {
    if (!term.is_zero()) sum += slow_aligned(term, leading, model);
  }

  // 4. Convert.
  return slow_output(sum, leading - model.fraction_bits, model.output);
}

inline bool slow_takes(std::span<const Format> operands, const Format& a, const Format& b) {
  return std::ranges::find(operands, a) != operands.end() && std::ranges::find(operands, b) != operands.end();
}

/// The k of step `step`'s product `i`.
inline std::size_t slow_index(const SlowModel& model, int step, int i) {
  switch (model.order) {
    case SlowOrder::ascending: break;
    case SlowOrder::pairs: return static_cast<std::size_t>(4 * (i / 2) + 2 * step + i % 2);
    case SlowOrder::pairs_reversed: return static_cast<std::size_t>(4 * (i / 2) + 2 * (1 - step) + i % 2);
  }
  return static_cast<std::size_t>(step * model.step_products + i);
}

/// The operands of one dot product: codes in k order, one a word (E2M1 unpacked; TF32's 19 bits in the low end), and a
/// scale code a block.
struct SlowOperand {
  std::span<const std::uint64_t> codes;
  Format format;
  std::span<const std::uint8_t> scales = {};
};

/// The terms of one step: groups of products, scaled.
inline std::vector<SlowTerm> slow_terms(const SlowModel& model, const SlowOperand& a, const SlowOperand& b, int step) {
  std::vector<SlowTerm> terms;
  for (int i = 0; i < model.step_products; i += model.group) {
    std::vector<SlowTerm> products;
    for (int j = i; j < i + model.group; ++j) {
      const std::size_t k = slow_index(model, step, j);
      products.push_back(
          slow_product(slow_operand(model, a.codes[k], a.format), slow_operand(model, b.codes[k], b.format)));
    }
    SlowTerm term = slow_group(products);
    if (model.scale != SlowScale::none) {
      const std::size_t block = slow_index(model, step, i) / static_cast<std::size_t>(model.scale_block);
      term = slow_product(term, slow_scale(model.scale, a.scales[block]));
      term = slow_product(term, slow_scale(model.scale, b.scales[block]));
    }
    if (model.scale != SlowScale::none) {
      const std::size_t block = slow_index(model, step, i) / static_cast<std::size_t>(model.scale_block);
      term.is_scaled_by_zero =
          slow_scale(model.scale, a.scales[block]).is_zero() || slow_scale(model.scale, b.scales[block]).is_zero();
    }
    term.counts_as_zero = slow_counts_as_zero(model.groups, products);
    terms.push_back(term);
  }
  return terms;
}

/// The accumulator as a term.
inline SlowTerm slow_accumulator(const SlowModel& model, std::uint64_t word) {
  SlowTerm term = slow_decode(word, slow_word(model.output));
  if (term.is_zero()) term.exponent = slow_zero_exponent;
  return term;
}

/// Throws std::invalid_argument where the instruction takes no such operands.
inline void slow_check(const SlowModel& model, const SlowOperand& a, const SlowOperand& b) {
  const auto k = static_cast<std::size_t>(model.k());
  const std::size_t blocks = model.scale == SlowScale::none ? 0 : k / static_cast<std::size_t>(model.scale_block);
  const bool sizes = a.codes.size() == k && b.codes.size() == k;
  const bool scales = a.scales.size() == blocks && b.scales.size() == blocks;
  if (sizes && scales && slow_takes(model.operands, a.format, b.format)) return;
  throw std::invalid_argument("slow_mma: " + std::string(model.name) + " takes k = " + std::to_string(k) + " and " +
                              std::to_string(blocks) + " scales; got " + std::to_string(a.codes.size()) + ", " +
                              std::to_string(b.codes.size()) + ", " + std::to_string(a.scales.size()) + ", " +
                              std::to_string(b.scales.size()) + ", or formats it does not take");
}

/// A step of AMD's matrix cores.
inline std::uint64_t slow_amd_step(const SlowModel& model, const SlowOperand& a, const SlowOperand& b, int step,
                                   std::uint64_t word) {
  std::vector<SlowTerm> x, y;
  for (int i = 0; i < model.step_products; ++i) {
    const auto k = static_cast<std::size_t>(step * model.step_products + i);
    x.push_back(slow_decode(a.codes[k], a.format));
    y.push_back(slow_decode(b.codes[k], b.format));
  }
  const std::uint64_t sum = slow_amd_step(model, x, y, word, step == 0);
  if (!model.keeps_nans || sum != 0x7FFF'FFFF'FFFF'FFFFU) return sum;
  const auto k = static_cast<std::size_t>(step);
  for (const std::uint64_t nan : {b.codes[k], word, a.codes[k]}) {
    if (slow_decode(nan, binary64).is_nan()) return nan | 0x0008'0000'0000'0000U;  // quiet
  }
  return 0xFFF8'0000'0000'0000U;
}

/// One element of the instruction's result, c + sum of a_k * b_k, as a word of its accumulator: binary64, or binary32
/// or binary16 in the low end. Throws std::invalid_argument on wrong sizes or formats.
inline std::uint64_t slow_mma(const SlowModel& model, const SlowOperand& a, const SlowOperand& b, std::uint64_t c_word,
                              SlowZeroRule zero) {
  slow_check(model, a, b);
  const bool adds_c_last = model.lowered || model.defect == SlowDefect::c_last;
  std::uint64_t accumulator = adds_c_last ? 0 : c_word;
  for (int step = 0; step < model.steps; ++step) {
    if (model.sum != SlowSum::fused) {
      const bool descends = model.defect == SlowDefect::descending;
      accumulator = slow_amd_step(model, a, b, descends ? model.steps - 1 - step : step, accumulator);
      continue;
    }
    std::vector<SlowTerm> terms = slow_terms(model, a, b, step);
    terms.push_back(slow_accumulator(model, accumulator));
    accumulator = slow_fuse(model, terms, zero);
  }
  return adds_c_last ? slow_add(accumulator, c_word, slow_word(model.output)) : accumulator;
}

/// The same with every argument by itself.
inline std::uint64_t slow_mma(const SlowModel& model, std::span<const std::uint64_t> a_codes, const Format& format_a,
                              std::span<const std::uint64_t> b_codes, const Format& format_b, std::uint64_t c_word,
                              std::span<const std::uint8_t> scale_a = {}, std::span<const std::uint8_t> scale_b = {},
                              SlowZeroRule zero = SlowZeroRule::count_zero_factors) {
  return slow_mma(model, {a_codes, format_a, scale_a}, {b_codes, format_b, scale_b}, c_word, zero);
}

}  // namespace fp8lab::tests
