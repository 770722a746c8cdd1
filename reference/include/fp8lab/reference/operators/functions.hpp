// SPDX-License-Identifier: Apache-2.0
// The elementary functions of kernels: the same bits on every processor and with every C library.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/units/rounded_functions.hpp"

namespace fp8lab {

/// Where a kernel's elementary functions come from.
enum class Functions : std::uint8_t {
  correctly_rounded,  ///< the float32 nearest to the exact value, ties to even
  hopper,             ///< device_function() of sm_90, and sums in the kernel's order
};
inline constexpr std::array function_names{
    Named{"correctly_rounded", Functions::correctly_rounded, "the float32 nearest to the exact value, ties to even"},
    Named{
        "hopper", Functions::hopper,
        "CUDA 13.0's functions over Hopper's special function unit, and sums in the order of Transformer Engine's "
        "kernels; for activations, for norms of at most 16384 columns, for softmaxes of 16 bits an element and at most "
        "16384 keys, for rope and the router of experts, and for the gradients of these"},
};
static_assert(is_in_order(function_names));
[[nodiscard]] constexpr std::span<const Named<Functions>> named_values(Functions /*of_type*/) { return function_names; }

/// All of them by name.
inline constexpr std::array elementary_functions{
    Named<float (*)(float)>{"exp", rounded_exp, "e^x"},
    Named<float (*)(float)>{"exp2", rounded_exp2, "2^x"},
    Named<float (*)(float)>{"tanh", rounded_tanh, "the hyperbolic tangent"},
    Named<float (*)(float)>{"log", rounded_log, "the natural logarithm"},
    Named<float (*)(float)>{"log2", rounded_log2, "the binary logarithm"},
    Named<float (*)(float)>{"log1p", rounded_log1p, "the natural logarithm of 1 + x"},
    Named<float (*)(float)>{"rsqrt", rounded_rsqrt, "1 / sqrt(x)"},
    Named<float (*)(float)>{"sin", rounded_sin, "the sine of x radians"},
    Named<float (*)(float)>{"cos", rounded_cos, "the cosine of x radians"},
};

/// out = the function called `name` of each element, on `threads` threads. Any NaN is the positive one of all ones.
///
/// Throws std::invalid_argument for an unknown name, sizes that differ, arrays that overlap otherwise than element by
/// element, and as check_threads() does.
void apply_elementary(std::string_view name, std::span<const float> x, std::span<float> out, int threads = 1);

}  // namespace fp8lab
