// SPDX-License-Identifier: Apache-2.0
// Allocates large arrays of numbers on cache lines, without writing to them first.
#pragma once

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace fp8lab {

/// The allocator of a Buffer.
template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t alignment{64};

  LineAllocator() = default;
  template <typename Other>
  LineAllocator(const LineAllocator<Other>& /*other*/) {}

  [[nodiscard]] T* allocate(std::size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), alignment)); }
  template <typename U>
  void construct(U* p) {
    ::new (static_cast<void*>(p)) U;
  }
  template <typename U, typename... Arguments>
  void construct(U* p, Arguments&&... arguments) {
    ::new (static_cast<void*>(p)) U(std::forward<Arguments>(arguments)...);
  }
  void deallocate(T* memory, std::size_t /*count*/) { ::operator delete(memory, alignment); }

  bool operator==(const LineAllocator& other) const = default;
};
/// A std::vector for large arrays of numbers: its memory begins with a cache line, and resize() leaves new elements
/// uninitialized, so that memory is touched when it is first written.
template <typename T>
using Buffer = std::vector<T, LineAllocator<T>>;

}  // namespace fp8lab
