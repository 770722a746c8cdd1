// SPDX-License-Identifier: Apache-2.0
// Scales against numbers from elsewhere: NVIDIA's header and kernels, torchao's tests, and whole numbers.
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

int code_of(MxRule rule, const Format& format, float amax) {
  return tile_scale(MxBlock{.format = format, .rule = rule}, amax).code;
}

/// The scale that a real number's rule asks for, by whole numbers: amax = m * 2^e, largest = odd * 2^p.
struct Exact {
  std::uint32_t m;
  int e;
  std::uint32_t odd;
  int p;

  Exact(float amax, const Format& format) {
    const std::uint32_t word = bits(amax);
    m = (word & 0x7FFFFFU) | 0x800000U;
    e = static_cast<int>(word >> 23) - 150;
    const auto largest = static_cast<std::uint32_t>(decode(format, static_cast<std::uint32_t>(format.max_code())) * 2);
    p = std::countr_zero(largest) - 1;
    odd = largest >> std::countr_zero(largest);
  }
  /// The smallest k with amax <= largest * 2^k.
  [[nodiscard]] int round_up() const {
    int j = 0;
    while ((std::uint64_t{odd} << j) < m) ++j;
    return j - p + e;
  }
  [[nodiscard]] int emax() const { return std::bit_width(odd) - 1 + p; }
  [[nodiscard]] int floor() const { return 23 + e - emax(); }
  [[nodiscard]] int ceil() const { return floor() + (m == 0x800000U ? 0 : 1); }
  [[nodiscard]] int even(int mantissa_bits) const {
    return floor() + (m + (std::uint32_t{1} << (22 - mantissa_bits)) >= 0x1000000U ? 1 : 0);
  }
};

const std::uint32_t mantissa_step = exhaustive() && !sanitized ? 1 : 61;

}  // namespace

TEST_CASE("E8M0 rounds up as NVIDIA's header does with cudaRoundPosInf") {
  // The largest value of this format is 1, so the rule's product is the amax itself.
  const struct {
    std::uint32_t word;
    std::uint32_t code;
  } vectors[] = {{0x00000000, 0},   {0x00000001, 0},   {0x00400000, 0},   {0x00400001, 1},   {0x007FFFFF, 1},
                 {0x00800000, 1},   {0x00800001, 2},   {0x3F000000, 126}, {0x3F800000, 127}, {0x3F800001, 128},
                 {0x3FC00000, 128}, {0x40000000, 128}, {0x7F000000, 254}, {0x7F000001, 254}, {0x7F7FFFFF, 254},
                 {0x7F800000, 254}, {0x7FC00000, 255}, {0xC0400000, 129}};
  for (const auto& [word, code] : vectors) {
    INFO(std::hex << word);
    CHECK(encode(e8m0, find_profile("e8m0_cuda_up").policy, from_bits(word)) == code);
  }
}

TEST_CASE("MXFP8 scales of Transformer Engine's kernels") {
  const struct {
    float amax;
    int e4m3_code, e5m2_code;
  } vectors[] = {{0, 0, 0},
                 {1e-38F, 0, 0},
                 {from_bits(0x04600000), 0, 0},  // 448 * 2^-127
                 {from_bits(0x04600001), 0, 0},  // whose successor an exact rule would give 1
                 {from_bits(0x04E00000), 1, 0},
                 {from_bits(0x04E00001), 2, 0},
                 {0.001F, 109, 102},
                 {1, 119, 112},
                 {1.75F, 119, 112},
                 {from_bits(0x3FE00001), 120, 113},
                 {2, 120, 113},
                 {3, 120, 113},
                 {3.5F, 120, 113},
                 {447, 127, 120},
                 {448, 127, 120},
                 {from_bits(0x43E00001), 128, 121},
                 {896, 128, 121},
                 {57344, 134, 127},
                 {65504, 135, 128},
                 {1e30F, 218, 211},
                 {std::numeric_limits<float>::max(), 247, 240},
                 {inf, 254, 254},
                 {nan, 255, 255}};
  for (const auto& [amax, first, second] : vectors) {
    INFO(amax);
    CHECK(code_of(MxRule::te, e4m3, amax) == first);
    CHECK(code_of(MxRule::te, e5m2, amax) == second);
  }
}

TEST_CASE("current scales of Transformer Engine and their powers of two") {
  const struct {
    std::uint32_t amax, scale, scale_inv, scale_e5m2, power, power_inv;
  } vectors[] = {{0x3F800000, 0x43E00000, 0x3B124925, 0x47600000, 0x43800000, 0x3B800000},
                 {0x40000000, 0x43600000, 0x3B924925, 0x46E00000, 0x43000000, 0x3C000000},
                 {0x40400000, 0x43155555, 0x3BDB6DB7, 0x46955555, 0x43000000, 0x3C000000},
                 {0x3DE6D800, 0x45786913, 0x3983E925, 0x48F86913, 0x45000000, 0x3A000000},
                 {0x43E00000, 0x3F800000, 0x3F800000, 0x43000000, 0x3F800000, 0x3F800000},
                 {0x0DA24260, 0x75B0B471, 0x0939706D, 0x7930B471, 0x75800000, 0x09800000},
                 {0x00000001, 0x7F7FFFFF, 0x00200000, 0x7F7FFFFF, 0x7F000000, 0x00400000},
                 {0x03E00001, 0x7F7FFFFF, 0x00200000, 0x7F7FFFFF, 0x7F000000, 0x00400000},
                 {0x7149F2CA, 0x120DFA14, 0x6CE6CC54, 0x158DFA14, 0x12000000, 0x6D000000},
                 {0x7F7FFFFF, 0x03E00001, 0x7B124924, 0x07600001, 0x03800000, 0x7B800000},
                 {0x00000000, 0x3F800000, 0x3F800000, 0x3F800000, 0x3F800000, 0x3F800000},
                 {0x7F800000, 0x3F800000, 0x3F800000, 0x3F800000, 0x3F800000, 0x3F800000},
                 {0x7FC00000, 0x3F800000, 0x3F800000, 0x3F800000, 0x3F800000, 0x3F800000}};
  for (const auto& one : vectors) {
    INFO(std::hex << one.amax);
    const float amax = from_bits(one.amax);
    for (const Recipe& recipe : {Recipe(JustInTime{}), Recipe(Block{.force_pow_2_scales = false})}) {
      CHECK(bits(tile_scale(recipe, amax).factor) == one.scale);
      CHECK(bits(tile_scale(recipe, amax).scale_inv) == one.scale_inv);
    }
    CHECK(bits(tile_scale(JustInTime{.format = e5m2}, amax).factor) == one.scale_e5m2);
    for (const Recipe& recipe : {Recipe(JustInTime{.force_pow_2_scales = true}), Recipe(Block{})}) {
      CHECK(bits(tile_scale(recipe, amax).factor) == one.power);
      CHECK(bits(tile_scale(recipe, amax).scale_inv) == one.power_inv);
    }
  }
  // amax_epsilon, and the limit of the input's type.
  CHECK(tile_scale(JustInTime{.amax_epsilon = 2}, 1).factor == 224);
  CHECK(tile_scale(JustInTime{.amax_epsilon = 2}, 0).factor == 224);
  CHECK(bits(tile_scale(Block{.force_pow_2_scales = false}, 0x1p-149F, {.input_type = bfloat16}).factor) == 0x7F7F0000);
  CHECK(tile_scale(Block{.force_pow_2_scales = false}, 0x1p-149F, {.input_type = binary16}).factor == 65504);
}

TEST_CASE("MX scales of torchao and the codes of the amax under them") {
  const struct {
    float amax;
    int code[4];     // floor, rceil, ceil, even
    float value[4];  // of the amax, in E4M3; 0 where nobody says
  } vectors[] = {{0, {0, 0, 0, 0}, {0, 0, 0, 0}},
                 {0x1p-149F, {0, 0, 0, 0}, {0, 0, 0, 0}},
                 {0x1p-126F, {0, 0, 0, 0}, {2, 2, 2, 2}},
                 {0.99999994F, {118, 119, 119, 119}, {448, 256, 256, 256}},
                 {0.99999988F, {118, 119, 119, 119}, {448, 256, 256, 256}},
                 {1, {119, 119, 119, 119}, {256, 256, 256, 256}},
                 {1.75F, {119, 119, 120, 119}, {448, 448, 224, 448}},
                 {1.875F, {119, 120, 120, 119}, {448, 240, 240, 448}},
                 {1.9375F, {119, 120, 120, 120}, {448, 256, 256, 256}},
                 {3.5F, {120, 120, 121, 120}, {448, 448, 224, 448}},
                 {from_bits(0x40600001), {120, 121, 121, 120}, {448, 224, 224, 448}},
                 {150, {126, 126, 127, 126}, {288, 288, 144, 288}},
                 {449, {127, 128, 128, 127}, {448, 224, 224, 448}},
                 {480, {127, 128, 128, 127}, {448, 240, 240, 448}},
                 {from_bits(0x43FFFFFF), {127, 128, 128, 128}, {448, 256, 256, 256}}};
  const MxRule rules[] = {MxRule::floor, MxRule::rceil, MxRule::ceil, MxRule::even};
  for (const auto& one : vectors) {
    for (std::size_t i = 0; i < 4; ++i) {
      INFO(one.amax << " rule " << name_of(rules[i]));
      const TileScale scale = tile_scale(MxBlock{.rule = rules[i]}, one.amax);
      CHECK(static_cast<int>(scale.code) == one.code[i]);
      CHECK(decode(e4m3, encode(e4m3, {}, one.amax * scale.factor)) == one.value[i]);
    }
  }
  const float most = std::numeric_limits<float>::max();
  const int last[] = {246, 247, 247, 255};
  const std::uint32_t last_values[] = {0x7E, 0x78, 0x78, 0x7F};  // 448, 256, 256, NaN
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(code_of(rules[i], e4m3, most) == last[i]);
    CHECK(encode(e4m3, {}, most * tile_scale(MxBlock{.rule = rules[i]}, most).factor) == last_values[i]);
    CHECK(code_of(rules[i], e4m3, inf) == 255);
    CHECK(code_of(rules[i], e4m3, nan) == 255);
  }
}

TEST_CASE("rceil rounds the quotient's bits up as torchao's tests have it") {
  // The largest value of this format is 1, so the quotient is the amax.
  constexpr Format up_to_one{.exponent_bits = 2, .mantissa_bits = 0, .bias = 3, .specials = Specials::none};
  const struct {
    std::uint32_t word;
    int code;
  } vectors[] = {{0x00000000, 0},   {0x00400000, 0},   {0x00400001, 1},   {0x007FFFFF, 1},
                 {0x00800000, 1},   {0x3F7FFFFF, 127}, {0x3F800000, 127}, {0x3F800001, 128},
                 {0x7F000000, 254}, {0x7F000001, 255}, {0x7F800000, 255}};
  REQUIRE(decode(up_to_one, static_cast<std::uint32_t>(up_to_one.max_code())) == 1);
  for (const auto& [word, code] : vectors) {
    INFO(std::hex << word);
    CHECK(code_of(MxRule::rceil, up_to_one, from_bits(word)) == code);
    CHECK(encode(e8m0, find_profile("e8m0_cuda_up_nosat").policy, from_bits(word)) == static_cast<unsigned>(code));
  }
}

TEST_CASE("the product with the reciprocal makes the exact scale of every amax but one a format") {
  // Codes ascend with the amax, so that it is enough to look at both sides of every change: largest * 2^k.
  const struct {
    Format format;
    std::uint32_t exception;
  } table[] = {{e4m3, 0x04600001}, {e5m2, 0x07E00001}, {e2m1, 0x01400001}, {e3m2, 0x02600001}, {e2m3, 0x01700001}};
  for (const auto& [format, exception] : table) {
    const float largest = decode(format, static_cast<std::uint32_t>(format.max_code()));
    std::vector<std::uint32_t> differ;
    for (int k = -127; k <= 127; ++k) {
      const float edge = std::ldexp(largest, k);
      if (std::isinf(edge)) break;
      for (const std::uint32_t word : {bits(edge) - 1, bits(edge), bits(edge) + 1}) {
        const int exact = 127 + k + (word > bits(edge) ? 1 : 0);
        const float amax = from_bits(word);
        CHECK(code_of(MxRule::te, format, amax) == code_of(MxRule::rceil, format, amax));
        if (code_of(MxRule::te, format, amax) != exact) differ.push_back(word);
      }
    }
    INFO(format_name(format));
    CHECK(differ == std::vector{exception});
  }
}

TEST_CASE("MX scales are those of whole numbers, for every mantissa") {
  // Rules change their minds at round numbers. Between these every 97th is enough, but with FP8LAB_EXHAUSTIVE.
  const auto is_tested = [](std::uint32_t mantissa) {
    return exhaustive() || mantissa % 97 == 0 || ((mantissa + 0x100) & 0xFFFFU) < 0x200;
  };
  for (const Format& format : {e4m3, e5m2, e2m3, e3m2, e2m1}) {
    Mismatches mismatches;
    for (std::uint32_t mantissa = 0; mantissa < 0x800000U; mantissa += sanitized ? 61 : 1) {
      if (!is_tested(mantissa)) continue;
      const float amax = from_bits(0x3F800000U | mantissa);
      const Exact exact(amax, format);
      const auto compare = [&](MxRule rule, int expected) {
        mismatches.compare(mantissa, mantissa, static_cast<std::uint64_t>(code_of(rule, format, amax)),
                           static_cast<std::uint64_t>(expected + 127));
      };
      compare(MxRule::te, exact.round_up());
      compare(MxRule::rceil, exact.round_up());
      compare(MxRule::floor, exact.floor());
      compare(MxRule::ceil, exact.ceil());
      compare(MxRule::even, exact.even(format.mantissa_bits));
    }
    REQUIRE_NO(mismatches);
  }
}

TEST_CASE("MX scales round up as encode to E8M0 does, for any amax") {
  const CastPolicy up = find_profile("e8m0_cuda_up").policy;
  Mismatches mismatches;
  for (std::uint32_t i = 0; i < 1000000; ++i) {
    const std::uint32_t low = i % 2 == 0 ? 0x01FFFFFFU : 0x7FFFFFFFU;  // the small ones as often as all
    const float amax = from_bits(static_cast<std::uint32_t>(random_bits(11, i)) & low);
    mismatches.compare(i, bits(amax), static_cast<std::uint64_t>(code_of(MxRule::te, e2m1, amax)),
                       encode(e8m0, up, amax * (1 / 6.0F)));
  }
  REQUIRE_NO(mismatches);
}

TEST_CASE("UE8M0 of DeepGEMM is exact for every mantissa, divided or multiplied") {
  const Block divided{.rule = BlockRule::deepgemm_cpu, .force_pow_2_scales = true};
  const Block multiplied{.rule = BlockRule::deepgemm_cuda, .force_pow_2_scales = true};
  Block plain_divided = divided;
  Block plain_multiplied = multiplied;
  plain_divided.force_pow_2_scales = plain_multiplied.force_pow_2_scales = false;
  Mismatches mismatches;
  int differ = 0;
  for (std::uint32_t mantissa = 0; mantissa < 0x800000U; mantissa += mantissa_step) {
    const float amax = from_bits(0x3F800000U | mantissa);
    const std::uint32_t expected = bits(std::ldexp(1.0F, Exact(amax, e4m3).round_up()));
    mismatches.compare(mantissa, mantissa, bits(tile_scale(divided, amax).scale_inv), expected);
    mismatches.compare(mantissa, mantissa, bits(tile_scale(multiplied, amax).scale_inv), expected);
    if (tile_scale(plain_divided, amax).scale_inv != tile_scale(plain_multiplied, amax).scale_inv) ++differ;
  }
  REQUIRE_NO(mismatches);
  CHECK(std::lround(differ * mantissa_step / 83886.08) == 55);  // of a hundred scales
}

TEST_CASE("tiles that are zero or tiny, by every rule of DeepSeek's and torchao's") {
  const auto scale = [](BlockRule rule, float amax) {
    return tile_scale(Block{.rule = rule, .force_pow_2_scales = false}, amax);
  };
  CHECK(scale(BlockRule::deepseek_2024, 0).scale_inv == 0);
  for (const BlockRule rule : {BlockRule::deepseek_2025, BlockRule::deepgemm_cpu}) {
    CHECK(scale(rule, 0).scale_inv == 1e-4F / 448);
    CHECK(scale(rule, 5e-5F).scale_inv == 1e-4F / 448);
  }
  CHECK(scale(BlockRule::deepgemm_cuda, 0).scale_inv == 1e-4F * (1 / 448.0F));
  CHECK(bits(scale(BlockRule::torchao, 0).factor) == 0x57CBBA10);
  CHECK(scale(BlockRule::torchao, 3).scale_inv == 1 / from_bits(0x43155555));
}

TEST_CASE("E8M0 at its edges, by version of Transformer Engine and torchao") {
  const auto e8m0_value = [](std::uint8_t code, E8m0Edges edges = E8m0Edges::specified) {
    return fp8lab::e8m0_value(edges, code);
  };
  const auto e8m0_inverse = [](std::uint8_t code, E8m0Edges edges = E8m0Edges::specified, MxRule rule = MxRule::te) {
    return fp8lab::e8m0_inverse(Recipe(MxBlock{.rule = rule, .edges = edges}).edges, code);
  };
  CHECK(e8m0_value(0) == 0x1p-127F);
  CHECK(e8m0_value(127) == 1);
  CHECK(e8m0_value(254) == 0x1p127F);
  CHECK(std::isnan(e8m0_value(255)));
  CHECK(e8m0_inverse(0) == 0x1p127F);
  CHECK(e8m0_inverse(253) == 0x1p-126F);
  CHECK(e8m0_inverse(254) == 0x1p-127F);
  CHECK(std::isnan(e8m0_inverse(255)));
  for (const E8m0Edges edges : {E8m0Edges::te_before_2_19, E8m0Edges::te_before_2_13}) {
    CHECK(e8m0_value(0, edges) == 0);
    CHECK(e8m0_value(255, edges) == inf);
    CHECK(e8m0_value(1, edges) == 0x1p-126F);
  }
  CHECK(e8m0_inverse(0, E8m0Edges::te_before_2_19) == 0x1p127F);
  CHECK(e8m0_inverse(0, E8m0Edges::te_before_2_13) == 1);
  CHECK(e8m0_inverse(254, E8m0Edges::te_before_2_13) == 0);
  CHECK(e8m0_inverse(255, E8m0Edges::te_before_2_13) == -inf);
  CHECK(e8m0_inverse(0, E8m0Edges::torchao_0_18, MxRule::floor) == 0x1p126F);
  CHECK(e8m0_inverse(0, E8m0Edges::torchao_0_18, MxRule::rceil) == 1);
  CHECK(e8m0_inverse(255, E8m0Edges::torchao_0_18, MxRule::floor) == 0);
  CHECK(std::isnan(e8m0_inverse(255, E8m0Edges::torchao_0_18, MxRule::rceil)));
  CHECK(e8m0_value(0, E8m0Edges::torchao_0_18) == 0x1p-127F);
}

TEST_CASE("NVFP4 scales, worked out by hand") {
  const auto scale = [](float amax, float tensor) { return tile_scale(NvFp4{}, amax, {.amax = tensor}); };
  CHECK(scale(6, 6).code == 0x7E);  // the largest block of a tensor has the largest scale, 448
  CHECK(scale(6, 6).factor == 1);
  CHECK(scale(3, 6).code == 0x76);  // 224
  CHECK(scale(3, 6).factor == 2);
  CHECK(scale(0, 6).code == 0);
  CHECK(scale(0, 6).factor == std::numeric_limits<float>::max());
  CHECK(scale(0, 0).code == 0);
  CHECK(scale(inf, inf).code == 0x7E);  // S is 1, and the block's scale saturates
  CHECK(scale(nan, 6).code == 0x7F);
}

}  // namespace fp8lab::tests
