// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/between_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "checkpoints/layout.hpp"
#include "checkpoints/matrices.hpp"
#include "fp8lab/formats/interruption.hpp"

namespace fp8lab::experiments {

namespace {

/// A matrix of a model, and whose it is.
struct PlacedMatrix {
  const Weight* weight;
  MatrixPart* matrix;
};

std::vector<PlacedMatrix> placed(const AuditedModel& model, std::vector<AuditPart>& parts) {
  std::vector<PlacedMatrix> all;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (MatrixPart& matrix : parts[i].matrices) all.push_back({&model.recognition->weights[i], &matrix});
  }
  return all;
}

using NumberOfWriters = std::map<const Layout*, std::map<std::string, std::size_t>>;

std::map<const Layout*, std::string> usual_writers(const AuditedModel& model, std::vector<AuditPart>& parts) {
  NumberOfWriters counts;
  for (const auto& [weight, matrix] : placed(model, parts)) {
    if (matrix->is_right) ++counts[weight->layout][matrix->writer];
  }
  std::map<const Layout*, std::string> usual;
  for (const auto& [layout, writers] : counts) {
    usual[layout] = std::ranges::max_element(writers, {}, [](const auto& one) { return one.second; })->first;
  }
  return usual;
}

/// The scales of the tensor of the weights that a server makes one layer of, by a name for all.
std::map<std::string, std::vector<std::pair<const Weight*, float>>> fused_scales(const AuditedModel& model) {
  std::map<std::string, std::vector<std::pair<const Weight*, float>>> groups;
  for (const Weight& weight : model.recognition->weights) {
    const bool divides = weight.layout->global == GlobalScale::divisor;
    if ((!divides && weight.layout->global != GlobalScale::multiplier) || weight.global_scale == nullptr ||
        weight.stacked) {
      continue;
    }
    for (const auto& group : weight.layout->fused) {
      for (const std::string_view part : group) {
        const std::size_t at = weight.name.rfind(part);
        if (at == std::string::npos) continue;
        std::string key = weight.name;
        key.replace(at, part.size(), group.front());
        groups[key].emplace_back(&weight, scalar_of(*model.quantized, *weight.global_scale));
      }
    }
  }
  return groups;
}

/// Weights whose bytes alone are wrong, and those whose scale of the tensor is stale by the original: each is told by
/// itself.
std::set<const Weight*> told_of_scales(const AuditedModel& model, const std::vector<AuditPart>& parts) {
  std::set<const Weight*> told;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool is_told = std::ranges::any_of(parts[i].matrices, [](const MatrixPart& matrix) {
      return matrix.is_accused || (matrix.explanation && matrix.explanation->kind == FindingKind::stale_global_scale);
    });
    if (is_told) told.insert(&model.recognition->weights[i]);
  }
  return told;
}

}  // namespace

void compare_with_usual_writers(const AuditedModel& model, std::vector<AuditPart>& parts) {
  const std::map<const Layout*, std::string> usual = usual_writers(model, parts);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Weight& weight = model.recognition->weights[i];
    const auto writer = usual.find(weight.layout);
    if (writer == usual.end() || writer->second.empty()) continue;
    for (MatrixPart& matrix : parts[i].matrices) {
      if (matrix.is_right || !matrix.expected_codes || matrix.writer == writer->second) continue;
      checkpoint();
      compare_by(model, weight, writer->second, matrix, parts[i]);
    }
  }
}

std::vector<CheckpointFinding> findings_between(const AuditedModel& model, std::vector<AuditPart>& parts) {
  const std::vector<PlacedMatrix> all = placed(model, parts);
  std::vector<CheckpointFinding> found;
  std::unordered_map<std::uint64_t, const Weight*> by_codes;
  std::unordered_map<std::uint64_t, const Weight*> by_expected_codes;
  std::unordered_map<std::uint64_t, const Weight*> by_expected_scales;
  for (const auto& [weight, matrix] : all) {
    if (const auto& codes = matrix->expected_codes) by_expected_codes.try_emplace(*codes, weight);
    if (const auto& scales = matrix->expected_scales) by_expected_scales.try_emplace(*scales, weight);
  }
  for (const auto& [weight, matrix] : all) {
    const auto [first, is_new] = by_codes.try_emplace(matrix->codes, weight);
    if (!is_new && !matrix->is_zero && !matrix->is_right && first->second->elements() >= 64) {
      matrix->explanation.reset();
      found.push_back({weight->codes->name, FindingKind::duplicate_tensor,
                       fmt::format("its codes are those of {}", first->second->codes->name), "", matrix->loss_db});
      continue;
    }
    if (!matrix->explanation) continue;
    const auto other_codes = by_expected_codes.find(matrix->codes);
    if (other_codes != by_expected_codes.end() && other_codes->second != weight) {
      matrix->explanation =
          Explanation{FindingKind::exchanged_tensors,
                      fmt::format("its codes are those of the original of {}", other_codes->second->name)};
      continue;
    }
    const auto other_scales = by_expected_scales.find(matrix->scales);
    if (matrix->codes == matrix->expected_codes && other_scales != by_expected_scales.end() &&
        other_scales->second != weight) {
      matrix->explanation = Explanation{FindingKind::exchanged_scales,
                                        fmt::format("its scales are those of {}", other_scales->second->name)};
    }
  }
  return found;
}

std::vector<CheckpointFinding> findings_of_fused(const AuditedModel& model, const std::vector<AuditPart>& parts) {
  const std::set<const Weight*> told = told_of_scales(model, parts);
  std::vector<CheckpointFinding> found;
  for (const auto& [key, members] : fused_scales(model)) {
    float largest = 0;
    for (const auto& [weight, scale] : members) largest = std::max(largest, scale);
    const bool are_equal = std::ranges::all_of(members, [&](const auto& one) { return one.second == largest; });
    const bool are_told = std::ranges::any_of(
        members, [&](const auto& one) { return told.contains(one.first) || !is_usable(one.second); });
    if (are_equal || are_told) continue;
    for (const auto& [weight, scale] : members) {
      const bool divides = weight->layout->global == GlobalScale::divisor;
      found.push_back({weight->global_scale->name, FindingKind::fused_global_scales,
                       fmt::format("the parts of this fused layer have other scales of the tensor: a server that takes "
                                   "one for all multiplies this part by {:.6g}",
                                   divides ? scale / largest : largest / scale)});
    }
  }
  return found;
}

}  // namespace fp8lab::experiments
