// SPDX-License-Identifier: Apache-2.0
#include "kit/dots.hpp"

#include <algorithm>
#include <bit>
#include <span>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace fp8lab::experiments {
namespace {

/// K codes that are hard in the way of `kind`, from 0 to 7.
Codes row_of(Random& random, const Format& format, std::size_t k, int kind) {
  const int middle = format.bias;
  const int top = (1 << format.exponent_bits) - 1;
  const int wide = std::min(12, top / 2);
  const int peak = std::min(middle + random.between(3, 8), top);
  Codes row;
  for (std::size_t i = 0; i < k; ++i) {
    switch (kind) {
      case 0: row.push_back(code_between(random, format, 0, top, true)); break;
      case 1: row.push_back(code_between(random, format, middle, middle, false)); break;
      case 2: row.push_back(code_between(random, format, middle - wide, middle + wide, false)); break;
      case 3: row.push_back(code_between(random, format, 0, random.one_in(4) ? 3 : 0, false)); break;
      case 4: row.push_back(random.one_in(4) ? code_between(random, format, 0, top, false) : 0); break;
      default:
        row.push_back(i % 2 == 0 ? code_between(random, format, peak, peak, false)
                                 : code_between(random, format, peak - 18, peak - 3, random.one_in(400)));
        break;
    }
  }
  return row;
}

/// A block's scale: one, moderate, extreme, any, and seldom NaN.
std::uint8_t scale_of(Random& random, const Format& format, int kind) {
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

/// Makes most products of a row cancel: the second half is the first, negative.
void cancel(const Format& format_a, Codes& a, Codes& b) {
  const std::size_t half = a.size() / 2;
  for (std::size_t k = half; k + 1 < a.size(); ++k) {
    a[k] = a[k - half] ^ format_a.sign_mask();
    b[k] = b[k - half];
  }
}

}  // namespace

double number_of(const Format& format, std::uint64_t code) {
  return format == binary64 ? std::bit_cast<double>(code) : decode(format, static_cast<std::uint32_t>(code));
}

Elements::Elements(const Codes& codes, const Format& format) : format_(format) {
  for (const std::uint64_t code : codes) {
    if (format.bits() <= 8) {
      bytes_.push_back(static_cast<std::uint8_t>(code));
    } else if (format.bits() <= 16) {
      words_.push_back(static_cast<std::uint16_t>(code));
    } else if (format.bits() > 32) {
      doubles_.push_back(std::bit_cast<double>(code));
    } else {
      floats_.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(code) << (binary32.bits() - format.bits())));
    }
  }
}

Operand Elements::operand(std::size_t rows, std::size_t depth, const Scales& scales) const {
  Operand result = Operand::floats(floats_, rows, depth);
  if (format_ == binary64) result = Operand::doubles(doubles_, rows, depth);
  if (format_.bits() <= 8) result = Operand::codes(bytes_, format_, rows, depth);
  if (format_.bits() > 8 && format_.bits() <= 16) result = Operand::codes(words_, format_, rows, depth);
  result.scales.codes = scales;
  return result;
}

Codes gemm_words(const GemmRecipe& recipe, const Operand& a, const Operand& b, const GemmCall& call) {
  const auto words_of = [&]<typename Value, typename Word>(Value /*type*/, Word /*type*/) {
    std::vector<Value> out(a.rows * b.rows);
    gemm(recipe, a, b, std::span<Value>(out), call);
    Codes words;
    words.reserve(out.size());
    for (const Value x : out) words.push_back(std::bit_cast<Word>(x));
    return words;
  };
  return recipe.model.is_fp64() ? words_of(double{}, std::uint64_t{}) : words_of(float{}, std::uint32_t{});
}

Codes mma_words(const MmaModel& model, const Dots& dots, ZeroRule zero_rule) {
  const Elements left(dots.a, dots.format_a);
  const Elements right(dots.b, dots.format_b);
  const Operand a = left.operand(dots.count(), dots.k, dots.scale_a);
  const Operand b = right.operand(dots.count(), dots.k, dots.scale_b);
  const auto words_of = [&]<typename Value, typename Word>(Value /*type*/, Word /*type*/) {
    std::vector<Value> c;
    std::vector<Value> out(dots.count());
    c.reserve(dots.count());
    for (const std::uint64_t word : dots.c) c.push_back(std::bit_cast<Value>(static_cast<Word>(word)));
    mma(model, a, b, std::span<const Value>(c), std::span<Value>(out), zero_rule);
    Codes words;
    words.reserve(out.size());
    for (const Value x : out) words.push_back(std::bit_cast<Word>(x));
    return words;
  };
  if (model.is_fp64()) return words_of(double{}, std::uint64_t{});
  return model.accumulator() == binary16 ? words_of(Half{}, std::uint16_t{}) : words_of(float{}, std::uint32_t{});
}

std::uint64_t Random::bits() {  // Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014
  std::uint64_t z = state_ += 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

std::uint64_t code_between(Random& random, const Format& format, int low, int high, bool specials) {
  const int top = (1 << format.exponent_bits) - 1;
  const auto field = static_cast<std::uint64_t>(random.between(std::clamp(low, 0, top), std::clamp(high, 0, top)));
  const std::uint64_t fraction = random.bits() & ((std::uint64_t{1} << format.mantissa_bits) - 1);
  std::uint64_t code = (field << format.mantissa_bits) | fraction;
  if (!specials) code = std::min(code, format.max_code());
  const std::uint64_t sign = random.bits() & format.sign_mask();
  const bool has_sign = specials || code != 0 || format.specials != Specials::nan_at_negative_zero;
  return code | (has_sign ? sign : 0);
}

std::uint64_t accumulator_of(Random& random, const Format& word) {
  const int middle = word.bias;
  switch (random.between(0, 7)) {
    case 0: return 0;
    case 1: return word.sign_mask();
    case 2: return code_between(random, word, 0, 20, false);
    case 3: return code_between(random, word, 0, (1 << word.exponent_bits) - 1, true);
    case 4: return code_between(random, word, 2 * middle - 3, 2 * middle, false);
    default: return code_between(random, word, middle - 12, middle + 12, false);
  }
}

Dots hard_dots(const MmaModel& model, const Format& format_a, const Format& format_b, std::size_t count,
               std::uint64_t seed) {
  Random random(seed);
  Dots dots{.format_a = format_a, .format_b = format_b, .k = static_cast<std::size_t>(model.k())};
  const BlockScales scaling = model.scales.value_or(BlockScales{e8m0, 0});
  const std::size_t blocks = scaling.block == 0 ? 0 : dots.k / static_cast<std::size_t>(scaling.block);
  for (std::size_t i = 0; i < count; ++i) {
    checkpoint();
    const int kind = static_cast<int>(i % 8);
    Codes a = row_of(random, format_a, dots.k, kind);
    Codes b = row_of(random, format_b, dots.k, kind == 6 ? 2 : kind);
    if (kind >= 6) cancel(format_a, a, b);
    dots.a.insert(dots.a.end(), a.begin(), a.end());
    dots.b.insert(dots.b.end(), b.begin(), b.end());
    dots.c.push_back(accumulator_of(random, model.accumulator()));
    const int scales = random.between(0, 3);
    for (std::size_t block = 0; block < blocks; ++block) {
      const bool again = kind >= 6 && block >= blocks / 2 && block + 1 < blocks;  // with its products, it cancels
      for (Scales* side : {&dots.scale_a, &dots.scale_b}) {
        side->push_back(again ? *(side->end() - static_cast<std::ptrdiff_t>(blocks / 2))
                              : scale_of(random, scaling.format, scales));
      }
    }
  }
  return dots;
}

}  // namespace fp8lab::experiments
