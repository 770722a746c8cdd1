// SPDX-License-Identifier: Apache-2.0
// Second opinion: the host code of NVIDIA's <cuda_fp8.h>, <cuda_fp6.h> and <cuda_fp4.h>, compiled as plain C++.
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

#include <cstring>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "oracle.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

std::uint64_t floats_to_compare() { return std::uint64_t{1} << (sanitized ? 20 : exhaustive() ? 26 : 21); }
constexpr std::uint64_t seed = 20260801;

struct Combination {
  const char* name;
  Format format;
  CastPolicy policy;
  __nv_fp8_interpretation_t interpretation;
  __nv_saturation_t saturation;
};
constexpr CastPolicy satfinite = profiles[0].policy;
constexpr CastPolicy nosat = profiles[1].policy;
const Combination combinations[] = {{"e4m3 satfinite", e4m3, satfinite, __NV_E4M3, __NV_SATFINITE},
                                    {"e4m3 nosat", e4m3, nosat, __NV_E4M3, __NV_NOSAT},
                                    {"e5m2 satfinite", e5m2, satfinite, __NV_E5M2, __NV_SATFINITE},
                                    {"e5m2 nosat", e5m2, nosat, __NV_E5M2, __NV_NOSAT}};

struct ScaleCombination {
  const char* name;
  CastPolicy policy;
  __nv_saturation_t saturation;
  cudaRoundMode rounding;
};
constexpr CastPolicy with(CastPolicy policy, Rounding rounding) {
  policy.rounding = rounding;
  return policy;
}
const ScaleCombination scale_combinations[] = {
    {"e8m0 up satfinite", with(satfinite, Rounding::upward), __NV_SATFINITE, cudaRoundPosInf},
    {"e8m0 up nosat", with(nosat, Rounding::upward), __NV_NOSAT, cudaRoundPosInf},
    {"e8m0 zero satfinite", with(satfinite, Rounding::toward_zero), __NV_SATFINITE, cudaRoundZero},
    {"e8m0 zero nosat", with(nosat, Rounding::toward_zero), __NV_NOSAT, cudaRoundZero}};

void compare_tiny(Mismatches& wrong, std::uint64_t index, auto x);

void compare_float(Mismatches& wrong, std::uint64_t index, std::uint32_t pattern) {
  const float x = std::bit_cast<float>(pattern);
  compare_tiny(wrong, index, x);
  for (const Combination& c : combinations) {
    wrong.compare(index, pattern, encode(c.format, c.policy, x),
                  __nv_cvt_float_to_fp8(x, c.saturation, c.interpretation), c.name);
  }
  for (const ScaleCombination& c : scale_combinations) {
    wrong.compare(index, pattern, encode(e8m0, c.policy, x), __nv_cvt_float_to_e8m0(x, c.saturation, c.rounding),
                  c.name);
  }
}

/// FP6 and FP4 only saturate, and only round to nearest even. NaN gives the largest value; from double its sign is
/// lost.
void compare_tiny(Mismatches& wrong, std::uint64_t index, auto x) {
  constexpr auto nearest = cudaRoundNearest;
  const auto from = [&](auto to_fp6, auto to_fp4) {
    wrong.compare(index, x, encode(e2m3, satfinite, x), to_fp6(x, __NV_E2M3, nearest), "e2m3");
    wrong.compare(index, x, encode(e3m2, satfinite, x), to_fp6(x, __NV_E3M2, nearest), "e3m2");
    wrong.compare(index, x, encode(e2m1, satfinite, x), to_fp4(x, __NV_E2M1, nearest), "e2m1");
  };
  if constexpr (std::is_same_v<decltype(x), double>) {
    from(__nv_cvt_double_to_fp6, __nv_cvt_double_to_fp4);
  } else {
    from(__nv_cvt_float_to_fp6, __nv_cvt_float_to_fp4);
  }
}

void compare_double(Mismatches& wrong, std::uint64_t index, double x) {
  compare_tiny(wrong, index, x);
  const auto pattern = std::bit_cast<std::uint64_t>(x);
  for (const Combination& c : combinations) {
    wrong.compare(index, pattern, encode(c.format, c.policy, x),
                  __nv_cvt_double_to_fp8(x, c.saturation, c.interpretation), c.name);
  }
  for (const ScaleCombination& c : scale_combinations) {
    wrong.compare(index, pattern, encode(e8m0, c.policy, x), __nv_cvt_double_to_e8m0(x, c.saturation, c.rounding),
                  c.name);
  }
}

}  // namespace

TEST_CASE("encode equals NVIDIA's host header on a seeded sample of floats") {
  const std::uint64_t count = floats_to_compare();
  std::vector<Mismatches> pieces(2);
  parallel_for(2, 2, [&](std::size_t first, std::size_t last) {
    for (std::size_t piece = first; piece < last; ++piece) {
      for (std::uint64_t i = piece; i < count; i += 2) {
        // Every other sample close to the formats' range, where a uniform pattern seldom falls.
        auto pattern = static_cast<std::uint32_t>(random_bits(seed, i));
        if ((i & 2) != 0) pattern = (pattern & 0x80FFFFFF) + 0x36000000 + (pattern >> 29 << 25);
        compare_float(pieces[piece], i, pattern);
      }
    }
  });
  pieces[0].merge(pieces[1]);
  WARN(count << " floats, seed " << seed);
  REQUIRE_NO(pieces[0]);
}

TEST_CASE("encode equals NVIDIA's host header at every boundary, from float and double") {
  Mismatches wrong;
  for (const NamedFormat& named : byte_formats()) {
    const TableOracle oracle(named.format);
    for (const float x : boundary_inputs<float>(oracle)) compare_float(wrong, 0, bits(x));
    for (const double x : boundary_inputs<double>(oracle)) compare_double(wrong, 0, x);
  }
  for (const std::uint32_t special : {0x7F800000U, 0xFF800000U, 0x7FC00000U, 0xFFC00000U, 0x7F800001U, 0xFFFFFFFFU}) {
    compare_float(wrong, special, special);
  }
  for (const std::uint64_t special :
       {0x7FF0000000000000U, 0xFFF0000000000000U, 0x7FF8000000000000U, 0xFFF8000000000000U, 0x7FF4000000000000U,
        0x7FFC000000000001U, 0xFFF0000000000001U}) {
    compare_double(wrong, special, std::bit_cast<double>(special));
  }
  for (std::uint64_t i = 0; i < (1U << 18); ++i) {
    const std::uint64_t pattern = random_bits(seed + 1, i);
    // Exponents from 2^-20 to 2^17, and anything.
    const std::uint64_t field = 1003 + (pattern >> 53) % 38;
    compare_double(wrong, i, std::bit_cast<double>((pattern & 0x800FFFFFFFFFFFFF) | (field << 52)));
    compare_double(wrong, i, std::bit_cast<double>(pattern));
  }
  REQUIRE_NO(wrong);
}

TEST_CASE("encode equals NVIDIA's host header on every half and every bfloat16") {
  Mismatches wrong;
  for (std::uint32_t pattern = 0; pattern < 65536; ++pattern) {
    const auto word = static_cast<std::uint16_t>(pattern);
    __half_raw half;
    half.x = word;
    __nv_bfloat16_raw bfloat;
    bfloat.x = word;
    for (const Combination& c : combinations) {
      wrong.compare(pattern, pattern, encode(c.format, c.policy, Half{word}),
                    __nv_cvt_halfraw_to_fp8(half, c.saturation, c.interpretation), c.name);
      wrong.compare(pattern, pattern, encode(c.format, c.policy, BFloat16{word}),
                    __nv_cvt_bfloat16raw_to_fp8(bfloat, c.saturation, c.interpretation), c.name);
    }
    for (const ScaleCombination& c : scale_combinations) {
      wrong.compare(pattern, pattern, encode(e8m0, c.policy, BFloat16{word}),
                    __nv_cvt_bfloat16raw_to_e8m0(bfloat, c.saturation, c.rounding), c.name);
    }
  }
  REQUIRE_NO(wrong);
}

}  // namespace fp8lab::tests
