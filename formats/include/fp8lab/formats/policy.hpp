// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "fp8lab/formats/host_device.hpp"

namespace fp8lab {

/// How a value between two neighbours of the format is rounded. Formats without a sign round the magnitude.
enum class Rounding : std::uint8_t { nearest_even, nearest_away, toward_zero, upward, downward };

/// What becomes of a value beyond the largest finite one.
enum class Overflow : std::uint8_t {
  saturate,    ///< the largest finite value, sign kept
  to_special,  ///< infinity where the format has it, else NaN; sign kept
};

/// Which NaN code a NaN input gives.
enum class NanCode : std::uint8_t {
  positive_all_ones,  ///< sign dropped, every fraction bit set: 7F in E4M3 and E5M2
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
  std::string_view description;
  std::string_view source;
};

inline constexpr std::array profiles{
    Profile{
        "cuda_satfinite",
        {.overflow = Overflow::saturate, .infinity = Overflow::saturate},
        "what the hardware does: overflow and infinity give the largest finite value, sign kept; NaN gives 7F, sign "
        "dropped (from double: sign and payload kept)",
        "CUDA 13.0 cuda_fp8.h __NV_SATFINITE; PTX ISA cvt.rn.satfinite"},
    Profile{"cuda_nosat",
            {.overflow = Overflow::to_special, .infinity = Overflow::to_special},
            "overflow and infinity give infinity in E5M2 and NaN in E4M3, sign kept; NaN gives 7F, sign dropped (from "
            "double: sign and payload kept)",
            "CUDA 13.0 cuda_fp8.h __NV_NOSAT"},
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

/// The profile, or rounding, called `name`. Both throw std::invalid_argument that lists the known names.
[[nodiscard]] const Profile& find_profile(std::string_view name);
[[nodiscard]] Rounding find_rounding(std::string_view name);

}  // namespace fp8lab
