// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace fp8lab::experiments {

/// Files to be written: (name, content).
using Files = std::vector<std::pair<std::string, std::string>>;

/// Throws std::runtime_error with a one-line reason where `names` could not be written into `directory`: it, or the
/// nearest parent that exists, is no directory or is not writable, or a file of that name is a directory or read-only.
void check_writable(const std::filesystem::path& directory, const std::vector<std::string>& names);

/// Writes all files into `directory`, creating it: first aside, then, when every byte is on disk, renamed into place.
/// On failure nothing of it stays; throws std::runtime_error with a one-line reason.
void write_files(const std::filesystem::path& directory, const Files& files);

}  // namespace fp8lab::experiments
