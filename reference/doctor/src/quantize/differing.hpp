// SPDX-License-Identifier: Apache-2.0
// How many of many bytes differ.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace fp8lab::doctor {

struct DifferingBytes {
  std::uint64_t all = 0;
  std::uint64_t in_sign = 0;  ///< of these: in that bit alone
};

/// 0x80 in each byte that is not 0.
constexpr std::uint64_t flags_of(std::uint64_t word) {
  constexpr std::uint64_t low = 0x7F7F7F7F7F7F7F7FU;
  return (((word & low) + low) | word) & ~low;
}

/// The sum of the bytes of a word.
constexpr std::uint64_t sum_of_bytes(std::uint64_t word) {
  std::uint64_t sum = 0;
  for (; word != 0; word >>= 8U) sum += word & 0xFFU;
  return sum;
}

/// Words of bytes whose counts a byte has room for.
inline constexpr std::size_t most_words = 255;

/// Counts the bytes of so many words, at most `most_words`.
inline DifferingBytes differing_in_words(const std::uint8_t* stored, const std::uint8_t* codes,
                                         const std::uint8_t* others, std::size_t words, std::uint8_t sign) {
  constexpr std::uint64_t each = 0x0101010101010101U;
  const auto word_of = [](const std::uint8_t* bytes, std::size_t i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + 8 * i, sizeof(word));
    return word;
  };
  std::uint64_t all = 0;
  std::uint64_t in_sign = 0;
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t from_code = word_of(stored, i) ^ word_of(codes, i);
    const std::uint64_t differs = flags_of(from_code) & flags_of(word_of(stored, i) ^ word_of(others, i));
    all += differs >> 7U;
    in_sign += (differs & ~flags_of(from_code ^ (each * sign))) >> 7U;
  }
  return {sum_of_bytes(all), sum_of_bytes(in_sign)};
}

/// Counts them, eight at a time. Bytes that are those of `others` are as good.
inline DifferingBytes differing_bytes(const std::uint8_t* stored, std::span<const std::uint8_t> codes,
                                      const std::uint8_t* others, std::uint8_t sign) {
  DifferingBytes found;
  const auto add = [&](const DifferingBytes& own) {
    found.all += own.all;
    found.in_sign += own.in_sign;
  };
  const std::size_t whole = codes.size() / 8;
  for (std::size_t i = 0; i < whole; i += most_words) {
    add(differing_in_words(stored + 8 * i, &codes[8 * i], others + 8 * i, std::min(most_words, whole - i), sign));
  }
  const std::size_t rest = codes.size() - 8 * whole;
  if (rest == 0) return found;
  std::array<std::array<std::uint8_t, 8>, 3> last{};
  std::memcpy(last[0].data(), stored + 8 * whole, rest);
  std::memcpy(last[1].data(), &codes[8 * whole], rest);
  std::memcpy(last[2].data(), others + 8 * whole, rest);
  add(differing_in_words(last[0].data(), last[1].data(), last[2].data(), 1, sign));
  return found;
}

}  // namespace fp8lab::doctor
