// SPDX-License-Identifier: Apache-2.0
// Lets the floating-point unit round downward.
#pragma once

#ifdef __x86_64__
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <cstdint>
#else
#include <cfenv>
#endif

namespace fp8lab {

/// For as long as this lives, in default arithmetic otherwise, additions and multiplications of this thread are rounded
/// downward. The compiler does not know: such arithmetic belongs in a function that is called and not inlined.
class Downward {
 public:
  Downward(Downward&&) = delete;  // and so no copies either
#ifdef __x86_64__
  Downward() : before_(_mm_getcsr()) { _mm_setcsr(0x3F80); }
  ~Downward() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#elif defined(__aarch64__)
  Downward() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(before_));
    __asm__ volatile("msr fpcr, %0" : : "r"(std::uint64_t{2} << 22));
  }
  ~Downward() { __asm__ volatile("msr fpcr, %0" : : "r"(before_)); }

 private:
  std::uint64_t before_;
#else
  Downward() : before_(std::fegetround()) { std::fesetround(FE_DOWNWARD); }
  ~Downward() { std::fesetround(before_); }

 private:
  int before_;
#endif
};

}  // namespace fp8lab
