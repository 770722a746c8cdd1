// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8lab/formats/memory.hpp"

namespace fp8lab {

inline constexpr std::size_t widest_vector = cache_line;

inline bool is_aligned(const void* p, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; }

/// How many elements lie before the first that a vector store may stream to.
template <typename T>
std::size_t elements_to_align(const T* out) {
  const auto past = reinterpret_cast<std::uintptr_t>(out) % widest_vector;
  return past == 0 ? 0 : (widest_vector - past) / sizeof(T);
}

}  // namespace fp8lab
