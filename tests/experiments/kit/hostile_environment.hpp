// SPDX-License-Identifier: Apache-2.0
// Floating-point environments and locales that a program may have set before it calls the library.
#pragma once

#include <cfenv>
#include <clocale>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <locale>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fp8lab::tests::environment {

struct Settings {
  const char* name;
  int rounding;
  bool flushes;
  bool comma;
  bool in_thread = false;
};

/// The modes of the calling thread's arithmetic, without flags; what flushes is no part of the standard's.
inline std::uint64_t modes() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3FU;
#elif defined(__aarch64__)
  std::uint64_t modes = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(modes));
  return modes;
#else
  return 0;
#endif
}
inline void set_flushing() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040U);
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"(modes() | std::uint64_t{1} << 24));
#endif
}

struct Comma : std::numpunct<char> {
  [[nodiscard]] char do_decimal_point() const override { return ','; }
  [[nodiscard]] char do_thousands_sep() const override { return '.'; }
  [[nodiscard]] std::string do_grouping() const override { return "\3"; }
};

/// A C locale with a decimal comma: one that is installed, or made by localedef; empty where there is none.
inline std::string comma_locale() {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  const auto made = std::filesystem::temp_directory_path() / "fp8lab_locales";
  std::string found;
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "made_here"}) {
    if (name == std::string("made_here")) {
      std::filesystem::create_directories(made);
      const std::string command = "localedef -i de_DE -f ISO-8859-1 '" + (made / name).string() + "' > /dev/null 2>&1";
      if (std::system(command.c_str()) == -1) continue;
      ::setenv("LOCPATH", made.c_str(), 1);
    }
    if (std::setlocale(LC_ALL, name) != nullptr && *std::localeconv()->decimal_point == ',') found = name;
    if (!found.empty()) break;
  }
  std::setlocale(LC_ALL, before.c_str());
  return found;
}

/// The environment of the calling thread, and the locales of the program, for as long as it lives.
class Hostile {
 public:
  Hostile(const Settings& settings, const std::string& comma)
      : locale_(std::locale()), c_(std::setlocale(LC_ALL, nullptr)) {
    std::fegetenv(&before_);
    if (settings.comma) {
      std::locale::global(std::locale(std::locale::classic(), new Comma));
      std::setlocale(LC_ALL, comma.c_str());
    }
    if (settings.flushes) set_flushing();
    std::fesetround(settings.rounding);
  }
  Hostile(Hostile&&) = delete;
  ~Hostile() {
    std::fesetenv(&before_);
    std::locale::global(locale_);
    std::setlocale(LC_ALL, c_.c_str());
  }

 private:
  std::fenv_t before_{};
  std::locale locale_;
  std::string c_;
};

/// The settings of the thread that a call must leave as they were.
struct ThreadSettings {
  int rounding = std::fegetround();
  std::uint64_t arithmetic = modes();
  std::string point = std::localeconv()->decimal_point;
  bool has_comma = std::has_facet<Comma>(std::locale());
  bool operator==(const ThreadSettings&) const = default;
};

}  // namespace fp8lab::tests::environment
