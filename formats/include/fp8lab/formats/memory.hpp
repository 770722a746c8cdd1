// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace fp8lab {

/// No cache line is longer, and no vector.
inline constexpr std::size_t cache_line = 64;
/// Output of this size and more goes past the caches, as memcpy's does: no line is read before it is overwritten.
inline constexpr std::size_t streaming_bytes = std::size_t{1} << 22;

/// Whether rows of bytes, each `stride` after the one before, begin with cache lines.
inline bool begin_with_lines(const std::uint8_t* rows, std::size_t stride) {
  return (reinterpret_cast<std::uintptr_t>(rows) | stride) % cache_line == 0;
}

/// Memory that begins with a cache line, so that whole vectors can go past the caches.
template <typename T>
struct LineAllocator {
  using value_type = T;

  LineAllocator() = default;
  template <typename Other>
  LineAllocator(const LineAllocator<Other>& /*other*/) {}

  [[nodiscard]] T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{cache_line}));
  }
  template <typename U>
  void construct(U* p) {
    ::new (static_cast<void*>(p)) U;
  }
  template <typename U, typename... Arguments>
  void construct(U* p, Arguments&&... arguments) {
    ::new (static_cast<void*>(p)) U(std::forward<Arguments>(arguments)...);
  }
  void deallocate(T* memory, std::size_t /*count*/) { ::operator delete(memory, std::align_val_t{cache_line}); }

  bool operator==(const LineAllocator& other) const = default;
};
/// Values in such memory. Those that were not given are not written, so that a large one costs nothing until it is
/// used.
template <typename T>
using Room = std::vector<T, LineAllocator<T>>;
using AlignedBytes = Room<std::uint8_t>;

}  // namespace fp8lab
