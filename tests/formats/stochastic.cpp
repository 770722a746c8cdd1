// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/stochastic.hpp"

#include <array>
#include <cmath>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/pack.hpp"
#include "oracle.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

constexpr CastPolicy stochastic{.rounding = Rounding::stochastic};

}  // namespace

TEST_CASE("stochastic rounding compares the part cut off with the random bits, as the table says") {
  for (const NamedFormat& named : byte_formats()) {
    const TableOracle oracle(named.format);
    const auto inputs = boundary_inputs<float>(oracle);
    Mismatches wrong;
    for (const int count : {0, 1, 3, 8, 16, 24, 32}) {
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const auto value = static_cast<std::uint32_t>(random_bits(51, i) & ((std::uint64_t{1} << count) - 1));
        wrong.compare(i, inputs[i], encode(named.format, stochastic, inputs[i], {value, count}),
                      oracle.encode(stochastic, inputs[i], std::ldexp(value, -count)));
      }
    }
    INFO(named.name);
    REQUIRE_NO(wrong);
  }
}

TEST_CASE(
    "so many of all random words round up as the part cut off has of them, in every format and between all codes") {
  // Inputs lie at multiples of 1/32 between two neighbours, and there are 2^4 words: of p/32, floor(p/2) round up.
  constexpr int bits_of_word = 4;
  constexpr std::uint32_t words = 1U << bits_of_word;
  for (const NamedFormat& named : byte_formats()) {
    INFO(named.name);
    const std::vector<double> magnitudes = TableOracle(named.format).magnitudes();
    Mismatches wrong;
    for (std::uint32_t code = 0; code + 1 < magnitudes.size(); ++code) {
      const double low = magnitudes[code];
      const double unit = (magnitudes[code + 1] - low) / 32;
      for (std::uint32_t part = 0; part < 32; ++part) {
        for (const bool negative : {false, true}) {
          if (negative && !named.format.is_signed) continue;
          const double x = (low + unit * part) * (negative ? -1 : 1);
          const bool is_zero = code == 0 && named.format.specials == Specials::nan_at_negative_zero;
          const auto sign = negative && !is_zero ? named.format.sign_mask() : 0;
          const auto sign_up = negative ? named.format.sign_mask() : 0;
          std::uint32_t up = 0;
          std::uint32_t down = 0;
          for (std::uint32_t word = 0; word < words; ++word) {
            const std::uint32_t given = encode(named.format, stochastic, x, {word, bits_of_word});
            if (given == (sign | code)) ++down;
            if (given == (sign_up | (code + 1))) ++up;
          }
          wrong.compare(code, x, up, part / 2, "up");
          wrong.compare(code, x, down, words - part / 2, "down");
        }
      }
    }
    REQUIRE_NO(wrong);
  }
}

TEST_CASE("bulk stochastic rounding is that of each element, in every format") {
  std::vector<std::uint8_t> words(700);
  std::vector<float> in(words.size());
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = static_cast<std::uint8_t>(random_bits(63, i));
    in[i] = std::ldexp(static_cast<float>(random_bits(64, i) >> 40) * 0x1p-23F - 1, static_cast<int>(i % 24) - 14);
  }
  for (const NamedFormat& named : byte_formats()) {
    INFO(named.name);
    std::vector<std::uint8_t> out(in.size());
    encode(named.format, stochastic, std::span<const float>(in), {std::span<const std::uint8_t>(words), 8}, out, 2);
    Mismatches wrong;
    for (std::size_t i = 0; i < in.size(); ++i) {
      wrong.compare(i, in[i], out[i], encode(named.format, stochastic, in[i], {words[i], 8}));
    }
    REQUIRE_NO(wrong);
  }
}

TEST_CASE("PTX's random words are shared out as cvt.rs documents") {
  const std::array<std::uint32_t, 2> words{0xAABBCCDD, 0x11223344};
  const auto shares = [&](const Format& format) {
    std::vector<std::uint32_t> values;
    const RandomSource source = ptx_random(format, words);
    for (std::size_t i = 0; i < (format.bits() > 8 ? 4U : 8U); ++i)
      values.push_back(random_bits_of(format, source, i).value);
    return values;
  };
  using Values = std::vector<std::uint32_t>;
  CHECK(shares(e4m3) == Values{0xCCDD, 0xCCDD, 0xAABB, 0xAABB, 0x3344, 0x3344, 0x1122, 0x1122});
  CHECK(shares(e2m1) == Values{0xDD, 0xBB, 0xCC, 0xAA, 0x44, 0x22, 0x33, 0x11});
  CHECK(shares(bfloat16) == Values{0xCCDD, 0xAABB, 0x3344, 0x1122});
  CHECK(shares(binary16) == Values{0x0CDD, 0x0ABB, 0x1344, 0x1122});
  CHECK_THROWS_WITH(ptx_random(e3m4, words), ContainsSubstring("not e3m4"));

  const std::vector<float> in{1.05F, 1.05F, 1.05F, 1.05F, 300, -300, 0.01F};
  std::vector<std::uint8_t> out(in.size());
  const RandomSource source = ptx_random(e4m3, words);
  encode(e4m3, stochastic, std::span<const float>(in), source, out, 3);
  for (std::size_t i = 0; i < in.size(); ++i) {
    CHECK(out[i] == encode(e4m3, stochastic, in[i], random_bits_of(e4m3, source, i)));
  }
}

TEST_CASE("random words of every width give what their values say, from every source") {
  std::vector<std::uint8_t> bytes(300);
  std::vector<std::uint16_t> shorts(300);
  std::vector<float> floats(300);
  std::vector<double> doubles(300);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(random_bits(61, i));
    shorts[i] = static_cast<std::uint16_t>(random_bits(62, i));
    doubles[i] = floats[i] = static_cast<float>(i) * 0.731F - 100;
  }
  for (const RandomSource& source : {RandomSource{std::span<const std::uint8_t>(bytes), 8},
                                     RandomSource{std::span<const std::uint16_t>(shorts), 11}}) {
    std::vector<std::uint8_t> from_float(300);
    std::vector<std::uint8_t> from_double(300);
    encode(e5m2, stochastic, std::span<const float>(floats), source, from_float, 2);
    encode(e5m2, stochastic, std::span<const double>(doubles), source, from_double);
    REQUIRE(from_float == from_double);
    for (std::size_t i = 0; i < floats.size(); ++i) {
      REQUIRE(from_float[i] == encode(e5m2, stochastic, floats[i], random_bits_of(e5m2, source, i)));
    }
  }
}

TEST_CASE("wrong random words are named") {
  const std::vector<float> in(5);
  std::vector<std::uint8_t> out(5);
  const std::vector<std::uint32_t> words(5);
  const std::vector<std::uint16_t> shorts(5);
  const auto run = [&](const CastPolicy& policy, const RandomSource& source) {
    encode(e4m3, policy, std::span<const float>(in), source, out);
  };
  CHECK_THROWS_WITH(run(stochastic, {std::span(words).first(4), 8}),
                    "there must be 5 random words for 5 elements, not 4");
  CHECK_THROWS_WITH(run(stochastic, ptx_random(e4m3, words)), "there must be 2 random words for 5 elements, not 5");
  CHECK_THROWS_WITH(run(stochastic, {std::span<const std::uint16_t>(shorts), 17}),
                    "the random bits of an element must be from 0 to 16, not 17");
  CHECK_THROWS_WITH(run({}, {std::span<const std::uint32_t>(words), 8}),
                    "random bits are for rounding 'stochastic' only");
}

TEST_CASE("FP4 codes are packed two a byte, low nibble first") {
  const std::array<std::uint8_t, 5> codes{0x1, 0xF, 0x7, 0x8, 0xA};
  std::array<std::uint8_t, 3> packed{};
  pack_pairs(codes, packed);
  CHECK(packed == std::array<std::uint8_t, 3>{0xF1, 0x87, 0x0A});
  std::array<std::uint8_t, 5> back{};
  unpack_pairs(packed, back);
  CHECK(back == codes);
  CHECK_THROWS_WITH(pack_pairs(std::span(codes).first(4), packed), "4 codes of 4 bits take 2 bytes, not 3");
  CHECK_THROWS_WITH(unpack_pairs(packed, std::span(back).first(4)), "4 codes of 4 bits take 2 bytes, not 3");
}

}  // namespace fp8lab::tests
