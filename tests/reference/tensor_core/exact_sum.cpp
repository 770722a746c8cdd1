// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/tensor_core/exact_sum.hpp"

#include "reference/rational.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

float any_float(std::uint64_t seed, std::uint64_t i) {
  auto pattern = static_cast<std::uint32_t>(random_bits(seed, i));
  if ((pattern & 0x7F800000) == 0x7F800000) pattern &= 0xBFFFFFFF;  // no specials
  return std::bit_cast<float>(pattern);
}

}  // namespace

TEST_CASE("an exact sum rounds once, as exact rationals do") {
  for (std::uint64_t trial = 0; trial < 300; ++trial) {
    ExactSum sum;
    Rational expected = 0;
    const std::uint64_t terms = 1 + random_bits(trial, 0) % 40;
    for (std::uint64_t i = 0; i < terms; ++i) {
      const float a = any_float(trial, 10 + 2 * i);
      const float b = any_float(trial, 11 + 2 * i);
      if (i % 3 == 0) {
        sum.add(a);
        expected += rational(static_cast<double>(a));
      } else {
        sum.add_product(a, b);
        expected += rational(static_cast<double>(a)) * rational(static_cast<double>(b));
      }
      REQUIRE(bits(sum.to_float()) == bits(nearest_float(expected)));
    }
  }
}

TEST_CASE("exact sums cancel, and hold the extremes") {
  ExactSum sum;
  const float huge = std::numeric_limits<float>::max();
  const float tiny = std::numeric_limits<float>::denorm_min();
  sum.add_product(huge, huge);
  CHECK(sum.to_float() == std::numeric_limits<float>::infinity());
  sum.add(tiny);
  sum.add_product(-huge, huge);
  CHECK(sum.to_float() == tiny);
  sum.add(-tiny);
  CHECK(bits(sum.to_float()) == 0);
  sum.add_product(tiny, -tiny);
  CHECK(bits(sum.to_float()) == 0x80000000);  // -2^-298 rounds to -0
  // A tie, and a tie broken by a bit 272 places further down.
  ExactSum tie;
  tie.add(1);
  tie.add(0x1p-24F);
  CHECK(tie.to_float() == 1);
  tie.add_product(tiny, tiny);
  CHECK(tie.to_float() == 1 + 0x1p-23F);
}

}  // namespace fp8lab::tests
