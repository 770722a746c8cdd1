// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoints/audit.hpp"
#include "kit/document.hpp"

namespace fp8lab::experiments {

/// An audit as words and tables: `findings`, `weights`, `warnings`. It has passed where there is no finding.
[[nodiscard]] Document document_of(const Audit& audit, const Checkpoint& quantized, const Recognition& recognition,
                                   const Checkpoint* original);

}  // namespace fp8lab::experiments
