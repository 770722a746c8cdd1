// SPDX-License-Identifier: Apache-2.0
// What is known of one weight once it has been looked at, before it is compared with the others.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/audit.hpp"
#include "checkpoints/explanation.hpp"

namespace fp8lab::experiments {

/// One expert of a weight, or the weight.
struct MatrixPart {
  std::uint64_t expert = 0;
  std::uint64_t codes = 0, scales = 0;  ///< hashes
  bool is_zero = false;
  std::optional<std::uint64_t> expected_codes = {}, expected_scales = {};  ///< hashes of what a recipe makes
  bool is_right = false;
  bool is_accused = false;  ///< of what its bytes say alone
  std::string writer = {};  ///< of what is expected
  std::optional<std::uint64_t> codes_differing = {};
  std::uint64_t scales_differing = 0;
  std::optional<Explanation> explanation = {};
  double loss_db = std::numeric_limits<double>::quiet_NaN();
};

struct AuditPart {
  AuditedWeight row;
  std::vector<CheckpointFinding> findings = {};
  std::vector<Misread> misreads = {};
  bool is_without_original = false;
  std::vector<MatrixPart> matrices = {};
};

/// The part as JSON but for the facts of its weight: name, layout and size.
[[nodiscard]] nlohmann::json json_of(const AuditPart& part);
/// The same part; `row` has the facts of its weight. Throws nlohmann::json::exception and std::invalid_argument where
/// it is none.
[[nodiscard]] AuditPart audit_part_of(const nlohmann::json& json, AuditedWeight row);

}  // namespace fp8lab::experiments
