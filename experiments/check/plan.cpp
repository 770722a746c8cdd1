// SPDX-License-Identifier: Apache-2.0
// Which tensors stay as they are, and as what the others are stored.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string_view>

#include "check/check.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "kit/output.hpp"

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr double bits_as_is = 16;  // what a plan counts for tensors that stay: models are stored in bfloat16

std::string module_name(const std::string& tensor) {
  std::string name = tensor;
  constexpr std::string_view ending = ".weight";
  if (name.ends_with(ending)) name.erase(name.size() - ending.size());
  return name;
}

/// Modules with the same key are served as one: their parts share a kernel, and so a format.
std::string fused_key(const std::string& module) {
  if (const std::size_t at = module.find("experts."); at != std::string::npos) return module.substr(0, at + 7);
  struct Part {
    std::string_view name, whole;
  };
  constexpr std::array parts{
      Part{"q_proj", "qkv"},      Part{"k_proj", "qkv"}, Part{"v_proj", "qkv"}, Part{"gate_proj", "gate_up"},
      Part{"up_proj", "gate_up"}, Part{"w1", "w13"},     Part{"w3", "w13"}};
  const std::size_t dot = module.rfind('.');
  const std::size_t begin = dot == std::string::npos ? 0 : dot + 1;
  const auto* part = std::ranges::find(parts, std::string_view(module).substr(begin), &Part::name);
  if (part == parts.end()) return module;
  return module.substr(0, begin).append(part->whole);
}

/// What a group costs by one recipe, or as it is.
struct Option {
  std::optional<std::size_t> recipe = {};
  double bits = 0;   ///< of all elements
  double noise = 0;  ///< the sum over tensors of elements * noise / energy of the median row
  double sqnr_db = 0;
};

std::vector<Option> options_of(const CheckResult& result, const PlannedGroup& group) {
  std::vector<Option> options;
  double size = 0;
  for (const std::size_t tensor : group.tensors) size += static_cast<double>(result.tensors[tensor].size());
  for (std::size_t recipe = 0; recipe < result.arguments.recipes.size(); ++recipe) {
    Option option{.recipe = recipe, .sqnr_db = std::numeric_limits<double>::infinity()};
    bool is_broken = false;
    for (const std::size_t tensor : group.tensors) {
      const CheckedTensor& one = result.tensors[tensor];
      const CheckedRecipe& with = one.recipes[recipe];
      is_broken |= suitability(result.arguments, result.normal, one, recipe) == Suitability::broken;
      option.bits += with.bits_per_weight * static_cast<double>(one.size());
      if (std::isnan(with.median_row_sqnr_db)) continue;  // zeros alone
      option.sqnr_db = std::min(option.sqnr_db, with.median_row_sqnr_db);
      option.noise += static_cast<double>(one.size()) * std::pow(10, -with.median_row_sqnr_db / 10);
    }
    if (!is_broken && option.bits < bits_as_is * size) options.push_back(option);
  }
  options.push_back({.bits = bits_as_is * size, .sqnr_db = std::numeric_limits<double>::infinity()});
  std::ranges::stable_sort(options, {}, &Option::bits);
  return options;
}

/// The next option whose decrease in noise a bit is the largest; none where no other has less noise.
std::optional<std::size_t> next_on_hull(const std::vector<Option>& options, std::size_t now) {
  std::optional<std::size_t> best;
  double best_gain = 0;
  for (std::size_t i = now + 1; i < options.size(); ++i) {
    const double bits = options[i].bits - options[now].bits;
    const double less = options[now].noise - options[i].noise;
    if (bits <= 0 || less <= 0 || less / bits <= best_gain) continue;
    best_gain = less / bits;
    best = i;
  }
  return best;
}

double gain_of(const std::vector<Option>& options, std::size_t now, std::size_t next) {
  return (options[now].noise - options[next].noise) / (options[next].bits - options[now].bits);
}

/// An option of each group, by its bits.
std::vector<std::size_t> within_bits(const std::vector<std::vector<Option>>& groups, double most) {
  std::vector<std::size_t> chosen;
  double bits = 0;
  for (const std::vector<Option>& options : groups) {
    // Several options may have the fewest bits: the one with the least noise is taken.
    std::size_t first = 0;
    for (std::size_t i = 1; i < options.size() && options[i].bits == options[0].bits; ++i) {
      if (options[i].noise < options[first].noise) first = i;
    }
    chosen.push_back(first);
    bits += options[first].bits;
  }
  if (bits > most) {
    refuse("bits_per_weight is too low: these recipes take at least ", bits / most, " times as many bits");
  }
  // The largest gain that still fits, again and again.
  std::set<std::size_t> open;
  for (std::size_t i = 0; i < groups.size(); ++i) open.insert(i);
  while (!open.empty()) {
    std::optional<std::size_t> best;
    std::size_t best_next = 0;
    double best_gain = 0;
    std::vector<std::size_t> closed;
    for (const std::size_t i : open) {
      const std::optional<std::size_t> next = next_on_hull(groups[i], chosen[i]);
      if (!next || bits + groups[i][*next].bits - groups[i][chosen[i]].bits > most) {
        closed.push_back(i);
        continue;
      }
      const double gain = gain_of(groups[i], chosen[i], *next);
      if (best && gain <= best_gain) continue;
      best = i;
      best_next = *next;
      best_gain = gain;
    }
    for (const std::size_t i : closed) open.erase(i);
    if (!best) break;
    bits += groups[*best][best_next].bits - groups[*best][chosen[*best]].bits;
    chosen[*best] = best_next;
  }
  return chosen;
}

/// How both tools call what a recipe stores: the scales' tiles and types decide.
struct ToolNames {
  std::string_view strategy;   ///< of compressed-tensors
  std::string_view format;     ///< the same
  std::string_view algorithm;  ///< of ModelOpt
  std::string_view scale_dtype = {};
  std::size_t group_size = 0;
};

ToolNames tool_names(const ChosenRecipe& chosen) {
  const Recipe& recipe = chosen.recipe;
  const bool is_e4m3 = recipe.format == e4m3;
  const bool is_e2m1 = recipe.format == e2m1;
  const Format scales = scale_format_of(recipe);
  const auto is_tile = [&](std::size_t across, std::size_t along) {
    return recipe.tile_across == across && recipe.tile_along == along;
  };
  if (is_e4m3 && scales == binary32) {
    if (is_tile(0, 0)) return {"tensor", "float-quantized", "FP8"};
    if (is_tile(1, 0)) return {"channel", "float-quantized", "FP8_PER_CHANNEL_PER_TOKEN"};
    if (is_tile(128, 128)) return {"block", "float-quantized", "FP8_PB_WO", {}, 128};
  }
  if (is_tile(1, 32) && scales == e8m0) {
    if (is_e4m3) return {"group", "mxfp8-quantized", "MXFP8", "torch.uint8", 32};
    if (is_e2m1) return {"group", "mxfp4-pack-quantized", "W4A8_MXFP4_FP8", "torch.uint8", 32};
  }
  if (is_tile(1, 16) && is_e2m1 && has_tensor_scale(recipe)) {
    return {"tensor_group", "nvfp4-pack-quantized", "NVFP4", "torch.float8_e4m3fn", 16};
  }
  refuse("plan has no name of compressed-tensors and ModelOpt for ", chosen.name,
         "; give recipes of E4M3 for a tensor, a row or 128 x 128 elements, MX of E4M3 or E2M1, or NVFP4");
}

OrderedJson weights_of(const ChosenRecipe& chosen, const ToolNames& names) {
  OrderedJson weights{{"num_bits", chosen.recipe.format.bits()},
                      {"type", "float"},
                      {"strategy", names.strategy},
                      {"symmetric", true},
                      {"dynamic", false}};
  if (names.strategy == "block") weights["block_structure"] = {128, 128};
  if (names.group_size > 0 && names.strategy != "block") weights["group_size"] = names.group_size;
  if (!names.scale_dtype.empty()) weights["scale_dtype"] = names.scale_dtype;
  return weights;
}

/// The modules of each recipe, and those that stay.
struct Assignment {
  std::map<std::size_t, std::vector<std::string>> by_recipe;
  std::vector<std::string> as_is;
};

Assignment assignment_of(const CheckResult& result, const Plan& plan) {
  Assignment all;
  for (const PlannedGroup& group : plan.groups) {
    std::vector<std::string>& into = group.recipe ? all.by_recipe[*group.recipe] : all.as_is;
    into.insert(into.end(), group.modules.begin(), group.modules.end());
  }
  for (const LeftOutTensor& one : result.left_out) {
    if (one.reason.starts_with("ignore names it")) all.as_is.push_back(module_name(one.own_name));
  }
  return all;
}

OrderedJson compressed_tensors_config(const CheckResult& result, const Assignment& all) {
  OrderedJson groups = OrderedJson::object();
  std::string_view format;
  for (const auto& [recipe, modules] : all.by_recipe) {
    const ChosenRecipe& chosen = result.arguments.recipes[recipe];
    const ToolNames names = tool_names(chosen);
    OrderedJson targets = modules;
    if (all.by_recipe.size() == 1) targets = {"Linear"};
    groups["group_" + std::to_string(groups.size())] = {
        {"targets", targets}, {"weights", weights_of(chosen, names)}, {"format", names.format}};
    format = format.empty() || format == names.format ? names.format : "mixed-precision";
  }
  return {{"quant_method", "compressed-tensors"}, {"format", format}, {"config_groups", groups}, {"ignore", all.as_is}};
}

OrderedJson modelopt_config(const CheckResult& result, const Assignment& all) {
  OrderedJson quantization;
  if (all.by_recipe.size() == 1) {
    const ToolNames names = tool_names(result.arguments.recipes[all.by_recipe.begin()->first]);
    quantization["quant_algo"] = names.algorithm;
    if (names.group_size > 0) quantization["group_size"] = names.group_size;
  } else {
    quantization["quant_algo"] = "MIXED_PRECISION";
    OrderedJson layers = OrderedJson::object();
    for (const auto& [recipe, modules] : all.by_recipe) {
      const ToolNames names = tool_names(result.arguments.recipes[recipe]);
      for (const std::string& module : modules) {
        layers[module] = {{"quant_algo", names.algorithm}};
        if (names.group_size > 0) layers[module]["group_size"] = names.group_size;
      }
    }
    quantization["quantized_layers"] = layers;
  }
  quantization["kv_cache_quant_algo"] = nullptr;
  quantization["exclude_modules"] = all.as_is;
  return {{"producer", {{"name", "fp8lab"}}}, {"quantization", quantization}};
}

}  // namespace

Plan plan_of(const CheckResult& result) {
  // 1. What is fused, in the order of the first of each.
  std::map<std::string, std::size_t> places;
  Plan plan;
  double size = 0;
  for (std::size_t i = 0; i < result.tensors.size(); ++i) {
    const std::string module = module_name(result.tensors[i].own_name);
    const auto [place, is_new] = places.try_emplace(fused_key(module), plan.groups.size());
    if (is_new) plan.groups.emplace_back();
    PlannedGroup& group = plan.groups[place->second];
    group.tensors.push_back(i);
    if (group.modules.empty() || group.modules.back() != module) group.modules.push_back(module);
    size += static_cast<double>(result.tensors[i].size());
  }
  // 2. An option of each.
  std::vector<std::vector<Option>> options;
  options.reserve(plan.groups.size());
  for (const PlannedGroup& group : plan.groups) options.push_back(options_of(result, group));
  std::vector<std::size_t> chosen(options.size());
  if (result.arguments.bits_per_weight) {
    chosen = within_bits(options, *result.arguments.bits_per_weight * size);
  } else {
    for (std::size_t i = 0; i < options.size(); ++i) {
      const auto fits = [&](const Option& one) { return one.sqnr_db >= result.arguments.min_sqnr.value_or(0); };
      chosen[i] = static_cast<std::size_t>(std::ranges::find_if(options[i], fits) - options[i].begin());
    }
  }
  double bits = 0;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const Option& option = options[i][chosen[i]];
    plan.groups[i].recipe = option.recipe;
    plan.groups[i].sqnr_db = option.sqnr_db;
    bits += option.bits;
  }
  plan.bits_per_weight = bits / size;
  return plan;
}

void write_plan(const CheckResult& result, const Plan& plan, const fs::path& folder) {
  const Assignment all = assignment_of(result, plan);
  const OrderedJson compressed = compressed_tensors_config(result, all);
  const OrderedJson modelopt = modelopt_config(result, all);
  write_files(folder, {{"compressed_tensors.json", compressed.dump(2) + '\n'},
                       {"hf_quant_config.json", modelopt.dump(2) + '\n'}});
}

}  // namespace fp8lab::experiments
