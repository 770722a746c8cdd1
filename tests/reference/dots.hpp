// SPDX-License-Identifier: Apache-2.0
// Batches of one instruction's dot products: through the library and through the slow oracle, and inputs that are hard
// on both.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "fp8lab/reference/mma.hpp"
#include "mma_vectors.hpp"
#include "slow_mma.hpp"
#include "support.hpp"

namespace fp8lab::tests {

/// n dot products of K products: codes, one a word (TF32's 19 bits in the low end), and scales row by row.
struct Dots {
  Format format_a, format_b;
  std::size_t k = 0;
  Codes a = {}, b = {};
  Scales scale_a = {}, scale_b = {};
  Codes c = {};  ///< words of the accumulator

  [[nodiscard]] std::size_t count() const { return c.size(); }
};

/// An operand's codes in the element type that the library takes them in.
struct Elements {
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint16_t> words;
  std::vector<float> floats;

  Elements(const Codes& codes, const Format& format) {
    for (const std::uint32_t code : codes) {
      if (format.bits() <= 8) {
        bytes.push_back(static_cast<std::uint8_t>(code));
      } else if (format.bits() <= 16) {
        words.push_back(static_cast<std::uint16_t>(code));
      } else {
        floats.push_back(std::bit_cast<float>(code << (binary32.bits() - format.bits())));
      }
    }
  }
  [[nodiscard]] Operands operands(const Format& format, std::size_t rows, std::size_t depth,
                                  const Scales& scales = {}) const {
    if (format.bits() <= 8) return Operands::codes(bytes, format, rows, depth, scales);
    if (format.bits() <= 16) return Operands::codes(words, format, rows, depth);
    return Operands::floats(floats, rows, depth);
  }
};

/// The library's results as words.
inline Codes library_words(const MmaModel& model, const Dots& dots, ZeroRule rule) {
  const Elements left(dots.a, dots.format_a), right(dots.b, dots.format_b);
  const Operands a = left.operands(dots.format_a, dots.count(), dots.k, dots.scale_a);
  const Operands b = right.operands(dots.format_b, dots.count(), dots.k, dots.scale_b);
  Codes words;
  if (model.accumulator() == binary16) {
    std::vector<Half> c, out(dots.count());
    for (const std::uint32_t word : dots.c) c.push_back({static_cast<std::uint16_t>(word)});
    mma(model, a, b, c, std::span<Half>(out), rule);
    for (const Half x : out) words.push_back(x.bits);
  } else {
    std::vector<float> c, out(dots.count());
    for (const std::uint32_t word : dots.c) c.push_back(std::bit_cast<float>(word));
    mma(model, a, b, c, std::span<float>(out), rule);
    for (const float x : out) words.push_back(bits(x));
  }
  return words;
}

/// The oracle's words for the same.
inline Codes slow_words(SlowModel model, const Dots& dots, ZeroRule rule) {
  SlowZeroRule zero = SlowZeroRule::skip;
  switch (rule) {
    case ZeroRule::skip: model.groups = model.group > 1 ? SlowGroups::all : SlowGroups::nonzero_sum; break;
    case ZeroRule::skip_empty_groups: model.groups = SlowGroups::nonzero_product; break;
    case ZeroRule::skip_zero_groups: model.groups = SlowGroups::nonzero_sum; break;
    case ZeroRule::mma_sim: zero = SlowZeroRule::mma_sim; break;
  }
  Codes words;
  const std::size_t blocks = dots.scale_a.size() / std::max<std::size_t>(dots.count(), 1);
  for (std::size_t i = 0; i < dots.count(); ++i) {
    const auto row = [&](const auto& all, std::size_t width) { return std::span(all).subspan(i * width, width); };
    words.push_back(slow_mma(model, {row(dots.a, dots.k), dots.format_a, row(dots.scale_a, blocks)},
                             {row(dots.b, dots.k), dots.format_b, row(dots.scale_b, blocks)}, dots.c[i], zero));
  }
  return words;
}

/// A stream of random numbers.
class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t bits() { return random_bits(seed_, next_++); }
  /// From low to high, both included.
  int between(int low, int high) { return low + static_cast<int>(bits() % static_cast<std::uint64_t>(high - low + 1)); }
  bool one_in(int n) { return between(1, n) == 1; }

 private:
  std::uint64_t seed_, next_ = 0;
};

/// A random code whose exponent field lies in [low, high] as far as the format has it; specials only where they may be.
inline std::uint32_t code_between(Random& random, const Format& format, int low, int high, bool specials) {
  const int top = (1 << format.exponent_bits) - 1;
  const auto field = static_cast<std::uint64_t>(random.between(std::clamp(low, 0, top), std::clamp(high, 0, top)));
  const std::uint64_t fraction = random.bits() & ((std::uint64_t{1} << format.mantissa_bits) - 1);
  std::uint64_t code = (field << format.mantissa_bits) | fraction;
  if (!specials) code = std::min(code, format.max_code());
  return static_cast<std::uint32_t>(code | (random.bits() & format.sign_mask()));
}

/// One row of K codes; what it is made to provoke depends on `kind`.
inline Codes row_of(Random& random, const Format& format, std::size_t k, int kind) {
  const int middle = format.bias, top = (1 << format.exponent_bits) - 1;
  const int wide = std::min(12, top / 2);
  const int peak = std::min(middle + random.between(3, 8), top);
  Codes row;
  for (std::size_t i = 0; i < k; ++i) {
    switch (kind) {
      case 0: row.push_back(code_between(random, format, 0, top, true)); break;           // any code at all
      case 1: row.push_back(code_between(random, format, middle, middle, false)); break;  // sums that carry
      case 2: row.push_back(code_between(random, format, middle - wide, middle + wide, false)); break;
      case 3: row.push_back(code_between(random, format, 0, random.one_in(4) ? 3 : 0, false)); break;    // subnormals
      case 4: row.push_back(random.one_in(4) ? code_between(random, format, 0, top, false) : 0); break;  // zeros
      default:  // a few large elements, the rest far below
        row.push_back(i % 2 == 0 ? code_between(random, format, peak, peak, false)
                                 : code_between(random, format, peak - 18, peak - 3, random.one_in(400)));
        break;
    }
  }
  return row;
}

/// What is added: zeros of both signs, what the products are about as large as, tiny and huge numbers, any word.
inline std::uint32_t accumulator_of(Random& random, const Format& word) {
  const int middle = word.bias;
  switch (random.between(0, 7)) {
    case 0: return 0;
    case 1: return static_cast<std::uint32_t>(word.sign_mask());
    case 2: return code_between(random, word, 0, 20, false);
    case 3: return code_between(random, word, 0, (1 << word.exponent_bits) - 1, true);
    case 4: return code_between(random, word, 2 * middle - 3, 2 * middle, false);
    default: return code_between(random, word, middle - 12, middle + 12, false);
  }
}

/// A block's scale: one, moderate, extreme, any, and seldom NaN.
inline std::uint8_t scale_of(Random& random, const Format& format, int kind) {
  const int one = format.bias << format.mantissa_bits;
  const int nan = static_cast<int>(format.magnitude_mask());
  switch (kind) {
    case 0: return static_cast<std::uint8_t>(one);
    case 1: return static_cast<std::uint8_t>(random.between(one - 20, one + 20));
    case 2:
      return static_cast<std::uint8_t>(random.one_in(2) ? random.between(0, 4) : random.between(nan - 6, nan - 1));
    default: return static_cast<std::uint8_t>(random.one_in(50) ? nan : random.between(0, nan - 1));
  }
}

/// `count` dot products of the instruction, of all kinds in turn.
inline Dots hard_dots(const MmaModel& model, const Format& format_a, const Format& format_b, std::size_t count,
                      std::uint64_t seed) {
  Random random(seed);
  Dots dots{.format_a = format_a, .format_b = format_b, .k = static_cast<std::size_t>(model.k())};
  const auto blocks = model.scales ? dots.k / static_cast<std::size_t>(model.scales->block) : 0;
  for (std::size_t i = 0; i < count; ++i) {
    const int kind = static_cast<int>(i % 8);
    Codes a = row_of(random, format_a, dots.k, kind);
    Codes b = row_of(random, format_b, dots.k, kind == 6 ? 2 : kind);
    if (kind == 6 || kind == 7) {  // most products cancel: the second half is the first, negative
      for (std::size_t k = dots.k / 2; k + 1 < dots.k; ++k) {
        a[k] = a[k - dots.k / 2] ^ static_cast<std::uint32_t>(format_a.sign_mask());
        b[k] = b[k - dots.k / 2];
      }
    }
    dots.a.insert(dots.a.end(), a.begin(), a.end());
    dots.b.insert(dots.b.end(), b.begin(), b.end());
    dots.c.push_back(accumulator_of(random, model.accumulator()));
    const int scales = random.between(0, 3);
    for (std::size_t block = 0; block < blocks; ++block) {
      const bool again = kind >= 6 && block >= blocks / 2 && block + 1 < blocks;  // with its products, it cancels
      for (Scales* side : {&dots.scale_a, &dots.scale_b}) {
        side->push_back(again ? *(side->end() - static_cast<std::ptrdiff_t>(blocks / 2))
                              : scale_of(random, model.scales->format, scales));
      }
    }
  }
  return dots;
}

/// Compares word for word.
inline Mismatches differences(const Codes& actual, const Codes& expected, const char* what) {
  Mismatches wrong;
  for (std::size_t i = 0; i < actual.size(); ++i) wrong.compare(i, i, actual[i], expected[i], what);
  return wrong;
}

}  // namespace fp8lab::tests
