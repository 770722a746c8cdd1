// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/stochastic.hpp"

#include <stdexcept>
#include <string>

#include "random_words.hpp"

namespace fp8lab {
namespace {

int width_of(const RandomWords& words) {
  return std::visit([](auto list) { return static_cast<int>(8 * sizeof(typename decltype(list)::value_type)); }, words);
}

/// Elements that share a word, where PTX shares words.
std::size_t elements_a_word(const Format& format) { return format.bits() <= 8 ? 4 : 2; }

}  // namespace

RandomSource ptx_random(const Format& format, std::span<const std::uint32_t> words) {
  if (format == binary16) return {words, 13, Sharing::ptx};
  if (format == bfloat16) return {words, 16, Sharing::ptx};
  for (const Format& known : {e4m3, e5m2, e2m3, e3m2}) {
    if (format == known) return {words, 16, Sharing::ptx};
  }
  if (format == e2m1) return {words, 8, Sharing::ptx};
  throw std::invalid_argument("PTX's cvt.rs knows e4m3, e5m2, e2m3, e3m2, e2m1, float16 and bfloat16, not " +
                              format_name(format));
}

RandomBits random_bits_of(const Format& format, const RandomSource& source, std::size_t i) {
  const std::size_t word = source.sharing == Sharing::ptx ? i / elements_a_word(format) : i;
  const auto value = std::visit([&](auto list) { return static_cast<std::uint32_t>(list[word]); }, source.words);
  const int shift = source.sharing == Sharing::ptx ? ptx_first_bit(format, i) : 0;
  const auto mask = static_cast<std::uint32_t>((std::uint64_t{1} << source.count) - 1);
  return {(value >> shift) & mask, source.count};
}

void random_words_of(const Format& format, const RandomSource& source, std::size_t first,
                     std::span<std::uint32_t> out) {
  std::visit(
      [&](auto list) {
        if (source.sharing == Sharing::none) {
          for (std::size_t i = 0; i < out.size(); ++i) out[i] = list[first + i];
          return;
        }
        const std::size_t elements = elements_a_word(format);
        const int shifts[] = {ptx_first_bit(format, 0), ptx_first_bit(format, 1), ptx_first_bit(format, 2),
                              ptx_first_bit(format, 3)};
        for (std::size_t i = 0; i < out.size(); ++i) {
          out[i] = static_cast<std::uint32_t>(list[(first + i) / elements]) >> shifts[(first + i) % 4];
        }
      },
      source.words);
}

void check_random(const Format& format, const RandomSource& source, std::size_t count) {
  const std::size_t words = std::visit([](auto list) { return list.size(); }, source.words);
  const bool shared = source.sharing == Sharing::ptx;
  const std::size_t needed = shared ? (count + elements_a_word(format) - 1) / elements_a_word(format) : count;
  if (words != needed) {
    throw std::invalid_argument("there must be " + std::to_string(needed) + " random words for " +
                                std::to_string(count) + " elements, not " + std::to_string(words));
  }
  if (shared && width_of(source.words) != 32) throw std::invalid_argument("PTX's random words have 32 bits");
  if (source.count < 0 || source.count > width_of(source.words)) {
    throw std::invalid_argument("the random bits of an element must be from 0 to " +
                                std::to_string(width_of(source.words)) + ", not " + std::to_string(source.count));
  }
}

}  // namespace fp8lab
