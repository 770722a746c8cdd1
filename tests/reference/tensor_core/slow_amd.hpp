// SPDX-License-Identifier: Apache-2.0
// A second opinion on AMD's matrix cores, and on FP64, in whole multiples of 2^-400 (FP64: 2^-2300), of any size.
// Source: the published model of MMA-Sim 2.1.1, by what its operations mean, not by its code.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reference/tensor_core/slow_model.hpp"
#include "reference/tensor_core/slow_term.hpp"

namespace fp8lab::tests {

inline constexpr int slow_point = 400;        // products of float32 subnormals are multiples of 2^-298
inline constexpr int slow_wide_point = 2300;  // of float64 subnormals, of 2^-2148

/// The term's number, in units of 2^-point.
inline cpp_int slow_fixed(const SlowTerm& term, int point = slow_point) {
  return slow_signed(term) << static_cast<unsigned>(point + term.exponent - term.width);
}

/// x as a multiple of 2^exponent, cut toward zero or downward.
inline cpp_int slow_cut(const cpp_int& x, int exponent, bool downward) {
  if (exponent <= -slow_point) return x;
  const cpp_int unit = cpp_int(1) << static_cast<unsigned>(slow_point + exponent);
  const cpp_int rest = x % unit;  // of the sign of x
  return x - rest - (downward && rest < 0 ? unit : cpp_int(0));
}

/// x, in units of 2^-point, rounded to nearest even; `negative_zero` is the sign of a zero.
inline std::uint64_t slow_rounded(const cpp_int& x, bool negative_zero, const Format& format = binary32,
                                  int point = slow_point) {
  const bool negative = x == 0 ? negative_zero : x < 0;
  const std::uint64_t word = slow_pack(x, -point, format, format.mantissa_bits, true);
  return word == 0 && negative ? format.sign_mask() : word;
}

/// A subnormal float32 as zero.
inline std::uint64_t slow_flushed(std::uint64_t word, bool keeps_sign) {
  const bool subnormal = (word & 0x7F800000U) == 0;
  return subnormal ? word & (keeps_sign ? 0x80000000U : 0U) : word;
}

/// A sum of products that are aligned to their largest exponent.
struct SlowDot {
  cpp_int value = 0;
  std::optional<int> exponent = {};  ///< of what is not zero
};
inline SlowDot slow_dot(const SlowModel& model, std::span<const SlowTerm> products) {
  SlowDot dot;
  for (const SlowTerm& p : products) {
    if (!p.is_zero()) dot.exponent = std::max(dot.exponent, std::optional(p.exponent));
  }
  for (const SlowTerm& p : products) {
    if (!p.is_zero()) dot.value += slow_cut(slow_fixed(p), *dot.exponent - model.fraction_bits, false);
  }
  return dot;
}

/// CDNA3.
inline std::uint64_t slow_products_first(const SlowModel& model, std::span<const SlowTerm> products,
                                         const SlowTerm& c) {
  // 1. Products, even k and odd k apart where there are two sums.
  SlowDot dot;
  if (model.has_two_sums) {
    std::array<std::vector<SlowTerm>, 2> halves;
    for (std::size_t k = 0; k < products.size(); ++k) halves.at(k % 2).push_back(products[k]);
    const SlowDot even = slow_dot(model, halves[0]);
    const SlowDot odd = slow_dot(model, halves[1]);
    dot.exponent = std::max(even.exponent, odd.exponent);
    if (dot.exponent) {
      const int unit = *dot.exponent - model.fraction_bits;
      const bool downward = model.defect != SlowDefect::halves_toward_zero;
      dot.value = slow_cut(even.value, unit, downward) + slow_cut(odd.value, unit, downward);
    }
  } else {
    dot = slow_dot(model, products);
  }
  // 2. c.
  const int top = std::max(dot.exponent.value_or(c.exponent), c.exponent);
  cpp_int sum = slow_cut(dot.value, top - 32, model.defect != SlowDefect::dot_toward_zero);
  const bool drops = model.has_two_sums && c.exponent < top - 25 && model.defect != SlowDefect::keeps_small_c;
  if (!drops) sum += slow_cut(slow_fixed(c), top - 24, model.defect != SlowDefect::c_toward_zero);
  if (sum == 0) return 0;
  // 3. 31 bits below the leading one, downward; then to nearest.
  const int leading = std::max(static_cast<int>(msb(cpp_int(abs(sum)))) - slow_point, -126);
  return slow_rounded(slow_cut(sum, leading - 31, model.defect != SlowDefect::sum_toward_zero), false);
}

/// CDNA2: words of float32 from here on.
inline std::uint64_t slow_flushed_pairs(const SlowModel& model, std::span<const SlowTerm> x,
                                        std::span<const SlowTerm> y, std::uint64_t c, bool first) {
  const bool flushes = model.defect != SlowDefect::no_flush;
  const auto flushed = [&](std::uint64_t word, bool keeps_sign) {
    return flushes ? slow_flushed(word, keeps_sign) : word;
  };
  std::vector<std::uint64_t> sums;
  for (std::size_t k = 0; k < x.size(); ++k) {
    std::array factors{x[k], y[k]};
    for (SlowTerm& f : factors) {
      const cpp_int least = cpp_int(1) << static_cast<unsigned>(f.width);
      if (flushes && f.kind == SlowTerm::Kind::finite && f.significand < least) f.significand = 0, f.negative = false;
    }
    const std::array product{slow_product(factors[0], factors[1])};
    const auto special = slow_special(product, binary32);
    sums.push_back(special ? *special : flushed(slow_rounded(slow_fixed(product[0]), product[0].negative), true));
  }
  const auto add = [&](std::uint64_t p, std::uint64_t q) { return flushed(slow_add(p, q, binary32), true); };
  while (sums.size() > 1) {
    std::vector<std::uint64_t> next;
    const std::size_t apart = model.defect == SlowDefect::other_pairs ? sums.size() / 2 : 1;
    for (std::size_t i = 0; i < sums.size() / 2; ++i) {
      const std::size_t at = apart == 1 ? 2 * i : i;
      next.push_back(add(sums[at], sums[at + apart]));
    }
    sums = next;
  }
  return add(first ? flushed(c, false) : c, sums.front());
}

/// One rounding of c and all products: a step of CDNA1, and with one product a fused multiply-add.
inline std::uint64_t slow_exact(std::span<const SlowTerm> products, const SlowTerm& c, bool has_ieee_zero,
                                const Format& word) {
  const int point = word == binary64 ? slow_wide_point : slow_point;
  cpp_int sum = slow_fixed(c, point);
  bool negative = c.negative;
  for (const SlowTerm& p : products) {
    sum += slow_fixed(p, point);
    negative = negative && p.negative;
  }
  return slow_rounded(sum, has_ieee_zero && negative, word, point);
}

/// A step of any of them.
inline std::uint64_t slow_amd_step(const SlowModel& model, std::span<const SlowTerm> x, std::span<const SlowTerm> y,
                                   std::uint64_t word, bool first) {
  if (model.sum == SlowSum::flushed_pairs) return slow_flushed_pairs(model, x, y, word, first);
  const Format& format = slow_word(model.output);
  const SlowTerm c = slow_decode(word, format);
  std::vector<SlowTerm> terms{c};
  for (std::size_t k = 0; k < x.size(); ++k) {
    SlowTerm p = slow_product(x[k], y[k]);
    if (model.sum == SlowSum::products_first && p.kind == SlowTerm::Kind::finite) {
      const bool vast = abs(slow_fixed(p)) >= (cpp_int(1) << (slow_point + 128));
      if (vast) p.kind = SlowTerm::Kind::infinite;
    }
    terms.push_back(p);
  }
  if (const auto special = slow_special(terms, format)) return *special;
  const auto products = std::span<const SlowTerm>(terms).subspan(1);
  switch (model.sum) {
    case SlowSum::products_first: return slow_products_first(model, products, c);
    case SlowSum::fma_chain: return slow_exact(products, c, true, format);
    case SlowSum::exact:
    case SlowSum::fused:
    case SlowSum::flushed_pairs: break;
  }
  return slow_exact(products, c, false, format);
}

}  // namespace fp8lab::tests
