// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

namespace fp8lab::tests {

/// A directory of this process's own, empty, removed at the end.
struct Scratch {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("fp8lab-tests-" + std::to_string(::getpid()));
  Scratch() {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~Scratch() {
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    std::filesystem::remove_all(path);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

}  // namespace fp8lab::tests
