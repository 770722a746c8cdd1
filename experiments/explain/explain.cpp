// SPDX-License-Identifier: Apache-2.0
#include "explain/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text.hpp"

namespace fp8lab::experiments {
namespace {

std::uint64_t fraction_of(const Format& format, std::uint32_t code) {
  return code & ((std::uint64_t{1} << format.mantissa_bits) - 1);
}
std::uint64_t exponent_field_of(const Format& format, std::uint32_t code) {
  return (code & format.magnitude_mask()) >> format.mantissa_bits;
}

std::string binary_text(std::uint64_t bits, int width) { return width == 0 ? "" : fmt::format("{:0{}b}", bits, width); }

/// Whether a tie between `code` and a neighbour becomes `code`: the even significand is that of the even code.
bool takes_ties(const Format& format, std::uint32_t code, double tie) {
  return encode(format, CastPolicy{.overflow = Overflow::saturate}, tie) == code;
}

}  // namespace

std::string_view words_of_class(CodeClass kind) {
  switch (kind) {
    case CodeClass::zero: return "zero";
    case CodeClass::subnormal: return "subnormal";
    case CodeClass::normal: return "normal";
    case CodeClass::infinity: return "infinity";
    case CodeClass::nan: break;
  }
  return "NaN";
}

ExplainedCode explain_code(const Format& format, std::uint32_t code) {
  ExplainedCode one{.code = code, .is_negative = (code & format.sign_mask()) != 0, .value = decode(format, code)};
  if (std::isnan(one.value)) {
    one.kind = CodeClass::nan;
  } else if (std::isinf(one.value)) {
    one.kind = CodeClass::infinity;
  } else if (one.value == 0) {
    one.kind = CodeClass::zero;
  } else {
    const bool is_subnormal = format.has_subnormals && exponent_field_of(format, code) == 0;
    one.kind = is_subnormal ? CodeClass::subnormal : CodeClass::normal;
  }
  return one;
}

std::string bits_text(const Format& format, std::uint32_t code) {
  std::string text;
  for (const std::string& part : {format.is_signed ? std::string((code & format.sign_mask()) != 0 ? "1" : "0") : "",
                                  binary_text(exponent_field_of(format, code), format.exponent_bits),
                                  binary_text(fraction_of(format, code), format.mantissa_bits)}) {
    if (!part.empty()) text += (text.empty() ? "" : " ") + part;
  }
  return text;
}

std::string code_text(const Format& format, std::uint32_t code) {
  return fmt::format("0x{:0{}X}", code, (format.bits() + 3) / 4);
}

std::string fraction_text(double value) {
  if (value == 0) return "0";
  const std::string sign = value < 0 ? "-" : "";
  int exponent = 0;
  const double share = std::frexp(std::abs(value), &exponent);
  auto significand = static_cast<std::uint64_t>(std::ldexp(share, 53));
  exponent -= 53;
  for (; significand % 2 == 0; significand /= 2) ++exponent;
  if (exponent >= 0) {
    return exponent < 40 ? fmt::format("{}{}", sign, significand << exponent)
                         : fmt::format("{}{} * 2^{}", sign, significand, exponent);
  }
  return exponent > -20 ? fmt::format("{}{}/{}", sign, significand, std::uint64_t{1} << -exponent)
                        : fmt::format("{}{}/2^{}", sign, significand, -exponent);
}

std::string product_text(const Format& format, std::uint32_t code) {
  const ExplainedCode one = explain_code(format, code);
  const std::string fraction = binary_text(fraction_of(format, code), format.mantissa_bits);
  const bool is_subnormal = one.kind == CodeClass::subnormal;
  const int exponent =
      is_subnormal ? format.min_exponent() : static_cast<int>(exponent_field_of(format, code)) - format.bias;
  return fmt::format("{}{}{}{}b x 2^{}", one.is_negative ? "-" : "", is_subnormal ? 0 : 1, fraction.empty() ? "" : ".",
                     fraction, exponent);
}

std::vector<ExplainedCode> codes_by_value(const Format& format) {
  std::vector<ExplainedCode> codes;
  for (std::uint32_t code = 0; code < std::uint32_t{1} << format.bits(); ++code) {
    const ExplainedCode one = explain_code(format, code);
    if (std::isfinite(one.value)) codes.push_back(one);
  }
  std::ranges::sort(codes, [](const ExplainedCode& a, const ExplainedCode& b) {
    return a.value != b.value ? a.value < b.value : a.is_negative && !b.is_negative;
  });
  return codes;
}

RoundsTo rounds_to(const Format& format, const std::vector<ExplainedCode>& codes, std::size_t at) {
  const ExplainedCode& one = codes.at(at);
  RoundsTo range;
  // 1. Half way to the neighbour below, or, for +0 beside -0, from 0 on; the lowest value has as much below as above.
  const auto half_to = [&](const ExplainedCode& other) { return one.value / 2 + other.value / 2; };
  if (at > 0) {
    range.low = half_to(codes[at - 1]);
    range.low_included = codes[at - 1].value == one.value || takes_ties(format, one.code, range.low);
  }
  if (at + 1 < codes.size()) {
    range.high = half_to(codes[at + 1]);
    range.high_included = codes[at + 1].value == one.value || takes_ties(format, one.code, range.high);
  }
  // 2. At the ends as if the format went on: the tie there belongs to the even one.
  const bool is_even = one.code % 2 == 0;
  if (at == 0 && format.is_signed) {
    range.low = one.value - (codes[1].value - one.value) / 2;
    range.low_included = is_even;
  } else if (at == 0) {
    range.low_included = one.value == 0;  // from 0 on: the format has nothing below
  }
  if (at + 1 == codes.size()) {
    range.high = one.value + (one.value - codes[at - 1].value) / 2;
    range.high_included = is_even;
  }
  return range;
}

std::uint32_t parse_code(const Format& format, const std::string& text) {
  std::string_view digits = text;
  int base = 10;
  for (const auto& [prefix, its_base] :
       {std::pair{"0x", 16}, std::pair{"0X", 16}, std::pair{"0b", 2}, std::pair{"0B", 2}}) {
    if (!digits.starts_with(prefix)) continue;
    digits.remove_prefix(2);
    base = its_base;
    break;
  }
  std::uint32_t code = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
  if (error != std::errc{} || end != digits.data() + digits.size() || (code >> format.bits()) != 0) {
    refuse(in_quotes(text), " is no code from 0 to ", code_text(format, (std::uint32_t{1} << format.bits()) - 1),
           ", such as 42, 0x2A or 0b101010");
  }
  return code;
}

}  // namespace fp8lab::experiments
