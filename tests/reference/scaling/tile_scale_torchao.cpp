// SPDX-License-Identifier: Apache-2.0
// The scales of torchao, of which some go by a logarithm in float32.
#include <cmath>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("current scales of torchao") {
  const auto scale = [](float amax, bool power = false, const Format& format = e4m3) {
    const JustInTime recipe{.format = format, .rule = JustInTimeRule::torchao, .force_pow_2_scales = power};
    return tile_scale(recipe, amax).factor;
  };
  CHECK(bits(scale(0)) == 0x57CBBA10);
  CHECK(scale(0, true) == 0x1p48F);
  CHECK(scale(1) == 448);
  CHECK(scale(1, true) == 256);
  CHECK(bits(scale(3)) == 0x43155555);
  CHECK(scale(3, true) == 128);
  CHECK(scale(500) == 0.896F);
  CHECK(scale(500, true) == 0.5F);
  CHECK(scale(0, false, e5m2) == static_cast<float>(57344 / 1e-12));
  CHECK(scale(inf) == 0);
  CHECK(std::isnan(scale(nan)));
}

TEST_CASE("powers of two of torchao go by the float32 log2 of the scale, which rounds to the power above") {
  // torchao 0.18.0's amax_to_scale with round_scales_to_power_of_2, on PyTorch 2.13.0 (CPU), of every amax from
  // 1.75 * 2^first to 1.75 * 2^(last + 1): as many above 1.75 * 2^k keep its scale, the others have half of it.
  struct Stretch {
    int first, last;
    std::uint32_t kept;
  };
  const struct {
    Format format;
    int power;  // the scale of 1.75
    Stretch runs[12];
  } recorded[] = {{e4m3,
                   8,
                   {{-39, -25, 19},
                    {-24, -9, 10},
                    {-8, -1, 4},
                    {0, 3, 2},
                    {4, 5, 1},
                    {6, 9, 0},
                    {10, 11, 1},
                    {12, 15, 2},
                    {16, 23, 4},
                    {24, 39, 10},
                    {40, 71, 19},
                    {72, 127, 38}}},
                  {e5m2,
                   15,
                   {{-39, -18, 19},
                    {-17, -2, 10},
                    {-1, 6, 4},
                    {7, 10, 2},
                    {11, 12, 1},
                    {13, 16, 0},
                    {17, 18, 1},
                    {19, 22, 2},
                    {23, 30, 4},
                    {31, 46, 10},
                    {47, 78, 19},
                    {79, 127, 38}}}};
  for (const auto& [format, power, runs] : recorded) {
    const JustInTime tensor{.format = format, .rule = JustInTimeRule::torchao, .force_pow_2_scales = true};
    const Block tile{.format = format, .rule = BlockRule::torchao, .force_pow_2_scales = true};
    for (const auto& [first, last, kept] : runs) {
      for (int k = first; k <= last; ++k) {
        const std::uint32_t word = bits(std::ldexp(1.75F, k));
        for (const std::uint32_t above : {0U, kept, kept + 1}) {
          INFO(format_name(format) << " 1.75 * 2^" << k << " + " << above << " ulps");
          const float expected = std::ldexp(1.0F, power - k - (above > kept ? 1 : 0));
          CHECK(tile_scale(tensor, from_bits(word + above)).factor == expected);
          CHECK(tile_scale(tile, from_bits(word + above)).factor == expected);
        }
      }
    }
  }
  const JustInTime row{.rule = JustInTimeRule::torchao, .axis = Axis::row, .force_pow_2_scales = true};
  CHECK(tile_scale(row, 0x1.c00002p-2F).factor == 1024);
}

TEST_CASE("powers of two of torchao whose scales are subnormal") {
  // Words whose PyTorch 2.13.0 (CPU) exp2(floor(log2)) is the power above: the first of each binade to the last.
  const std::uint32_t first_up[] = {0x3FFFF, 0x7FFFE, 0xFFFFB, 0x1FFFF5, 0x3FFFF5, 0x7FFFEA};
  // A largest value of 2^-17 * 1.75 makes scales as small as that.
  constexpr Format tiny{.exponent_bits = 4, .mantissa_bits = 3, .bias = 33, .specials = Specials::nan_at_all_ones};
  const JustInTime recipe{.format = tiny, .rule = JustInTimeRule::torchao, .force_pow_2_scales = true};
  const double largest = decode(tiny, static_cast<std::uint32_t>(tiny.max_code()));
  for (const std::uint32_t first : first_up) {
    const std::uint32_t above = std::bit_ceil(first);
    for (const std::uint32_t word : {first - 1, first, above - 1, above, above + 1}) {
      const auto amax = static_cast<float>(largest / from_bits(word));
      REQUIRE(static_cast<float>(largest / amax) == from_bits(word));
      INFO(std::hex << word);
      const std::uint32_t expected = word < first ? above / 2 : above;
      CHECK(bits(tile_scale(recipe, amax).factor) == expected);
    }
  }
}

TEST_CASE("rceil of torchao 0.18 goes by the float32 log2 of the quotient, which rounds to the power below") {
  // torchao 0.18.0's _to_mx_rceil on PyTorch 2.13.0 (CPU), of amaxes from 200 ulps below largest * 2^k to 400 above,
  // for every k: as many above it keep its code, which is 127 + k.
  const struct {
    int first, last;
    std::uint32_t of_7, of_15, of_3;  // by the odd part of the format's largest value
  } recorded[] = {{-127, -127, 40, 43, 34}, {-126, -65, 39, 42, 33}, {-64, -33, 20, 21, 17}, {-32, -17, 9, 10, 8},
                  {-16, -9, 4, 4, 3},       {-8, -5, 2, 2, 2},       {-4, 3, 0, 0, 0},       {4, 7, 2, 2, 2},
                  {8, 15, 4, 4, 3},         {16, 31, 9, 10, 8},      {32, 63, 20, 21, 17},   {64, 127, 39, 42, 33}};
  for (const Format& format : {e4m3, e5m2, e2m3, e3m2, e2m1}) {
    const MxBlock recipe{.format = format, .rule = MxRule::rceil, .edges = E8m0Edges::torchao_0_18};
    const float largest = decode(format, static_cast<std::uint32_t>(format.max_code()));
    for (const auto& [first, last, of_7, of_15, of_3] : recorded) {
      const std::uint32_t kept = format == e2m3 ? of_15 : format == e2m1 ? of_3 : of_7;
      for (int k = first; k <= last && !std::isinf(std::ldexp(largest, k)); ++k) {
        const std::uint32_t word = bits(std::ldexp(largest, k));
        for (const std::uint32_t above : {0U, kept, kept + 1}) {
          INFO(format_name(format) << " largest * 2^" << k << " + " << above << " ulps");
          CHECK(tile_scale(recipe, from_bits(word + above)).code == 127 + k + (above > kept ? 1 : 0));
        }
      }
    }
  }
  CHECK(tile_scale(find_recipe("torchao_0_18_mxfp8_rceil").recipe, 0x1.c00002p+18F).code == 137);
  CHECK(tile_scale(find_recipe("torchao_mxfp8_rceil").recipe, 0x1.c00002p+18F).code == 138);
}

}  // namespace fp8lab::tests
