// SPDX-License-Identifier: Apache-2.0
// What programs without Catch2 share with tests that have it.
#pragma once

#include <cstdlib>

namespace fp8lab::tests {

/// Whether ./dev test --exhaustive runs the tests: larger samples.
inline bool exhaustive() {
  static const bool is_set = std::getenv("FP8LAB_EXHAUSTIVE") != nullptr;
  return is_set;
}

}  // namespace fp8lab::tests
