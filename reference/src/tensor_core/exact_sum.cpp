// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/tensor_core/exact_sum.hpp"

#include <bit>

#include "fp8lab/formats/encode.hpp"

namespace fp8lab {
namespace {

constexpr int lowest_exponent = -298;

}  // namespace

void ExactSum::add(bool negative, std::uint64_t significand, int exponent) {
  const auto position = static_cast<unsigned>(exponent - lowest_exponent);
  const unsigned shift = position % 64;
  const std::array<std::uint64_t, 2> parts{significand << shift, shift == 0 ? 0 : significand >> (64 - shift)};
  // Adding the two's complement of the shifted significand, word by word, is a subtraction.
  auto carry = std::uint64_t{negative};
  const std::uint64_t flip = negative ? ~std::uint64_t{0} : 0;
  for (std::size_t word = position / 64, part = 0; word < words_.size(); ++word, ++part) {
    const std::uint64_t addend = (part < parts.size() ? parts[part] : 0) ^ flip;
    const std::uint64_t partial = words_[word] + addend;
    const std::uint64_t sum = partial + carry;
    carry = (partial < addend || sum < partial) ? 1 : 0;
    words_[word] = sum;
    if (part >= parts.size() && carry == std::uint64_t{negative}) break;  // the rest would add 0, or -1 + 1
  }
}

void ExactSum::add_product(float a, float b) {
  const Unpacked x = unpack(a);
  const Unpacked y = unpack(b);
  add(x.negative != y.negative, x.significand * y.significand, x.exponent + y.exponent);
}

void ExactSum::add(float a) {
  const Unpacked x = unpack(a);
  add(x.negative, x.significand, x.exponent);
}

float ExactSum::to_float() const {
  // 1. Magnitude and sign.
  std::array<std::uint64_t, 10> magnitude = words_;
  const bool negative = (words_.back() >> 63) != 0;
  if (negative) {
    std::uint64_t carry = 1;
    for (auto& word : magnitude) {
      word = ~word + carry;
      carry = (carry != 0 && word == 0) ? 1 : 0;
    }
  }
  // 2. The leading 64 bits, everything below folded into the lowest of them.
  int top = static_cast<int>(magnitude.size()) - 1;
  while (top >= 0 && magnitude[static_cast<std::size_t>(top)] == 0) --top;
  if (top < 0) return 0.0F;
  const auto at = [&](int i) { return i < 0 ? 0 : magnitude[static_cast<std::size_t>(i)]; };
  const int shift = std::countl_zero(at(top));
  std::uint64_t leading = at(top) << shift;
  std::uint64_t rest = at(top - 1);
  if (shift > 0) {
    leading |= rest >> (64 - shift);
    rest <<= shift;
  }
  for (int i = top - 2; i >= 0; --i) rest |= at(i);
  if (rest != 0) leading |= 1;
  // 3. One rounding.
  return std::bit_cast<float>(static_cast<std::uint32_t>(
      round_pack(binary32, ieee_policy, negative, lowest_exponent + 64 * top - shift, leading)));
}

}  // namespace fp8lab
