// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

enum class Arithmetic : std::uint8_t {
  fused,  ///< multi-term addition: all products and the accumulator aligned, truncated, summed in one step
  exact,  ///< the real sum, rounded once to the nearest float32
};

/// What terms that are zero contribute to the alignment exponent of a fused step.
enum class ZeroRule : std::uint8_t {
  skip,     ///< nothing
  mma_sim,  ///< a zero factor, and a zero accumulator, counts as 2^-126 (MMA-Sim, commit c785138)
};

/// The accumulator word of Hopper's FP8 path: a float32 whose low ten bits stay zero.
inline constexpr Format e8m13{8, 13, 127};

/// A tensor core as data. One step adds products_per_step products to the accumulator:
/// 1. E = the largest exponent among the nonzero products and the accumulator. A product's exponent is the sum of its
///    factors' exponent fields (unbiased; subnormals have that of the smallest normal): products are not normalised.
/// 2. Every term is cut, toward zero, to a multiple of 2^(E - fraction_bits), and the terms are summed exactly.
/// 3. The sum is cut, toward zero, to `output`. Zero is always +0; any NaN is 7FFFFFFF.
struct MmaModel {
  std::string_view name;
  Arithmetic arithmetic;
  int products_per_step;             ///< K of the instruction; 0 for exact: any
  int fraction_bits;                 ///< bits kept below 2^E
  Format output;                     ///< accumulator and result, held in a float32
  std::span<const Format> operands;  ///< what the factors may be; float32 inputs are rounded to tf32 where it is tf32
  std::string_view description;
  std::string_view source;
  std::string_view evidence;
};

inline constexpr std::array fp8_operands{e4m3, e5m2};
inline constexpr std::array tf32_operands{tf32};
inline constexpr std::array exact_operands{e4m3, e5m2, e8m0, binary32};

inline constexpr MmaModel hopper_wgmma_fp8{
    "hopper_wgmma_fp8",
    Arithmetic::fused,
    32,
    13,
    e8m13,
    fp8_operands,
    "Hopper wgmma m64nNk32, FP8 operands, float32 accumulator: 13 fraction bits kept, 14-bit accumulator",
    "Xie et al., MMA-Sim, arXiv 2511.10909; Khattak and Mikaitis, arXiv 2512.07004",
    "measured on H100 and H200 (C = 0); reproduces the H100 outputs that Transformer Engine's FP8 primer prints"};
inline constexpr MmaModel hopper_tf32{
    "hopper_tf32",
    Arithmetic::fused,
    8,
    25,
    binary32,
    tf32_operands,
    "Hopper TF32: float32 operands rounded to 10 fraction bits (nearest, ties away), 25 fraction bits kept",
    "Xie et al., MMA-Sim, arXiv 2511.10909; Khattak and Mikaitis, arXiv 2512.07004",
    "published model"};
inline constexpr MmaModel blackwell_tcgen05_fp8{
    "blackwell_tcgen05_fp8",
    Arithmetic::fused,
    32,
    25,
    binary32,
    fp8_operands,
    "Blackwell tcgen05.mma kind::f8f6f4, FP8 operands, float32 accumulator: 25 fraction bits kept",
    "Xie et al., MMA-Sim, arXiv 2511.10909",
    "published model"};
inline constexpr MmaModel exact{"exact",
                                Arithmetic::exact,
                                0,
                                0,
                                binary32,
                                exact_operands,
                                "the real dot product, rounded once to float32 (nearest even)",
                                "definition",
                                "proven by construction"};

inline constexpr std::array models{hopper_wgmma_fp8, hopper_tf32, blackwell_tcgen05_fp8, exact};

/// The model called `name`. Throws std::invalid_argument that lists the known names.
[[nodiscard]] const MmaModel& find_model(std::string_view name);
/// The zero rule called `name` ("skip" or "mma_sim"). Throws as find_model does.
[[nodiscard]] ZeroRule find_zero_rule(std::string_view name);

}  // namespace fp8lab
