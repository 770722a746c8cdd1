// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/environment.hpp"

#if __has_include(<xlocale.h>)
#include <xlocale.h>  // macOS, FreeBSD
#endif

namespace fp8lab {
namespace {

// Registers are read and written here, not fenv_t: that takes 50 times as long, and flushing is no part of the
// standard's.
#ifdef __x86_64__

// MXCSR in the low half: modes and flags of all floating-point arithmetic. The control word of the x87 above it: only
// long double computes there, but the C library asks it for the rounding mode when it prints and reads numbers.
constexpr std::uint64_t default_control = 0x037F'0000'1F80;

std::uint64_t float_control() {
  std::uint16_t x87 = 0;
  __asm__ volatile("fnstcw %0" : "=m"(x87));
  return static_cast<std::uint64_t>(x87) << 32 | _mm_getcsr();
}
void set_float_control(std::uint64_t control) {
  const auto x87 = static_cast<std::uint16_t>(control >> 32);
  __asm__ volatile("fldcw %0" : : "m"(x87));
  _mm_setcsr(static_cast<unsigned>(control));
}

#elif defined(__aarch64__)

// FPCR, the modes, in the low half; FPSR, the flags, above it.
constexpr std::uint64_t default_control = 0;

std::uint64_t float_control() {
  std::uint64_t modes = 0;
  std::uint64_t flags = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(modes));
  __asm__ volatile("mrs %0, fpsr" : "=r"(flags));
  return flags << 32 | (modes & 0xFFFFFFFFU);
}
void set_float_control(std::uint64_t control) {
  __asm__ volatile("msr fpcr, %0" : : "r"(control & 0xFFFFFFFFU));
  __asm__ volatile("msr fpsr, %0" : : "r"(control >> 32));
}

#else

// Elsewhere the rounding mode alone: nothing else has a portable name.
constexpr std::uint64_t default_control = FE_TONEAREST;

std::uint64_t float_control() { return static_cast<std::uint64_t>(std::fegetround()); }
void set_float_control(std::uint64_t control) { std::fesetround(static_cast<int>(control)); }

#endif

/// Made once, and kept: null where the system has no memory for it, which leaves the caller's.
locale_t standard_locale() {
  static const locale_t locale = [] {
    const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
    if (plain == nullptr) return plain;
    // Text that a callback in Python reads and writes stays UTF-8.
    const locale_t utf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", plain);
    return utf8 == nullptr ? plain : utf8;
  }();
  return locale;
}

}  // namespace

DefaultEnvironment::DefaultEnvironment() : float_control_(float_control()), locale_(::uselocale(standard_locale())) {
  if (float_control_ != default_control) set_float_control(default_control);
}

DefaultEnvironment::~DefaultEnvironment() {
  if (float_control() != float_control_) set_float_control(float_control_);
  ::uselocale(locale_);
}

}  // namespace fp8lab
