// SPDX-License-Identifier: Apache-2.0
// Defines what a cast decides: rounding, overflow, NaN, zero and sign; and names the policies of known software.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fp8lab/formats/host_device.hpp"
#include "fp8lab/formats/named.hpp"

namespace fp8lab {

/// How a value between two neighbours of the format is rounded. Formats without a sign round the magnitude.
enum class Rounding : std::uint8_t {
  nearest_even,         ///< IEEE 754-2019 roundTiesToEven
  nearest_away,         ///< roundTiesToAway
  nearest_toward_zero,  ///< to the nearest, ties to the smaller magnitude
  toward_zero,          ///< roundTowardZero
  upward,               ///< roundTowardPositive
  downward,             ///< roundTowardNegative
  to_odd,      ///< the neighbour whose code is odd (Boldo and Melquiond 2008): a later rounding to at least two bits
               ///< fewer gives what one rounding would have given
  stochastic,  ///< away from zero with the probability of the part cut off, decided by the caller's RandomBits
};

/// The random bits of one stochastic rounding: the value is rounded away from zero where the part cut off, as a
/// fraction of a unit in the last place, plus value / 2^count is 1 or more. No bits (count 0) round toward zero.
///
/// Source: PTX ISA, cvt with .rs: away from zero where adding the random bits to the bits cut off carries. That fewer
/// random bits than bits cut off align with the topmost of these is inferred; no device has been asked.
struct RandomBits {
  std::uint32_t value = 0;  ///< below 2^count
  int count = 0;            ///< 0 to 32
};

/// What becomes of a value beyond the largest finite one.
enum class Overflow : std::uint8_t {
  saturate,                 ///< the largest finite value, sign kept
  to_special,               ///< infinity where the format has it, else NaN; sign kept
  to_infinity,              ///< infinity where the format has it, else the largest finite value; sign kept
  to_infinity_or_sole_nan,  ///< infinity where the format has it, else NaN where a single code means it (fnuz, E8M0),
                            ///< else the largest finite value; sign kept
};

/// Which NaN code a NaN input gives.
enum class NanCode : std::uint8_t {
  positive_all_ones,  ///< sign dropped, every fraction bit set: 7F in E4M3 and E5M2
  sign_all_ones,      ///< sign kept, every fraction bit set: 7F or FF
  sign_quiet,         ///< sign kept, only the topmost fraction bit set where there are several NaNs: 7E or FE in E5M2
  sign_and_payload,   ///< sign kept, quieted, with the topmost fraction bits of the input where the format has several
                      ///< NaNs
  largest,            ///< no NaN but the largest finite value, sign dropped
  negative_largest,   ///< the largest finite value with the sign set
};

/// What NaN becomes in a format that has none (FP6, FP4).
enum class MissingNan : std::uint8_t {
  largest,        ///< the largest finite value, sign dropped
  opposite_zero,  ///< zero with the opposite sign
  positive_zero,  ///< +0
  negative_zero,  ///< -0
};

/// The sign of a code that is zero, of formats that have a zero and a sign.
enum class ZeroSign : std::uint8_t {
  kept,     ///< that of the value
  dropped,  ///< +0, also for a negative value that rounds to zero
};

/// What zero becomes in a format that has none (E8M0).
enum class ZeroCode : std::uint8_t {
  smallest,  ///< the smallest value
  second,    ///< the second smallest value
  nan,       ///< NaN
};

/// What the smallest code of a format without zero (E8M0) counts as when values below the next code are rounded.
enum class SmallestCode : std::uint8_t {
  value,  ///< the value it has: what lies below becomes that
  zero,   ///< zero, as the code of a format with subnormals would
};

/// What a negative value becomes in a format without a sign.
enum class NegativeInput : std::uint8_t {
  magnitude,  ///< what its magnitude becomes
  nan,        ///< NaN, infinity too
  smallest,   ///< the smallest value; infinity what it becomes without a sign
};

/// Everything a cast has to decide. Finite overflow is judged after rounding with an unbounded exponent; rounding modes
/// that never round away from zero on that side (toward_zero; upward for negative values; downward for positive ones)
/// stop at the largest finite value, as IEEE 754-2019 section 7.4 has it, and so does to_odd, as in Berkeley SoftFloat.
struct CastPolicy {
  Rounding rounding = Rounding::nearest_even;
  Overflow overflow = Overflow::saturate;
  Overflow infinity = Overflow::saturate;  ///< what an infinite input becomes
  NanCode nan = NanCode::positive_all_ones;
  NanCode nan_of_double = NanCode::sign_and_payload;  ///< the same for double inputs
  MissingNan missing_nan = MissingNan::largest;
  ZeroCode zero = ZeroCode::smallest;
  SmallestCode smallest = SmallestCode::value;
  NegativeInput negative = NegativeInput::magnitude;
  ZeroSign zero_sign = ZeroSign::kept;
  /// Whether doubles are rounded to float32 first, to nearest even with overflow to infinity, and from there by the
  /// rules above. Otherwise they are rounded once.
  bool float64_via_float32 = false;

  friend constexpr bool operator==(const CastPolicy&, const CastPolicy&) = default;
};

/// A policy with the name users call it by and the source that defines it.
struct Profile {
  std::string_view name;
  CastPolicy policy;
  std::string_view source;
};

/// The cast of processors: overflow becomes infinity, a NaN keeps its sign and the payload that fits. Exact where the
/// target has all values of the source.
inline constexpr CastPolicy ieee_policy{
    .overflow = Overflow::to_special, .infinity = Overflow::to_special, .nan = NanCode::sign_and_payload};

/// The cast of NVIDIA's converts and tensor cores where they do not saturate: as above, but every NaN is the positive
/// one of all ones.
inline constexpr CastPolicy cuda_nosat_policy{.overflow = Overflow::to_special, .infinity = Overflow::to_special};

// A source begins with the package and the version on which the profile was measured: all halves and bfloat16s, and
// every boundary, midpoint and neighbour in float32 and float64 (tests/python/test_profiles.py compares again, where
// the package is there). What NVIDIA's and IEEE's do is exact: every source is rounded once. Packages that convert
// float64 to float32 first have profiles that do so too. Profiles with e8m0 in their name are what each package does
// for MX scales, where few agree; their rounding belongs to them.
inline constexpr std::array profiles{
    Profile{.name = "cuda_satfinite",
            .policy = {.overflow = Overflow::saturate, .infinity = Overflow::saturate},
            .source = "CUDA 13.0 cuda_fp8.h __NV_SATFINITE; PTX ISA cvt.rn.satfinite: what the hardware does"},
    Profile{.name = "cuda_nosat", .policy = cuda_nosat_policy, .source = "CUDA 13.0 cuda_fp8.h __NV_NOSAT"},
    Profile{.name = "ml_dtypes",
            .policy = {.overflow = Overflow::to_special,
                       .infinity = Overflow::to_special,
                       .nan = NanCode::sign_quiet,
                       .nan_of_double = NanCode::sign_quiet,
                       .missing_nan = MissingNan::opposite_zero,
                       .zero = ZeroCode::nan,
                       .smallest = SmallestCode::zero,
                       .negative = NegativeInput::nan,
                       .float64_via_float32 = true},
            .source = "ml_dtypes 0.6.0 astype, E8M0 included; 0.5.1 to 0.5.4 alike (0.5.0 rounds E8M0's ties to even)"},
    Profile{.name = "torch_2_13",
            .policy = {.overflow = Overflow::to_infinity_or_sole_nan,
                       .infinity = Overflow::to_infinity_or_sole_nan,
                       .nan = NanCode::sign_all_ones,
                       .nan_of_double = NanCode::sign_all_ones,
                       .smallest = SmallestCode::zero,
                       .float64_via_float32 = true},
            .source = "PyTorch 2.13.0 Tensor.to(float8), E8M0 included, on the CPU"},
    Profile{.name = "onnx_saturate",
            .policy = {.overflow = Overflow::saturate,
                       .infinity = Overflow::saturate,
                       .nan = NanCode::sign_quiet,
                       .nan_of_double = NanCode::sign_quiet,
                       .missing_nan = MissingNan::opposite_zero,
                       .float64_via_float32 = true},
            .source =
                "onnx 1.23.2 reference evaluator, Cast to FP8, FP6 and FP4, saturate = 1; 1.19 to 1.22 alike; for "
                "E8M0 see e8m0_onnx_up and its kin"},
    Profile{.name = "onnx",
            .policy = {.overflow = Overflow::to_special,
                       .infinity = Overflow::to_special,
                       .nan = NanCode::sign_quiet,
                       .nan_of_double = NanCode::sign_quiet,
                       .missing_nan = MissingNan::opposite_zero,
                       .float64_via_float32 = true},
            .source =
                "onnx 1.23.2 reference evaluator, Cast to FP8, FP6 and FP4, saturate = 0; 1.19 to 1.22 alike; for "
                "E8M0 see e8m0_onnx_up_nosat and its kin"},
    Profile{.name = "clamp_then_cast",
            .policy = {.overflow = Overflow::saturate,
                       .infinity = Overflow::saturate,
                       .nan = NanCode::sign_all_ones,
                       .nan_of_double = NanCode::sign_all_ones,
                       .float64_via_float32 = true},
            .source =
                "PyTorch 2.13.0 clamp to the largest finite value, in float32, then Tensor.to(float8), as torchao "
                "0.18.0's saturated cast; a clamp in bfloat16 makes some NaNs negative, by their place"},
    Profile{.name = "ieee",
            .policy = ieee_policy,
            .source = "IEEE 754-2019, formatOf-convertFormat; what processors do for float16 and bfloat16"},
    Profile{.name = "e8m0_cuda_up",
            .policy = {.rounding = Rounding::upward},
            .source = "CUDA 13.0 cuda_fp8.h, cudaRoundPosInf with __NV_SATFINITE; Transformer Engine's scales"},
    Profile{
        .name = "e8m0_cuda_up_nosat",
        .policy = {.rounding = Rounding::upward, .overflow = Overflow::to_special, .infinity = Overflow::to_special},
        .source = "CUDA 13.0 cuda_fp8.h, cudaRoundPosInf with __NV_NOSAT; torchao's RCEIL"},
    Profile{.name = "e8m0_cuda_zero",
            .policy = {.rounding = Rounding::toward_zero},
            .source = "CUDA 13.0 cuda_fp8.h, cudaRoundZero with __NV_SATFINITE"},
    Profile{.name = "e8m0_cuda_zero_nosat",
            .policy = {.rounding = Rounding::toward_zero,
                       .overflow = Overflow::to_special,
                       .infinity = Overflow::to_special},
            .source = "CUDA 13.0 cuda_fp8.h, cudaRoundZero with __NV_NOSAT"},
    Profile{.name = "e8m0_onnx_up",
            .policy = {.rounding = Rounding::upward,
                       .infinity = Overflow::to_special,
                       .smallest = SmallestCode::zero,
                       .float64_via_float32 = true},
            .source = "onnx 1.23.2 reference evaluator, Cast, round_mode = up, saturate = 1; 1.22 alike (1.19 to 1.21 "
                      "take some fractions for none)"},
    Profile{.name = "e8m0_onnx_up_nosat",
            .policy = {.rounding = Rounding::upward,
                       .overflow = Overflow::to_special,
                       .infinity = Overflow::to_special,
                       .smallest = SmallestCode::zero,
                       .float64_via_float32 = true},
            .source = "onnx 1.23.2 reference evaluator, Cast, round_mode = up, saturate = 0; 1.22 alike (1.19 to 1.21 "
                      "take some fractions for none)"},
    Profile{
        .name = "e8m0_onnx_down",
        .policy = {.rounding = Rounding::toward_zero, .infinity = Overflow::to_special, .float64_via_float32 = true},
        .source = "onnx 1.23.2 reference evaluator, Cast, round_mode = down, saturate = 1; 1.19 to 1.22 alike"},
    Profile{.name = "e8m0_onnx_down_nosat",
            .policy = {.rounding = Rounding::toward_zero,
                       .overflow = Overflow::to_special,
                       .infinity = Overflow::to_special,
                       .float64_via_float32 = true},
            .source = "onnx 1.23.2 reference evaluator, Cast, round_mode = down, saturate = 0; 1.19 to 1.22 alike"},
    Profile{.name = "e8m0_onnx_nearest",
            .policy = {.infinity = Overflow::to_special, .smallest = SmallestCode::zero, .float64_via_float32 = true},
            .source = "onnx 1.23.2 reference evaluator, Cast, round_mode = nearest, saturate = 1; 1.19 to 1.22 alike"},
    Profile{.name = "e8m0_onnx_nearest_nosat",
            .policy = {.overflow = Overflow::to_special,
                       .infinity = Overflow::to_special,
                       .smallest = SmallestCode::zero,
                       .float64_via_float32 = true},
            .source = "onnx 1.23.2 reference evaluator, Cast, round_mode = nearest, saturate = 0; 1.19 to 1.22 alike"},
    Profile{.name = "e8m0_torch",
            .policy = {.overflow = Overflow::to_special,
                       .infinity = Overflow::to_special,
                       .smallest = SmallestCode::zero,
                       .float64_via_float32 = true},
            .source = "PyTorch 2.13.0 Tensor.to(float8_e8m0fnu), as torch_2_13 does"},
    Profile{.name = "e8m0_ml_dtypes_saturate",
            .policy = {.infinity = Overflow::to_special,
                       .smallest = SmallestCode::zero,
                       .negative = NegativeInput::smallest},
            .source = "ml_dtypes 0.6.0 float8.h, ConvertTo with saturation, from float"},
    Profile{.name = "e8m0_deepgemm",
            .policy = {.rounding = Rounding::upward,
                       .nan = NanCode::largest,
                       .nan_of_double = NanCode::largest,
                       .zero = ZeroCode::second,
                       .smallest = SmallestCode::zero,
                       .float64_via_float32 = true},
            .source = "DeepGEMM at 38939a4, ceil_to_ue8m0: float32's exponent field plus one where the fraction is not "
                      "0, clamped to 1 to 254"},
};

/// The rounding modes with their names.
inline constexpr std::array named_roundings{
    Named{"nearest_even", Rounding::nearest_even},
    Named{"nearest_away", Rounding::nearest_away},
    Named{"nearest_toward_zero", Rounding::nearest_toward_zero},
    Named{"toward_zero", Rounding::toward_zero},
    Named{"upward", Rounding::upward},
    Named{"downward", Rounding::downward},
    Named{"to_odd", Rounding::to_odd},
    Named{"stochastic", Rounding::stochastic},
};

[[nodiscard]] std::span<const Named<Rounding>> named_values(Rounding of_type);

/// In words: rounding, and what happens to overflow, infinity, NaN, sign and zero.
[[nodiscard]] std::string describe(const CastPolicy& policy);

/// The profile called `name`. Throws std::invalid_argument that lists the known names.
[[nodiscard]] const Profile& find_profile(std::string_view name);

}  // namespace fp8lab
