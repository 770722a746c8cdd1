// SPDX-License-Identifier: Apache-2.0
// Says where the differences of two arrays lie, which is a part of findings().
#pragma once

#include <string>
#include <vector>

#include "fp8lab/doctor/compare.hpp"

namespace fp8lab::doctor {

/// Says what the differences have in common by their place alone: as findings(), without what kind they are of.
[[nodiscard]] std::vector<std::string> places_of(const Comparison& comparison);

}  // namespace fp8lab::doctor
