// SPDX-License-Identifier: Apache-2.0
// No floating-point environment and no locale of the program changes a byte of what the library's functions give.
#include "fp8lab/formats/environment.hpp"

#include <algorithm>
#include <thread>
#include <vector>

#include "environment_calls.hpp"
#include "fp8lab/reference/measure/errors.hpp"
#include "fp8lab/reference/scaling/representable.hpp"
#include "hostile_environment.hpp"
#include "support.hpp"

namespace fp8lab::tests::environment {

// glibc loses what it made of LOCPATH where it looks for a locale in vain.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:__argz_add_sep";
}

namespace {

const Calls& calls() {
  static const Calls all = [] {
    Calls both = library_calls();
    both.merge(experiment_calls());
    return both;
  }();
  return all;
}

/// The bytes of each call's results; `changed` names the calls that leave the environment other than it was.
std::map<std::string, std::string> results(std::string& changed) {
  std::map<std::string, std::string> found;
  for (const auto& [name, call] : calls()) {
    const ThreadSettings before;
    std::fenv_t floats{};
    std::fegetenv(&floats);
    found[name] = call();
    if (ThreadSettings{} != before) changed += name + " changes the environment; ";
    std::fesetenv(&floats);
  }
  return found;
}

}  // namespace

TEST_CASE("No rounding mode, flushing or locale of the program changes a byte of a result") {
  const std::string comma = comma_locale();
  if (comma.empty()) WARN("Skipped: C locales with a decimal comma, of which there is none");
  static_cast<void>(in());
  std::string changed;
  const auto expected = results(changed);
  CHECK(expected.at("messages").find("not refused") == std::string::npos);
  for (const Settings& settings : std::initializer_list<Settings>{{"upward", FE_UPWARD, false, false},
                                                                  {"downward", FE_DOWNWARD, false, false},
                                                                  {"toward zero", FE_TOWARDZERO, false, false},
                                                                  {"flush", FE_TONEAREST, true, false},
                                                                  {"comma", FE_TONEAREST, false, true},
                                                                  {"all", FE_UPWARD, true, true},
                                                                  {"in a thread", FE_DOWNWARD, true, true, true}}) {
    // One has them all, and is in a thread; the others with --exhaustive.
    if (!settings.in_thread && (!exhaustive() || sanitized)) continue;
    std::map<std::string, std::string> found;
    const auto run = [&] {
      const Hostile hostile(settings, comma);
      found = results(changed);
    };
    if (settings.in_thread) {
      std::jthread(run).join();
    } else {
      run();
    }
    std::string wrong;
    int count = 0;
    for (const auto& [name, result] : expected) {
      if (found[name] == result) continue;
      const auto at = std::ranges::mismatch(found[name], result).in2 - result.begin();
      wrong += '\n' + name + " from byte " + std::to_string(at);
      ++count;
    }
    INFO(settings.name << ": " << count << " of " << expected.size() << " calls give other bytes:" << wrong);
    CHECK(count == 0);
  }
  CHECK(changed.empty());
}

TEST_CASE("After an exception too the environment is the caller's, flags included") {
  const Hostile hostile({"all", FE_UPWARD, true, false}, "");
  std::feclearexcept(FE_ALL_EXCEPT);
  std::feraiseexcept(FE_DIVBYZERO);
  const ThreadSettings before;
  std::vector<float> out(1);
  const std::vector<float> x{1};
  CHECK_THROWS_AS(cast_to_representable(e4m3, CastPolicy{}, x, -1.0, out), std::invalid_argument);
  CHECK(ThreadSettings{} == before);
  static_cast<void>(relative_error(1, 3));
  CHECK(ThreadSettings{} == before);
  CHECK(std::fetestexcept(FE_ALL_EXCEPT) == FE_DIVBYZERO);
}

}  // namespace fp8lab::tests::environment
