// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8lab/reference/scaling/tile_scale.hpp"

namespace fp8lab {

/// What a rule of MxBlock needs beside an amax.
struct MxConstants {
  MxRule rule;
  bool torchao_0_18;               // the edges: of amaxes NaN alone makes the scale NaN, and rceil goes by log2
  int largest_exponent;            // of the format's largest value
  float largest, inverse_largest;  // and fl(1 / largest)
  std::uint32_t half_spacing;      // of the format at 1, in units of a float32's last bit: for rule even
  float at_first, at_254, at_nan;  // e8m0_inverse() of the codes 0, 254 and 255
};
/// What a rule of Block needs beside an amax.
struct BlockConstants {
  BlockRule rule;
  bool power_of_two;
  float largest, inverse_largest;
  float least_amax;  // what smaller amaxes count as
  float beyond;      // rule te: the scale in place of infinity
  float at_least;    // rule torchao: the scale of least_amax and below
};

/// What NvFp4 needs beside an amax.
struct NvFp4Constants {
  float factor;        // of an amax, before it is encoded
  float decode_scale;  // of what that decodes to
};

// tile_scales(); what an array of `out` gets that the recipe has no use for is open.
std::uint32_t mx_scales_vector(const MxConstants& mx, const std::uint32_t* amaxes, std::size_t count,
                               const TileScaleArrays& out);
std::uint32_t block_scales_vector(const BlockConstants& block, const std::uint32_t* amaxes, std::size_t count,
                                  const TileScaleArrays& out);
std::uint32_t nvfp4_scales_vector(const NvFp4Constants& nvfp4, const std::uint32_t* amaxes, std::size_t count,
                                  const TileScaleArrays& out);

}  // namespace fp8lab
