// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfenv>

namespace fp8lab {

/// The default floating-point environment of a thread (nearest even, nothing flushed), whatever the caller has set, for
/// as long as this lives.
class DefaultEnvironment {
 public:
  DefaultEnvironment() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  DefaultEnvironment(DefaultEnvironment&&) = delete;
  ~DefaultEnvironment() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_{};
};

}  // namespace fp8lab
