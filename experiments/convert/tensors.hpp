// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/checkpoint.hpp"
#include "checkpoints/recognize.hpp"

namespace fp8lab::experiments {

struct TensorsArguments {
  std::optional<std::filesystem::path> model;
  std::vector<std::string> names;  ///< patterns of names; empty: all
  bool layouts = false;            ///< lists the layouts that are known
};

/// What a checkpoint holds.
struct TensorsResult {
  std::unique_ptr<Checkpoint> checkpoint;  ///< nullptr: the layouts alone
  Recognition found;
};

/// Throws std::invalid_argument where there is neither a model nor `layouts`, and as Checkpoint's constructor does.
[[nodiscard]] TensorsResult run_tensors(const TensorsArguments& arguments);

/// Whether one of the patterns names a tensor; true without patterns.
[[nodiscard]] bool is_wanted(const std::vector<std::string>& patterns, const std::string& name);

}  // namespace fp8lab::experiments
