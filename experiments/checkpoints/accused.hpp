// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "checkpoints/finding.hpp"
#include "checkpoints/recognize.hpp"

namespace fp8lab::experiments {

/// The tensor of a weight that is accused: by what is wrong, the codes or their scales.
[[nodiscard]] std::string accused(const Weight& weight, FindingKind kind);

}  // namespace fp8lab::experiments
