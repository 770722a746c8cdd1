// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/chain.hpp"

#include <algorithm>

#include "fp8lab/formats/decode.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// Every float32 of [1, 2).
std::vector<float> one_to_two() {
  std::vector<float> values;
  for (std::uint32_t word = 0x3F800000; word < 0x40000000; ++word) values.push_back(std::bit_cast<float>(word));
  return values;
}

CastStep step(const Format& format, Rounding rounding) {
  CastStep via{.format = format};
  via.policy.rounding = rounding;
  return via;
}

}  // namespace

TEST_CASE("rounding twice on the way to E4M3: counts over every float32 from 1 to below 2", "[long]") {
  // [1, 2) holds 8 ties of E4M3. To nearest, half (its values lie 2^13 floats apart) takes the 2^12 floats on either
  // side of a tie onto it, and those on one side then go the wrong way: 8 * 2^12. Toward zero it takes the 2^13 - 1
  // floats above a tie onto it, and they go the wrong way where the even code is below: 4 * (2^13 - 1). bfloat16: 2^16
  // apart.
  const auto values = one_to_two();
  const auto count = [&](const Format& format, Rounding rounding) {
    return chain_differences(step(format, rounding), e4m3, {}, values, 8, 2).count;
  };
  CHECK(count(binary16, Rounding::nearest_even) == 32'768);
  CHECK(count(binary16, Rounding::toward_zero) == 32'764);
  CHECK(count(bfloat16, Rounding::nearest_even) == 262'144);
  CHECK(count(bfloat16, Rounding::toward_zero) == 262'140);
  // Boldo and Melquiond: rounding to odd first changes nothing.
  CHECK(count(binary16, Rounding::to_odd) == 0);
  CHECK(count(bfloat16, Rounding::to_odd) == 0);
}

TEST_CASE("chain_differences locates the first elements that differ, whatever the threads") {
  const auto values = one_to_two();
  const CastStep via = step(binary16, Rounding::nearest_even);
  const ChainDifferences one = chain_differences(via, e4m3, {}, values, 3);
  REQUIRE(one.total == values.size());
  REQUIRE(one.indices.size() == 3);
  // The first tie is 1 + 1/16: a float just above it, which half puts on the tie, and E4M3 then to even.
  CHECK(one.indices == std::vector<std::size_t>{0x80001, 0x80002, 0x80003});
  for (const int threads : {2, 3}) CHECK(chain_differences(via, e4m3, {}, values, 3, threads).indices == one.indices);
  CHECK(chain_differences(via, e4m3, {}, std::span(values).first(0), 3).count == 0);
}

TEST_CASE("a chain is one cast after the other, for any first format and every source") {
  std::vector<float> floats;
  std::vector<double> doubles;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random_bits(71, i))));
    doubles.push_back(std::bit_cast<double>((random_bits(72, i) & 0x800FFFFFFFFFFFFF) | (1003 + i % 40) << 52));
  }
  for (const Format& first : {binary16, bfloat16, e5m2, Format{5, 6, 15}}) {
    for (const Profile& profile : profiles) {
      const CastStep via = step(first, Rounding::upward);
      std::vector<std::uint8_t> codes(floats.size());
      encode_via(via, e4m3, profile.policy, std::span<const float>(floats), codes, 2);
      Mismatches wrong;
      for (std::size_t i = 0; i < codes.size(); ++i) {
        const float between = decode(first, encode(first, via.policy, floats[i]));
        // decode() drops a NaN's payload, which E4M3 has no room for.
        wrong.compare(i, floats[i], codes[i], encode(e4m3, profile.policy, between));
        wrong.compare(i, floats[i], codes[i], encode_via(via, e4m3, profile.policy, floats[i]));
      }
      encode_via(via, e4m3, profile.policy, std::span<const double>(doubles), codes);
      for (std::size_t i = 0; i < codes.size(); ++i) {
        wrong.compare(i, doubles[i], codes[i], encode_via(via, e4m3, profile.policy, doubles[i]));
      }
      INFO(format_name(first) << ' ' << profile.name);
      REQUIRE_NO(wrong);
    }
  }
  std::vector<std::uint8_t> short_out(3);
  CHECK_THROWS_WITH(encode_via({}, e4m3, {}, std::span<const float>(floats), short_out),
                    "out has 3 elements, the input 20000");
  CHECK_THROWS_WITH(encode_via({.format = binary32}, e4m3, {}, std::span<const float>(floats), short_out),
                    ContainsSubstring("out has 3"));
}

}  // namespace fp8lab::tests
