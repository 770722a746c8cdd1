// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "fp8lab/formats/host_device.hpp"

namespace fp8lab {

/// How a value between two neighbours of the format is rounded. Formats without a sign round the magnitude.
enum class Rounding : std::uint8_t { nearest_even, nearest_away, toward_zero, upward, downward };

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
};

/// Everything a cast has to decide. Finite overflow is judged after rounding with an unbounded exponent; rounding modes
/// that never round away from zero on that side (toward_zero; upward for negative values; downward for positive ones)
/// stop at the largest finite value, as IEEE 754-2019 section 7.4 has it.
struct CastPolicy {
  Rounding rounding = Rounding::nearest_even;
  Overflow overflow = Overflow::saturate;
  Overflow infinity = Overflow::saturate;  ///< what an infinite input becomes
  NanCode nan = NanCode::positive_all_ones;
  NanCode nan_of_double = NanCode::sign_and_payload;  ///< the same for double inputs

  friend constexpr bool operator==(const CastPolicy&, const CastPolicy&) = default;
};

/// A policy with the name users call it by and the source that defines it.
struct Profile {
  std::string_view name;
  CastPolicy policy;
  std::string_view source;
};

// Measured: "ml_dtypes" on ml_dtypes 0.6.0, "torch_2_13" on PyTorch 2.13.0 (CPU), the ONNX ones on the reference
// evaluator of onnx 1.23.2, the CUDA ones on the host code of CUDA 13.0's headers.
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
                       .nan_of_double = NanCode::sign_quiet},
            .source = "ml_dtypes astype"},
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
};

/// A rounding mode with its name.
struct NamedRounding {
  std::string_view name;
  Rounding rounding;
};
inline constexpr std::array named_roundings{
    NamedRounding{"nearest_even", Rounding::nearest_even}, NamedRounding{"nearest_away", Rounding::nearest_away},
    NamedRounding{"toward_zero", Rounding::toward_zero},   NamedRounding{"upward", Rounding::upward},
    NamedRounding{"downward", Rounding::downward},
};

/// In words: what happens to overflow, infinity, NaN, sign and zero.
[[nodiscard]] std::string describe(const CastPolicy& policy);

/// The profile, or rounding, called `name`. Both throw std::invalid_argument that lists the known names.
[[nodiscard]] const Profile& find_profile(std::string_view name);
[[nodiscard]] Rounding find_rounding(std::string_view name);

}  // namespace fp8lab
