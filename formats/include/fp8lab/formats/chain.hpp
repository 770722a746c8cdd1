// SPDX-License-Identifier: Apache-2.0
// Casts by way of a second format, as software without a direct conversion does, and counts what that changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/formats/encode.hpp"

namespace fp8lab {

/// A cast by name of its parts, to be put in front of another.
struct CastStep {
  Format format = binary16;
  CastPolicy policy = {.overflow = Overflow::to_special,
                       .infinity = Overflow::to_special,
                       .nan = NanCode::sign_and_payload};  ///< IEEE 754's, to nearest even
};

/// Code of `x` in `format` by way of `via`, rounded twice: what software does that converts float to half or bfloat16
/// first. Total.
///
/// @tparam Source float, double, Half or BFloat16
template <typename Source>
[[nodiscard]] constexpr std::uint32_t encode_via(const CastStep& via, const Format& format, const CastPolicy& policy,
                                                 Source x) {
  const Unpacked between = unpack(via.format, encode(via.format, via.policy, x));
  return static_cast<std::uint32_t>(encode(format, policy, between, policy.nan));
}

/// The same for every element of `in`. `out` lies apart from `in`. Throws std::invalid_argument as the bulk encode
/// does, and for a `via` of more than 16 bits.
void encode_via(const CastStep& via, const Format& format, const CastPolicy& policy, std::span<const float> in,
                std::span<std::uint8_t> out, int threads = 1);
void encode_via(const CastStep& via, const Format& format, const CastPolicy& policy, std::span<const double> in,
                std::span<std::uint8_t> out, int threads = 1);

/// Where a chain of casts differs from the direct cast.
struct ChainDifferences {
  std::size_t total = 0;             ///< elements compared
  std::size_t count = 0;             ///< elements whose codes differ
  std::vector<std::size_t> indices;  ///< of the first of them
};

/// Counts the elements of `in` whose codes differ when they go by way of `via`, and locates the first `most` of them.
/// Throws as encode_via does.
[[nodiscard]] ChainDifferences chain_differences(const CastStep& via, const Format& format, const CastPolicy& policy,
                                                 std::span<const float> in, std::size_t most = 8, int threads = 1);
[[nodiscard]] ChainDifferences chain_differences(const CastStep& via, const Format& format, const CastPolicy& policy,
                                                 std::span<const double> in, std::size_t most = 8, int threads = 1);

}  // namespace fp8lab
