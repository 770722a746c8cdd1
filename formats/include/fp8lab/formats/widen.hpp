// SPDX-License-Identifier: Apache-2.0
// Converts half and bfloat16 numbers to float exactly.
#pragma once

#include <bit>
#include <cstdint>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/unpack.hpp"

namespace fp8lab {

/// The same number as a float, exactly. A NaN keeps its sign and its payload; that of a half becomes quiet.
[[nodiscard]] FP8LAB_HD constexpr float widened(float x) { return x; }
[[nodiscard]] FP8LAB_HD constexpr float widened(BFloat16 x) {
  return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
}
[[nodiscard]] FP8LAB_HD constexpr float widened(Half x) {
  constexpr Format own = binary32;
  constexpr CastPolicy policy = ieee_policy;
  return std::bit_cast<float>(static_cast<std::uint32_t>(encode(own, policy, unpack(x), NanCode::sign_and_payload)));
}

}  // namespace fp8lab
