// SPDX-License-Identifier: Apache-2.0
// Weights beside each other: the same bytes twice, exchanged ones, layers that a server makes one of.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoints/audit_part.hpp"
#include "checkpoints/weight_audit.hpp"

namespace fp8lab::experiments {

/// Whoever made most weights of a layout is taken to have made the others: what differs is explained by that writer.
/// `parts` are those of the weights of the model, in their order.
void compare_with_usual_writers(const AuditedModel& model, std::vector<AuditPart>& parts);

/// Findings about weights that have the codes or scales of another, and about two with the same bytes; explanations of
/// these are changed.
[[nodiscard]] std::vector<CheckpointFinding> findings_between(const AuditedModel& model, std::vector<AuditPart>& parts);

/// Parts of a fused layer have one scale of the tensor, or a server takes one of them for all.
[[nodiscard]] std::vector<CheckpointFinding> findings_of_fused(const AuditedModel& model,
                                                               const std::vector<AuditPart>& parts);

}  // namespace fp8lab::experiments
