// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "checkpoints/checkpoint.hpp"
#include "checkpoints/finding.hpp"

namespace fp8lab::experiments {

/// A finding for each problem of a checkpoint's files that `counts`. A total_size is not told where another problem
/// explains it.
[[nodiscard]] std::vector<CheckpointFinding> findings_of_files(
    const Checkpoint& checkpoint,
    const std::function<bool(const FileProblem&)>& counts = [](const FileProblem&) { return true; });

}  // namespace fp8lab::experiments
