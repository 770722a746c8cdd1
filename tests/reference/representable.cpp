// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/representable.hpp"

#include <cmath>
#include <limits>
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

TEST_CASE("bad scales are named") {
  std::vector<float> x(2);
  for (const float scale :
       {0.0F, -1.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 1e-40F}) {
    CHECK_THROWS_WITH(cast_to_representable(e4m3, {}, std::span<const float>(x), static_cast<double>(scale), x),
                      ContainsSubstring("scale must be positive and finite"));
  }
}

}  // namespace fp8lab::tests
