// SPDX-License-Identifier: Apache-2.0
// One instruction of a dot product, told term by term.
#pragma once

#include <vector>

#include "dot/dot.hpp"
#include "kit/document.hpp"

namespace fp8lab::experiments {

/// Appends texts and tables: what each step aligned, kept, cut off and added.
void tell(const DotArguments& arguments, const TraceInstruction& instruction, std::vector<Section>& sections);

}  // namespace fp8lab::experiments
