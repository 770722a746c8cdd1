// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace fp8lab::experiments {

/// Exit status of bad input; 0 is done, and an experiment has its own where it did not pass.
inline constexpr int bad_input = 2;
/// Exit status of a command that needs a device where there is none.
inline constexpr int no_device = 1;

/// Runs a subcommand whose options have been parsed, and returns the exit status.
using Command = std::function<int()>;

/// Parses the arguments, and returns the command that they ask for, help and the version too; nothing is done or read
/// yet. Throws std::invalid_argument, or what CLI11 throws, where they ask for nothing that there is.
[[nodiscard]] Command command_of(int argc, const char* const* argv);

}  // namespace fp8lab::experiments
