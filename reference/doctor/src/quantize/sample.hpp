// SPDX-License-Identifier: Apache-2.0
// The elements on which hypotheses are sieved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quantize/kernel_model.hpp"

namespace fp8lab::doctor {

/// Elements of a piece of the sample.
inline constexpr std::size_t piece_length = 128;

/// The piece of that element.
[[nodiscard]] Piece piece_around(const Source& source, std::uint64_t index);

/// Pieces at the ends, of special elements, and some that are drawn.
[[nodiscard]] std::vector<Piece> first_sample(const Source& source);

}  // namespace fp8lab::doctor
