// SPDX-License-Identifier: Apache-2.0
// The file from which an interrupted training goes on.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/run.hpp"

namespace fp8lab::experiments {

/// All arguments that bits depend on, "name=value" a line: not how many steps there are.
[[nodiscard]] std::string configuration_of(const TrainArguments& arguments);

/// Saves the runs into the file, which is the old one or the new one at any time. Throws std::runtime_error where it
/// cannot be written.
void save_checkpoint(const std::filesystem::path& file, const TrainArguments& arguments, const std::vector<Run>& runs);

/// Sets the states and logs of the runs, which have been started, to those of the file. Throws std::runtime_error where
/// it cannot be read, is no checkpoint, is cut or damaged; std::invalid_argument where it is of another version of
/// fp8lab, of other arguments (the message names the first), or of more steps.
void load_checkpoint(const std::filesystem::path& file, const TrainArguments& arguments, std::vector<Run>& runs);

}  // namespace fp8lab::experiments
