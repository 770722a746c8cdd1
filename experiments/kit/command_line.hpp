// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "kit/parted_run.hpp"

namespace fp8lab::experiments {

/// Exit status of bad input; 0 is done, and an experiment has its own where it did not pass.
inline constexpr int bad_input = 2;
/// Exit status of a command that needs a device where there is none.
inline constexpr int no_device = 1;

/// Runs a subcommand whose options have been parsed, and returns the exit status.
using Command = std::function<int()>;

/// Parses the arguments, and returns the command that they ask for, help and the version too; nothing is done or read
/// yet. Throws std::invalid_argument, or what CLI11 throws, where they ask for nothing that there is.
[[nodiscard]] Command command_of(int argc, const char* const* argv, const Cluster& cluster = {});

/// Does what the arguments ask for, and returns the exit status; one line on stderr says why it is `bad_input` or
/// `no_device`. `cluster` does what --scheduler asks for.
[[nodiscard]] int run_command_line(int argc, const char* const* argv, const Cluster& cluster = {});

/// A command that needs Python: only the command line that pip installs has it.
struct PythonCommand {
  std::string_view name, summary;
};
[[nodiscard]] std::span<const PythonCommand> python_commands();

}  // namespace fp8lab::experiments
