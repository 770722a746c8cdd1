// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"

namespace fp8lab {

/// Decoding of a format of 8 bits or less with subnormals.
struct VectorDecode {
  int mantissa_bits;
  std::uint32_t magnitude_mask;
  std::uint32_t sign_mask;
  std::int32_t max_code;
  std::int32_t infinity_code;     // -1 where there is none
  std::uint32_t exponent_offset;  // (127 - bias) << 23
  float smallest_subnormal;
  int sign_shift;
};
/// The constants, where vector code can do it: nullopt otherwise.
[[nodiscard]] std::optional<VectorDecode> vector_decode(const Format& format);
void decode_vector(const VectorDecode& cast, const std::uint8_t* in, float* out, std::size_t count);

/// Values of tiles, times a factor for each. Returns how many elements it did, from the first on: whole tiles, up to
/// one that does not fit the vectors, or whose factor may make NaN of a number.
[[nodiscard]] std::size_t decode_tiles_vector(const VectorDecode& cast, const std::uint8_t* in, std::size_t count,
                                              std::size_t tile, const float* factors, float* out);

/// decode(encode(x)) as the float32 words that the vector code needs.
struct VectorRound {
  std::int32_t smallest_normal;
  std::int32_t magic_offset;  // from a binade's power to the float whose ulp is the binade's spacing
  std::int32_t largest;
  std::int32_t twice_largest;
  std::int32_t overflow_value;  // below the sign
  std::int32_t nan_value;
};
/// The constants, where vector code can do the cast: nullopt otherwise.
[[nodiscard]] std::optional<VectorRound> vector_round(const Format& format, const CastPolicy& policy);
/// out = decode(encode(in * scale)) * (1 / scale).
void round_vector(const VectorRound& cast, float scale, const float* in, float* out, std::size_t count);

}  // namespace fp8lab
