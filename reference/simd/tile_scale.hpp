// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8lab/reference/scaling/tile_scale.hpp"

namespace fp8lab {

/// The constants that a recipe with scales of E8M0 needs beside an amax.
struct MxConstants {
  Quotient quotient;
  ScaleRounding rounding;
  bool infinity_is_nan;            // and what rounds to one, or for quotients a scale above 2^127
  int largest_exponent;            // of the format's largest value
  float largest, inverse_largest;  // and fl(1 / largest)
  std::uint32_t half_spacing;      // of the mantissa that `even` rounds to, in units of a float32's last bit
  float at_first, at_254, at_nan;  // e8m0_inverse() of the codes 0, 254 and 255
};
/// The constants for scales of float32.
struct BlockConstants {
  Quotient quotient;
  ScaleRounding rounding;
  bool divides;
  bool special_is_one;  // an amax of zero, infinity or NaN makes a scale of 1
  float largest, inverse_largest;
  float least_amax;  // smaller amaxes have the quotient at_least
  float at_least;
  float scale_limit;  // the scale in place of infinity
};
/// The constants for scales of E4M3 under a tensor's.
struct NvFp4Constants {
  BlockProduct product;
  BlockFactor factor;
  SpecialScale zero_amax;
  float largest, inverse_largest;  // and fl(1 / largest)
  float scale, scale_inv;          // of the tensor
  float tensor_range, tensor_quotient;
  float least;  // of what is encoded
};

// tile_scales(); what an array of `out` gets that the recipe has no use for is open.
std::uint32_t mx_scales_vector(const MxConstants& mx, const std::uint32_t* amaxes, std::size_t count,
                               const TileScaleArrays& out);
std::uint32_t block_scales_vector(const BlockConstants& block, const std::uint32_t* amaxes, std::size_t count,
                                  const TileScaleArrays& out);
std::uint32_t nvfp4_scales_vector(const NvFp4Constants& nvfp4, const std::uint32_t* amaxes, std::size_t count,
                                  const TileScaleArrays& out);

}  // namespace fp8lab
