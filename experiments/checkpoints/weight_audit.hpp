// SPDX-License-Identifier: Apache-2.0
// One weight of a quantized checkpoint: what its bytes say, and which recipe makes them of its original.
#pragma once

#include <set>
#include <string>

#include "checkpoints/audit_part.hpp"
#include "checkpoints/checkpoint.hpp"
#include "checkpoints/recognize.hpp"

namespace fp8lab::experiments {

/// What an audit holds beside each other; `original` may be nullptr. All must outlive who has it.
struct AuditedModel {
  const Checkpoint* quantized;
  const Recognition* recognition;
  const Checkpoint* original = nullptr;
  int threads = 1;
};

/// The facts of a weight, before anything is known of it.
[[nodiscard]] AuditedWeight row_of(const Weight& weight);

/// Looks at a weight of the model, all its experts.
[[nodiscard]] AuditPart audit_weight(const AuditedModel& model, const Weight& weight);

/// Compares one matrix with what this writer makes of its original, in place of the one that came nearest.
void compare_by(const AuditedModel& model, const Weight& weight, const std::string& writer, MatrixPart& matrix,
                AuditPart& part);

/// Gives findings about the tensors of a weight the loss of a matrix of it, where they have none.
void tell_loss(const Weight& weight, double loss_db, std::vector<CheckpointFinding>& findings);

}  // namespace fp8lab::experiments
