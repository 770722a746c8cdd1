// SPDX-License-Identifier: Apache-2.0
// Vector code = scalar code, on every target, for every source, size and alignment, whatever the caller's rounding
// mode.
#include <xmmintrin.h>

#include <cfenv>
#include <cstring>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/targets.hpp"
#include "oracle.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

struct UnforceTarget {
  ~UnforceTarget() { force_target(""); }
};

#ifdef __SANITIZE_ADDRESS__
constexpr std::uint64_t samples = std::uint64_t{1} << 20;
#else
constexpr std::uint64_t samples = std::uint64_t{1} << 24;
#endif

template <typename Source>
Mismatches bulk_against_scalar(const Format& format, const CastPolicy& policy, const std::vector<Source>& in,
                               std::size_t offset = 0) {
  const auto source = std::span<const Source>(in).subspan(offset);
  std::vector<std::uint8_t> codes(source.size());
  encode(format, policy, source, codes);
  Mismatches wrong;
  for (std::size_t i = 0; i < source.size(); ++i) {
    std::uint64_t input = 0;
    std::memcpy(&input, &source[i], sizeof(Source));
    wrong.compare(i, input, codes[i], encode(format, policy, source[i]));
  }
  return wrong;
}

}  // namespace

TEST_CASE("vector encode equals scalar encode on every target: boundaries, seeded floats, all halves and bfloat16s") {
  const UnforceTarget guard;
  std::vector<float> floats(samples);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    auto pattern = static_cast<std::uint32_t>(random_bits(31, i));
    if ((i & 1) != 0) pattern = (pattern & 0x80FFFFFF) + 0x36000000 + (pattern >> 29 << 25);
    floats[i] = std::bit_cast<float>(pattern);
  }
  std::vector<Half> halves(65536);
  std::vector<BFloat16> bfloats(65536);
  for (std::uint32_t word = 0; word < 65536; ++word) {
    halves[word] = Half{static_cast<std::uint16_t>(word)};
    bfloats[word] = BFloat16{static_cast<std::uint16_t>(word)};
  }
  for (const std::string_view target : targets()) {
    force_target(target);
    for (const NamedFormat& named : named_formats) {
      const auto boundaries = boundary_inputs<float>(TableOracle(named.format));
      for (const Profile& profile : profiles) {
        INFO(target << ' ' << named.name << ' ' << profile.name);
        REQUIRE_NO(bulk_against_scalar(named.format, profile.policy, boundaries));
        REQUIRE_NO(bulk_against_scalar(named.format, profile.policy, halves));
        REQUIRE_NO(bulk_against_scalar(named.format, profile.policy, bfloats));
        if (target == targets().front() && profile.policy.nan == NanCode::positive_all_ones)
          REQUIRE_NO(bulk_against_scalar(named.format, profile.policy, floats));
      }
    }
  }
}

TEST_CASE("vector decode equals scalar decode on every target, every code, any length and alignment") {
  const UnforceTarget guard;
  std::vector<std::uint8_t> codes(600);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
  for (const std::string_view target : targets()) {
    force_target(target);
    for (const NamedFormat& named : named_formats) {
      for (const std::size_t offset : {0U, 1U, 3U}) {
        for (const std::size_t size : {0U, 1U, 15U, 17U, 256U, 590U}) {
          std::vector<float> values(size + 1, 99);
          decode(named.format, std::span(codes).subspan(offset, size), std::span(values).first(size));
          Mismatches wrong;
          for (std::size_t i = 0; i < size; ++i) {
            wrong.compare(i, i + offset, bits(values[i]), bits(decode(named.format, codes[i + offset])));
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
    for (const NamedFormat& named : named_formats) {
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
