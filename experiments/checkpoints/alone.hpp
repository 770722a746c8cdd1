// SPDX-License-Identifier: Apache-2.0
// What codes and scales say of themselves, without an original.
#pragma once

#include <string>
#include <vector>

#include "checkpoints/coded_matrix.hpp"
#include "checkpoints/finding.hpp"

namespace fp8lab::experiments {

/// The names of the tensors that a finding accuses.
struct MatrixNames {
  std::string codes, scale, global_scale;
  std::string at = {};  ///< "expert 3, ", or empty
};

/// Facts first, then what no weight looks like. Of a matrix without elements there is nothing to say.
[[nodiscard]] std::vector<CheckpointFinding> findings_alone(const CodedMatrix& matrix, const MatrixNames& names);

}  // namespace fp8lab::experiments
