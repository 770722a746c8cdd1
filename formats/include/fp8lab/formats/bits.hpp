// SPDX-License-Identifier: Apache-2.0
// The bits of a word, counted on host and device.
//
// Device code must not call the functions of <bit> that count: std::countl_zero, countr_zero, popcount, bit_width and
// those made of them. libstdc++ writes them with builtins of GCC, and nvcc 13.0 has only some of these in device code:
// not __builtin_clzl, __builtin_ctz, __builtin_popcountl. Where a function of fp8lab calls a missing one, nvcc warns.
// Inside the standard library's constexpr functions, which --expt-relaxed-constexpr lets through, it says nothing and
// takes the call for one that is never reached: std::countl_zero(uint64_t) became 64 for every word, and
// std::countr_zero(uint32_t) 32. What is called below exists on the device: a test reads it from the machine code.
#pragma once

#include <cstdint>

#include "fp8lab/formats/host_device.hpp"

namespace fp8lab {

/// How many zeros stand above the topmost one; the width of the word where there is none.
[[nodiscard]] FP8LAB_HD constexpr int leading_zeros(std::uint64_t word) {
  return word == 0 ? 64 : __builtin_clzll(word);
}
[[nodiscard]] FP8LAB_HD constexpr int leading_zeros(std::uint32_t word) { return word == 0 ? 32 : __builtin_clz(word); }

/// How many zeros stand below the lowest one; 32 where there is none.
[[nodiscard]] FP8LAB_HD constexpr int trailing_zeros(std::uint32_t word) {
  return word == 0 ? 32 : 31 - leading_zeros(word & (~word + 1));
}

/// How many bits are one.
[[nodiscard]] FP8LAB_HD constexpr int count_ones(std::uint32_t word) { return __builtin_popcount(word); }

/// The topmost one alone; 0 where there is none.
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t topmost_one(std::uint32_t word) {
  return word == 0 ? 0 : std::uint32_t{1} << (31 - leading_zeros(word));
}

}  // namespace fp8lab
