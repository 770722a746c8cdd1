// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "fp8lab/formats/host_device.hpp"

namespace fp8lab {

/// How a value between two neighbours of the format is rounded. Formats without a sign round the magnitude.
enum class Rounding : std::uint8_t {
  nearest_even,  ///< IEEE 754-2019 roundTiesToEven
  nearest_away,  ///< roundTiesToAway
  toward_zero,   ///< roundTowardZero
  upward,        ///< roundTowardPositive
  downward,      ///< roundTowardNegative
  to_odd,        ///< the neighbour whose code is odd (Boldo and Melquiond 2008): a later rounding to at least two bits
                 ///< fewer gives what one rounding would have given
  stochastic,    ///< away from zero with the probability of the part cut off, decided by the caller's RandomBits
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
  saturate,     ///< the largest finite value, sign kept
  to_special,   ///< infinity where the format has it, else NaN; sign kept
  to_infinity,  ///< infinity where the format has it, else the largest finite value; sign kept
};

/// Which NaN code a NaN input gives.
enum class NanCode : std::uint8_t {
  positive_all_ones,  ///< sign dropped, every fraction bit set: 7F in E4M3 and E5M2
  sign_all_ones,      ///< sign kept, every fraction bit set: 7F or FF
  sign_quiet,         ///< sign kept, only the topmost fraction bit set where there are several NaNs: 7E or FE in E5M2
  sign_and_payload,   ///< sign kept, quieted, with the topmost fraction bits of the input where the format has several
                      ///< NaNs
  largest,            ///< no NaN but the largest finite value, sign dropped
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
  nan,        ///< NaN
  smallest,   ///< the smallest value
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
  ZeroCode zero = ZeroCode::smallest;
  SmallestCode smallest = SmallestCode::value;
  NegativeInput negative = NegativeInput::magnitude;

  friend constexpr bool operator==(const CastPolicy&, const CastPolicy&) = default;
};

/// A policy with the name users call it by and the source that defines it.
struct Profile {
  std::string_view name;
  CastPolicy policy;
  std::string_view source;
};

// Measured: the ml_dtypes ones on ml_dtypes 0.6.0, the PyTorch ones on PyTorch 2.13.0 (CPU), the ONNX ones on the
// reference evaluator of onnx 1.23.2, the CUDA ones on the host code of CUDA 13.0's headers. Those with e8m0 in their
// name are what each does for MX scales, where no two agree; their rounding belongs to them.
inline constexpr std::array profiles{
    Profile{.name = "cuda_satfinite",
            .policy = {.overflow = Overflow::saturate, .infinity = Overflow::saturate},
            .source = "CUDA 13.0 cuda_fp8.h __NV_SATFINITE; PTX ISA cvt.rn.satfinite: what the hardware does"},
    Profile{.name = "cuda_nosat",
            .policy = {.overflow = Overflow::to_special, .infinity = Overflow::to_special},
            .source = "CUDA 13.0 cuda_fp8.h __NV_NOSAT"},
    Profile{.name = "ml_dtypes",
            .policy = {.overflow = Overflow::to_special,
                       .infinity = Overflow::to_special,
                       .nan = NanCode::sign_quiet,
                       .nan_of_double = NanCode::sign_quiet,
                       .zero = ZeroCode::nan,
                       .smallest = SmallestCode::zero,
                       .negative = NegativeInput::nan},
            .source = "ml_dtypes astype, E8M0 included"},
    Profile{.name = "torch_2_13",
            .policy = {.overflow = Overflow::to_infinity,
                       .infinity = Overflow::to_infinity,
                       .nan = NanCode::sign_all_ones,
                       .nan_of_double = NanCode::sign_all_ones},
            .source = "PyTorch 2.13 Tensor.to(float8)"},
    Profile{.name = "onnx_saturate",
            .policy = {.overflow = Overflow::saturate,
                       .infinity = Overflow::saturate,
                       .nan = NanCode::sign_quiet,
                       .nan_of_double = NanCode::sign_quiet},
            .source = "ONNX Cast, saturate = 1"},
    Profile{.name = "onnx",
            .policy = {.overflow = Overflow::to_special,
                       .infinity = Overflow::to_special,
                       .nan = NanCode::sign_quiet,
                       .nan_of_double = NanCode::sign_quiet},
            .source = "ONNX Cast, saturate = 0"},
    Profile{.name = "clamp_then_cast",
            .policy = {.overflow = Overflow::saturate,
                       .infinity = Overflow::saturate,
                       .nan = NanCode::sign_all_ones,
                       .nan_of_double = NanCode::sign_all_ones},
            .source = "clamp to the largest finite value, then PyTorch's cast, as torchao's saturated cast does"},
    Profile{.name = "ieee",
            .policy = {.overflow = Overflow::to_special,
                       .infinity = Overflow::to_special,
                       .nan = NanCode::sign_and_payload},
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
            .source = "CUDA 13.0 cuda_fp8.h, cudaRoundZero with __NV_NOSAT; ONNX Cast, round_mode = down"},
    Profile{.name = "e8m0_onnx_up",
            .policy = {.rounding = Rounding::upward, .infinity = Overflow::to_special, .smallest = SmallestCode::zero},
            .source = "ONNX Cast, round_mode = up, saturate = 1"},
    Profile{
        .name = "e8m0_torch",
        .policy = {.overflow = Overflow::to_special, .infinity = Overflow::to_special, .smallest = SmallestCode::zero},
        .source = "PyTorch 2.13 Tensor.to(float8_e8m0fnu); ONNX Cast, round_mode = nearest"},
    Profile{.name = "e8m0_ml_dtypes_saturate",
            .policy = {.infinity = Overflow::to_special, .zero = ZeroCode::nan, .negative = NegativeInput::smallest},
            .source = "ml_dtypes float8.h, ConvertTo with saturation"},
    Profile{
        .name = "e8m0_deepgemm",
        .policy = {.rounding = Rounding::upward,
                   .nan = NanCode::largest,
                   .nan_of_double = NanCode::largest,
                   .zero = ZeroCode::second,
                   .smallest = SmallestCode::zero},
        .source = "DeepGEMM ceil_to_ue8m0: exponent field plus one where the fraction is not 0, clamped to 1 to 254"},
};

/// A rounding mode with its name.
struct NamedRounding {
  std::string_view name;
  Rounding rounding;
};
inline constexpr std::array named_roundings{
    NamedRounding{"nearest_even", Rounding::nearest_even}, NamedRounding{"nearest_away", Rounding::nearest_away},
    NamedRounding{"toward_zero", Rounding::toward_zero},   NamedRounding{"upward", Rounding::upward},
    NamedRounding{"downward", Rounding::downward},         NamedRounding{"to_odd", Rounding::to_odd},
    NamedRounding{"stochastic", Rounding::stochastic},
};

/// In words: rounding, and what happens to overflow, infinity, NaN, sign and zero.
[[nodiscard]] std::string describe(const CastPolicy& policy);

/// The profile, or rounding, called `name`. Both throw std::invalid_argument that lists the known names.
[[nodiscard]] const Profile& find_profile(std::string_view name);
[[nodiscard]] Rounding find_rounding(std::string_view name);

}  // namespace fp8lab
