// SPDX-License-Identifier: Apache-2.0
// Gives a computation the default floating-point environment and locale, whatever the caller has set.
#pragma once

#include <locale.h>  // NOLINT(modernize-deprecated-headers): locale_t is POSIX

#include <cstdint>
#ifdef __x86_64__
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace fp8lab {

/// The environment in which results are defined, whatever the calling thread has set, for as long as this lives:
/// floating point rounds to nearest even, flushes nothing and traps nothing; C functions read and write numbers as in
/// the "C" locale, and text is UTF-8 where the system has that. At its end all is as before, exception flags included.
///
/// Every public function of the library that computes with floating point, or reads or writes text, has one, and so has
/// every thread of parallel_for(). They nest; one costs 15 to 40 ns. It must end on the thread that made it.
class DefaultEnvironment {
 public:
  DefaultEnvironment();
  DefaultEnvironment(DefaultEnvironment&&) = delete;  // and so no copies either
  ~DefaultEnvironment();

 private:
  std::uint64_t float_control_;
  locale_t locale_;
};

/// Whether the calling thread's arithmetic is the default one: nearest even, nothing flushed, nothing trapped.
[[nodiscard]] inline bool has_default_arithmetic() {
#ifdef __x86_64__
  constexpr unsigned flags = 0x3F;
  return (_mm_getcsr() & ~flags) == 0x1F80;
#elif defined(__aarch64__)
  std::uint64_t modes = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(modes));
  return modes == 0;
#else
  return std::fegetround() == FE_TONEAREST;
#endif
}

/// compute() in a DefaultEnvironment. Never inlined: arithmetic that is here and beside it must not become one, before
/// the environment is there.
template <typename Compute>
[[gnu::noinline]] auto in_default_environment(const Compute& compute) {
  const DefaultEnvironment environment;
  return compute();
}

/// compute() by the default arithmetic, for functions of a few operations: costs about 1 ns where the thread has that.
template <typename Compute>
auto by_default_arithmetic(const Compute& compute) {
  return has_default_arithmetic() ? compute() : in_default_environment(compute);
}

}  // namespace fp8lab
