// SPDX-License-Identifier: Apache-2.0
// Lists the vector instruction sets that can run, and forces one of them.
#pragma once

#include <string_view>
#include <vector>

namespace fp8lab {

/// Names of the vector instruction sets that this program and this processor share, best first; "scalar", code without
/// any, is last. Every one gives the same bits.
[[nodiscard]] std::vector<std::string_view> targets();

/// Makes all of fp8lab's vector code run on one of targets(), for tests and comparisons; "" lifts that. The environment
/// variable FP8LAB_TARGET does the same from the start. Not to be called while other threads run fp8lab.
///
/// Throws std::invalid_argument that lists the targets.
void force_target(std::string_view name);

}  // namespace fp8lab
