// SPDX-License-Identifier: Apache-2.0
// What a compiler calls before accesses of memory where it is given -fsanitize=thread. The compiler's own library does
// the same for threads of the host; this is for threads of a kernel, which are a loop there.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fp8lab/gpu/host_races.hpp"

namespace {

using Access = fp8lab::gpu::HostRaces::Access;

template <Access kAccess>
void told(const void* place, std::size_t bytes) {
  fp8lab::gpu::HostRaces::access_of_thread(kAccess, place, bytes);
}
void reads(const void* place, std::size_t bytes) { told<Access::read>(place, bytes); }
void writes(const void* place, std::size_t bytes) { told<Access::write>(place, bytes); }
void changes(const void* place, std::size_t bytes) { told<Access::atomic>(place, bytes); }

}  // namespace

// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier): names of the compiler
extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void* /*from*/) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void** /*place*/, void* /*table*/) {}
void __tsan_vptr_read(void** /*place*/) {}

void __tsan_read1(void* place) { reads(place, 1); }
void __tsan_read2(void* place) { reads(place, 2); }
void __tsan_read4(void* place) { reads(place, 4); }
void __tsan_read8(void* place) { reads(place, 8); }
void __tsan_read16(void* place) { reads(place, 16); }
void __tsan_unaligned_read2(void* place) { reads(place, 2); }
void __tsan_unaligned_read4(void* place) { reads(place, 4); }
void __tsan_unaligned_read8(void* place) { reads(place, 8); }
void __tsan_unaligned_read16(void* place) { reads(place, 16); }
void __tsan_read_range(void* place, unsigned long bytes) { reads(place, bytes); }

void __tsan_write1(void* place) { writes(place, 1); }
void __tsan_write2(void* place) { writes(place, 2); }
void __tsan_write4(void* place) { writes(place, 4); }
void __tsan_write8(void* place) { writes(place, 8); }
void __tsan_write16(void* place) { writes(place, 16); }
void __tsan_unaligned_write2(void* place) { writes(place, 2); }
void __tsan_unaligned_write4(void* place) { writes(place, 4); }
void __tsan_unaligned_write8(void* place) { writes(place, 8); }
void __tsan_unaligned_write16(void* place) { writes(place, 16); }
void __tsan_write_range(void* place, unsigned long bytes) { writes(place, bytes); }

// Clang calls these in the place of the functions, too.
void* __tsan_memcpy(void* to, const void* from, unsigned long bytes) {
  reads(from, bytes);
  writes(to, bytes);
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, unsigned long bytes) {
  reads(from, bytes);
  writes(to, bytes);
  return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int byte, unsigned long bytes) {
  writes(to, bytes);
  return std::memset(to, byte, bytes);
}

// Atomic operations take the place of the program's. These are what atomic_max(), atomic_add(), std::shared_ptr and
// static variables need.
std::uint8_t __tsan_atomic8_load(const std::uint8_t* place, int /*order*/) {
  changes(place, 1);
  return __atomic_load_n(place, __ATOMIC_SEQ_CST);
}
std::uint32_t __tsan_atomic32_load(const std::uint32_t* place, int /*order*/) {
  changes(place, 4);
  return __atomic_load_n(place, __ATOMIC_SEQ_CST);
}
void __tsan_atomic32_store(std::uint32_t* place, std::uint32_t value, int /*order*/) {
  changes(place, 4);
  __atomic_store_n(place, value, __ATOMIC_SEQ_CST);
}
std::uint32_t __tsan_atomic32_fetch_add(std::uint32_t* place, std::uint32_t value, int /*order*/) {
  changes(place, 4);
  return __atomic_fetch_add(place, value, __ATOMIC_SEQ_CST);
}
std::uint64_t __tsan_atomic64_fetch_add(std::uint64_t* place, std::uint64_t value, int /*order*/) {
  changes(place, 8);
  return __atomic_fetch_add(place, value, __ATOMIC_SEQ_CST);
}
int __tsan_atomic32_compare_exchange_weak(std::uint32_t* place, std::uint32_t* expected, std::uint32_t value,
                                          int /*order*/, int /*otherwise*/) {
  changes(place, 4);
  return static_cast<int>(
      __atomic_compare_exchange_n(place, expected, value, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}
std::uint32_t __tsan_atomic32_compare_exchange_val(std::uint32_t* place, std::uint32_t expected, std::uint32_t value,
                                                   int /*order*/, int /*otherwise*/) {
  changes(place, 4);
  __atomic_compare_exchange_n(place, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
int __tsan_atomic32_compare_exchange_strong(std::uint32_t* place, std::uint32_t* expected, std::uint32_t value,
                                            int /*order*/, int /*otherwise*/) {
  changes(place, 4);
  return static_cast<int>(
      __atomic_compare_exchange_n(place, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)
