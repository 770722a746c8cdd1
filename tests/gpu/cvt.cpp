// SPDX-License-Identifier: Apache-2.0
// Conversions that devices without the instruction compute by additions, beside encode(): the host runs the latter.
#include "fp8lab/gpu/ptx/cvt.hpp"

#include <bit>
#include <cstdint>
#include <vector>

#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// Every bfloat16 and its neighbours among floats: all boundaries and midpoints of E2M1 and what is beside them.
template <typename Use>
void for_each_near(const Use& use) {
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    for (const std::uint32_t word : {high << 16, (high << 16) + 1, (high << 16) - 1, high << 16 | 0x8000U}) {
      use(std::bit_cast<float>(word));
    }
  }
}

}  // namespace

TEST_CASE("E2M1 by additions is encode()") {
  Mismatches wrong;
  for_each_near(
      [&](float x) { wrong.compare(bits(x), "", gpu::ptx::e2m1_by_additions(x), encode(e2m1, CastPolicy{}, x)); });
  for (std::uint64_t i = 0; i < 1'000'000; ++i) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(random_bits(71, i)) & 0x83FFFFFFU | 0x3C000000U);
    wrong.compare(bits(x), "", gpu::ptx::e2m1_by_additions(x), encode(e2m1, CastPolicy{}, x));
  }
  REQUIRE_NO(wrong);
}

TEST_CASE("stochastic E2M1 by additions is encode() with 8 random bits") {
  constexpr CastPolicy stochastic{.rounding = Rounding::stochastic};
  Mismatches wrong;
  std::uint64_t i = 0;
  for_each_near([&](float x) {
    for (const std::uint32_t random : {0U, 255U, 128U, static_cast<std::uint32_t>(random_bits(73, i++)) & 255U}) {
      wrong.compare(bits(x), "", gpu::ptx::e2m1_stochastic_by_additions(x, random),
                    encode(e2m1, stochastic, x, {.value = random, .count = 8}));
    }
  });
  REQUIRE_NO(wrong);
}

TEST_CASE("a pair of conversions is two of encode(), the first in the low bits") {
  Mismatches wrong;
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto half = std::bit_cast<Half>(static_cast<std::uint16_t>(code));
    const auto wide = std::bit_cast<BFloat16>(static_cast<std::uint16_t>(code));
    const std::uint32_t one = encode(e4m3, CastPolicy{}, 1.0F);
    wrong.compare(code, "half", gpu::ptx::e4m3x2(half, Half{0x3C00}), encode(e4m3, CastPolicy{}, half) | one << 8);
    wrong.compare(code, "bfloat16", gpu::ptx::e5m2x2(BFloat16{0}, wide), encode(e5m2, CastPolicy{}, wide) << 8);
  }
  REQUIRE_NO(wrong);
}

}  // namespace fp8lab::tests
