// SPDX-License-Identifier: Apache-2.0
// Where the codes and scales lie that a hypothesis leaves unexplained.
#pragma once

#include <string>
#include <vector>

#include "forensics/suspect.hpp"
#include "fp8lab/reference/forensics/compare.hpp"

namespace fp8lab::forensics {

/// What the differences have in common by their place alone: as findings(), without what they are.
[[nodiscard]] std::vector<std::string> places_of(const Comparison& comparison);

/// What the codes, and the scales, that the suspect leaves have in common: a sentence or a few for each kind and place.
/// Empty where it explains all.
[[nodiscard]] std::vector<std::string> rest_of(const Suspect& suspect, const MatrixView& x, const StoredDump& dump);

}  // namespace fp8lab::forensics
