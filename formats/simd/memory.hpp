// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace fp8lab {

/// No cache line is longer, and no vector. Every Buffer begins with one.
inline constexpr std::size_t cache_line = 64;
inline constexpr std::size_t widest_vector = cache_line;
/// Output of this size and more goes past the caches, as memcpy's does: no line is read before it is overwritten.
inline constexpr std::size_t streaming_bytes = std::size_t{1} << 22;
/// Elements of a large array that vector code gets at a time, so that it can be interrupted; half of it is enough for
/// output to go past the caches.
inline constexpr std::size_t vector_piece = 2 * streaming_bytes;

inline bool is_aligned(const void* p, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; }

/// Whether rows of bytes, each `stride` after the one before, begin with cache lines.
inline bool begin_with_lines(const std::uint8_t* rows, std::size_t stride) {
  return (reinterpret_cast<std::uintptr_t>(rows) | stride) % cache_line == 0;
}

/// How many elements lie before the first that a vector store may stream to.
template <typename T>
std::size_t elements_to_align(const T* out) {
  const auto past = reinterpret_cast<std::uintptr_t>(out) % widest_vector;
  return past == 0 ? 0 : (widest_vector - past) / sizeof(T);
}

}  // namespace fp8lab
