// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/pack.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "simd/memory.hpp"

namespace fp8lab {
namespace {

void check_packed(std::size_t codes, std::size_t bytes) {
  if (bytes != (codes + 1) / 2) {
    throw std::invalid_argument(std::to_string(codes) + " codes of 4 bits take " + std::to_string((codes + 1) / 2) +
                                " bytes, not " + std::to_string(bytes));
  }
}

/// The low nibbles of eight bytes, moved together; the first is in the lowest byte.
std::uint32_t packed(std::uint64_t codes) {
  codes &= 0x0F0F0F0F0F0F0F0FU;
  codes = (codes | codes >> 4) & 0x00FF00FF00FF00FFU;
  codes = (codes | codes >> 8) & 0x0000FFFF0000FFFFU;
  return static_cast<std::uint32_t>(codes | codes >> 16);
}

/// Undoes packed().
std::uint64_t unpacked(std::uint32_t pairs) {
  std::uint64_t codes = pairs;
  codes = (codes | codes << 16) & 0x0000FFFF0000FFFFU;
  codes = (codes | codes << 8) & 0x00FF00FF00FF00FFU;
  return (codes | codes << 4) & 0x0F0F0F0F0F0F0F0FU;
}

/// Precondition: sizes fit.
void pack_some(std::span<const std::uint8_t> codes, std::span<std::uint8_t> out) {
  std::size_t i = 0;
  if constexpr (std::endian::native == std::endian::little) {
    for (; i + 8 <= codes.size(); i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, &codes[i], sizeof(word));
      const std::uint32_t pairs = packed(word);
      std::memcpy(&out[i / 2], &pairs, sizeof(pairs));
    }
  }
  for (; i + 1 < codes.size(); i += 2) {
    out[i / 2] = static_cast<std::uint8_t>((codes[i] & 0xF) | codes[i + 1] << 4);
  }
  if (codes.size() % 2 != 0) out[out.size() - 1] = codes.back() & 0xF;
}

/// Precondition: sizes fit.
void unpack_some(std::span<const std::uint8_t> packed, std::span<std::uint8_t> out) {
  std::size_t i = 0;
  if constexpr (std::endian::native == std::endian::little) {
    for (; i + 8 <= out.size(); i += 8) {
      std::uint32_t pairs = 0;
      std::memcpy(&pairs, &packed[i / 2], sizeof(pairs));
      const std::uint64_t word = unpacked(pairs);
      std::memcpy(&out[i], &word, sizeof(word));
    }
  }
  for (; i < out.size(); ++i) {
    out[i] = static_cast<std::uint8_t>(i % 2 == 0 ? packed[i / 2] & 0xF : packed[i / 2] >> 4);
  }
}

}  // namespace

void pack_pairs(std::span<const std::uint8_t> codes, std::span<std::uint8_t> out) {
  check_packed(codes.size(), out.size());
  check_apart("codes", codes, "out", out);
  check_codes(e2m1, codes, "codes");
  const auto work = [&](std::size_t first, std::size_t last) {
    pack_some(codes.subspan(2 * first, std::min(2 * last, codes.size()) - 2 * first), out.subspan(first, last - first));
  };
  parallel_for(out.size(), 1, work, vector_piece);
}

void unpack_pairs(std::span<const std::uint8_t> packed, std::span<std::uint8_t> out) {
  check_packed(out.size(), packed.size());
  check_apart("packed", packed, "out", out);
  const auto work = [&](std::size_t first, std::size_t last) {
    unpack_some(packed.subspan(first, last - first),
                out.subspan(2 * first, std::min(2 * last, out.size()) - 2 * first));
  };
  parallel_for(packed.size(), 1, work, vector_piece);
}

}  // namespace fp8lab
