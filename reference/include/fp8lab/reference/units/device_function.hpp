// SPDX-License-Identifier: Apache-2.0
// CUDA's float32 functions as a GPU computes them: the operations that nvcc makes of each, over special function units.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/units/special_function.hpp"

namespace fp8lab {

/// Functions and operators of CUDA C++.
enum class DeviceFunction : std::uint8_t {
  expf,
  fast_expf,
  tanhf,
  erff,
  rsqrtf,
  divide,
  fast_divide,
  rounded_divide,
  reciprocal,
  rounded_reciprocal,
  logf,
  fast_logf,
  exp2f,
  exp10f,
  log2f,
  fast_log2f,
  log10f,
  log1pf,
  expm1f,
  sqrtf,
  rounded_sqrt,
  erfcf,
  normcdff,
  sinf,
  cosf,
};
inline constexpr std::array device_functions{
    Named{"expf", DeviceFunction::expf, "e^x"},
    Named{"__expf", DeviceFunction::fast_expf, "e^x, a product and ex2.approx"},
    Named{"tanhf", DeviceFunction::tanhf, "the hyperbolic tangent"},
    Named{"erff", DeviceFunction::erff, "the error function"},
    Named{"rsqrtf", DeviceFunction::rsqrtf, "1 / sqrt(x), rsqrt.approx"},
    Named{"x / y", DeviceFunction::divide, "a division, as the flags have it"},
    Named{"__fdividef", DeviceFunction::fast_divide, "a division, div.approx"},
    Named{"__fdiv_rn", DeviceFunction::rounded_divide, "a division, rounded correctly"},
    Named{"1 / x", DeviceFunction::reciprocal, "a division of 1, as the flags have it"},
    Named{"__frcp_rn", DeviceFunction::rounded_reciprocal, "a division of 1, rounded correctly"},
    Named{"logf", DeviceFunction::logf, "the natural logarithm"},
    Named{"__logf", DeviceFunction::fast_logf, "the natural logarithm, lg2.approx and a product"},
    Named{"exp2f", DeviceFunction::exp2f, "2^x, ex2.approx"},
    Named{"exp10f", DeviceFunction::exp10f, "10^x"},
    Named{"log2f", DeviceFunction::log2f, "the binary logarithm"},
    Named{"__log2f", DeviceFunction::fast_log2f, "the binary logarithm, lg2.approx"},
    Named{"log10f", DeviceFunction::log10f, "the decimal logarithm"},
    Named{"log1pf", DeviceFunction::log1pf, "the natural logarithm of 1 + x"},
    Named{"expm1f", DeviceFunction::expm1f, "e^x - 1"},
    Named{"sqrtf", DeviceFunction::sqrtf, "the square root, as the flags have it"},
    Named{"__fsqrt_rn", DeviceFunction::rounded_sqrt, "the square root, rounded correctly"},
    Named{"erfcf", DeviceFunction::erfcf, "1 - the error function"},
    Named{"normcdff", DeviceFunction::normcdff, "the normal distribution's cumulative function"},
    Named{"sinf", DeviceFunction::sinf, "the sine of x radians"},
    Named{"cosf", DeviceFunction::cosf, "the cosine of x radians"},
};
static_assert(is_in_order(device_functions));
[[nodiscard]] constexpr std::span<const Named<DeviceFunction>> named_values(DeviceFunction /*of_type*/) {
  return device_functions;
}
/// Whether a function has a second argument.
[[nodiscard]] constexpr bool has_two_arguments(DeviceFunction function) {
  return function == DeviceFunction::divide || function == DeviceFunction::fast_divide ||
         function == DeviceFunction::rounded_divide;
}

/// Architectures for which nvcc's code was read: it has the same operations for all of them.
enum class DeviceChip : std::uint8_t { sm_80, sm_90, sm_100 };
inline constexpr std::array device_chips{
    Named{"sm_80", DeviceChip::sm_80, "A100, whose special function unit nobody has recorded"},
    Named{"sm_90", DeviceChip::sm_90, "H100 and H200"},
    Named{"sm_100", DeviceChip::sm_100, "B200, whose special function unit nobody has recorded"},
};
static_assert(is_in_order(device_chips));
[[nodiscard]] constexpr std::span<const Named<DeviceChip>> named_values(DeviceChip /*of_type*/) { return device_chips; }

/// Releases of CUDA whose functions are known.
enum class CudaRelease : std::uint8_t { cuda_13_0 };
inline constexpr std::array cuda_releases{
    Named{"13.0", CudaRelease::cuda_13_0, "libdevice.10.bc of CUDA 13.0, and what its nvcc makes of operators"}};
[[nodiscard]] constexpr std::span<const Named<CudaRelease>> named_values(CudaRelease /*of_type*/) {
  return cuda_releases;
}

/// How code was compiled, by nvcc's options: -ftz, -prec-div, -prec-sqrt and -use_fast_math, which implies the other
/// three and takes faster functions.
struct DeviceFlags {
  bool ftz = false;
  bool prec_div = true;
  bool prec_sqrt = true;
  bool fast_math = false;
};

/// How a function is computed: on which chip, how its code was compiled, and with which units: those of the chip, where
/// none are given.
struct DeviceBuild {
  DeviceChip chip = DeviceChip::sm_90;
  DeviceFlags flags = {};
  CudaRelease cuda = CudaRelease::cuda_13_0;
  std::optional<SpecialUnits> units = {};
};

/// out = the function of each element of x, and of y where it has a second argument, on `threads` threads. Every NaN is
/// 7FFFFFFF. An H200 gave the same words for all 2^32 inputs of expf, __expf, tanhf, erff, logf and sinf, without
/// options and with -ftz=true, and of rsqrtf, exp2f and 1 / x without; for 5 * 2^24 inputs or more of the other
/// functions and options; and for 10^8 pairs of words of each function of two arguments.
///
/// Source: the formulas and constants of CUDA 13.0's libdevice.10.bc; divisions and roots as ptxas makes them of
/// div.approx, div.full and sqrt.approx for sm_90.
///
/// Throws std::invalid_argument for a chip whose units are unknown or others than those that are given
/// (correctly_rounded goes with all), for sizes that differ (y must be empty for a function of one argument), arrays
/// that overlap otherwise than element by element, and as check_threads() does.
void device_function(DeviceFunction function, const DeviceBuild& build, std::span<const float> x,
                     std::span<const float> y, std::span<float> out, int threads = 1);

}  // namespace fp8lab
