// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kit/picture.hpp"

namespace fp8lab::experiments {

/// Finds out what the terminal on stdout can show.
[[nodiscard]] TextStyle style_of_terminal();

/// Prints to stdout, or throws: a report that nobody can read is no success.
void print(const std::string& text);

}  // namespace fp8lab::experiments
