// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace fp8lab {

/// Calls f(); an std::invalid_argument of it gets a message that begins with `name`.
template <typename Function>
auto with_name(const std::string& name, const Function& f) {
  try {
    return f();
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(name + ": " + error.what());
  }
}

}  // namespace fp8lab
