// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/name_findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoints/exclusion.hpp"
#include "checkpoints/matrices.hpp"

namespace fp8lab::experiments {
namespace {

/// A name without its numbers: what layers have in common.
std::string role_of(const std::string& name) {
  std::string role;
  for (const char letter : name) {
    const bool is_digit = letter >= '0' && letter <= '9';
    if (!is_digit) role += letter;
    if (is_digit && (role.empty() || role.back() != '#')) role += '#';
  }
  return role;
}

class NameAuditor {
 public:
  NameAuditor(const Checkpoint& quantized, const Recognition& recognition)
      : quantized_(quantized), recognition_(recognition) {
    for (const FileProblem& problem : quantized.problems())
      lost_.insert(problem.tensors.begin(), problem.tensors.end());
  }

  std::vector<CheckpointFinding> run() {
    look_at_names();
    look_at_exclusions();
    look_at_cache_scales();
    look_at_input_scales();
    look_at_experts();
    return std::move(found_);
  }

 private:
  void add(std::string tensor, FindingKind kind, std::string words) {
    found_.push_back({std::move(tensor), kind, std::move(words)});
  }
  void look_at_names();
  void look_at_exclusions();
  void look_at_cache_scales();
  void look_at_input_scales();
  void look_at_experts();

  const Checkpoint& quantized_;
  const Recognition& recognition_;
  std::set<std::string> lost_;  ///< tensors of which a file's problem tells
  std::vector<CheckpointFinding> found_;
};

void NameAuditor::look_at_names() {
  const bool has_lost_tensors = !lost_.empty();
  for (const Incomplete& one : recognition_.incomplete) {
    if (has_lost_tensors && std::ranges::any_of(lost_, [&](const std::string& name) {
          return one.lacks.find(name) != std::string::npos;
        })) {
      continue;
    }
    const bool lacks_global = one.nearest != nullptr && one.nearest->global != GlobalScale::none &&
                              one.lacks.find(one.nearest->global_scale) != std::string::npos;
    add(one.codes->name, lacks_global ? FindingKind::missing_global_scale : FindingKind::missing_scale, one.lacks);
  }
  for (const std::string& words : recognition_.disagreements) add("config.json", FindingKind::config, words);
  // The configuration is blamed for what disagrees with several weights.
  std::map<std::string, std::vector<const Weight*>> of_words;
  for (const Weight& weight : recognition_.weights) {
    if (!weight.grid_fits) continue;
    for (const std::string& words : weight.disagreements) of_words[words].push_back(&weight);
  }
  for (const auto& [words, weights] : of_words) {
    if (weights.size() == 1) {
      add(weights.front()->name, FindingKind::config, words);
    } else {
      add("config.json", FindingKind::config,
          fmt::format("{}; of {} weights, {} the first", words, weights.size(), weights.front()->name));
    }
  }
}

/// Modules that the configuration excludes and the file has quantized, and the other way round.
void NameAuditor::look_at_exclusions() {
  if (recognition_.weights.empty() || recognition_.method.empty()) return;
  std::map<std::string, const Layout*> roles;
  std::map<const Layout*, Excluded> excluded;
  const auto module_of = [](std::string name) {
    constexpr std::string_view suffix = ".weight";
    if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
    return name;
  };
  for (const Weight& weight : recognition_.weights) {
    const Layout* layout = weight.layout;
    roles.try_emplace(role_of(weight.name), layout);
    const auto [place, is_new] = excluded.try_emplace(layout);
    if (is_new) place->second = excluded_modules(quantized_, *layout);
    const std::string why = place->second.reason(layout->exclusion, module_of(weight.name));
    if (!why.empty()) {
      add(weight.name, FindingKind::quantized_though_excluded, fmt::format("it is quantized, though {}", why));
    }
  }
  for (const StoredTensor* tensor : recognition_.plain) {
    const auto role = roles.find(role_of(tensor->name));
    if (role == roles.end() || tensor->shape.size() != 2) continue;
    if (!excluded.at(role->second).reason(role->second->exclusion, module_of(tensor->name)).empty()) continue;
    add(tensor->name, FindingKind::not_quantized,
        fmt::format("it is stored as {}, and nothing in the configuration excludes it: its list must name it",
                    tensor->dtype));
  }
}

void NameAuditor::look_at_cache_scales() {
  static const std::regex part("(.*?)[.](?:[kv]_proj[.])?([kvq])_scale");
  std::map<std::string, std::map<std::string, const StoredTensor*>> layers;
  for (const StoredTensor* tensor : recognition_.cache_scales) {
    std::smatch found;
    const std::string& name = tensor->name;
    if (std::regex_match(name, found, part)) layers[found[1]][found[2]] = tensor;
    if (tensor->elements() != 1) continue;
    const float scale = scalar_of(quantized_, *tensor);
    if (!is_usable(scale)) {
      add(name, FindingKind::kv_scale,
          fmt::format("the scale of a KV cache is {:.6g}, which is no positive number", scale));
    }
  }
  for (const auto& [layer, scales] : layers) {
    const bool has_k = scales.contains("k");
    const bool has_v = scales.contains("v");
    if (has_k == has_v) continue;
    add(scales.at(has_k ? "k" : "v")->name, FindingKind::kv_scale,
        fmt::format("{} has {}_scale and no {}_scale", layer, has_k ? "k" : "v", has_k ? "v" : "k"));
  }
}

void NameAuditor::look_at_input_scales() {
  std::map<const Layout*, std::pair<std::size_t, std::vector<const Weight*>>> by_layout;
  for (const Weight& weight : recognition_.weights) {
    auto& [with, without] = by_layout[weight.layout];
    const StoredTensor* scale = weight.companion(Role::input_scale);
    if (scale == nullptr) scale = weight.companion(Role::input_global_scale);
    if (scale == nullptr) {
      without.push_back(&weight);
      continue;
    }
    ++with;
    if (const float value = scalar_of(quantized_, *scale); scale->elements() == 1 && !is_usable(value)) {
      add(scale->name, FindingKind::input_scale,
          fmt::format("the static scale of an input is {:.6g}, which is no positive number", value));
    }
  }
  for (const auto& [layout, counts] : by_layout) {
    const auto& [with, without] = counts;
    if (with < 4 * without.size() || without.empty()) continue;
    std::string_view suffix;
    for (const CompanionName& name : layout->companions) {
      if (name.role == Role::input_scale || name.role == Role::input_global_scale) suffix = name.suffix;
    }
    for (const Weight* weight : without) {
      add(weight->stem + std::string(suffix), FindingKind::input_scale,
          fmt::format("{} has no static scale of its input, and {} others have", weight->name, with));
    }
  }
}

void NameAuditor::look_at_experts() {
  static const std::regex part("(.*[.]experts)[.]([0-9]+)[.].*");
  std::map<std::string, std::set<unsigned long>> experts;
  for (const StoredTensor& tensor : quantized_.tensors()) {
    std::smatch found;
    if (std::regex_match(tensor.name, found, part)) experts[found[1]].insert(std::stoul(found[2]));
  }
  for (const auto& [layer, numbers] : experts) {
    for (unsigned long number = 0; number < *numbers.rbegin(); ++number) {
      if (numbers.contains(number)) continue;
      add(fmt::format("{}.{}", layer, number), FindingKind::missing_expert,
          fmt::format("expert {} of {} and more has no tensors", number, *numbers.rbegin() + 1));
    }
  }
}

}  // namespace

std::vector<CheckpointFinding> findings_of_names(const Checkpoint& checkpoint, const Recognition& recognition) {
  return NameAuditor(checkpoint, recognition).run();
}

}  // namespace fp8lab::experiments
