// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <limits>

#include "fp8lab/formats/decode.hpp"
#include "oracle.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// `encode` under test, so that a wrong one can be shown to fail the same checks.
template <typename Encode, typename T>
Mismatches against_oracle(const Format& format, const TableOracle& oracle, const std::vector<T>& inputs,
                          const Encode& encode_under_test) {
  Mismatches wrong;
  const auto clear = [](CastPolicy& policy) {
    policy.rounding = {};  // every mode has its turn
    policy.nan = {};       // no input is NaN
    policy.nan_of_double = {};
    policy.missing_nan = {};
  };
  const auto policies = distinct_policies(format, clear);
  for (const Named<Rounding>& mode : named_roundings) {
    for (CastPolicy policy : policies) {
      policy.rounding = mode.value;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const auto x = static_cast<double>(inputs[i]);
        const bool via_float = std::is_same_v<T, double> && policy.float64_via_float32;
        wrong.compare(i, inputs[i], encode_under_test(format, policy, inputs[i]),
                      oracle.encode(policy, via_float ? static_cast<float>(x) : x), mode.name.data());
      }
    }
  }
  return wrong;
}

const std::size_t wide_stride = sanitized ? 17 : exhaustive() ? 1 : 7;

const auto own_encode = [](const Format& format, const CastPolicy& policy, auto x) {
  return encode(format, policy, x);
};

}  // namespace

TEST_CASE("every code survives decode and encode") {
  for (const NamedFormat& named : byte_formats()) {
    const TableOracle oracle(named.format);
    for (std::uint32_t code = 0; code < (1U << named.format.bits()); ++code) {
      const float value = decode(named.format, code);
      INFO(named.name << " code " << code);
      if (std::isnan(value)) {
        // The default policy has one NaN: all ones, sign dropped; fnuz formats have one at all.
        const bool fnuz = named.format.specials == Specials::nan_at_negative_zero;
        REQUIRE(encode(named.format, {}, value) == (fnuz ? 0x80 : named.format.magnitude_mask()));
        continue;
      }
      if (std::isinf(value)) {
        REQUIRE(encode(named.format, {.infinity = Overflow::to_special}, value) == code);
        continue;
      }
      const std::uint32_t magnitude = code & static_cast<std::uint32_t>(named.format.magnitude_mask());
      REQUIRE(std::abs(static_cast<double>(value)) == oracle.magnitudes()[magnitude]);
      REQUIRE(std::signbit(value) == (code != magnitude));
      for (const Named<Rounding>& mode : named_roundings) {
        REQUIRE(encode(named.format, {.rounding = mode.value}, value) == code);
      }
    }
  }
}

TEST_CASE("every value, midpoint and neighbour rounds as the table says, from float and double, in every mode") {
  for (const NamedFormat& named : byte_formats()) {
    INFO(named.name);
    const TableOracle oracle(named.format);
    REQUIRE_NO(against_oracle(named.format, oracle, boundary_inputs<float>(oracle), own_encode));
    REQUIRE_NO(against_oracle(named.format, oracle, boundary_inputs<double>(oracle), own_encode));
  }
}

TEST_CASE("wrong encoders fail the boundary check") {
  const TableOracle oracle(e4m3);
  const auto inputs = boundary_inputs<float>(oracle);
  const auto ties_away = [](const Format& format, CastPolicy policy, float x) {
    if (policy.rounding == Rounding::nearest_even) policy.rounding = Rounding::nearest_away;
    return encode(format, policy, x);
  };
  const auto flushes_subnormals = [](const Format& format, const CastPolicy& policy, float x) {
    return encode(format, policy, std::abs(x) < 0x1p-6F ? std::copysign(0.0F, x) : x);
  };
  const auto via_half = [](const Format& format, const CastPolicy& policy, float x) {
    return encode(format, policy, decode(binary16, encode(binary16, {}, x)));
  };
  CHECK(against_oracle(e4m3, oracle, inputs, ties_away).count() > 0);
  CHECK(against_oracle(e4m3, oracle, inputs, flushes_subnormals).count() > 0);
  CHECK(against_oracle(e4m3, oracle, inputs, via_half).count() > 0);
}

TEST_CASE("every finite half and bfloat16 rounds as the table says, in every mode") {
  for (const NamedFormat& named : byte_formats()) {
    const TableOracle oracle(named.format);
    std::vector<float> halves;
    std::vector<float> bfloats;
    for (std::uint32_t code = 0; code < 65536; code += exhaustive() && !sanitized ? 1 : 13) {
      if (const float x = decode(binary16, code); std::isfinite(x)) halves.push_back(x);
      if (const float x = decode(bfloat16, code); std::isfinite(x)) bfloats.push_back(x);
    }
    // Half and BFloat16 sources, by the bits that widened to these floats.
    const auto from_half = [](const Format& format, const CastPolicy& policy, float x) {
      return encode(format, policy, Half{static_cast<std::uint16_t>(encode(binary16, {}, x))});
    };
    const auto from_bfloat = [](const Format& format, const CastPolicy& policy, float x) {
      return encode(format, policy, BFloat16{static_cast<std::uint16_t>(bits(x) >> 16)});
    };
    INFO(named.name);
    REQUIRE_NO(against_oracle(named.format, oracle, halves, from_half));
    REQUIRE_NO(against_oracle(named.format, oracle, bfloats, from_bfloat));
  }
}

TEST_CASE("encode is monotone and negation commutes") {
  for (const Format& format : {e4m3, e5m2}) {
    Mismatches wrong;
    std::uint32_t previous = 0;
    for (std::uint64_t step = 0; step <= 0x7F800000; step += 4099) {
      const float x = std::bit_cast<float>(static_cast<std::uint32_t>(step));
      const std::uint32_t code = encode(format, {}, x);
      wrong.compare(step, x, code, std::max(code, previous), "not monotone");
      wrong.compare(step, x, encode(format, {}, -x), code | 0x80, "negation");
      previous = code;
    }
    REQUIRE_NO(wrong);
  }
}

TEST_CASE("special inputs follow the profiles") {
  struct Row {
    const char* profile;
    Format format;
    std::uint32_t positive, negative;
  };
  const auto row = GENERATE(Row{"cuda_satfinite", e4m3, 0x7E, 0xFE}, Row{"cuda_satfinite", e5m2, 0x7B, 0xFB},
                            Row{"cuda_nosat", e4m3, 0x7F, 0xFF}, Row{"cuda_nosat", e5m2, 0x7C, 0xFC},
                            Row{"cuda_satfinite", e8m0, 0xFE, 0xFE}, Row{"cuda_nosat", e8m0, 0xFF, 0xFF});
  const CastPolicy policy = find_profile(row.profile).policy;
  CHECK(encode(row.format, policy, inf) == row.positive);
  CHECK(encode(row.format, policy, -inf) == row.negative);
  for (const std::uint32_t word : {0x7FC00000U, 0xFFC00000U, 0x7F800001U, 0xFFFFFFFFU}) {
    CHECK(encode(row.format, policy, std::bit_cast<float>(word)) == (row.format == e8m0 ? 0xFF : 0x7F));
  }
}

TEST_CASE("NaN codes follow the profiles") {
  // Words printed by ml_dtypes 0.6.0, PyTorch 2.13.0 and onnx 1.23.2's reference evaluator for NaN, -NaN, inf, 1e9.
  struct Row {
    const char* profile;
    Format format;
    std::array<std::uint32_t, 4> codes;
  };
  const auto row = GENERATE(
      Row{"ml_dtypes", e4m3, {0x7F, 0xFF, 0x7F, 0x7F}}, Row{"ml_dtypes", e5m2, {0x7E, 0xFE, 0x7C, 0x7C}},
      Row{"ml_dtypes", e3m4, {0x78, 0xF8, 0x70, 0x70}}, Row{"ml_dtypes", e4m3fnuz, {0x80, 0x80, 0x80, 0x80}},
      Row{"torch_2_13", e4m3, {0x7F, 0xFF, 0x7E, 0x7E}}, Row{"torch_2_13", e5m2, {0x7F, 0xFF, 0x7C, 0x7C}},
      Row{"torch_2_13", e4m3fnuz, {0x80, 0x80, 0x80, 0x80}}, Row{"torch_2_13", e5m2fnuz, {0x80, 0x80, 0x80, 0x80}},
      Row{"onnx_saturate", e4m3, {0x7F, 0xFF, 0x7E, 0x7E}}, Row{"onnx_saturate", e5m2, {0x7E, 0xFE, 0x7B, 0x7B}},
      Row{"onnx_saturate", e4m3fnuz, {0x80, 0x80, 0x7F, 0x7F}}, Row{"onnx", e4m3, {0x7F, 0xFF, 0x7F, 0x7F}},
      Row{"onnx", e5m2, {0x7E, 0xFE, 0x7C, 0x7C}}, Row{"clamp_then_cast", e4m3, {0x7F, 0xFF, 0x7E, 0x7E}},
      Row{"clamp_then_cast", e5m2, {0x7F, 0xFF, 0x7B, 0x7B}},
      Row{"clamp_then_cast", e5m2fnuz, {0x80, 0x80, 0x7F, 0x7F}});
  const CastPolicy policy = find_profile(row.profile).policy;
  CHECK(encode(row.format, policy, nan) == row.codes[0]);
  CHECK(encode(row.format, policy, -nan) == row.codes[1]);
  CHECK(encode(row.format, policy, static_cast<double>(-nan)) == row.codes[1]);
  CHECK(encode(row.format, policy, std::numeric_limits<float>::infinity()) == row.codes[2]);
  CHECK(encode(row.format, policy, 1e9F) == row.codes[3]);
  CHECK(encode(row.format, policy, -1e9F) == (row.codes[3] | 0x80));
}

TEST_CASE("NaN becomes zero with the other sign in FP6 and FP4, as in ml_dtypes 0.6.0 and onnx 1.23.2") {
  struct Row {
    Format format;
    std::uint32_t negative_zero, largest;
  };
  const auto row = GENERATE(Row{e2m1, 0x08, 0x07}, Row{e2m3, 0x20, 0x1F}, Row{e3m2, 0x20, 0x1F});
  for (const char* name : {"ml_dtypes", "onnx", "onnx_saturate"}) {
    const CastPolicy policy = find_profile(name).policy;
    INFO(name << ' ' << format_name(row.format));
    CHECK(encode(row.format, policy, nan) == row.negative_zero);
    CHECK(encode(row.format, policy, -nan) == 0);
    CHECK(encode(row.format, policy, static_cast<double>(nan)) == row.negative_zero);
    CHECK(encode(row.format, policy, static_cast<double>(-nan)) == 0);
    CHECK(encode(row.format, policy, Half{0xFE00}) == 0);
    CHECK(encode(row.format, policy, BFloat16{0x7F81}) == row.negative_zero);
  }
  // CUDA's headers, sign or no sign.
  CHECK(encode(row.format, find_profile("cuda_satfinite").policy, -nan) == row.largest);
}

TEST_CASE("from double, a profile named after a package goes through float32 as the package does") {
  // Words printed by ml_dtypes 0.6.0, PyTorch 2.13.0, onnx 1.23.2's reference evaluator and CUDA 13.0's header.
  struct Row {
    const char* profile;
    Format format;
    double x;
    std::uint32_t code;
  };
  constexpr double tie = 1.0625;  // of E4M3, between 38 and 39
  const auto row =
      GENERATE_COPY(Row{"ml_dtypes", e4m3, tie + 0x1p-52, 0x38}, Row{"torch_2_13", e4m3, tie + 0x1p-52, 0x38},
                    Row{"onnx", e4m3, tie + 0x1p-52, 0x38}, Row{"onnx_saturate", e4m3, tie + 0x1p-52, 0x38},
                    Row{"clamp_then_cast", e4m3, tie + 0x1p-52, 0x38}, Row{"ml_dtypes", e4m3, tie + 0x1p-24, 0x38},
                    Row{"ml_dtypes", e4m3, tie + 0x1.8p-23, 0x39}, Row{"ml_dtypes", e8m0, 0x1p-150, 0xFF},
                    Row{"ml_dtypes", e8m0, 0x1.8p-150, 0x00}, Row{"e8m0_onnx_up", e8m0, 0x1p-150, 0x00},
                    Row{"e8m0_onnx_up", e8m0, 0x1.8p-150, 0x01}, Row{"e8m0_onnx_up", e8m0, 1 + 0x1p-52, 0x7F},
                    Row{"e8m0_onnx_up", e8m0, 1e300, 0xFF}, Row{"e8m0_onnx_up", e8m0, 0x1.ffffffp127, 0xFF},
                    Row{"e8m0_torch", e8m0, 1.5 - 0x1p-53, 0x80}, Row{"e8m0_deepgemm", e8m0, 1 + 0x1p-52, 0x7F},
                    Row{"cuda_satfinite", e4m3, tie + 0x1p-52, 0x39}, Row{"cuda_nosat", e4m3, tie + 0x1p-52, 0x39},
                    Row{"ieee", e4m3, tie + 0x1p-52, 0x39}, Row{"e8m0_cuda_up", e8m0, 1 + 0x1p-52, 0x80});
  const CastPolicy policy = find_profile(row.profile).policy;
  INFO(row.profile << ' ' << format_name(row.format) << ' ' << row.x);
  CHECK(encode(row.format, policy, row.x) == row.code);
  if (row.format.is_signed) CHECK(encode(row.format, policy, -row.x) == (row.code | 0x80));
  std::vector<std::uint8_t> bulk(1);
  encode(row.format, policy, std::span<const double>(&row.x, 1), bulk);
  CHECK(bulk[0] == row.code);
}

TEST_CASE("profiles describe themselves") {
  CHECK(describe(find_profile("torch_2_13").policy).find("NaN gives the NaN of all ones, sign kept") !=
        std::string::npos);
  CHECK(describe(find_profile("cuda_satfinite").policy).find("(from double: ") != std::string::npos);
  CHECK(describe(find_profile("e8m0_deepgemm").policy).find("rounds upward") == 0);
}

TEST_CASE("float16 and bfloat16 round as the table says, from float and double, in every mode") {
  for (const Format& format : {binary16, bfloat16}) {
    const TableOracle oracle(format);
    std::vector<double> inputs = boundary_inputs<double>(oracle);
    for (const float x : boundary_inputs<float>(oracle)) inputs.push_back(x);
    Mismatches wrong;
    for (const Named<Rounding>& mode : named_roundings) {
      const CastPolicy policy{.rounding = mode.value, .overflow = Overflow::to_special};
      for (std::size_t i = 0; i < inputs.size(); i += wide_stride) {
        const double x = inputs[i];
        wrong.compare(i, x, encode(format, policy, x), oracle.encode(policy, x), mode.name.data());
        const auto y = static_cast<float>(x);
        if (y != x) continue;
        wrong.compare(i, x, encode(format, policy, y), oracle.encode(policy, x), mode.name.data());
      }
    }
    INFO(format_name(format));
    REQUIRE_NO(wrong);
  }
}

TEST_CASE("E8M0 codes follow the profiles") {
  // Rows: 0, the smallest float, 2^-127, 1.25 * 2^-127, 1 + ulp, 1.5, 1.5 * 2^127, the largest float, infinity, NaN,
  // -1, -infinity. Words of CUDA 13.0's header, torchao, onnx 1.23.2, DeepGEMM, ml_dtypes 0.6.0 and PyTorch 2.13.0.
  constexpr std::uint32_t inputs[] = {0,          1,          0x00400000, 0x00500000, 0x3F800001, 0x3FC00000,
                                      0x7F400000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0xBF800000, 0xFF800000};
  struct Column {
    const char* profile;
    std::array<std::uint32_t, 12> codes;
  };
  const auto column = GENERATE(Column{"e8m0_cuda_up", {0, 0, 0, 1, 128, 128, 254, 254, 254, 255, 127, 254}},
                               Column{"e8m0_cuda_up_nosat", {0, 0, 0, 1, 128, 128, 255, 255, 255, 255, 127, 255}},
                               Column{"e8m0_onnx_up", {0, 1, 1, 1, 128, 128, 254, 254, 255, 255, 127, 255}},
                               Column{"e8m0_onnx_up_nosat", {0, 1, 1, 1, 128, 128, 255, 255, 255, 255, 127, 255}},
                               Column{"e8m0_onnx_down", {0, 0, 0, 0, 127, 127, 254, 254, 255, 255, 127, 255}},
                               Column{"e8m0_onnx_down_nosat", {0, 0, 0, 0, 127, 127, 254, 254, 255, 255, 127, 255}},
                               Column{"e8m0_onnx_nearest", {0, 0, 0, 1, 127, 128, 254, 254, 255, 255, 127, 255}},
                               Column{"e8m0_onnx_nearest_nosat", {0, 0, 0, 1, 127, 128, 255, 255, 255, 255, 127, 255}},
                               Column{"e8m0_deepgemm", {1, 1, 1, 1, 128, 128, 254, 254, 254, 254, 127, 254}},
                               Column{"ml_dtypes", {255, 0, 0, 1, 127, 128, 255, 255, 255, 255, 255, 255}},
                               Column{"e8m0_ml_dtypes_saturate", {0, 0, 0, 1, 127, 128, 254, 254, 255, 255, 0, 255}},
                               Column{"e8m0_torch", {0, 0, 0, 1, 127, 128, 255, 255, 255, 255, 127, 255}},
                               Column{"torch_2_13", {0, 0, 0, 1, 127, 128, 255, 255, 255, 255, 127, 255}},
                               Column{"e8m0_cuda_zero", {0, 0, 0, 0, 127, 127, 254, 254, 254, 255, 127, 254}},
                               Column{"e8m0_cuda_zero_nosat", {0, 0, 0, 0, 127, 127, 254, 254, 255, 255, 127, 255}});
  const CastPolicy policy = find_profile(column.profile).policy;
  for (std::size_t i = 0; i < column.codes.size(); ++i) {
    const float x = std::bit_cast<float>(inputs[i]);
    INFO(column.profile << ' ' << x);
    CHECK(encode(e8m0, policy, x) == column.codes[i]);
    CHECK(encode(e8m0, policy, static_cast<double>(x)) == column.codes[i]);
  }
}

TEST_CASE("formats that users make up are checked") {
  const auto refused = [](const Format& format, const char* reason) {
    CHECK_THROWS_WITH(check_format(format), ContainsSubstring(reason));
  };
  for (const NamedFormat& named : named_formats) CHECK_NOTHROW(check_format(named.format));
  CHECK_NOTHROW(check_format({2, 0, 1, true, true, Specials::none}));
  refused({0, 3, 7}, "1 to 8 exponent bits, not 0");
  refused({9, 3, 255}, "1 to 8 exponent bits, not 9");
  refused({8, 8, 127}, "at most 16 bits, sign included, not 8 mantissa bits with 8 exponent bits");
  refused({4, -1, 7}, "at most 16 bits");
  refused({4, 0, 7}, "must have a mantissa bit");
  refused({4, 3, 7, false, true, Specials::nan_at_negative_zero}, "must have a sign and a zero");
  refused({4, 3, -140}, "makes them 2^138 to below 2^155");
  refused({4, 3, 2'000'000'000}, "bias from -300 to 300");
  CHECK(format_name(e4m3) == "e4m3");
  CHECK(format_name({4, 2, 100}) == "E4M2 with bias 100");
}

TEST_CASE("bulk casts equal scalar ones for any size and number of threads") {
  for (const std::size_t size : {0U, 1U, 7U, 64U, 1001U}) {
    std::vector<float> in(size);
    for (std::size_t i = 0; i < size; ++i) in[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random_bits(1, i)));
    for (const int threads : {1, 2, 5}) {
      std::vector<std::uint8_t> codes(size);
      std::vector<float> back(size);
      encode(e4m3, {}, std::span<const float>(in), codes, threads);
      decode(e4m3, codes, back, threads);
      Mismatches wrong;
      for (std::size_t i = 0; i < size; ++i) {
        wrong.compare(i, in[i], codes[i], encode(e4m3, {}, in[i]), "encode");
        wrong.compare(i, in[i], bits(back[i]), bits(decode(e4m3, codes[i])), "decode");
      }
      REQUIRE_NO(wrong);
    }
  }
}

TEST_CASE("bad arguments are named") {
  std::vector<float> in(3);
  std::vector<std::uint8_t> out(2);
  CHECK_THROWS_WITH(encode(e4m3, {}, std::span<const float>(in), out), "out has 2 elements, the input 3");
  out.resize(3);
  CHECK_THROWS_WITH(encode(e4m3, {}, std::span<const float>(in), out, 0), "threads must be from 1 to 1024, not 0");
  CHECK_THROWS_WITH(encode(binary16, {}, std::span<const float>(in), out), "format must have 1 to 8 bits, not 16");
  CHECK_THROWS_WITH(encode(e4m3, {.rounding = Rounding::stochastic}, std::span<const float>(in), out),
                    "rounding 'stochastic' needs random bits");
  std::vector<std::uint16_t> wide(3);
  CHECK_THROWS_WITH(encode(e4m3, {}, std::span<const float>(in), wide), "format must have 9 to 16 bits, not 8");
  CHECK_THROWS_WITH(find_format("e4m4"), ContainsSubstring("unknown format 'e4m4'; known: e4m3, e5m2, e8m0, "));
  CHECK_THROWS_WITH(find_profile(""), ContainsSubstring("known: "));
  CHECK_THROWS_WITH(find_value<Rounding>("rounding", "up"), ContainsSubstring("known: nearest_even"));
}

}  // namespace fp8lab::tests
