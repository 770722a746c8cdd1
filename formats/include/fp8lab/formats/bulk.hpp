// SPDX-License-Identifier: Apache-2.0
// Casts whole arrays between floats and codes, with the checks that every such function makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"

namespace fp8lab {

/// Checks what every bulk cast requires. Throws std::invalid_argument where the format is not one that check_format()
/// takes, has fewer bits than `least` or more than `most`, or the sizes differ.
void check_bulk(const Format& format, int least, int most, std::size_t in, std::size_t out);

/// Throws std::invalid_argument where a code has bits beyond the format's width: the message has `name`, and the index
/// and the code of the first. Every function that takes an array of codes calls it.
void check_codes(const Format& format, std::span<const std::uint8_t> codes, std::string_view name, int threads = 1);
void check_codes(const Format& format, std::span<const std::uint16_t> codes, std::string_view name, int threads = 1);

/// Whether the bulk encode of floats has vector code for this cast; where it has none, every target gives the scalar
/// code.
[[nodiscard]] bool has_vector_encode(const Format& format, const CastPolicy& policy);

/// out = decode(encode(in * scale)) * (1 / scale), in float32 whatever the caller's rounding mode; out may be in.
/// Preconditions: what check_bulk() and check_apart_or_same() ask for, 1 to 16 bits; a rounding that needs no random
/// bits; scale and its inverse positive and finite.
void recode(const Format& format, const CastPolicy& policy, std::span<const float> in, float scale,
            std::span<float> out);

}  // namespace fp8lab
