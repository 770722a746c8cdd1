// SPDX-License-Identifier: Apache-2.0
// The codes and scales that somebody's kernel wrote, as a Quantized.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "fp8lab/formats/named.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"

namespace fp8lab {

/// How a kernel stores one-byte scales (scale_layout.hpp).
enum class StoredScales : std::uint8_t {
  compact,  ///< row-major, as Quantized has them
  padded,   ///< as pad_scales() gives them: of (rows, blocks along K), or where columnwise codes are not transposed, of
            ///< (blocks along K, columns), with its two sides padded as the other's are
  swizzled,  ///< as swizzle_scales() gives those of (rows across K, blocks along K)
};
[[nodiscard]] std::span<const Named<StoredScales>> named_values(StoredScales of_type);

/// The arrays that a kernel wrote for a tensor of (rows, columns), and what they are.
struct KernelArrays {
  std::size_t rows = 0;
  std::size_t columns = 0;
  Direction direction = Direction::rowwise;
  /// Codes and scales are those of the transpose. Left out: as the recipe has them in that direction.
  std::optional<bool> transposed = {};
  std::span<const std::uint8_t> codes = {};  ///< row-major, a byte each; of formats of 4 bits, pairs as pack_pairs()
  std::span<const float> scale_inv = {};     ///< what multiplies on dequantize, where scales are float32
  std::span<const std::uint8_t> scale_codes = {};  ///< where they are E8M0 or E4M3
  StoredScales layout = StoredScales::compact;     ///< of scale_codes
  /// Where there is a scale of the tensor over those of its tiles (NVFP4): the amax of which the recipe makes it, or
  /// the scale itself, whatever it was made of, as it multiplies on quantize (E), on dequantize (D), or both, as
  /// GivenScales has them (some recipes dequantize with E and some with D). Not where there is no such scale, but for
  /// an amax, which is kept.
  std::optional<float> amax = {};
  std::span<const float> row_amaxes = {};  ///< where each row (columnwise: column) has such a scale: their amaxes
  std::optional<float> tensor_scale = {};
  std::optional<float> tensor_scale_inv = {};
  /// Scales and the amax may be NaN or infinite, as those of tiles with a NaN or an infinity are by some recipes.
  bool allow_special_scales = false;
};

/// The arrays as a Quantized of that recipe: copies of them, in the layout of a Quantized. dequantize(), gemm() and
/// comparisons take it as they take what quantize() makes. What the recipe says about how scales are made is not
/// checked.
///
/// Throws std::invalid_argument where the arrays do not fit the recipe and each other (the message names the array, its
/// size and the size that it must have), a code has bits beyond its format's width, a scale is negative or,
/// unless that is allowed, NaN or infinite, the tensor's scale is missing or not positive, or is given beside an amax.
[[nodiscard]] Quantized quantized_from(const KernelArrays& arrays, const Recipe& recipe);

}  // namespace fp8lab
