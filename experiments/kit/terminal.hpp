// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kit/picture.hpp"

namespace fp8lab::experiments {

/// Finds out what the terminal on stdout can show. Its width is what the variable COLUMNS says, or else the terminal's;
/// 80 where there is none; from 20 to 1000.
[[nodiscard]] TextStyle style_of_terminal();

/// Prints to stdout, or throws: a report that nobody can read is no success. Where the reader closed a pipe, the
/// process ends by SIGPIPE.
void print(const std::string& text);

}  // namespace fp8lab::experiments
