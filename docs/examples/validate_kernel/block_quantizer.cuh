// SPDX-License-Identifier: Apache-2.0
// A quantizer as a user has written it: E4M3 codes of 128 neighbours in a row, which share a scale that is a power of
// two. Nothing in this file knows fp8lab. Its arithmetic compiles for host and device.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define QUANTIZER_HD __host__ __device__
#else
#define QUANTIZER_HD
#endif

constexpr int block_size = 128;

QUANTIZER_HD inline std::uint32_t bits_of(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
QUANTIZER_HD inline float float_of(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

/// E4M3, to nearest even; what is too large becomes 448.
QUANTIZER_HD inline std::uint8_t to_e4m3(float x) {
  const std::uint32_t sign = bits_of(x) >> 24 & 0x80;
  std::uint32_t magnitude = bits_of(x) & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return 0x7F;                                     // NaN
  if (magnitude >= 0x43E00000) return static_cast<std::uint8_t>(sign | 0x7E);  // 448 and more
  if (magnitude < 0x3C800000) {                                                // below 2^-6: steps of 2^-9,
    magnitude = bits_of(float_of(magnitude) + 16384.0F) - bits_of(16384.0F);   // which are those of floats at 2^14
  } else {
    magnitude = (magnitude + 0x7FFFF + (magnitude >> 20 & 1)) >> 20;
    magnitude -= (127 - 7) << 3;
  }
  return static_cast<std::uint8_t>(sign | magnitude);
}

/// A block's scale, which multiplies its elements. `too_late` is a bug that was once real: the scale is rounded for the
/// memory only, and the elements are multiplied with it as it was before.
struct BlockScale {
  float multiplies;
  float stored_inverse;
};
QUANTIZER_HD inline BlockScale scale_of(float amax, bool too_late) {
  float scale = 448.0F / amax;
  if (!(amax > 0) || amax > 3.4028234e38F) scale = 1;  // nothing but zeros and NaN, or an infinity
  if (scale > 3.4028234e38F) scale = 3.4028234e38F;
  const float rounded = float_of(bits_of(scale) & 0x7F800000);
  return {too_late ? scale : rounded, 1.0F / rounded};
}
