// SPDX-License-Identifier: Apache-2.0
// Recorded words: tensors and codes in hexadecimal.
#pragma once

#include <charconv>
#include <string>

#include "fp8lab/reference/scaling/quantize.hpp"
#include "support.hpp"

namespace fp8lab::tests {

inline constexpr std::uint32_t open = 0xFFFFFFFF;  // what no package promises

/// Numbers in hexadecimal, ".." for open ones.
inline std::vector<std::uint32_t> hex(const std::string& words) {
  std::vector<std::uint32_t> result;
  for (std::size_t first = 0; first < words.size();) {
    const std::size_t end = std::min(words.find(' ', first), words.size());
    std::uint32_t word = open;
    if (words[first] != '.') std::from_chars(words.data() + first, words.data() + end, word, 16);
    result.push_back(word);
    first = end + 1;
  }
  return result;
}

/// A row of `columns` that begins with the words and goes on with zeros.
inline std::vector<BFloat16> bfloats(const std::string& words, std::size_t columns) {
  std::vector<BFloat16> x(columns);
  std::size_t i = 0;
  for (const std::uint32_t word : hex(words)) x[i++] = {static_cast<std::uint16_t>(word)};
  return x;
}
inline std::vector<float> floats(const std::string& words, std::size_t columns) {
  std::vector<float> x(columns);
  std::size_t i = 0;
  for (const std::uint32_t word : hex(words)) x[i++] = std::bit_cast<float>(word);
  return x;
}

/// The first codes, those of FP4 one by one.
inline void check_codes(const Quantized& q, const std::string& expected) {
  const bool pairs = q.format.bits() == 4;
  std::size_t i = 0;
  for (const std::uint32_t code : hex(expected)) {
    const std::uint32_t byte = q.codes[pairs ? i / 2 : i];
    const std::uint32_t actual = pairs ? byte >> (i % 2 * 4) & 0xFU : byte;
    INFO("code " << i);
    if (code != open) CHECK(actual == code);
    ++i;
  }
}

}  // namespace fp8lab::tests
