// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "checkpoints/audit.hpp"
#include "kit/document.hpp"

namespace fp8lab::experiments {

/// An audit as words and tables: `findings`, `weights`, `warnings`. It has passed where there is no finding.
[[nodiscard]] Document document_of(const Audit& audit, const Checkpoint& quantized, const Recognition& recognition,
                                   const Checkpoint* original);

/// The table `findings`.
[[nodiscard]] Table findings_table_of(const std::vector<CheckpointFinding>& findings);

}  // namespace fp8lab::experiments
