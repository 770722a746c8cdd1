// SPDX-License-Identifier: Apache-2.0
// One code of a format: its bits, its value as a fraction, its neighbours, and which numbers round to it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/format.hpp"

namespace fp8lab::experiments {

/// What a code stands for.
enum class CodeClass : std::uint8_t { zero, subnormal, normal, infinity, nan };
[[nodiscard]] std::string_view words_of_class(CodeClass kind);

/// A code with all that follows from its format. Precondition of what makes one: a format of at most 16 bits.
struct ExplainedCode {
  std::uint32_t code = 0;
  CodeClass kind = CodeClass::zero;
  bool is_negative = false;
  double value = 0;  ///< exact; NaN for NaN
};
[[nodiscard]] ExplainedCode explain_code(const Format& format, std::uint32_t code);

/// The bits as "0 0101 010": sign, exponent field and fraction.
[[nodiscard]] std::string bits_text(const Format& format, std::uint32_t code);
/// The code in hexadecimal, with all digits, such as "0x2A".
[[nodiscard]] std::string code_text(const Format& format, std::uint32_t code);
/// A value as a fraction without a common factor, such as "-5/16", "448", "1/2^127" and "0". Precondition: a finite
/// value.
[[nodiscard]] std::string fraction_text(double value);
/// How the value is put together, such as "1.010b x 2^-2". Precondition: a number that is not zero.
[[nodiscard]] std::string product_text(const Format& format, std::uint32_t code);

/// The finite codes by their values, -0 before +0.
[[nodiscard]] std::vector<ExplainedCode> codes_by_value(const Format& format);

/// The numbers that become a code where they are rounded to the nearest value, a tie to the even code, and nothing
/// saturates: from `low` to `high`.
struct RoundsTo {
  double low = 0, high = 0;
  bool low_included = false, high_included = false;
};
/// `at` is the index of the code in `codes`. Precondition: at least two codes.
[[nodiscard]] RoundsTo rounds_to(const Format& format, const std::vector<ExplainedCode>& codes, std::size_t at);

/// A code that is written in decimal, in hexadecimal after 0x or in binary after 0b. Throws std::invalid_argument where
/// it is none of the format's.
[[nodiscard]] std::uint32_t parse_code(const Format& format, const std::string& text);

}  // namespace fp8lab::experiments
