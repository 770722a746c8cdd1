// SPDX-License-Identifier: Apache-2.0
// Where the codes and scales lie that a hypothesis leaves unexplained.
#pragma once

#include <string>
#include <vector>

#include "quantize/suspect.hpp"
#include "search/located.hpp"

namespace fp8lab::doctor {

/// What the codes, and the scales, that the suspect leaves have in common: a sentence or a few for each kind and place.
/// Empty where it explains all.
[[nodiscard]] std::vector<std::string> rest_of(const Suspect& suspect, const MatrixView& x, const StoredDump& dump);

/// Where the stored scales lie that the suspect does not explain, by the rows and columns of scales.
[[nodiscard]] std::vector<std::string> rest_of_scales(const Suspect& suspect, const StoredDump& dump);

}  // namespace fp8lab::doctor
