// SPDX-License-Identifier: Apache-2.0
// Vector code = scalar code, on every target, for every source, size and alignment, whatever the caller's rounding
// mode.
#include <bit>
#include <cfenv>
#include <cstring>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "formats/simd/targets.hpp"
#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/stochastic.hpp"
#include "fp8lab/formats/targets.hpp"
#include "oracle.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

const std::uint64_t samples = std::uint64_t{1} << (sanitized ? 18 : exhaustive() ? 23 : 19);

/// Codes of `in` by the scalar encode.
template <typename Code, typename Source>
std::vector<Code> scalar_codes(const Format& format, const CastPolicy& policy, const std::vector<Source>& in) {
  std::vector<Code> codes;
  codes.reserve(in.size());
  for (const Source x : in) codes.push_back(static_cast<Code>(encode(format, policy, x)));
  return codes;
}

/// Compares the bulk encode of `in` with the scalar one on each of `names`.
template <typename Source>
Mismatches bulk_against_scalar(const Format& format, const CastPolicy& policy, const std::vector<Source>& in,
                               const std::vector<std::string_view>& names) {
  Mismatches wrong;
  const auto compare = [&]<typename Code>(Code /*code*/) {
    const auto expected = scalar_codes<Code>(format, policy, in);
    for (const std::string_view target : names) {
      force_target(target);
      std::vector<Code> codes(in.size());
      encode(format, policy, std::span<const Source>(in), std::span(codes));
      if (codes == expected) continue;
      for (std::size_t i = 0; i < in.size(); ++i) {
        std::uint64_t input = 0;
        std::memcpy(&input, &in[i], sizeof(Source));
        wrong.compare(i, input, codes[i], expected[i], target.data());
      }
    }
  };
  if (format.bits() <= 8) compare(std::uint8_t{});
  if (format.bits() > 8) compare(std::uint16_t{});
  return wrong;
}

/// Seeded floats, every other one close to the formats' range, where a uniform pattern seldom falls.
std::vector<float> seeded_floats(std::uint64_t count, std::uint64_t seed) {
  std::vector<float> floats(count);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    auto pattern = static_cast<std::uint32_t>(random_bits(seed, i));
    if ((i & 1) != 0) pattern = (pattern & 0x80FFFFFF) + 0x36000000 + (pattern >> 29 << 25);
    floats[i] = std::bit_cast<float>(pattern);
  }
  return floats;
}

/// Every profile to nearest even, and two in each of the other rounding modes that need no random bits.
std::vector<CastPolicy> deterministic_policies(const Format& format) {
  auto policies = distinct_policies(format, [](CastPolicy& policy) {
    policy.nan_of_double = {};  // no source is double
    policy.float64_via_float32 = false;
  });
  for (const Named<Rounding>& mode : named_roundings) {
    if (mode.value == Rounding::stochastic || mode.value == Rounding::nearest_even) continue;
    for (const Profile& profile : {find_profile("cuda_satfinite"), find_profile("ml_dtypes")}) {
      policies.push_back(profile.policy);
      policies.back().rounding = mode.value;
    }
  }
  return policies;
}

std::vector<Half> all_halves() {
  std::vector<Half> halves;
  for (std::uint32_t word = 0; word < 65536; ++word) halves.push_back({static_cast<std::uint16_t>(word)});
  return halves;
}
std::vector<BFloat16> all_bfloats() {
  std::vector<BFloat16> bfloats;
  for (std::uint32_t word = 0; word < 65536; ++word) bfloats.push_back({static_cast<std::uint16_t>(word)});
  return bfloats;
}

}  // namespace

TEST_CASE("vector encode equals scalar encode on every target: boundaries, seeded floats, all halves and bfloat16s") {
  const UnforceTarget guard;
  const auto floats = seeded_floats(samples, 31);
  const std::vector<float> fewer(floats.begin(), floats.begin() + static_cast<std::ptrdiff_t>(samples / 64));
  for (const NamedFormat& named : byte_formats()) {
    const auto boundaries = boundary_inputs<float>(TableOracle(named.format));
    for (const CastPolicy& policy : deterministic_policies(named.format)) {
      INFO(named.name << ' ' << describe(policy));
      REQUIRE_NO(bulk_against_scalar(named.format, policy, boundaries, targets()));
      if (policy == profiles[0].policy || (exhaustive() && !sanitized)) {
        REQUIRE_NO(bulk_against_scalar(named.format, policy, all_halves(), targets()));
        REQUIRE_NO(bulk_against_scalar(named.format, policy, all_bfloats(), targets()));
      }
      REQUIRE_NO(bulk_against_scalar(named.format, policy, fewer, targets()));
    }
    REQUIRE_NO(bulk_against_scalar(named.format, profiles[0].policy, floats, {targets().front()}));
  }
}

namespace {

/// What lies halfway between two codes of 16 bits, or beside it, and beyond the largest; infinities and NaN.
std::vector<float> ties_of_words(const Format& format) {
  std::vector<float> x;
  const auto add = [&](std::uint32_t code) {
    const double middle =
        (static_cast<double>(decode(format, code)) + static_cast<double>(decode(format, code + 1))) / 2;
    const auto tie = static_cast<float>(middle);
    for (const float one : {tie, std::nextafter(tie, 0.0F), std::nextafter(tie, 2 * tie)}) {
      x.push_back(one);
      x.push_back(-one);
    }
  };
  for (std::uint32_t code = 0; code < format.max_code(); code += 13) add(code);
  add(static_cast<std::uint32_t>(format.max_code()) - 1);
  const auto value = [&](std::uint64_t code) {
    return static_cast<float>(decode(format, static_cast<std::uint32_t>(code)));
  };
  const float largest = value(format.max_code());
  x.push_back(largest + (largest - value(format.max_code() - 1)) / 2);
  x.push_back(std::nextafter(x.back(), 0.0F));
  for (const std::uint32_t word : {0x7F800000U, 0xFF800000U, 0x7F800001U, 0xFFC12345U, 0x7FFFFFFFU})
    x.push_back(std::bit_cast<float>(word));
  return x;
}

}  // namespace

TEST_CASE("vector encode to float16 and bfloat16 equals scalar encode on every target") {
  const UnforceTarget guard;
  const auto floats = seeded_floats(samples / 16, 37);
  for (const Format& format : {binary16, bfloat16, Format{5, 6, 15}}) {
    auto policies = deterministic_policies(format);
    policies.insert(policies.end(), 3, ieee_policy);
    policies.back().zero_sign = ZeroSign::dropped;
    policies[policies.size() - 2].infinity = Overflow::saturate;
    const auto ties = ties_of_words(format);
    for (const CastPolicy& policy : policies) {
      INFO(format_name(format) << ' ' << describe(policy));
      REQUIRE_NO(bulk_against_scalar(format, policy, floats, targets()));
      REQUIRE_NO(bulk_against_scalar(format, policy, ties, targets()));
      REQUIRE_NO(bulk_against_scalar(format, policy, all_halves(), targets()));
      REQUIRE_NO(bulk_against_scalar(format, policy, all_bfloats(), targets()));
    }
  }
}

TEST_CASE("vector casts equal scalar ones for policies and formats that have no name") {
  const UnforceTarget guard;
  auto in = seeded_floats(4096, 35);
  in.push_back(std::numeric_limits<float>::infinity());
  std::vector<Format> formats{e4m3, e5m2, e3m4, e2m3, e2m1};
  for (const int bias : {-112, -90, 60, 96, 124})
    formats.push_back({4, 3, bias, true, true, Specials::nan_at_all_ones});
  formats.push_back({3, 2, 3, false, true, Specials::ieee});
  formats.push_back({4, 3, 126, true, true, Specials::none});
  formats.push_back({4, 0, 7, true, true, Specials::none});
  formats.push_back({3, 3, 4, true, false, Specials::none});
  for (const Format& format : formats) {
    for (const float x : boundary_inputs<float>(TableOracle(format))) in.push_back(x);
    std::vector<std::uint8_t> codes(std::size_t{1} << format.bits());
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
    std::vector<float> values(codes.size());
    decode(format, codes, values);
    Mismatches wrong;
    for (std::uint32_t i = 0; i < codes.size(); ++i)
      wrong.compare(i, i, bits(values[i]), bits(decode(format, i)), "decode");
    for (int choice = 0; choice < 9; ++choice) {
      const CastPolicy policy{.overflow = Overflow{static_cast<std::uint8_t>(choice % 3)},
                              .infinity = Overflow{static_cast<std::uint8_t>(choice / 3)}};
      INFO(format_name(format) << ' ' << describe(policy));
      REQUIRE_NO(bulk_against_scalar(format, policy, in, targets()));
      std::vector<float> out(in.size());
      recode(format, policy, in, 1, out);
      for (std::size_t i = 0; i < in.size(); ++i) {
        wrong.compare(i, in[i], bits(out[i]), bits(decode(format, encode(format, policy, in[i]))), "recode");
      }
      REQUIRE_NO(wrong);
    }
    in.resize(4097);
  }
}

TEST_CASE("vector stochastic encode equals scalar encode on every target, for every number of random bits") {
  const UnforceTarget guard;
  auto in = seeded_floats(1 << 14, 41);
  for (const float x : boundary_inputs<float>(TableOracle(e4m3))) in.push_back(x);
  std::vector<std::uint32_t> words(in.size());
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(random_bits(42, i));
  for (const NamedFormat& named : named_formats) {
    for (const int count : {0, 1, 8, 13, 16, 19, 20, 24, 31, 32}) {
      CastPolicy policy = profiles[0].policy;
      policy.rounding = Rounding::stochastic;
      const RandomSource random{std::span<const std::uint32_t>(words), count};
      Mismatches wrong;
      const auto compare = [&]<typename Code>(std::vector<Code> codes) {
        for (const std::string_view target : targets()) {
          force_target(target);
          encode(named.format, policy, std::span<const float>(in), random, std::span(codes));
          for (std::size_t i = 0; i < in.size(); ++i) {
            const auto expected = encode(named.format, policy, in[i], random_bits_of(named.format, random, i));
            wrong.compare(i, in[i], codes[i], expected, target.data());
          }
        }
      };
      INFO(named.name << ' ' << count << " bits");
      if (named.format.bits() <= 8) compare(std::vector<std::uint8_t>(in.size()));
      if (named.format.bits() > 8) compare(std::vector<std::uint16_t>(in.size()));
      REQUIRE_NO(wrong);
    }
  }
}

TEST_CASE("vector decode equals scalar decode on every target, every code, any length and alignment") {
  const UnforceTarget guard;
  std::vector<std::uint8_t> codes(600);
  for (const std::string_view target : targets()) {
    force_target(target);
    for (const NamedFormat& named : byte_formats()) {
      const std::size_t count = std::size_t{1} << named.format.bits();
      for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i % count);
      for (const std::size_t offset : {0U, 1U, 3U}) {
        for (const std::size_t size : {0U, 1U, 15U, 17U, 256U, 590U}) {
          std::vector<float> values(size + 1, 99);
          decode(named.format, std::span(codes).subspan(offset, size), std::span(values).first(size));
          Mismatches wrong;
          for (std::size_t i = 0; i < size; ++i) {
            wrong.compare(i, codes[i + offset], bits(values[i]), bits(decode(named.format, codes[i + offset])));
          }
          INFO(target << ' ' << named.name);
          REQUIRE_NO(wrong);
          REQUIRE(values[size] == 99);  // nothing beyond the end is written
        }
      }
    }
  }
}

TEST_CASE("recode equals decode of encode on every target, past the caches, in place, unaligned, scaled") {
  const UnforceTarget guard;
  std::vector<float> in(samples / 12 + 13);
  for (std::size_t i = 0; i < in.size(); ++i) {
    auto pattern = static_cast<std::uint32_t>(random_bits(33, i));
    if (i % 4 != 0) pattern = (pattern & 0x80FFFFFF) + 0x36000000 + (pattern >> 29 << 25);
    in[i] = std::bit_cast<float>(pattern);
  }
  const auto boundaries = boundary_inputs<float>(TableOracle(e4m3));
  std::ranges::copy(boundaries, in.begin());
  for (const std::string_view target : targets()) {
    force_target(target);
    for (const NamedFormat& named : byte_formats()) {
      for (const Profile& profile : std::span(profiles).first(3)) {  // two that vector code takes, and one it does not
        for (const float scale : {1.0F, 0.3F}) {
          std::vector<float> out(in.size());
          recode(named.format, profile.policy, std::span(in).subspan(1), scale, std::span(out).subspan(1));
          Mismatches wrong;
          for (std::size_t i = 1; i < in.size(); i += target == "scalar" ? 97 : 1) {
            const float expected =
                decode(named.format, encode(named.format, profile.policy, in[i] * scale)) * (1 / scale);
            wrong.compare(i, in[i], bits(out[i]), bits(expected));
          }
          INFO(target << ' ' << named.name << ' ' << profile.name << ' ' << scale);
          REQUIRE_NO(wrong);
          std::vector<float> again(in.begin(), in.begin() + 1000);
          recode(named.format, profile.policy, again, scale, again);
          REQUIRE(std::memcmp(again.data() + 1, out.data() + 1, 999 * sizeof(float)) == 0);
        }
      }
    }
  }
}

TEST_CASE("vector encode of every length and offset writes its elements and no others") {
  std::vector<float> in(300);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i) * 0.37F - 11;
  for (std::size_t offset = 0; offset < 5; ++offset) {
    for (std::size_t size = 0; size + offset < 270; ++size) {
      std::vector<std::uint8_t> out(size + 2, 0xEE);
      encode(e4m3, {}, std::span<const float>(in).subspan(offset, size), std::span(out).subspan(1, size));
      for (std::size_t i = 0; i < size; ++i) REQUIRE(out[i + 1] == encode(e4m3, {}, in[offset + i]));
      REQUIRE(out.front() == 0xEE);
      REQUIRE(out.back() == 0xEE);
    }
  }
}

#if defined(__SSE__)
TEST_CASE("results do not depend on the caller's rounding mode or flush flags") {
  const auto inputs = boundary_inputs<float>(TableOracle(e4m3));
  std::vector<std::uint8_t> expected(inputs.size());
  encode(e4m3, {}, std::span<const float>(inputs), expected);
  const unsigned before = _mm_getcsr();
  for (const unsigned flags : {0x6000U, 0x2000U, 0x4000U, 0x8040U}) {  // toward zero, down, up, FTZ and DAZ
    std::vector<std::uint8_t> codes(inputs.size());
    std::vector<float> values(256);
    std::vector<std::uint8_t> all(256);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint8_t>(i);
    _mm_setcsr(before | flags);
    encode(e4m3, {}, std::span<const float>(inputs), codes, 2);
    decode(e8m0, all, values);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    REQUIRE((after & 0xE040U) == ((before | flags) & 0xE040U));  // and the caller's mode is left alone
    REQUIRE(codes == expected);
    REQUIRE(bits(values[0]) == 0x00400000);
  }
}
#endif

TEST_CASE("codes of 16 bits may take the place of what they encode") {
  auto words = all_halves();
  std::vector<std::uint16_t> expected(words.size());
  encode(bfloat16, ieee_policy, std::span<const Half>(words), expected);
  const std::span place(reinterpret_cast<std::uint16_t*>(words.data()), words.size());
  encode(bfloat16, ieee_policy, std::span<const Half>(words), place);
  REQUIRE(std::ranges::equal(place, expected));
}

TEST_CASE("targets can be listed and forced by name") {
  const UnforceTarget guard;
  REQUIRE(targets().back() == "scalar");
  for (const std::string_view target : targets()) {
    force_target(target);
    REQUIRE(vector_code_allowed() == (target != "scalar"));
  }
  CHECK_THROWS_WITH(force_target("AVX9"), ContainsSubstring("unknown target 'AVX9'; known: "));
}

}  // namespace fp8lab::tests
