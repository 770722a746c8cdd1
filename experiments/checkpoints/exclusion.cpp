// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/exclusion.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "files/tensor_file.hpp"

namespace fp8lab::experiments {

namespace {

/// Python's re.match: from the begin, not to the end. What is no regular expression matches nothing.
bool matches_from_begin(std::string_view expression, std::string_view text, bool to_a_dot) {
  try {
    const std::regex regex(std::string(expression) + (to_a_dot ? "(\\.|$)" : ""));
    return std::regex_search(text.begin(), text.end(), regex, std::regex_constants::match_continuous);
  } catch (const std::regex_error&) {
    return false;
  }
}

bool is_module_or_below(std::string_view entry, std::string_view module) {
  return module == entry || (module.starts_with(entry) && module[entry.size()] == '.');
}

void append_texts(const nlohmann::json& list, std::vector<std::string>& out) {
  if (!list.is_array()) return;
  for (const auto& one : list) {
    if (one.is_string()) out.push_back(one.get<std::string>());
  }
}

}  // namespace

bool covers(Exclusion syntax, std::string_view entry, std::string_view module) {
  switch (syntax) {
    case Exclusion::none: return false;
    case Exclusion::exact: return is_module_or_below(entry, module);
    case Exclusion::wildcard: return names_tensor(entry, module) || is_module_or_below(entry, module);
    case Exclusion::module:
      if (entry.starts_with("re:")) return matches_from_begin(entry.substr(3), module, false);
      return is_module_or_below(entry, module);
    case Exclusion::dotted: return matches_from_begin(entry, module, true) || module.ends_with(entry);
  }
  return false;
}

std::string Excluded::reason(Exclusion syntax, std::string_view module) const {
  if (!quantized.empty()) {
    const bool is_listed = std::ranges::find(quantized, module) != quantized.end();
    if (!is_listed) return "the list of quantized layers has it not";
  }
  for (const std::string& entry : entries) {
    if (covers(syntax, entry, module)) return "\"" + entry + "\" excludes it";
  }
  return "";
}

Excluded excluded_modules(const Checkpoint& checkpoint, const Layout& layout) {
  Excluded excluded;
  const auto hf = checkpoint.hf_quant_config().find("quantization");
  const bool has_hf = checkpoint.hf_quant_config().is_object() && hf != checkpoint.hf_quant_config().end();
  for (const nlohmann::json* config : {&checkpoint.quantization(), has_hf ? &*hf : nullptr}) {
    if (config == nullptr || !config->is_object()) continue;
    for (const std::string_view key : layout.exclusion_keys) {
      if (const auto list = config->find(std::string(key)); list != config->end())
        append_texts(*list, excluded.entries);
    }
    if (const auto layers = config->find("quantized_layers"); layers != config->end() && layers->is_object()) {
      for (const auto& [name, facts] : layers->items()) excluded.quantized.push_back(name);
    }
    if (!excluded.entries.empty() || !excluded.quantized.empty()) break;
  }
  return excluded;
}

}  // namespace fp8lab::experiments
