// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "checkpoints/finding.hpp"
#include "checkpoints/recognize.hpp"

namespace fp8lab::experiments {

/// What names, dtypes, shapes and the configuration tell: codes without their scales, disagreements, modules that are
/// excluded and quantized or the other way round, scales of caches and inputs, experts that are missing. `recognition`
/// is that of `checkpoint`.
[[nodiscard]] std::vector<CheckpointFinding> findings_of_names(const Checkpoint& checkpoint,
                                                               const Recognition& recognition);

}  // namespace fp8lab::experiments
