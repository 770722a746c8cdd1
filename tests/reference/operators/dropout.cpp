// SPDX-License-Identifier: Apache-2.0
// Dropout keeps what the kernel keeps: its comparison of four bytes at once and the shifts behind it, written once
// more.
#include "fp8lab/reference/operators/dropout.hpp"

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/measure/random.hpp"
#include "rounded_steps.hpp"

namespace fp8lab::tests {
namespace {

/// Bit 7 of each byte: whether it is smaller in a than in b.
std::uint32_t bytes_below(std::uint32_t a, std::uint32_t b) {
  std::uint32_t found = 0;
  for (int i = 0; i < 32; i += 8) {
    if ((a >> i & 0xFFU) < (b >> i & 0xFFU)) found |= 0x80U << i;
  }
  return found;
}
/// The mask of 16 elements from four words: of each word bits 7, 15, 23 and 31 are used, moved by 6, 4, 2 and 0; then
/// the upper half goes between the lower one.
std::uint32_t mask_of(const std::array<std::uint32_t, 4>& words, std::uint32_t threshold) {
  std::uint32_t found = 0;
  for (const std::uint32_t word : words) found = found >> 2 | bytes_below(word, threshold * 0x01010101U);
  return ~(found | found >> 17) & 0xFFFFU;
}

TEST_CASE("dropout: the mask and the products") {
  const std::size_t count = 1024 + 48;
  const auto wide = normal_draws(1, count, 2);
  std::vector<BFloat16> x;
  for (const float value : wide) x.push_back({static_cast<std::uint16_t>(encode(bfloat16, ieee_policy, value))});
  const DropoutState state{0x123456789ABCDEF0U, 0x7'0000'0008U};
  for (const float probability : {0.0F, 0.1F, 0.5F, 0.999F}) {
    std::vector<BFloat16> out(count), dx(count);
    std::vector<std::uint8_t> mask(count / 8);
    dropout(probability, state, std::span<const BFloat16>(x), std::span(out), mask, 2);
    dropout_backward(probability, std::span<const BFloat16>(x), mask, std::span(dx));
    const float scale = step_quotient(1, step_difference(1, probability));
    const auto threshold = static_cast<std::uint32_t>(probability * 256);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto chunk = static_cast<std::uint32_t>(i / 16);
      // offset / 4 = 2^32 7 / 4 + 2: the words are those of 1.75 2^32.
      const auto words = philox4x32({0xC0000002U, 1, chunk, 0}, {0x9ABCDEF0U, 0x12345678U});
      const bool is_kept = (mask_of(words, threshold) >> (i % 16) & 1U) != 0;
      REQUIRE((mask[i / 8] >> (i % 8) & 1) == (is_kept ? 1 : 0));
      const float value = from_bits(std::uint32_t{x[i].bits} << 16);
      REQUIRE(out[i].bits == (is_kept ? encode(bfloat16, cuda_nosat_policy, step_product(value, scale)) : 0));
      REQUIRE(dx[i].bits == out[i].bits);
      kept += is_kept ? 1 : 0;
    }
    if (probability == 0) REQUIRE(kept == count);
    // 5 deviations of the count, of floor(256 p) / 256.
    const double share = 1 - threshold / 256.0;
    REQUIRE(std::abs(static_cast<double>(kept) - share * count) <= 5 * std::sqrt(count * share * (1 - share)));
  }
}

TEST_CASE("dropout: infinities, NaN, nothing to do, and what is refused") {
  const std::vector<float> x{inf, nan, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  std::vector<float> out(16);
  const std::vector<std::uint8_t> all{0xFF, 0xFF}, none{0, 0};
  dropout_backward(0.5F, std::span(x), all, std::span(out));
  REQUIRE((out[0] == inf && bits(out[1]) == 0x7FFFFFFFU && out[2] == 2));
  dropout_backward(0.5F, std::span(x), none, std::span(out));
  for (const float value : out) REQUIRE(bits(value) == 0);  // what is dropped is 0, of NaN too
  dropout(0.5F, {1, 0}, std::span<const float>(), std::span<float>(), {});
  std::vector<std::uint8_t> mask(2);
  const auto run = [&](float probability, DropoutState state, std::span<const float> in) {
    dropout(probability, state, in, std::span(out).first(in.size()), mask);
  };
  REQUIRE_THROWS_WITH(run(1, {1, 0}, x), ContainsSubstring("probability must be from 0 to below 1, not 1"));
  REQUIRE_THROWS_WITH(run(nan, {1, 0}, x), ContainsSubstring("probability must be"));
  REQUIRE_THROWS_WITH(run(0, {1, 2}, x), ContainsSubstring("offset must be a multiple of 4, not 2"));
  REQUIRE_THROWS_WITH(run(0, {1, 0}, std::span(x).first(8)),
                      ContainsSubstring("x must have a multiple of 16 elements, not 8"));
  REQUIRE_THROWS_WITH(dropout_backward(0, std::span(x), std::span(all).first(1), std::span(out)),
                      ContainsSubstring("mask must have 2 elements, not 1"));
}

}  // namespace
}  // namespace fp8lab::tests
