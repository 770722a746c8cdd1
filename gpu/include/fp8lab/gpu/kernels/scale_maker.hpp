// SPDX-License-Identifier: Apache-2.0
// How kernels make scales of amaxes, by the rule of the recipe's record, and where these go.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "fp8lab/gpu/kernels/element_rule.hpp"
#include "fp8lab/gpu/team.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "fp8lab/reference/scaling/scale_rule.hpp"

namespace fp8lab::gpu {

/// A recipe that is known when the kernel starts: any that has an ElementRule.
struct AnyRecipe {
  Recipe record;
  ElementRule rule;

  [[nodiscard]] FP8LAB_HD const Recipe& recipe() const { return record; }
  [[nodiscard]] FP8LAB_HD ElementRule element() const { return rule; }
};

// The rules of the recipes that are used most are known to the compiler, which leaves of them what they need. A record
// with the same facts (same_rule()) takes them.

/// given_scale and its kin: GivenScale of any format and number.
struct GivenRecipe {
  CodeFormat format = CodeFormat::e4m3;

  [[nodiscard]] static FP8LAB_HD constexpr Recipe recipe() { return {.quotient = Quotient::given_scale}; }
  [[nodiscard]] FP8LAB_HD constexpr ElementRule element() const { return {.format = format}; }
};
/// te_mxfp8 and its kin: MxBlock by rule te, of any format and with blocks of any height.
struct TeMxRecipe {
  CodeFormat format = CodeFormat::e4m3;

  [[nodiscard]] static FP8LAB_HD constexpr Recipe recipe() {
    return {.tile_across = 1,
            .tile_along = 32,
            .whole_tiles = true,
            .quotient = Quotient::amax_times_inverse,
            .rounding = ScaleRounding::up,
            .scale_type = ScaleType::e8m0_code,
            .transposed_columnwise = false};
  }
  [[nodiscard]] FP8LAB_HD constexpr ElementRule element() const { return {.format = format}; }
};
/// te_block_1x128, te_block_128x128 and their kin: Block by rule te, of any format. Scales are powers of two or not.
struct TeBlockRecipe {
  CodeFormat format = CodeFormat::e4m3;
  bool powers_of_two = true;

  [[nodiscard]] FP8LAB_HD constexpr Recipe recipe() const {
    return {.tile_across = 1,
            .tile_along = 128,
            .quotient = Quotient::largest_over_amax,
            .rounding = powers_of_two ? ScaleRounding::down : ScaleRounding::none,
            .limit = ScaleLimit::input_type,
            .zero_amax = SpecialScale::one,
            .infinite_amax = SpecialScale::one,
            .nan_amax = SpecialScale::one};
  }
  [[nodiscard]] FP8LAB_HD constexpr ElementRule element() const { return {.format = format}; }
};
/// te_nvfp4 and its kin: NvFp4, turned or not, stochastic or not.
struct TeNvFp4Recipe {
  Transform transform = Transform::none;
  bool stochastic = false;

  [[nodiscard]] FP8LAB_HD constexpr Recipe recipe() const {
    constexpr Format four_bits = e2m1;
    return {.tile_across = 1,
            .tile_along = 16,
            .whole_tiles = true,
            .transform = transform,
            .quotient = Quotient::amax_times_inverse,
            .scale_type = ScaleType::e4m3_code,
            .tensor_scale = TensorScaleRule::largest_over_amax,
            .format = four_bits};
  }
  [[nodiscard]] FP8LAB_HD constexpr ElementRule element() const {
    return {.format = CodeFormat::e2m1, .stochastic = stochastic};
  }
};
/// The scale that an amax makes. Of a rule that the compiler knows little is left, and that becomes part of the caller.
template <typename Rule>
FP8LAB_HD_INLINE TileScale scale_of_rule(const Rule& rule, const ScaleConstants& constants, float amax) {
  return scale_of_amax(rule.recipe(), constants, amax);
}
/// The scale of NVFP4 by the instructions that convert to E4M3 and back, where the chip has them.
FP8LAB_HD_INLINE TileScale scale_of_rule(const TeNvFp4Recipe& /*rule*/, const ScaleConstants& constants, float amax) {
  constexpr float most = std::numeric_limits<float>::max();
  const float product = amax * (constants.tensor_scale * constants.inverse_largest);
  const std::uint32_t code = ptx::e4m3x2(product, 0.0F) & 0xFFU;
  const float d = ptx::float_of(Half{static_cast<std::uint16_t>(ptx::halves_of_e4m3x2(code))});
  const float quotient = 1 / (d * constants.tensor_scale_inv);
  return {quotient < most ? quotient : most, d, static_cast<std::uint8_t>(code)};  // the largest of NaN, too
}
/// Any other may be a call.
FP8LAB_HD inline TileScale scale_of_rule(const AnyRecipe& rule, const ScaleConstants& constants, float amax) {
  return scale_of_amax(rule.recipe(), constants, amax);
}

/// Whether two recipes differ at most in the height of their blocks, in a given scale, and in what an ElementRule has.
[[nodiscard]] inline bool same_rule(const Recipe& a, Recipe b) {
  b.tile_across = a.tile_across;
  b.scale_for_each_row = a.scale_for_each_row;
  b.given_scale = a.given_scale;
  b.format = a.format;
  b.cast = a.cast;
  b.operation = a.operation;
  return a == b;
}

/// Makes the scales of a tensor by its rule.
template <typename Rule>
struct ScaleMaker {
  Rule rule;
  ScaleConstants constants;  ///< for a tensor's scale over those of tiles, those of its amax are made by the kernel
  const float* amax;         ///< of the tensor, for recipes whose scales depend on it
  const float* given;        ///< the given scale; null: the recipe's own

  /// The constants once the tensor's amax is known.
  [[nodiscard]] FP8LAB_HD ScaleConstants known_constants() const {
    if (rule.recipe().tensor_scale == TensorScaleRule::none) return constants;
    return scale_constants(rule.recipe(), {.amax = *amax, .input_type = constants.input_type});
  }
  /// The one scale of the tensor.
  [[nodiscard]] FP8LAB_HD TileScale of_tensor() const {
    ScaleConstants own = constants;
    if (given != nullptr) own.given_scale = *given;
    return scale_of_rule(rule, own, amax == nullptr ? 0 : *amax);
  }
};

/// The part of a tensor that a block takes. Where its amax has just been taken, the last parts come first: a cache may
/// still have them.
template <typename Rule>
[[nodiscard]] FP8LAB_HD std::size_t place_of_block(const ScaleMaker<Rule>& scales, std::size_t block,
                                                   std::size_t blocks) {
  return scales.amax == nullptr ? block : blocks - 1 - block;
}

/// Where the scales of a direction go: a row of the layout has the scales along K.
struct ScaleStore {
  float* scale_inv = nullptr;     ///< of float32 scales
  std::uint8_t* codes = nullptr;  ///< of others
  std::size_t columns = 0;        ///< scales of a row
  bool swizzled = false;

  [[nodiscard]] FP8LAB_HD std::size_t place(std::size_t row, std::size_t column) const {
    return swizzled ? swizzled_place(row, column, columns) : row * columns + column;
  }
  /// Stores a scale of that type.
  FP8LAB_HD void put(ScaleType type, std::size_t at, const TileScale& scale) const {
    if (type != ScaleType::float32) {
      codes[at] = scale.code;
    } else {
      scale_inv[at] = scale.scale_inv;
    }
  }
};

}  // namespace fp8lab::gpu
