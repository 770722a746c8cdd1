// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/mma.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/exact_sum.hpp"

namespace fp8lab {
namespace {

constexpr int no_exponent = -100000;
constexpr int zero_exponent_of_mma_sim = -126;

Factor factor(const Format& format, std::uint32_t code) {
  const Unpacked x = unpack(format, code);
  if (x.kind == Kind::infinite || x.kind == Kind::nan) return {x.negative ? -1 : 1, 0, 0, x.kind};
  const auto magnitude = static_cast<std::int32_t>(x.significand);
  return {x.negative ? -magnitude : magnitude, static_cast<std::int16_t>(x.exponent + format.mantissa_bits),
          static_cast<std::int16_t>(x.exponent), x.kind};
}

bool takes(const MmaModel& model, const Format& format) {
  return std::ranges::find(model.operands, format) != model.operands.end();
}

/// The result where a NaN or an infinity takes part.
std::optional<float> special_result(std::span<const Factor> a, std::span<const Factor> b, float c) {
  bool nan = std::isnan(c);
  bool positive = std::isinf(c) && c > 0;
  bool negative = std::isinf(c) && c < 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].kind != Kind::infinite && a[i].kind != Kind::nan && b[i].kind != Kind::infinite &&
        b[i].kind != Kind::nan) {
      continue;
    }
    if (a[i].kind == Kind::nan || b[i].kind == Kind::nan || a[i].kind == Kind::zero || b[i].kind == Kind::zero) {
      nan = true;  // a NaN factor, or infinity times zero
    } else {
      ((a[i].significand < 0) != (b[i].significand < 0) ? negative : positive) = true;
    }
  }
  if (nan || (positive && negative)) return std::bit_cast<float>(0x7FFFFFFFU);
  if (positive) return std::numeric_limits<float>::infinity();
  if (negative) return -std::numeric_limits<float>::infinity();
  return std::nullopt;
}

/// significand * 2^shift cut toward zero.
std::int64_t cut(std::int64_t significand, int shift) {
  if (significand == 0 || shift <= -63) return 0;
  if (shift >= 0) return significand * (std::int64_t{1} << shift);
  return significand / (std::int64_t{1} << -shift);
}

/// Exponent that the product, or accumulator, brings to the alignment.
int alignment_exponent(const Factor& a, const Factor& b, ZeroRule rule) {
  const bool zero = a.kind == Kind::zero || b.kind == Kind::zero;
  switch (rule) {
    case ZeroRule::skip: return zero ? no_exponent : a.exponent + b.exponent;
    case ZeroRule::mma_sim: break;
  }
  const auto of = [](const Factor& x) { return x.kind == Kind::zero ? zero_exponent_of_mma_sim : int{x.exponent}; };
  return of(a) + of(b);
}

float exact_step(std::span<const Factor> a, std::span<const Factor> b, float c) {
  ExactSum sum;
  sum.add(c);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::int64_t product = std::int64_t{a[i].significand} * b[i].significand;
    sum.add(product < 0, static_cast<std::uint64_t>(product < 0 ? -product : product), a[i].lsb + b[i].lsb);
  }
  return sum.to_float();
}

float fused_step(const MmaModel& model, std::span<const Factor> a, std::span<const Factor> b, float c, ZeroRule rule) {
  // 1. The alignment exponent.
  const Factor accumulator = factor(binary32, std::bit_cast<std::uint32_t>(c));
  int top = accumulator.exponent;
  if (accumulator.kind == Kind::zero) top = rule == ZeroRule::skip ? no_exponent : zero_exponent_of_mma_sim;
  for (std::size_t i = 0; i < a.size(); ++i) top = std::max(top, alignment_exponent(a[i], b[i], rule));
  if (top == no_exponent) return 0.0F;
  // 2. Cut every term to a multiple of 2^unit and add.
  const int unit = top - model.fraction_bits;
  std::int64_t sum = cut(accumulator.significand, accumulator.lsb - unit);
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += cut(std::int64_t{a[i].significand} * b[i].significand, a[i].lsb + b[i].lsb - unit);
  }
  // 3. Cut the sum to the output format; beyond its range it is infinite, though the rounding is toward zero.
  if (sum == 0) return 0.0F;
  const bool negative = sum < 0;
  const auto magnitude = static_cast<std::uint64_t>(negative ? -sum : sum);
  const int leading = unit + 63 - std::countl_zero(magnitude);
  if (leading > model.output.bias) {
    return negative ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
  }
  constexpr CastPolicy cut_policy{.rounding = Rounding::toward_zero};
  const std::uint64_t code = round_pack(model.output, cut_policy, negative, unit, magnitude);
  return std::bit_cast<float>(
      static_cast<std::uint32_t>(code << (binary32.mantissa_bits - model.output.mantissa_bits)));
}

void check_batch(const MmaModel& model, const Operands& a, const Operands& b, std::size_t c, std::size_t out) {
  if (a.rows != b.rows || a.depth != b.depth) {
    throw std::invalid_argument("a and b must have the same shape, not (" + std::to_string(a.rows) + ", " +
                                std::to_string(a.depth) + ") and (" + std::to_string(b.rows) + ", " +
                                std::to_string(b.depth) + ")");
  }
  if (c != 0 && c != a.rows) {
    throw std::invalid_argument("c must have " + std::to_string(a.rows) + " elements, one a row, not " +
                                std::to_string(c));
  }
  if (out != a.rows) {
    throw std::invalid_argument("out must have " + std::to_string(a.rows) + " elements, one a row, not " +
                                std::to_string(out));
  }
  if (model.products_per_step != 0 && !std::cmp_equal(a.depth, model.products_per_step)) {
    throw std::invalid_argument("K must be " + std::to_string(model.products_per_step) + ", one step of " +
                                std::string(model.name) + ", not " + std::to_string(a.depth));
  }
}

}  // namespace

const MmaModel& find_model(std::string_view name) { return find_named(models, "model", name); }

ZeroRule find_zero_rule(std::string_view name) {
  struct Named {
    std::string_view name;
    ZeroRule rule;
  };
  constexpr std::array rules{Named{"skip", ZeroRule::skip}, Named{"mma_sim", ZeroRule::mma_sim}};
  return find_named(rules, "zero_rule", name).rule;
}

std::vector<Factor> factors(const MmaModel& model, const Operands& operands, const char* name) {
  const std::size_t count = operands.rows * operands.depth;
  const std::size_t given = std::visit([](const auto& span) { return span.size(); }, operands.elements);
  if (given != count) {
    throw std::invalid_argument(std::string(name) + " has " + std::to_string(given) + " elements, not " +
                                std::to_string(operands.rows) + " * " + std::to_string(operands.depth));
  }
  const auto* values = std::get_if<std::span<const float>>(&operands.elements);
  const bool rounds_to_tf32 = takes(model, tf32);
  const Format float_format = rounds_to_tf32 ? tf32 : binary32;
  const Format given_format = values != nullptr ? float_format : operands.format;
  if (!takes(model, given_format)) {
    std::string taken;
    for (const Format& format : model.operands) taken += (taken.empty() ? "" : ", ") + format_name(format);
    throw std::invalid_argument(std::string(name) + " is " + format_name(given_format) + "; " +
                                std::string(model.name) + " takes " + taken);
  }
  std::vector<Factor> result(count);
  if (values == nullptr) {
    const auto codes = std::get<std::span<const std::uint8_t>>(operands.elements);
    std::array<Factor, 256> table{};
    for (std::uint32_t code = 0; code < 256; ++code) table[code] = factor(operands.format, code);
    std::ranges::transform(codes, result.begin(), [&](std::uint8_t code) { return table[code]; });
    return result;
  }
  constexpr CastPolicy tf32_policy{.rounding = Rounding::nearest_away,
                                   .overflow = Overflow::to_special,
                                   .infinity = Overflow::to_special,
                                   .nan = NanCode::sign_and_payload};
  std::ranges::transform(*values, result.begin(), [&](float x) {
    return rounds_to_tf32 ? factor(tf32, encode(tf32, tf32_policy, x))
                          : factor(binary32, std::bit_cast<std::uint32_t>(x));
  });
  return result;
}

float mma_step(const MmaModel& model, std::span<const Factor> a, std::span<const Factor> b, float c,
               ZeroRule zero_rule) {
  if (const auto special = special_result(a, b, c)) return *special;
  switch (model.arithmetic) {
    case Arithmetic::exact: return exact_step(a, b, c);
    case Arithmetic::fused: break;
  }
  return fused_step(model, a, b, c, zero_rule);
}

void mma(const MmaModel& model, const Operands& a, const Operands& b, std::span<const float> c, std::span<float> out,
         ZeroRule zero_rule) {
  check_batch(model, a, b, c.size(), out.size());
  const std::vector<Factor> left = factors(model, a, "a");
  const std::vector<Factor> right = factors(model, b, "b");
  for (std::size_t i = 0; i < a.rows; ++i) {
    const auto row = [&](const std::vector<Factor>& all) { return std::span(all).subspan(i * a.depth, a.depth); };
    out[i] = mma_step(model, row(left), row(right), c.empty() ? 0.0F : c[i], zero_rule);
  }
}

}  // namespace fp8lab
