// SPDX-License-Identifier: Apache-2.0
// Operands that probes try: the i-th dot product of an instruction, block scales behind the elements of a and b.
#pragma once

#include <cstdint>
#include <span>

#include "fp8lab/gpu/recorder/tiles.hpp"

namespace fp8lab::experiments {

using Drawn = std::span<std::uint64_t>;
using ProbeDraw = void (*)(const gpu::TileSet& set, std::uint64_t i, Drawn a, Drawn b, std::uint64_t& c);

/// Few products are not zero: one is about as large as the accumulator's smallest value, the others are smaller by up
/// to 30 binades. c is tiny or zero.
void draw_tiny(const gpu::TileSet& set, std::uint64_t i, Drawn a, Drawn b, std::uint64_t& c);
/// Finite operands, in turn: the generator's, gaussian and cancelling, and large products that cancel beside small
/// ones.
void draw_finite(const gpu::TileSet& set, std::uint64_t i, Drawn a, Drawn b, std::uint64_t& c);
/// NaN, infinities and zeros times infinities.
void draw_special(const gpu::TileSet& set, std::uint64_t i, Drawn a, Drawn b, std::uint64_t& c);
/// Scaled operands, in turn: groups of zeros or of products that cancel, beside scales of all sizes, and draw_tiny().
void draw_scaled_zeros(const gpu::TileSet& set, std::uint64_t i, Drawn a, Drawn b, std::uint64_t& c);

}  // namespace fp8lab::experiments
