// SPDX-License-Identifier: Apache-2.0
// Words and numbers of a trace as texts.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>

#include "dot/dot.hpp"
#include "dot/picture.hpp"

namespace fp8lab::experiments {

inline std::string hex(std::uint64_t word, const Format& format) {
  return fmt::format("{:0{}x}", word, std::max(2, (format.bits() + 3) / 4));
}
inline std::optional<std::string> hex(const std::optional<std::uint64_t>& word, const Format& format) {
  return word ? std::optional(hex(*word, format)) : std::nullopt;
}
inline std::optional<std::string> hex(const std::optional<float>& value) {
  return value ? std::optional(hex(std::bit_cast<std::uint32_t>(*value), binary32)) : std::nullopt;
}
inline std::string hex(const Codes& codes, const Format& format) {
  std::string text;
  for (const std::uint64_t code : codes) text += hex(code, format);
  return text;
}
/// A word of an accumulator with its value.
inline std::string word_text(std::uint64_t word, const Format& format) {
  return fmt::format("{} = {:.{}g}", hex(word, format), number_of(format, word), format == binary64 ? 17 : 9);
}
/// The same, and its sign, exponent and fraction bit by bit.
inline std::string bits_text(std::uint64_t word, const Format& format) {
  std::string bits;
  for (int bit = format.bits() - 1; bit >= 0; --bit) {
    bits += ((word >> bit) & 1U) != 0 ? '1' : '0';
    if (bit == format.bits() - 1 || bit == format.mantissa_bits) bits += ' ';
  }
  return word_text(word, format) + ", bits " + bits;
}
inline Format format_of_scales(const MmaModel& model) { return model.scales ? model.scales->format : e8m0; }

}  // namespace fp8lab::experiments
