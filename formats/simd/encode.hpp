// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"
#include "fp8lab/formats/unpack.hpp"
#include "tiles.hpp"

namespace fp8lab {

/// A cast to a format with subnormals, of at most 16 bits, as the constants that vector code needs.
struct VectorEncode {
  Rounding rounding;
  int mantissa_bits;
  std::uint32_t rebias;           // (127 - bias) << 23
  std::uint32_t smallest_normal;  // 2^min_exponent, as float32 bits
  std::int32_t max_code;
  int sign_shift;                  // from bit 31 to the format's sign
  std::uint32_t sign;              // 0x80000000, or 0 where the format has none
  std::int32_t negative_zero;      // the code of -0: the sign, or 0
  std::int32_t overflow_positive;  // signs included, here and below
  std::int32_t overflow_negative;
  std::int32_t infinity_positive;
  std::int32_t infinity_negative;
  std::int32_t nan_positive;
  std::int32_t nan_negative;
  std::int32_t nan_payload;  // the bits of a NaN's fraction that are kept
  int random_bits;           // of a stochastic rounding
  bool plain;                // nearest even, NaN without a sign, infinity as overflow, at most 8 bits: the fast steps
  // For these, as bits of float32: what overflow becomes; what a binade's power of two is multiplied with to round.
  std::int32_t plain_limit;
  std::int32_t plain_magic;
  std::int32_t upper_half_limit;  // to bfloat16, to nearest even: the largest float whose upper half is a code; else 0
};

/// Whether every NaN of a float gives the same code, without a sign.
[[nodiscard]] bool has_one_nan_code(const Format& format, const CastPolicy& policy);

/// The constants, where vector code can do the cast from float, half and bfloat16: nullopt otherwise.
[[nodiscard]] std::optional<VectorEncode> vector_encode(const Format& format, const CastPolicy& policy,
                                                        int random_bits = 0);

/// Encodes `count` elements; `random` has a word for each, below 2^random_bits, where the rounding is stochastic.
void encode_vector(const VectorEncode& cast, const float* in, const std::uint32_t* random, std::uint8_t* out,
                   std::size_t count);
void encode_vector(const VectorEncode& cast, const Half* in, const std::uint32_t* random, std::uint8_t* out,
                   std::size_t count);
void encode_vector(const VectorEncode& cast, const BFloat16* in, const std::uint32_t* random, std::uint8_t* out,
                   std::size_t count);
/// The same for formats of 9 to 16 bits.
void encode_vector(const VectorEncode& cast, const float* in, const std::uint32_t* random, std::uint16_t* out,
                   std::size_t count);
void encode_vector(const VectorEncode& cast, const Half* in, const std::uint32_t* random, std::uint16_t* out,
                   std::size_t count);
void encode_vector(const VectorEncode& cast, const BFloat16* in, const std::uint32_t* random, std::uint16_t* out,
                   std::size_t count);

/// The arguments of a call of TileEncoder.
template <typename Source>
struct TilesToEncode {
  const TileRows<Source>& x;
  const float* factors;
  std::size_t factor_stride;
  bool pairs;
  EncodeHints hints;
  std::uint8_t* out;
  std::size_t out_stride;
};
/// Multiplies and encodes by a plain cast. Returns how many elements of each row it did, from the first on: none where
/// the tiles do not fit the vectors.
[[nodiscard]] std::size_t encode_tiles_vector(const VectorEncode& cast, const TilesToEncode<float>& tiles);
[[nodiscard]] std::size_t encode_tiles_vector(const VectorEncode& cast, const TilesToEncode<BFloat16>& tiles);

}  // namespace fp8lab
