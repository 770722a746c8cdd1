// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace fp8lab {

/// Output of this size and more goes past the caches, as memcpy's does: no line is read before it is overwritten.
inline constexpr std::size_t streaming_bytes = std::size_t{1} << 22;
/// No vector is wider, and no cache line.
inline constexpr std::size_t widest_vector = 64;

inline bool is_aligned(const void* p, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; }

/// How many elements lie before the first that a vector store may stream to.
template <typename T>
std::size_t elements_to_align(const T* out) {
  const auto past = reinterpret_cast<std::uintptr_t>(out) % widest_vector;
  return past == 0 ? 0 : (widest_vector - past) / sizeof(T);
}

}  // namespace fp8lab
