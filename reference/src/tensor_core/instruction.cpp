// SPDX-License-Identifier: Apache-2.0
#include "tensor_core/instruction.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/reference/tensor_core/exact_sum.hpp"
#include "tensor_core/amd_steps.hpp"
#include "tensor_core/special_sum.hpp"

namespace fp8lab {
namespace {

/// A term that the adder aligns.
struct Term {
  double value;
  int exponent;
};

Term product(const Factor& a, const Factor& b) { return {a.value * b.value, a.exponent + b.exponent}; }

/// Calls f(a, b) for the products of one step.
template <typename Function>
void for_products(const MmaModel& model, int step, const FactorSpan& a, const FactorSpan& b, const Function& f) {
  const std::size_t count = a.factors.size();
  switch (model.order) {
    case StepOrder::ascending: {
      const auto products = static_cast<std::size_t>(model.products_per_step);
      const std::size_t first = static_cast<std::size_t>(step) * products;
      const std::size_t last = std::min(count, first + products);
      for (std::size_t k = first; k < last; ++k) f(a.factors[k], b.factors[k]);
      return;
    }
    case StepOrder::pairs:
      for (std::size_t k = 2 * static_cast<std::size_t>(step); k < count; k += 4) {
        f(a.factors[k], b.factors[k]);
        if (k + 1 < count) f(a.factors[k + 1], b.factors[k + 1]);
      }
      return;
  }
}

/// Products as one term: their exact sum, which leaves the alignment to the scales (MMA-Sim). FP4's are quarters up to
/// 36, and the sum of 16 with scales of 4 bits stays far below a double's 53.
Term group_term(std::span<const Factor> a, std::span<const Factor> b, const Term& scale, ZeroRule zero_rule) {
  double sum = 0;
  bool any_product = false;
  for (std::size_t k = 0; k < a.size(); ++k) {
    const double product = a[k].value * b[k].value;
    sum += product;
    any_product = any_product || product != 0;
  }
  const double value = sum * scale.value;
  const bool counts = group_counts(zero_rule, any_product, value);
  return {value, scale.exponent + (counts ? 0 : absent_exponent)};
}

/// Calls f(term) for the products of an instruction of one step that has scales.
template <typename Function>
void for_scaled_terms(const MmaModel& model, const BlockScales& scales, const FactorSpan& a, const FactorSpan& b,
                      ZeroRule zero_rule, const Function& f) {
  const auto block = static_cast<std::size_t>(scales.block);
  const auto group = static_cast<std::size_t>(model.group);
  for (std::size_t i = 0; i < a.scales.size(); ++i) {
    const Term scale = product(a.scales[i], b.scales[i]);
    const std::size_t last = std::min((i + 1) * block, a.factors.size());
    for (std::size_t k = i * block; k < last; k += group) {
      if (group == 1) {
        const Term unscaled = product(a.factors[k], b.factors[k]);
        f({unscaled.value * scale.value, unscaled.exponent + scale.exponent});
      } else {
        f(group_term(a.factors.subspan(k, group), b.factors.subspan(k, group), scale, zero_rule));
      }
    }
  }
}

std::uint32_t special_step(const MmaModel& model, int step, const FactorSpan& a, const FactorSpan& b, const Factor& c) {
  SpecialSum sum;
  sum.add(c);
  for_products(model, step, a, b, [&](const Factor& x, const Factor& y) { sum.add_product(x, y); });
  for (const FactorSpan* side : {&a, &b}) {
    for (const Factor& scale : side->scales) sum.add(scale);
  }
  return sum.word(model.accumulator());
}

/// sum * 2^unit as the accumulator's word.
std::uint32_t converted(const MmaModel& model, std::int64_t sum, int unit) {
  if (sum == 0) return 0;
  const Format& word = model.accumulator();
  const bool negative = sum < 0;
  const auto magnitude = static_cast<std::uint64_t>(negative ? -sum : sum);
  // 1. Beyond the range: infinite, though the rounding may be toward zero.
  const int leading = unit + 63 - std::countl_zero(magnitude);
  if (leading > model.output.bias) {
    return static_cast<std::uint32_t>(word.infinity_code() | (negative ? word.sign_mask() : 0));
  }
  // 2. One rounding.
  constexpr CastPolicy to_nearest{.rounding = Rounding::nearest_even, .overflow = Overflow::to_special};
  constexpr CastPolicy cutting{.rounding = Rounding::toward_zero};
  const CastPolicy& policy = word == binary16 ? to_nearest : cutting;
  const std::uint64_t code = round_pack(model.output, policy, negative, unit, magnitude);
  // 3. Underflow.
  if ((code & model.output.magnitude_mask()) == 0) {
    switch (model.underflow) {
      case UnderflowSign::positive: return 0;
      case UnderflowSign::kept: return negative ? static_cast<std::uint32_t>(word.sign_mask()) : 0;
    }
  }
  return static_cast<std::uint32_t>(code << (word.mantissa_bits - model.output.mantissa_bits));
}

std::uint32_t fused_step(const MmaModel& model, int step, const FactorSpan& a, const FactorSpan& b,
                         std::uint32_t c_word, ZeroRule zero_rule) {
  // 1. The terms and the alignment exponent.
  std::array<double, 33> terms;  // 32 products and the accumulator; no step has more
  std::size_t count = 0;
  int top = zero_rule == ZeroRule::floor ? model.zero_exponent : 4 * absent_exponent;
  const auto add = [&](const Term& term) {
    terms[count++] = term.value;
    top = std::max(top, term.exponent);
  };
  const Factor c = model.accumulator() == binary16
                       ? factor(binary16, c_word, zero_rule)
                       : factor(binary32, c_word, zero_rule);  // constants, so that they are inlined
  add({c.value, c.exponent});
  if (model.scales) {
    for_scaled_terms(model, *model.scales, a, b, zero_rule, add);
  } else {
    for_products(model, step, a, b, [&](const Factor& x, const Factor& y) { add(product(x, y)); });
  }
  if (top > least_special_exponent) return special_step(model, step, a, b, c);
  // 2. Cut every term to a multiple of 2^(top - fraction_bits) and add. Scaling by a power of two is exact, converting
  //    to an integer cuts toward zero, and no term is larger than 2^12 * 2^top, of which fraction_bits keep 2^47.
  const double scale = power_of_two(model.fraction_bits - top);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += static_cast<std::int64_t>(terms[i] * scale);
  // 3. One conversion.
  return converted(model, sum, top - model.fraction_bits);
}

std::uint32_t exact_dot(const FactorSpan& a, const FactorSpan& b, std::uint32_t c_word) {
  SpecialSum specials;
  ExactSum sum;
  specials.add(factor(binary32, c_word));
  if (!specials.any()) sum.add(std::bit_cast<float>(c_word));
  for (std::size_t k = 0; k < a.factors.size(); ++k) {
    checkpoint(k + 1);
    specials.add_product(a.factors[k], b.factors[k]);
    sum.add_product(static_cast<float>(a.factors[k].value), static_cast<float>(b.factors[k].value));
  }
  return specials.any() ? specials.word(binary32) : std::bit_cast<std::uint32_t>(sum.to_float());
}

}  // namespace

std::uint64_t ieee_sum(const MmaModel& model, std::uint64_t word_x, std::uint64_t word_y) {
  const auto x = static_cast<std::uint32_t>(word_x);
  const auto y = static_cast<std::uint32_t>(word_y);
  if (model.accumulator() == binary16) {  // a double holds the sum of two halves exactly
    constexpr CastPolicy ieee{.overflow = Overflow::to_special,
                              .infinity = Overflow::to_special,
                              .nan_of_double = NanCode::positive_all_ones};
    return encode(binary16, ieee, static_cast<double>(decode(binary16, x)) + static_cast<double>(decode(binary16, y)));
  }
  const float sum = std::bit_cast<float>(x) + std::bit_cast<float>(y);
  return std::isnan(sum) ? 0x7FFFFFFFU : std::bit_cast<std::uint32_t>(sum);
}

std::uint64_t mma_step(const MmaModel& model, int step, const FactorSpan& a, const FactorSpan& b, std::uint64_t word,
                       ZeroRule zero_rule) {
  const auto of_step = [&](const FactorSpan& side) {
    if (model.k() == 0) return side;
    const auto products = static_cast<std::size_t>(model.products_per_step);
    const std::size_t first = std::min(side.factors.size(), static_cast<std::size_t>(step) * products);
    return FactorSpan{side.factors.subspan(first, std::min(products, side.factors.size() - first))};
  };
  const auto c = static_cast<std::uint32_t>(word);  // of binary32 or binary16, but in a chain of fma
  switch (model.arithmetic) {
    case Arithmetic::exact: return exact_dot(of_step(a), of_step(b), c);
    case Arithmetic::products_first: return products_first_step(model, of_step(a), of_step(b), c);
    case Arithmetic::flushed_pairs: return flushed_pairs_step(model, of_step(a), of_step(b), c, step == 0);
    case Arithmetic::fma_chain: return fma_chain_step(model, of_step(a), of_step(b), word);
    case Arithmetic::fused: break;
  }
  return fused_step(model, step, a, b, c, zero_rule);
}

std::uint64_t mma_instruction(const MmaModel& model, const FactorSpan& a, const FactorSpan& b, std::uint64_t c,
                              ZeroRule zero_rule) {
  std::uint64_t accumulator = c;
  switch (model.lowering) {
    case Lowering::native: break;
    case Lowering::fp16_add: accumulator = 0; break;
  }
  for (int step = 0; step < model.steps; ++step) accumulator = mma_step(model, step, a, b, accumulator, zero_rule);
  switch (model.lowering) {
    case Lowering::native: break;
    case Lowering::fp16_add: return ieee_sum(model, accumulator, c);
  }
  return accumulator;
}

std::uint32_t word_of_accumulator(const MmaModel& model, float x) {
  return model.accumulator() == binary16 ? encode(binary16, cuda_nosat_policy, x) : std::bit_cast<std::uint32_t>(x);
}

float accumulator_value(const MmaModel& model, std::uint64_t word) {
  const float value = decode(model.accumulator(), static_cast<std::uint32_t>(word));
  return std::isnan(value) ? std::bit_cast<float>(0x7FFFFFFFU) : value;
}

}  // namespace fp8lab
