// SPDX-License-Identifier: Apache-2.0
// Defines a floating-point format as a record of facts, and names the formats that hardware has.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "fp8lab/formats/host_device.hpp"

namespace fp8lab {

/// Where a format keeps its infinities and NaNs.
enum class Specials : std::uint8_t {
  ieee,                  ///< top exponent field: fraction 0 is infinity, anything else NaN (IEEE 754)
  nan_at_all_ones,       ///< NaN where exponent and fraction are all ones, no infinity (OCP E4M3, E8M0)
  nan_at_negative_zero,  ///< NaN at the code of -0, no infinity, no negative zero ("fnuz")
  none,                  ///< every code is a number (OCP FP6, FP4)
};

/// A binary floating-point format as a record of facts; everything else is derived from it.
///
/// A code is [sign][exponent field][fraction], most significant bit first. Where the format has subnormals, exponent
/// field 0 means fraction * 2^(1 - bias - mantissa_bits); where it has none, field 0 is a binade like any other (E8M0),
/// and the format has no zero.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  bool is_signed = true;
  bool has_subnormals = true;
  Specials specials = Specials::ieee;

  friend constexpr bool operator==(const Format&, const Format&) = default;

  /// Width of a code in bits.
  [[nodiscard]] FP8LAB_HD constexpr int bits() const { return exponent_bits + mantissa_bits + (is_signed ? 1 : 0); }
  /// Exponent of the smallest normal binade: a value there lies in [2^min_exponent, 2^(min_exponent + 1)).
  [[nodiscard]] FP8LAB_HD constexpr int min_exponent() const { return (has_subnormals ? 1 : 0) - bias; }
  /// Code bits below the sign, all ones.
  [[nodiscard]] FP8LAB_HD constexpr std::uint64_t magnitude_mask() const {
    return (std::uint64_t{1} << (exponent_bits + mantissa_bits)) - 1;
  }
  /// The sign bit; 0 where the format has none.
  [[nodiscard]] FP8LAB_HD constexpr std::uint64_t sign_mask() const {
    return is_signed ? std::uint64_t{1} << (exponent_bits + mantissa_bits) : 0;
  }
  [[nodiscard]] FP8LAB_HD constexpr bool has_infinity() const { return specials == Specials::ieee; }
  [[nodiscard]] FP8LAB_HD constexpr bool has_nan() const { return specials != Specials::none; }
  /// Whether one code, and no other, is NaN, and the format has no infinity.
  [[nodiscard]] FP8LAB_HD constexpr bool has_sole_nan() const {
    return specials == Specials::nan_at_negative_zero || (specials == Specials::nan_at_all_ones && !is_signed);
  }
  /// Code of +infinity. Precondition: has_infinity().
  [[nodiscard]] FP8LAB_HD constexpr std::uint64_t infinity_code() const {
    return magnitude_mask() & ~((std::uint64_t{1} << mantissa_bits) - 1);
  }
  /// Code of the largest finite value.
  [[nodiscard]] FP8LAB_HD constexpr std::uint64_t max_code() const {
    switch (specials) {
      case Specials::ieee: return infinity_code() - 1;
      case Specials::nan_at_all_ones: return magnitude_mask() - 1;
      case Specials::nan_at_negative_zero:
      case Specials::none: break;
    }
    return magnitude_mask();
  }
};

// OCP 8-bit Floating Point Specification (OFP8) 1.0; OCP Microscaling Formats (MX) 1.0 for E8M0, FP6 and FP4.
inline constexpr Format e4m3{4, 3, 7, true, true, Specials::nan_at_all_ones};
inline constexpr Format e5m2{5, 2, 15};
inline constexpr Format e8m0{8, 0, 127, false, false, Specials::nan_at_all_ones};
inline constexpr Format e2m1{2, 1, 1, true, true, Specials::none};
inline constexpr Format e2m3{2, 3, 1, true, true, Specials::none};
inline constexpr Format e3m2{3, 2, 3, true, true, Specials::none};
// E4M3 without its sign: the block scales of NVFP4 (PTX ISA, mma with .scale_vec::4X and .ue4m3).
inline constexpr Format ue4m3{4, 3, 7, false, true, Specials::nan_at_all_ones};
// E3M4 with IEEE specials, as ml_dtypes has it; the "fnuz" formats of Noune et al., "8-bit Numerical Formats for Deep
// Neural Networks", 2022, as AMD's CDNA3 has them.
inline constexpr Format e3m4{3, 4, 3};
inline constexpr Format e4m3fnuz{4, 3, 8, true, true, Specials::nan_at_negative_zero};
inline constexpr Format e5m2fnuz{5, 2, 16, true, true, Specials::nan_at_negative_zero};
// IEEE 754 interchange formats, bfloat16, and TF32 as the tensor cores of Ampere and later read it.
inline constexpr Format binary16{5, 10, 15};
inline constexpr Format bfloat16{8, 7, 127};
inline constexpr Format tf32{8, 10, 127};
inline constexpr Format binary32{8, 23, 127};
inline constexpr Format binary64{11, 52, 1023};

/// A format with the name users call it by.
struct NamedFormat {
  std::string_view name;
  Format format;
  std::string_view description;
};

/// The formats that users choose by name. A code is one byte, for float16 and bfloat16 two.
inline constexpr std::array named_formats{
    NamedFormat{"e4m3", e4m3, "OCP OFP8 E4M3: largest 448, no infinity, NaN at 7F and FF"},
    NamedFormat{"e5m2", e5m2, "OCP OFP8 E5M2: largest 57344, infinities and NaNs as in IEEE 754"},
    NamedFormat{"e8m0", e8m0, "OCP MX scale E8M0: the powers of two 2^-127 to 2^127, no sign, no zero, NaN at FF"},
    NamedFormat{"e2m1", e2m1, "OCP MX FP4 E2M1: largest 6, no infinity, no NaN"},
    NamedFormat{"e2m3", e2m3, "OCP MX FP6 E2M3: largest 7.5, no infinity, no NaN"},
    NamedFormat{"e3m2", e3m2, "OCP MX FP6 E3M2: largest 28, no infinity, no NaN"},
    NamedFormat{"ue4m3", ue4m3, "unsigned E4M3, NVFP4's block scale: largest 448, no infinity, NaN at 7F"},
    NamedFormat{"e3m4", e3m4, "E3M4: largest 15.5, infinities and NaNs as in IEEE 754"},
    NamedFormat{"e4m3fnuz", e4m3fnuz, "E4M3 fnuz: largest 240, no infinity, no negative zero, NaN at 80"},
    NamedFormat{"e5m2fnuz", e5m2fnuz, "E5M2 fnuz: largest 57344, no infinity, no negative zero, NaN at 80"},
    NamedFormat{"float16", binary16, "IEEE 754 binary16: largest 65504"},
    NamedFormat{"bfloat16", bfloat16, "bfloat16, the upper half of a float32: largest 2^128 - 2^120"},
};

/// The format called `name`. Throws std::invalid_argument that lists the known names.
[[nodiscard]] const NamedFormat& find_format(std::string_view name);

/// The name of `format`; TF32's is float32, binary64's float64; where it has none, "E<exponent bits>M<mantissa bits>
/// with bias <bias>".
[[nodiscard]] std::string format_name(const Format& format);

/// Checks a record that a user made up: 1 to 8 exponent bits, at most 16 bits in all, every value a float32, and a NaN
/// or infinity that has room. Throws std::invalid_argument that says what is allowed.
void check_format(const Format& format);

}  // namespace fp8lab
