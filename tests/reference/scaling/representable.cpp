// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/representable.hpp"

#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("cast_to_representable gives the nearest value under the scale") {
  CHECK(cast_to_representable(e4m3, {}, 0.3F) == 0.3125F);
  CHECK(cast_to_representable(e4m3, {}, 0.3F, 512) == 0.3125F);  // 153.6 -> 160
  CHECK(cast_to_representable(e4m3, {}, 1e6F, 0.0001F) ==
        96.0F * (1 / 0.0001F));  // 100 lies between 96 and 104: even is 96
  CHECK(cast_to_representable(e5m2, {}, -0.3, 1) == -0.3125);
  CHECK(std::isnan(cast_to_representable(e4m3, {}, std::numeric_limits<float>::quiet_NaN())));
  // double is scaled and cast in double: via float this would tie to 1.
  CHECK(cast_to_representable(e4m3, {}, 1.0625 + 0x1p-52) == 1.125);
  CHECK(cast_to_representable(e4m3, {}, 1.0, 0.1) == 0.1015625 * (1 / 0.1));  // a double scale is not narrowed
  // Half: 0.2998 -> 0.3125; BFloat16: 0.30078125 -> 0.3125.
  CHECK(cast_to_representable(e4m3, {}, Half{0x34CC}).bits == 0x3500);
  CHECK(cast_to_representable(e4m3, {}, BFloat16{0x3E9A}).bits == 0x3EA0);
}

TEST_CASE("representable values are fixed points, and bulk equals scalar in place") {
  std::vector<float> x(5000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random_bits(2, i)));
  std::vector<float> once(x.size());
  cast_to_representable(e4m3, {}, std::span<const float>(x), 4, once, 3);
  for (std::size_t i = 0; i < x.size(); ++i) REQUIRE(bits(once[i]) == bits(cast_to_representable(e4m3, {}, x[i], 4)));
  std::vector<float> twice = once;
  cast_to_representable(e4m3, {}, std::span<const float>(twice), 4, twice);
  for (std::size_t i = 0; i < x.size(); ++i) REQUIRE((std::isnan(once[i]) || bits(twice[i]) == bits(once[i])));
}

TEST_CASE("cast_to_representable does not depend on the caller's rounding mode, for any source") {
  const auto run = [](auto x) {
    auto out = x;
    cast_to_representable(e4m3, {}, std::span<const typename decltype(x)::value_type>(x), 0.3, std::span(out), 2);
    return out;
  };
  std::vector<double> doubles;
  std::vector<float> floats;
  std::vector<Half> halves;
  std::vector<BFloat16> bfloats;
  for (std::uint16_t i = 0; i < 1000; ++i) {
    floats.push_back(static_cast<float>(i) * 0.3137F);
    doubles.push_back(i * 0.3137);
    halves.push_back({static_cast<std::uint16_t>(0x3000 + 7 * i)});
    bfloats.push_back({static_cast<std::uint16_t>(0x3E00 + i)});
  }
  const auto same = [](auto a, auto b) { return std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0; };
  const auto before = std::tuple(run(doubles), run(floats), run(halves), run(bfloats));
  std::fesetround(FE_UPWARD);
  const auto under = std::tuple(run(doubles), run(floats), run(halves), run(bfloats));
  const int mode = std::fegetround();
  std::fesetround(FE_TONEAREST);
  CHECK(mode == FE_UPWARD);
  CHECK(same(std::get<0>(before), std::get<0>(under)));
  CHECK(same(std::get<1>(before), std::get<1>(under)));
  CHECK(same(std::get<2>(before), std::get<2>(under)));
  CHECK(same(std::get<3>(before), std::get<3>(under)));
}

TEST_CASE("bad scales are named") {
  std::vector<float> x(2);
  for (const float scale :
       {0.0F, -1.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 1e-40F}) {
    CHECK_THROWS_WITH(cast_to_representable(e4m3, {}, std::span<const float>(x), static_cast<double>(scale), x),
                      ContainsSubstring("scale must be positive and finite"));
  }
}

}  // namespace fp8lab::tests
