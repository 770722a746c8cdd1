// SPDX-License-Identifier: Apache-2.0
// Counts elements and codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fp8lab::experiments {

/// How many of back are zero where x is not.
[[nodiscard]] std::uint64_t count_zeroed(std::span<const float> back, std::span<const float> x);
/// How many codes have a magnitude, the code & mask, from 1 to `most`.
[[nodiscard]] std::uint64_t count_from_one_to(std::span<const std::uint8_t> codes, std::uint8_t mask,
                                              std::uint8_t most);
}  // namespace fp8lab::experiments
