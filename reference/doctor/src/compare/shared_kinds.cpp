// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/doctor/shared_kinds.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "compare/told_kinds.hpp"
#include "fp8lab/formats/refuse.hpp"

namespace fp8lab::doctor {
namespace {

/// Kinds of pairs of words, then of inputs, as bits.
enum SharedKind : std::uint16_t {
  small_codes = 1U << 0U,
  largest_in_a = 1U << 1U,
  largest_in_b = 1U << 2U,
  infinite_in_a = 1U << 3U,
  infinite_in_b = 1U << 4U,
  even_in_a = 1U << 5U,
  odd_in_a = 1U << 6U,
  tied_input = 1U << 7U,
  tied_by_power = 1U << 8U,
  nan_input = 1U << 9U,
  infinite_input = 1U << 10U,
  zero_input = 1U << 11U,
  subnormal_input = 1U << 12U,
  all_shared_kinds = (1U << 13U) - 1
};

/// What each is called, and the kinds that say all that it says.
constexpr std::array shared_kind_words{
    KindWords{small_codes, "is subnormal or 0 in a and in b", zero_input},
    KindWords{largest_in_a, "has the largest number in a", 0},
    KindWords{largest_in_b, "has the largest number in b", 0},
    KindWords{infinite_in_a, "is infinite in a", infinite_input},
    KindWords{infinite_in_b, "is infinite in b", infinite_input},
    KindWords{even_in_a, "is one value apart, of which a has the one whose last bit is 0, as ties to even have",
              tied_input | tied_by_power, true},
    KindWords{odd_in_a, "is one value apart, of which b has the one whose last bit is 0, as ties to even have",
              tied_input | tied_by_power, true},
    KindWords{tied_input, "is an exact tie: what it was made of lies halfway between a and b", 0},
    KindWords{tied_by_power,
              "is an exact tie under a scale that is a power of two: what it was made of lies halfway between a and b, "
              "times such a power",
              tied_input},
    KindWords{nan_input, "was made of a NaN", 0},
    KindWords{infinite_input, "was made of an infinity", 0},
    KindWords{zero_input, "was made of a zero", 0},
    KindWords{subnormal_input, "was made of a number that is subnormal in float32", 0},
};

/// Mantissas as frexp() has them.
double mantissa_of(double x) {
  int exponent = 0;
  return std::frexp(std::abs(x), &exponent);
}

}  // namespace

SharedKinds::SharedKinds(const ElementType& type) : type_(type), open_(all_shared_kinds) {
  type.check();
  const int bits = type.format.bits();
  for (std::uint64_t code = 0; bits <= 8 && code >> bits == 0; ++code) values_.push_back(value_of(type, code));
  if (!type.format.has_subnormals) open_ &= ~std::uint32_t{small_codes};
}

void SharedKinds::add(std::span<const std::byte> a, std::span<const std::byte> b, std::span<const double> input) {
  const std::size_t per_byte = type_.pairs ? 2 : 1;
  const auto width = type_.pairs ? std::size_t{1} : static_cast<std::size_t>(type_.bits() + 7) / 8;
  if (a.size() != b.size()) refuse("a has ", a.size(), " bytes, b ", b.size());
  if (a.size() % width != 0) refuse(a.size(), " bytes end within an element of ", width, " bytes");
  const std::size_t elements = a.size() / width * per_byte;
  if (!input.empty() && input.size() != elements) {
    refuse("there are ", elements, " elements and ", input.size(), " inputs");
  }
  if (input.empty()) open_ &= std::uint32_t{tied_input} - 1;
  for (std::size_t i = 0; i < elements && is_open(); ++i) {
    std::uint64_t word_a = 0;
    std::uint64_t word_b = 0;
    std::memcpy(&word_a, a.data() + i / per_byte * width, width);
    std::memcpy(&word_b, b.data() + i / per_byte * width, width);
    if (type_.pairs) {
      word_a = word_a >> (i % 2 * 4) & 15;
      word_b = word_b >> (i % 2 * 4) & 15;
    }
    const double value_a = word_a < values_.size() ? values_[word_a] : value_of(type_, word_a);
    const double value_b = word_b < values_.size() ? values_[word_b] : value_of(type_, word_b);
    const PairOfWords pair{word_a, word_b, value_a, value_b};
    count(kinds_of(pair) | (input.empty() ? 0 : kinds_of_input(pair, input[i])), word_a != word_b);
  }
}

std::uint32_t SharedKinds::kinds_of(const PairOfWords& pair) const {
  const Format& format = type_.format;
  const std::uint64_t least_normal = std::uint64_t{1} << format.mantissa_bits;
  const std::uint64_t a = pair.a & format.magnitude_mask();
  const std::uint64_t b = pair.b & format.magnitude_mask();
  const bool are_numbers = !std::isnan(pair.value_a) && !std::isnan(pair.value_b);
  std::uint32_t kinds = 0;
  if (are_numbers && std::max(a, b) < least_normal && (a | b) != 0) kinds |= small_codes;
  if (!std::isnan(pair.value_a) && a == format.max_code()) kinds |= largest_in_a;
  if (!std::isnan(pair.value_b) && b == format.max_code()) kinds |= largest_in_b;
  if (std::isinf(pair.value_a)) kinds |= infinite_in_a;
  if (std::isinf(pair.value_b)) kinds |= infinite_in_b;
  const bool has_one_sign = ((pair.a ^ pair.b) & format.sign_mask()) == 0 || a == 0 || b == 0;
  const bool is_one_apart = are_numbers && has_one_sign && std::max(a, b) - std::min(a, b) == 1;
  if (is_one_apart) kinds |= a % 2 == 0 ? even_in_a : odd_in_a;
  return kinds;
}

std::uint32_t SharedKinds::kinds_of_input(const PairOfWords& pair, double input) const {
  if (std::isnan(input)) return nan_input;
  if (std::isinf(input)) return infinite_input;
  if (input == 0) return zero_input;
  std::uint32_t kinds = 0;
  if (std::abs(input) < static_cast<double>(std::numeric_limits<float>::min())) kinds |= subnormal_input;
  if ((open_ & (tied_input | tied_by_power)) == 0) return kinds;
  const std::uint64_t a = pair.a & type_.format.magnitude_mask();
  const std::uint64_t b = pair.b & type_.format.magnitude_mask();
  const auto tie_with = [&](std::uint64_t low) {
    if (low >= type_.format.max_code()) return std::uint32_t{0};
    const double middle = (value_of(type_, low) + value_of(type_, low + 1)) / 2;
    if (std::abs(input) == middle) return std::uint32_t{tied_input | tied_by_power};
    return mantissa_of(input) == mantissa_of(middle) ? std::uint32_t{tied_by_power} : std::uint32_t{0};
  };
  if (a != b) return std::max(a, b) - std::min(a, b) == 1 ? kinds | tie_with(std::min(a, b)) : kinds;
  return kinds | tie_with(a) | (a == 0 ? 0 : tie_with(a - 1));
}

void SharedKinds::count(std::uint32_t kinds, bool differs) {
  ++elements_;
  if (differs) {
    ++differing_;
    open_ &= kinds;
    return;
  }
  for (std::uint32_t left = kinds & open_; left != 0; left &= left - 1) {
    ++others_[static_cast<std::size_t>(std::countr_zero(left))];
  }
}

std::vector<std::string> SharedKinds::findings() const {
  return told_kinds(shared_kind_words, open_, {elements_, differing_, others_});
}

}  // namespace fp8lab::doctor
