// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <locale.h>  // NOLINT(modernize-deprecated-headers): locale_t is POSIX

#include <cstdint>

namespace fp8lab {

/// The environment in which results are defined, whatever the calling thread has set, for as long as this lives:
/// floating point rounds to nearest even, flushes nothing and traps nothing; C functions read and write numbers as in
/// the "C" locale, and text is UTF-8 where the system has that. At its end all is as before, exception flags included.
///
/// Every public function of the library that computes with floating point, reads or writes text has one, and so has
/// every thread of parallel_for(). They nest; one costs about 10 ns. It must end on the thread that made it.
class DefaultEnvironment {
 public:
  DefaultEnvironment();
  DefaultEnvironment(DefaultEnvironment&&) = delete;  // and so no copies either
  ~DefaultEnvironment();

 private:
  std::uint64_t float_control_;
  locale_t locale_;
};

}  // namespace fp8lab
