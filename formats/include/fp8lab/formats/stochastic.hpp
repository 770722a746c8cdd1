// SPDX-License-Identifier: Apache-2.0
// Encodes arrays with stochastic rounding by the caller's random words, shared out to elements as hardware does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/formats/unpack.hpp"

namespace fp8lab {

/// The caller's random words, of any of these widths.
using RandomWords =
    std::variant<std::span<const std::uint8_t>, std::span<const std::uint16_t>, std::span<const std::uint32_t>>;

/// How random words are shared out to elements.
enum class Sharing : std::uint8_t {
  none,  ///< a word each, of which the lowest bits count
  ptx,   ///< as PTX's cvt.rs takes them from one 32-bit word: see ptx_random()
};

/// The random bits of a bulk stochastic cast.
struct RandomSource {
  RandomWords words;
  int count;  ///< random bits an element, 0 to the words' width
  Sharing sharing = Sharing::none;
};

/// One 32-bit word for four elements of a format of at most 8 bits, or for two of 16 bits, shared out as by PTX's
/// cvt.rs to .e4m3x4 and the like: 16 bits that each pair of neighbours shares, the lower half for the first two; 8
/// bits an element for formats of 4 bits (bytes 0, 2, 1, 3); 13 bits of each half for float16, and each half for
/// bfloat16.
///
/// Source: PTX ISA 8.7 and later, cvt (.rs). Throws std::invalid_argument for formats that cvt.rs does not know.
[[nodiscard]] RandomSource ptx_random(const Format& format, std::span<const std::uint32_t> words);

/// The first of the bits that an element takes of the word that it shares by PTX: by its place in the word.
[[nodiscard]] FP8LAB_HD constexpr int ptx_first_bit(const Format& format, std::size_t element) {
  if (format.bits() > 8) return 16 * static_cast<int>(element % 2);
  if (format.bits() > 4) return 16 * static_cast<int>(element % 4 / 2);
  return static_cast<int>(element % 2 * 16 + element % 4 / 2 * 8);  // bytes 0, 2, 1, 3: d = {a, b, e, f}, f first
}
/// The bits that an element of a format of at most 8 bits takes of that word.
[[nodiscard]] FP8LAB_HD constexpr RandomBits ptx_random_bits(const Format& format, std::uint32_t word,
                                                             std::size_t element) {
  const int count = format.bits() > 4 ? 16 : 8;
  return {word >> ptx_first_bit(format, element) & ((1U << count) - 1), count};
}

/// The random bits of element `i`.
[[nodiscard]] RandomBits random_bits_of(const Format& format, const RandomSource& source, std::size_t i);

/// Throws std::invalid_argument where `source` does not have the words, or the bits, for `count` elements.
void check_random(const Format& format, const RandomSource& source, std::size_t count);

/// Encodes every element of `in` with the policy's rounding, stochastic, and the caller's random bits. The random words
/// lie apart from `out`, or are its very elements where each element has one of as many bits as its code.
///
/// Throws std::invalid_argument where the other bulk encode does, where the rounding is not stochastic, as check_random
/// does, and where the words overlap `out` otherwise.
void encode(const Format& format, const CastPolicy& policy, FloatSpan in, const RandomSource& random, CodeSpan out,
            int threads = 1);

}  // namespace fp8lab
