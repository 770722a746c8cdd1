// SPDX-License-Identifier: Apache-2.0
// Packs codes of 4 bits two a byte, and unpacks them.
#pragma once

#include <cstdint>
#include <span>

namespace fp8lab {

/// Packs codes of 4 bits two a byte, the first of a pair in the low nibble, as FP4 tensors have them in memory; the
/// high nibble after an odd number of codes is 0.
///
/// Source: PTX ISA, .e2m1x2; CUDA 13.0 cuda_fp4.h, __nv_fp4x2_e2m1. Throws std::invalid_argument where `out` has not
/// (codes + 1) / 2 bytes, where it overlaps `codes`, and where a code has more than 4 bits.
void pack_pairs(std::span<const std::uint8_t> codes, std::span<std::uint8_t> out);

/// The inverse, for out.size() codes. Throws std::invalid_argument where `packed` has not (out.size() + 1) / 2 bytes,
/// and where the arrays overlap.
void unpack_pairs(std::span<const std::uint8_t> packed, std::span<std::uint8_t> out);

}  // namespace fp8lab
