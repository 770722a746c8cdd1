// SPDX-License-Identifier: Apache-2.0
#include "tensor_core/amd_steps.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <type_traits>
#include <utility>

#include "fp8lab/formats/encode.hpp"
#include "tensor_core/fp64_nan.hpp"
#include "tensor_core/special_sum.hpp"

namespace fp8lab {
namespace {

/// A whole number of units 2^(exponent - bits).
struct Aligned {
  std::int64_t units = 0;
  int exponent = absent_exponent;
};

/// value >> shift, downward, for any shift that is not negative.
std::int64_t shifted_down(std::int64_t value, int shift) { return value >> std::min(shift, 63); }

/// The products k = first, first + stride, ... aligned to the largest exponent of those that are not zero, and cut
/// toward zero to multiples of 2^(exponent - bits). A product is below 4 * 2^exponent.
Aligned fused_sum(const FactorSpan& a, const FactorSpan& b, std::size_t first, std::size_t stride, int bits) {
  Aligned sum;
  for (std::size_t k = first; k < a.factors.size(); k += stride) {
    const bool zero = a.factors[k].value * b.factors[k].value == 0;
    if (!zero) sum.exponent = std::max(sum.exponent, a.factors[k].exponent + b.factors[k].exponent);
  }
  const double scale = power_of_two(bits - sum.exponent);
  for (std::size_t k = first; k < a.factors.size() && sum.exponent != absent_exponent; k += stride) {
    sum.units += static_cast<std::int64_t>(a.factors[k].value * b.factors[k].value * scale);
  }
  return sum;
}

/// The step's fused sums, aligned to the larger exponent, cut downward, added.
Aligned sum_of_products(const MmaModel& model, const FactorSpan& a, const FactorSpan& b) {
  const auto count = static_cast<std::size_t>(model.sums);
  Aligned whole = fused_sum(a, b, 0, count, model.fraction_bits);
  for (std::size_t i = 1; i < count; ++i) {
    const Aligned part = fused_sum(a, b, i, count, model.fraction_bits);
    const int top = std::max(whole.exponent, part.exponent);
    whole = {shifted_down(whole.units, top - whole.exponent) + shifted_down(part.units, top - part.exponent), top};
  }
  return whole;
}

/// Finds what NaNs and infinities, products of 2^128 or more among them, make of the step.
SpecialSum specials_of(const FactorSpan& a, const FactorSpan& b, const Factor& c) {
  SpecialSum specials;
  specials.add(c);
  for (std::size_t k = 0; k < a.factors.size(); ++k) {
    const Factor& x = a.factors[k];
    const Factor& y = b.factors[k];
    const double product = x.value * y.value;
    specials.add_product(x, y);
    if (std::abs(product) >= 0x1p128) specials.add_infinity(product < 0);
  }
  return specials;
}

/// A subnormal number as a zero of the same sign.
float flushed(float x) { return std::abs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }

/// x as a float; what is subnormal in `format` as +0.
float flushed_input(const Factor& x, const Format& format) {
  const auto value = static_cast<float>(real_value(x));
  return std::abs(value) < power_of_two(format.min_exponent()) ? 0.0F : value;
}

std::uint32_t word_of(float x) { return std::isnan(x) ? 0x7FFFFFFFU : std::bit_cast<std::uint32_t>(x); }
std::uint64_t word_of(double x) { return std::bit_cast<std::uint64_t>(x); }  // whose NaN fp64_fma() has named

/// c + a[0] * b[0] + ..., one fused multiply-add after the other.
template <typename Value, typename Word>
Word chained(const MmaModel& model, const FactorSpan& a, const FactorSpan& b, Word c_word) {
  auto c = std::bit_cast<Value>(c_word);
  for (std::size_t k = 0; std::cmp_less(k, model.products_per_step); ++k) {
    const bool given = k < a.factors.size();
    const auto x = given ? static_cast<Value>(real_value(a.factors[k])) : Value{0};
    const auto y = given ? static_cast<Value>(real_value(b.factors[k])) : Value{0};
    if constexpr (std::is_same_v<Value, double>) {
      c = fp64_fma(model.nan, x, y, c);
    } else {
      c = std::fma(x, y, c);
    }
  }
  return word_of(c);
}

}  // namespace

std::uint32_t products_first_step(const MmaModel& model, const FactorSpan& a, const FactorSpan& b,
                                  std::uint32_t c_word) {
  // 1. NaN and infinity.
  const Factor c = factor(binary32, c_word);
  const SpecialSum specials = specials_of(a, b, c);
  if (specials.any()) return specials.word(binary32);
  // 2. The products' sum and c, both cut downward: units are 2^(top - wide).
  const Aligned dot = sum_of_products(model, a, b);
  const int wide = model.sum_bits + 1;
  const int more = wide - model.fraction_bits;
  const int top = std::max<int>(dot.exponent, c.exponent);
  std::int64_t sum = shifted_down(dot.units << more, top - dot.exponent);
  if (!model.drops_small_c || c.exponent >= top - model.fraction_bits - 1) {
    sum += static_cast<std::int64_t>(std::floor(c.value * power_of_two(model.fraction_bits - top))) << more;
  }
  if (sum == 0) return 0;
  // 3. The sum, normalised and cut downward, is rounded to the nearest float32.
  const int leading = top - wide + 63 - std::countl_zero(static_cast<std::uint64_t>(std::abs(sum)));
  const int unit = std::max(top - wide, std::max(leading, binary32.min_exponent()) - model.sum_bits);
  sum = shifted_down(sum, unit - (top - wide));
  return static_cast<std::uint32_t>(
      round_pack(binary32, ieee_policy, sum < 0, unit, static_cast<std::uint64_t>(std::abs(sum))));
}

std::uint32_t flushed_pairs_step(const MmaModel& model, const FactorSpan& a, const FactorSpan& b, std::uint32_t c_word,
                                 bool first) {
  const Format& format = model.operands.front();
  std::array<float, 4> products{};
  for (std::size_t k = 0; k < a.factors.size(); ++k) {
    products.at(k) = flushed(flushed_input(a.factors[k], format) * flushed_input(b.factors[k], format));
  }
  float sum = flushed(products[0] + products[1]);
  if (model.products_per_step == 4) sum = flushed(sum + flushed(products[2] + products[3]));
  auto c = std::bit_cast<float>(c_word);
  if (first && std::abs(c) < 0x1p-126F) c = 0;
  return word_of(flushed(c + sum));
}

std::uint64_t fma_chain_step(const MmaModel& model, const FactorSpan& a, const FactorSpan& b, std::uint64_t c) {
  return model.is_fp64() ? chained<double>(model, a, b, c) : chained<float>(model, a, b, static_cast<std::uint32_t>(c));
}

}  // namespace fp8lab
