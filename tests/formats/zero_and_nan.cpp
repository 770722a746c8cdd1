// SPDX-License-Identifier: Apache-2.0
// The sign of zeros, and the codes that kernels write for NaN: literal codes, and the table of all values.
#include <array>
#include <cmath>

#include "formats/simd/targets.hpp"
#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/targets.hpp"
#include "oracle.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

constexpr std::array<std::uint32_t, 6> nan_words{0x7FC00000, 0xFFC00000, 0x7F800001,
                                                 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF};

/// Compares the bulk casts of floats on every target with `expected`.
void check_on_targets(const Format& format, const CastPolicy& policy, const std::vector<float>& in,
                      const std::vector<std::uint8_t>& expected) {
  const UnforceTarget guard;
  Mismatches wrong;
  for (const std::string_view target : targets()) {
    force_target(target);
    std::vector<std::uint8_t> codes(in.size());
    encode(format, policy, std::span<const float>(in), std::span(codes));
    for (std::size_t i = 0; i < in.size(); ++i) wrong.compare(i, in[i], codes[i], expected[i], target.data());
  }
  REQUIRE_NO(wrong);
}

}  // namespace

TEST_CASE(
    "a dropped sign of zero is that of zeros alone: values that are zero or round to it, in every format and mode") {
  for (const NamedFormat& named : byte_formats()) {
    INFO(named.name);
    const TableOracle oracle(named.format);
    const auto inputs = boundary_inputs<float>(oracle);
    const auto doubles = boundary_inputs<double>(oracle);
    for (const Named<Rounding>& mode : named_roundings) {
      const CastPolicy policy{.rounding = mode.value, .zero_sign = ZeroSign::dropped};
      Mismatches wrong;
      std::vector<std::uint8_t> expected;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        expected.push_back(static_cast<std::uint8_t>(oracle.encode(policy, inputs[i])));
        wrong.compare(i, inputs[i], encode(named.format, policy, inputs[i]), expected[i], mode.name.data());
      }
      for (std::size_t i = 0; i < doubles.size(); ++i) {
        wrong.compare(i, doubles[i], encode(named.format, policy, doubles[i]), oracle.encode(policy, doubles[i]));
      }
      REQUIRE_NO(wrong);
      if (mode.value != Rounding::stochastic) check_on_targets(named.format, policy, inputs, expected);
    }
  }
  const CastPolicy dropped{.zero_sign = ZeroSign::dropped};
  const CastPolicy downward{.rounding = Rounding::downward, .zero_sign = ZeroSign::dropped};
  CHECK(encode(e4m3, {}, -0.0F) == 0x80);
  CHECK(encode(e4m3, dropped, -0.0F) == 0);
  CHECK(encode(e4m3, dropped, -0x1p-10F) == 0);
  CHECK(encode(e4m3, dropped, -0x1.8p-10F) == 0x81);
  CHECK(encode(e4m3, downward, -0x1p-149F) == 0x81);
  CHECK(encode(e2m1, dropped, -0.25) == 0);
  CHECK(encode(e2m1, dropped, Half{0x8000}) == 0);
  CHECK(encode(e5m2, dropped, BFloat16{0x8001}) == 0);
}

TEST_CASE("NaN becomes the code that the policy says, from every source and on every target") {
  struct Row {
    Format format;
    CastPolicy policy;
    std::uint32_t positive, negative;
  };
  const CastPolicy as_largest{.nan = NanCode::largest, .nan_of_double = NanCode::largest};
  const CastPolicy as_lowest{.nan = NanCode::negative_largest, .nan_of_double = NanCode::negative_largest};
  const auto missing = [](MissingNan code, ZeroSign sign = ZeroSign::kept) {
    return CastPolicy{.nan_of_double = NanCode::positive_all_ones, .missing_nan = code, .zero_sign = sign};
  };
  using enum MissingNan;
  for (const Row& row : {
           Row{e4m3, as_largest, 0x7E, 0x7E},
           Row{e4m3, as_lowest, 0xFE, 0xFE},
           Row{e5m2, as_largest, 0x7B, 0x7B},
           Row{e5m2, as_lowest, 0xFB, 0xFB},
           Row{e4m3fnuz, as_largest, 0x7F, 0x7F},
           Row{e4m3fnuz, as_lowest, 0xFF, 0xFF},
           Row{e8m0, as_largest, 0xFE, 0xFE},
           Row{e2m1, missing(MissingNan::largest), 0x7, 0x7},
           Row{e2m1, missing(positive_zero), 0, 0},
           Row{e2m1, missing(negative_zero), 0x8, 0x8},
           Row{e2m1, missing(opposite_zero), 0x8, 0},
           Row{e2m3, missing(negative_zero), 0x20, 0x20},
           Row{e3m2, missing(positive_zero), 0, 0},
           Row{e2m1, missing(negative_zero, ZeroSign::dropped), 0, 0},
           Row{e2m1, missing(opposite_zero, ZeroSign::dropped), 0, 0},
           // In formats that have a NaN, what is said of those that have none changes nothing.
           Row{e4m3, missing(negative_zero), 0x7F, 0x7F},
           Row{e5m2, missing(positive_zero), 0x7F, 0x7F},
       }) {
    INFO(format_name(row.format) << ' ' << describe(row.policy));
    std::vector<float> in;
    std::vector<std::uint8_t> expected;
    for (const std::uint32_t word : nan_words) {
      const bool negative = word >> 31 != 0;
      const std::uint32_t code = negative ? row.negative : row.positive;
      in.push_back(std::bit_cast<float>(word));
      expected.push_back(static_cast<std::uint8_t>(code));
      CHECK(encode(row.format, row.policy, in.back()) == code);
      CHECK(encode(row.format, row.policy,
                   std::copysign(std::numeric_limits<double>::quiet_NaN(), negative ? -1 : 1)) == code);
      CHECK(encode(row.format, row.policy, Half{static_cast<std::uint16_t>(negative ? 0xFE01 : 0x7C01)}) == code);
      CHECK(encode(row.format, row.policy, BFloat16{static_cast<std::uint16_t>(negative ? 0xFFC0 : 0x7F81)}) == code);
    }
    // A vector holds some NaNs among numbers.
    for (int i = 0; i < 67; ++i) {
      in.push_back(static_cast<float>(i % 3));
      expected.push_back(static_cast<std::uint8_t>(encode(row.format, row.policy, in.back())));
    }
    check_on_targets(row.format, row.policy, in, expected);
  }
}

}  // namespace fp8lab::tests
