// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/forensics/compare.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/refuse.hpp"

namespace fp8lab::forensics {
namespace {

/// Arrays are compared as memory in pieces of so many bytes; only those that differ are looked into.
constexpr std::size_t piece = 4096;

Places places_of(std::uint64_t length) {
  Places places{.length = length};
  while ((length + places.indices_per_bin - 1) / places.indices_per_bin > Places::most_bins)
    places.indices_per_bin *= 2;
  places.counts.resize((length + places.indices_per_bin - 1) / places.indices_per_bin);
  return places;
}

void count_place(Places& places, std::uint64_t index, bool is_first) {
  ++places.counts[index >> std::countr_zero(places.indices_per_bin)];
  places.first = is_first ? index : std::min(places.first, index);
  places.last = is_first ? index : std::max(places.last, index);
}

/// The place of a number among those of its format.
std::int64_t order_of(const Format& format, std::uint64_t word) {
  const auto magnitude = static_cast<std::int64_t>(word & format.magnitude_mask());
  return (word & format.sign_mask()) != 0 ? -magnitude : magnitude;
}

/// Counts `times` elements that are a here and b there.
void classify(Comparison& result, std::uint64_t a, std::uint64_t b, std::uint64_t times) {
  const double value_a = value_of(result.type, a);
  const double value_b = value_of(result.type, b);
  const bool nan_a = value_a != value_a;
  const bool nan_b = value_b != value_b;
  // 1. What are no two numbers that differ.
  if (nan_a || nan_b) {
    std::uint64_t& of_one = nan_a ? result.nan_in_a : result.nan_in_b;
    (nan_a && nan_b ? result.nan_words : of_one) += times;
    return;
  }
  if (value_a == value_b) {
    result.zero_signs += times;
    return;
  }
  // 2. Numbers.
  result.numbers += times;
  if ((value_a < 0 && value_b > 0) || (value_a > 0 && value_b < 0)) result.opposite_signs += times;
  if (value_a == -value_b) result.opposite_values += times;
  if (value_b == 0) result.became_zero += times;
  if (value_a == 0) result.was_zero += times;
  // 3. How far apart they are. Of two float64 of opposite sign the difference may need 64 bits.
  const auto place_a = static_cast<std::uint64_t>(order_of(result.type.format, a));
  const auto place_b = static_cast<std::uint64_t>(order_of(result.type.format, b));
  const bool is_above = value_b > value_a;
  const std::uint64_t distance = is_above ? place_b - place_a : place_a - place_b;
  Distances& distances = result.distances;
  (is_above ? distances.above : distances.below)[static_cast<std::size_t>(std::bit_width(distance | 1)) - 1] += times;
  distances.largest = std::max(distances.largest, distance);
}

}  // namespace

int ElementType::bits() const {
  if (pairs) return 4;
  if (format.bits() <= 8) return 8;
  return format.bits() <= 16 ? 16 : format.bits();
}

void ElementType::check() const {
  if (pairs && format.bits() != 4) {
    refuse("pairs are of formats of 4 bits; ", format_name(format), " has ", format.bits());
  }
  if (format != binary32 && format != binary64) check_format(format);
}

double value_of(const ElementType& type, std::uint64_t word) {
  if (type.format == binary64) return std::bit_cast<double>(word);
  if (type.format == binary32) return std::bit_cast<float>(static_cast<std::uint32_t>(word));
  return decode(type.format, static_cast<std::uint32_t>(word));
}

Comparer::Comparer(const ElementType& type, std::uint64_t elements, const CompareOptions& options) : options_(options) {
  type.check();
  if (options_.columns == 0) options_.columns = std::max<std::uint64_t>(elements, 1);
  if (elements % options_.columns != 0) {
    refuse(elements, " elements are no whole number of rows of ", options_.columns);
  }
  result_.type = type;
  result_.elements = elements;
  result_.rows = places_of(elements / options_.columns);
  result_.columns = places_of(options_.columns);
  if (type.bits() <= 8) pairs_.resize(std::size_t{1} << 16);
}

void Comparer::add(std::span<const std::byte> a, std::span<const std::byte> b) {
  const auto bits = static_cast<std::uint64_t>(result_.type.bits());
  if (a.size() != b.size()) refuse("a has ", a.size(), " bytes, b ", b.size());
  if (a.size() * 8 % bits != 0) refuse(a.size(), " bytes end within an element of ", bits / 8, " bytes");
  const std::uint64_t left = result_.elements - next_;
  // The last byte of an odd number of codes of 4 bits has one code.
  const std::uint64_t count = std::min(a.size() * 8 / bits, left);
  if ((count * bits + 7) / 8 != a.size())
    refuse(a.size(), " bytes are more than the ", left, " elements that are left");
  for (std::size_t at = 0; at < a.size(); at += piece) {
    const std::size_t size = std::min(piece, a.size() - at);
    const auto own_a = a.subspan(at, size);
    const auto own_b = b.subspan(at, size);
    if (std::memcmp(own_a.data(), own_b.data(), size) != 0) {
      switch (bits) {
        case 4: add_pairs(own_a, own_b); break;
        case 8: add_words<std::uint8_t>(own_a, own_b); break;
        case 16: add_words<std::uint16_t>(own_a, own_b); break;
        case 32: add_words<std::uint32_t>(own_a, own_b); break;
        default: add_words<std::uint64_t>(own_a, own_b); break;
      }
    }
    next_ += std::min<std::uint64_t>(size * 8 / bits, result_.elements - next_);
  }
}

template <typename Word>
void Comparer::add_words(std::span<const std::byte> a, std::span<const std::byte> b) {
  for (std::size_t i = 0; i < a.size() / sizeof(Word); ++i) {
    Word word_a;
    Word word_b;
    std::memcpy(&word_a, a.data() + i * sizeof(Word), sizeof(Word));
    std::memcpy(&word_b, b.data() + i * sizeof(Word), sizeof(Word));
    if (word_a != word_b) differs(next_ + i, word_a, word_b);
  }
}

void Comparer::add_pairs(std::span<const std::byte> a, std::span<const std::byte> b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::uint64_t half = 0; half < 2; ++half) {
      const std::uint64_t index = next_ + 2 * i + half;
      const std::uint64_t code_a = std::to_integer<std::uint64_t>(a[i]) >> (4 * half) & 0xF;
      const std::uint64_t code_b = std::to_integer<std::uint64_t>(b[i]) >> (4 * half) & 0xF;
      if (code_a != code_b && index < result_.elements) differs(index, code_a, code_b);
    }
  }
}

void Comparer::differs(std::uint64_t index, std::uint64_t a, std::uint64_t b) {
  const Format& format = result_.type.format;
  if (format.bits() < 16 && ((a | b) >> format.bits()) != 0) {
    refuse("element ", index, " has bits beyond the ", format.bits(), " of ", format_name(format));
  }
  const bool is_first = result_.differing++ == 0;
  if (result_.first.size() < options_.most_shown) result_.first.push_back({index, a, b});
  const std::uint64_t row = index / options_.columns;
  count_place(result_.rows, row, is_first);
  count_place(result_.columns, index - row * options_.columns, is_first);
  if (pairs_.empty()) {
    classify(result_, a, b, 1);
  } else {
    ++pairs_[a << 8 | b];
  }
}

Comparison Comparer::result() const {
  if (next_ != result_.elements) throw std::logic_error("elements are missing");
  Comparison whole = result_;
  for (std::uint64_t pair = 0; pair < pairs_.size(); ++pair) {
    if (pairs_[pair] != 0) classify(whole, pair >> 8, pair & 0xFF, pairs_[pair]);
  }
  return whole;
}

Comparison compare(const ElementType& type, std::span<const std::byte> a, std::span<const std::byte> b,
                   const CompareOptions& options) {
  type.check();
  const auto bits = static_cast<std::uint64_t>(type.bits());
  if (a.size() * 8 % bits != 0) refuse(a.size(), " bytes end within an element of ", bits / 8, " bytes");
  Comparer comparer(type, a.size() * 8 / bits, options);
  comparer.add(a, b);
  return comparer.result();
}

}  // namespace fp8lab::forensics
