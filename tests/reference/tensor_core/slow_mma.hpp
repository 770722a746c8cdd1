// SPDX-License-Identifier: Apache-2.0
// A second opinion on the tensor cores: one instruction's dot product, in whole numbers of any size, one term at a
// time. Slow and plain on purpose, and it shares no code or table with the library's models. Sources:
//   Bit-Accurate Modeling of GPU Matrix Multiply-Accumulate Units, arXiv 2511.10909, by its code, microsoft/MMA-Sim;
//   Khattak and Mikaitis, arXiv 2512.07004, whose rows measured on GPUs decide Ada, wgmma and mma.sync;
//   NVIDIA, PTX ISA, sections mma, wgmma and tcgen05.mma, for operands and scale formats.
#pragma once

#include <algorithm>
#include <array>
#include <boost/multiprecision/cpp_int.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/format.hpp"

namespace fp8lab::tests {

using boost::multiprecision::cpp_int;

/// Which terms take part in the maximum exponent that all terms are aligned to.
enum class SlowZeroRule : std::uint8_t {
  floor_of_zero_terms,  ///< all terms; one that is zero has the chip's exponent of zero (MMA-Sim 2.1.1)
  floor_always,         ///< the chip's exponent of zero bounds the maximum (Khattak and Mikaitis, August 2026)
  skip_terms,           ///< terms that are not zero (Khattak and Mikaitis before, but for bounds of float16 sums)
  count_zero_factors,   ///< all terms, a zero operand or accumulator as if its exponent were -126 (MMA-Sim before)
};
/// What the sum is converted to: truncated binary32, binary32 truncated to 13 fraction bits, or nearest-even binary16.
enum class SlowOutput : std::uint8_t { binary32, e8m13, binary16 };
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
  SlowDefect defect = SlowDefect::none;

  [[nodiscard]] constexpr int k() const { return step_products * steps; }
};

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

/// A number as the tensor core holds it, not normalised: (-1)^negative * significand * 2^(exponent - width).
struct SlowTerm {
  enum class Kind : std::uint8_t { finite, infinite, not_a_number };
  Kind kind = Kind::finite;
  bool negative = false;
  cpp_int significand = 0;
  int exponent = 0;
  int width = 0;
  bool counts_as_zero = true;      ///< left out of the maximum where it is zero, or has the chip's exponent of zero
  bool is_scaled_by_zero = false;  ///< left out of it always, for its scale has no exponent

  [[nodiscard]] bool is_nan() const { return kind == Kind::not_a_number; }
  [[nodiscard]] bool is_infinite() const { return kind == Kind::infinite; }
  [[nodiscard]] bool is_zero() const { return kind == Kind::finite && significand == 0; }
};

/// A code's fields as a number. A subnormal keeps the exponent of the smallest normal.
inline SlowTerm slow_decode(std::uint32_t code, const Format& format) {
  const auto width = static_cast<unsigned>(format.mantissa_bits);
  const auto exponent_bits = static_cast<unsigned>(format.exponent_bits);
  const std::uint32_t all_fraction = (1U << width) - 1;
  const std::uint32_t top = (1U << exponent_bits) - 1;
  const std::uint32_t fraction = code & all_fraction;
  const std::uint32_t field = (code >> width) & top;

  SlowTerm term;
  term.negative = format.is_signed && ((code >> (width + exponent_bits)) & 1U) != 0;
  term.width = format.mantissa_bits;
  if (format.specials == Specials::ieee && field == top) {
    term.kind = fraction == 0 ? SlowTerm::Kind::infinite : SlowTerm::Kind::not_a_number;
  } else if (format.specials == Specials::nan_at_all_ones && field == top && fraction == all_fraction) {
    term.kind = SlowTerm::Kind::not_a_number;
  } else if (format.specials == Specials::nan_at_negative_zero && term.negative && field == 0 && fraction == 0) {
    term.kind = SlowTerm::Kind::not_a_number;
  } else if (field == 0 && format.has_subnormals) {
    term.significand = fraction;
    term.exponent = 1 - format.bias;
  } else {
    term.significand = fraction + (1U << width);
    term.exponent = static_cast<int>(field) - format.bias;
  }
  return term;
}

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

inline SlowTerm slow_operand(const SlowModel& model, std::uint32_t code, const Format& format) {
  SlowTerm term = slow_decode(code, format);
  if (term.is_zero()) term.exponent = slow_zero_exponent;
  return model.lowered ? slow_widened(term) : term;
}

/// The exact product: significands multiply, exponents add, and nothing is normalised.
inline SlowTerm slow_product(const SlowTerm& a, const SlowTerm& b) {
  SlowTerm product;
  product.negative = a.negative != b.negative;
  if (a.is_nan() || b.is_nan() || (a.is_infinite() && b.is_zero()) || (a.is_zero() && b.is_infinite())) {
    product.kind = SlowTerm::Kind::not_a_number;
  } else if (a.is_infinite() || b.is_infinite()) {
    product.kind = SlowTerm::Kind::infinite;
  } else {
    product.significand = a.significand * b.significand;
    product.exponent = a.exponent + b.exponent;
    product.width = a.width + b.width;
  }
  return product;
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

inline cpp_int slow_signed(const SlowTerm& term) {
  return term.negative ? cpp_int(-term.significand) : term.significand;
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

/// value * 2^exponent as a word of `format` of whose fraction `kept` bits are used, the others zero. Rounds to nearest
/// even or toward zero, gradually below the smallest normal; what reaches the power of two above the largest finite
/// value is infinite in both modes. Zero has no sign, whatever underflowed to it (MMA-Sim).
inline std::uint32_t slow_pack(const cpp_int& value, int exponent, const Format& format, int kept, bool nearest_even) {
  if (value == 0) return 0;
  const auto sign = static_cast<std::uint32_t>(value < 0 ? format.sign_mask() : 0);
  const cpp_int magnitude = abs(value);

  // 1. The unit of the last kept place.
  const int leading = static_cast<int>(msb(magnitude)) + exponent;
  int unit = std::max(leading, format.min_exponent()) - kept;

  // 2. Round to a multiple of it.
  cpp_int quotient = magnitude;
  if (unit > exponent) {
    const auto shift = static_cast<unsigned>(unit - exponent);
    const cpp_int half = cpp_int(1) << (shift - 1);
    quotient = magnitude >> shift;
    const cpp_int rest = magnitude - (quotient << shift);
    if (nearest_even && (rest > half || (rest == half && (quotient & 1) != 0))) ++quotient;
  } else {
    quotient <<= static_cast<unsigned>(exponent - unit);
  }
  if (quotient == 0) return 0;

  // 3. Fields. A subnormal has field 0; rounding may have carried into the next binade.
  const cpp_int implicit = cpp_int(1) << static_cast<unsigned>(kept);
  if (quotient == 2 * implicit) {
    quotient = implicit;
    ++unit;
  }
  const int field = quotient < implicit ? 0 : unit + kept + format.bias;
  if (field >= (1 << format.exponent_bits) - 1) return sign | static_cast<std::uint32_t>(format.infinity_code());
  const auto fraction = static_cast<std::uint32_t>(quotient < implicit ? quotient : cpp_int(quotient - implicit));
  return sign | (static_cast<std::uint32_t>(field) << format.mantissa_bits) |
         (fraction << (format.mantissa_bits - kept));
}

/// The format of the accumulator's words.
inline const Format& slow_word(SlowOutput output) {
  switch (output) {
    case SlowOutput::binary32:
    case SlowOutput::e8m13: break;
    case SlowOutput::binary16: return binary16;
  }
  return binary32;
}

inline std::uint32_t slow_output(const cpp_int& value, int exponent, SlowOutput output) {
  switch (output) {
    case SlowOutput::binary32: break;
    case SlowOutput::e8m13: return slow_pack(value, exponent, binary32, 13, false);
    case SlowOutput::binary16: return slow_pack(value, exponent, binary16, 10, true);
  }
  return slow_pack(value, exponent, binary32, 23, false);
}

/// The sum where NaN or infinity among the terms decides it. NaN is all ones but the sign.
inline std::optional<std::uint32_t> slow_special(std::span<const SlowTerm> terms, const Format& format) {
  bool is_nan = false, above = false, below = false;
  for (const SlowTerm& term : terms) {
    is_nan = is_nan || term.is_nan();
    above = above || (term.is_infinite() && !term.negative);
    below = below || (term.is_infinite() && term.negative);
  }
  const auto infinity = static_cast<std::uint32_t>(format.infinity_code());
  if (is_nan || (above && below)) return static_cast<std::uint32_t>(format.magnitude_mask());
  if (above) return infinity;
  if (below) return infinity | static_cast<std::uint32_t>(format.sign_mask());
  return std::nullopt;
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
inline std::uint32_t slow_fuse(const SlowModel& model, std::span<const SlowTerm> terms, SlowZeroRule zero) {
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

/// The IEEE 754 sum of two words, to nearest even: FADD of binary32, HADD2 of binary16, subnormals kept, NaN all ones.
inline std::uint32_t slow_add(std::uint32_t x, std::uint32_t y, const Format& format) {
  const std::array terms{slow_decode(x, format), slow_decode(y, format)};
  if (const auto special = slow_special(terms, format)) return *special;
  const int lowest = std::min(terms[0].exponent, terms[1].exponent);
  cpp_int sum = 0;
  for (const SlowTerm& term : terms) sum += slow_signed(term) << static_cast<unsigned>(term.exponent - lowest);
  const bool negative_zero = terms[0].is_zero() && terms[1].is_zero() && terms[0].negative && terms[1].negative;
  if (negative_zero) return static_cast<std::uint32_t>(format.sign_mask());
  return slow_pack(sum, lowest - format.mantissa_bits, format, format.mantissa_bits, true);
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
  std::span<const std::uint32_t> codes;
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
inline SlowTerm slow_accumulator(const SlowModel& model, std::uint32_t word) {
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

/// A step of AMD's matrix cores; slow_amd.hpp has it.
inline std::uint32_t slow_amd_step(const SlowModel& model, std::span<const SlowTerm> x, std::span<const SlowTerm> y,
                                   std::uint32_t word, bool first);
inline std::uint32_t slow_amd_step(const SlowModel& model, const SlowOperand& a, const SlowOperand& b, int step,
                                   std::uint32_t word) {
  std::vector<SlowTerm> x, y;
  for (int i = 0; i < model.step_products; ++i) {
    const auto k = static_cast<std::size_t>(step * model.step_products + i);
    x.push_back(slow_decode(a.codes[k], a.format));
    y.push_back(slow_decode(b.codes[k], b.format));
  }
  return slow_amd_step(model, x, y, word, step == 0);
}

/// One element of the instruction's result, c + sum of a_k * b_k, as a word of its accumulator: binary32, or binary16
/// in the low half. Throws std::invalid_argument on wrong sizes or formats.
inline std::uint32_t slow_mma(const SlowModel& model, const SlowOperand& a, const SlowOperand& b, std::uint32_t c_word,
                              SlowZeroRule zero) {
  slow_check(model, a, b);
  std::uint32_t accumulator = model.lowered ? 0 : c_word;
  for (int step = 0; step < model.steps; ++step) {
    if (model.sum != SlowSum::fused) {
      accumulator = slow_amd_step(model, a, b, step, accumulator);
      continue;
    }
    std::vector<SlowTerm> terms = slow_terms(model, a, b, step);
    terms.push_back(slow_accumulator(model, accumulator));
    accumulator = slow_fuse(model, terms, zero);
  }
  return model.lowered ? slow_add(accumulator, c_word, slow_word(model.output)) : accumulator;
}

/// The same with every argument by itself.
inline std::uint32_t slow_mma(const SlowModel& model, std::span<const std::uint32_t> a_codes, const Format& format_a,
                              std::span<const std::uint32_t> b_codes, const Format& format_b, std::uint32_t c_word,
                              std::span<const std::uint8_t> scale_a = {}, std::span<const std::uint8_t> scale_b = {},
                              SlowZeroRule zero = SlowZeroRule::count_zero_factors) {
  return slow_mma(model, {a_codes, format_a, scale_a}, {b_codes, format_b, scale_b}, c_word, zero);
}

}  // namespace fp8lab::tests

#include "reference/tensor_core/slow_amd.hpp"
